"""Any sequence of events keeps the invariants, numbers groups afresh and lets epochs rise."""

from hypothesis import given, settings
from hypothesis import strategies as st

from hocket.coordinator.core import Core
from hocket.coordinator.events import (
    Disconnect,
    Effect,
    Ended,
    Event,
    Send,
    TimerFired,
    WorkerGone,
    WorkerJoins,
    WorkerSays,
)
from hocket.protocol.messages import (
    AskGroup,
    AskNamedGroup,
    BarrierArrive,
    BarrierEnds,
    BarrierLeave,
    GroupFormed,
    GroupLost,
    Heartbeat,
    HostInfo,
    LeaveGroup,
    Message,
    PeerSilent,
    SessionEnds,
    SessionJoins,
)

HOSTS = (1, 2, 3)
hosts = st.sampled_from(HOSTS)
sessions = st.integers(1, 4)
groups = st.integers(1, 8)
ranks = st.integers(-1, 3)
sizes = st.integers(-1, 3)
timeouts = st.sampled_from([0.0, 1.0, 5.0, float("inf")])
few_ranks = st.lists(st.integers(0, 2), max_size=3).map(tuple)
jobs = st.sampled_from(["x", "y"])
names = st.sampled_from(["", "pair", "world"])


def joins(host: int, instance: int) -> WorkerJoins:
    return WorkerJoins(HostInfo(host, f"host {host}", "127.0.0.1", 1, 1, f"i{instance}"))


messages = st.one_of(
    st.builds(SessionJoins, st.just(1), sessions, jobs, ranks, sizes, st.just("n"), st.integers(0, 2), timeouts),
    st.builds(SessionEnds, sessions, st.sampled_from(["left", "killed"]), st.just("")),
    st.builds(AskGroup, st.just(2), sessions, groups, few_ranks, st.integers(1, 2), names, timeouts),
    st.builds(AskNamedGroup, st.just(3), sessions, names, sizes, ranks, timeouts),
    st.builds(LeaveGroup, sessions, groups),
    st.builds(PeerSilent, hosts, st.just("")),
    st.builds(Heartbeat, st.just(0.0)),
    st.builds(BarrierArrive, groups, st.just(""), st.integers(1, 2), few_ranks, st.booleans(), st.booleans(), timeouts),
    st.builds(BarrierLeave, groups, st.just(""), st.integers(1, 2)),
)
events = st.one_of(
    st.builds(WorkerSays, hosts, messages),
    st.builds(WorkerGone, hosts, st.just("worker lost"), st.just("")),
    st.builds(joins, hosts, st.integers(0, 10**9)),
    st.just(TimerFired()),
)
steps = st.lists(st.tuples(events, st.sampled_from([0.0, 0.5, 3.0])), max_size=60)


class Observer:
    """What the workers see of it all."""

    def __init__(self) -> None:
        self.epochs: dict[tuple[str, str], int] = {}
        self.groups: set[int] = set()
        self.live: dict[int, set[int]] = {}
        self.numbers = iter(range(10, 1000))

    def see(self, effects: list[Effect]) -> None:
        formed: dict[int, GroupFormed] = {}
        for effect in effects:
            assert not isinstance(effect, Ended), "it is the core's own"
            if isinstance(effect, Disconnect):
                continue
            message: Message | None = effect.message if isinstance(effect, Send) else None
            if isinstance(message, GroupFormed):
                formed[message.info.group] = message
                self.live.setdefault(message.info.group, set()).add(effect.host)  # type: ignore[union-attr]
            elif isinstance(message, GroupLost):
                assert effect.host in self.live[message.group], "the end of a group comes once"  # type: ignore[union-attr]
                self.live[message.group].remove(effect.host)  # type: ignore[union-attr]
            elif isinstance(message, BarrierEnds) and message.error is None:
                assert message.group in self.live
        for number, message in formed.items():
            info = message.info
            assert number not in self.groups, "a group's number is used once"
            self.groups.add(number)
            assert info.epoch > self.epochs.get((info.job, info.name), 0), "epochs rise"
            self.epochs[info.job, info.name] = info.epoch


@settings(max_examples=150, deadline=None)
@given(steps)
def test_any_sequence_of_events_keeps_the_invariants(sequence: list[tuple[Event, float]]) -> None:
    core, observer, now = Core(5.0, 1.0), Observer(), 0.0
    for host in HOSTS:
        core.handle(joins(host, 0), now)
    for event, step in sequence:
        now += step
        if isinstance(event, WorkerJoins) and event.info.host in core.membership.hosts:
            continue
        observer.see(core.handle(event, now))
        core.check()
        assert core.deadline is None or core.deadline > float("-inf")
    for host in HOSTS:
        observer.see(core.handle(WorkerGone(host, "worker lost", ""), now))
    core.check()
    assert not core.membership.sessions and not core.membership.groups and not core.membership.forming
    assert not core.barriers.waiting
