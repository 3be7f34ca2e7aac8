from hocket.coordinator.core import Core
from hocket.coordinator.events import Disconnect, Log, Send, TimerFired, WorkerGone, WorkerJoins, WorkerSays
from hocket.protocol.errors import EpochEndedError, MemberLostError, error_from_facts
from hocket.protocol.messages import (
    BarrierArrive,
    BarrierEnds,
    BarrierLeave,
    GroupLost,
    Heartbeat,
    HostInfo,
    Message,
    SessionJoins,
)

HOSTS = {number: HostInfo(number, name, "127.0.0.1", 1, 1, "i") for number, name in ((1, "a"), (2, "b"))}


def pair() -> tuple[Core, int]:
    """A world of one rank on each of two hosts, and its number."""
    core = Core(5.0, 1.0)
    for info in HOSTS.values():
        core.handle(WorkerJoins(info), 0.0)
    for host in HOSTS:
        core.handle(WorkerSays(host, SessionJoins(1, 1, "x", host - 1, 2, "", 100 + host, 9.0)), 0.0)
    (number,) = core.membership.groups
    return core, number


def sent(effects: list[object]) -> list[tuple[int, Message]]:
    return [(effect.host, effect.message) for effect in effects if isinstance(effect, Send)]


def enter(core: Core, host: int, group: int, *ranks: int, monitored: bool = True) -> list[object]:
    return [*core.handle(WorkerSays(host, BarrierArrive(group, "", 1, ranks, monitored, False, 3.0)), 1.0)]


def test_a_heartbeat_is_answered_by_its_echo() -> None:
    core, _ = pair()
    assert core.handle(WorkerSays(1, Heartbeat(4.5)), 1.0) == [Send(1, Heartbeat(4.5))]
    assert core.handle(WorkerSays(9, Heartbeat(4.5)), 1.0) == []


def test_a_silent_worker_is_lost_and_told_so() -> None:
    core, group = pair()
    for second in range(1, 8):
        core.handle(WorkerSays(1, Heartbeat(0.0)), float(second))
        effects = core.handle(TimerFired(), second + 0.01)
        if effects:
            break
    assert second == 5
    ((host, message),) = sent(effects)
    assert host == 1 and isinstance(message, GroupLost) and message.group == group
    error = error_from_facts(message.error)
    assert isinstance(error, MemberLostError)
    assert (error.cause, error.detail) == ("unreachable", "its worker was silent for 5.0 s")
    assert [effect.host for effect in effects if isinstance(effect, Disconnect)] == [2]
    assert list(core.membership.hosts) == [1]


def test_a_lost_member_breaks_its_barriers_before_the_group_is_told_to_end() -> None:
    core, group = pair()
    enter(core, 1, group, 0)
    effects = sent([*core.handle(WorkerGone(2, "worker lost", ""), 2.0)])
    assert [(host, type(message)) for host, message in effects] == [(1, BarrierEnds), (1, GroupLost)]
    assert effects[0][1].error == effects[1][1].error  # type: ignore[attr-defined]
    core.check()


def test_a_barrier_s_deadline_is_the_core_s() -> None:
    core, group = pair()
    enter(core, 1, group, 0)
    core.handle(WorkerSays(2, Heartbeat(0.0)), 1.0)
    assert sent([*core.handle(TimerFired(), 3.9)]) == []
    assert [host for host, _ in sent([*core.handle(TimerFired(), 4.0)])] == [1, 2]


def test_a_plain_barrier_ends_by_a_host_s_word() -> None:
    core, group = pair()
    enter(core, 1, group, 0, monitored=False)
    assert len(core.barriers.waiting) == 1
    core.handle(WorkerSays(1, BarrierLeave(group, "", 1)), 1.0)
    assert not core.barriers.waiting


def test_a_monitored_barrier_of_a_group_that_is_gone_breaks_at_once() -> None:
    core, _ = pair()
    ((host, message),) = sent(enter(core, 1, 0, 0))
    assert host == 1 and isinstance(message, BarrierEnds) and message.error is not None
    assert isinstance(error_from_facts(message.error), EpochEndedError)
    assert enter(core, 1, 0, 0, monitored=False) == []


def test_a_host_speaks_for_its_own_members_only() -> None:
    core, group = pair()
    (effect,) = enter(core, 1, group, 0, 1)
    assert isinstance(effect, Log)
    assert not core.barriers.waiting


def test_the_deadline_is_the_first_of_all_machines() -> None:
    core = Core(5.0, 1.0)
    assert core.deadline is None
    core.handle(WorkerJoins(HOSTS[1]), 0.0)
    assert core.deadline == 1.0
    core.handle(WorkerSays(1, SessionJoins(1, 1, "x", 0, 2, "", 1, 0.25)), 0.5)
    assert core.deadline == 0.75
