"""Barriers: who has arrived at which, and how the monitored ones end. Pure: no clock, no sockets.

Plain barriers are released by the workers among themselves; they are noted here to be looked at. The two kinds are
counted apart by their members, hence the kind in the key. A monitored barrier is decided here: released when all have
arrived, broken at the earliest deadline of those who wait, or when a member is lost. Either way it ends once, and the
same for everyone, also for those who arrive later.
"""

from collections import OrderedDict
from dataclasses import dataclass, field

from hocket.coordinator.deadlines import Deadlines
from hocket.coordinator.events import Effect, Send
from hocket.protocol.errors import DeadlineError, HocketError, Ranks, Where, error_to_facts, name_ranks
from hocket.protocol.messages import BarrierArrive, BarrierEnds, Facts, GroupInfo

ENDED_KEPT = 4096
BarrierKey = tuple[int, str, int, bool]
"""Group, channel, number, and whether it is monitored."""


@dataclass(slots=True, eq=False)
class Barrier:
    """A barrier that has not ended. ``arrived`` has the time of each rank's arrival.

    ``wait_all`` is noted for the views alone: when a deadline passes, all who are missing then are named either way.
    """

    group: GroupInfo
    channel: str
    number: int
    monitored: bool
    since_s: float
    wait_all: bool = False
    arrived: dict[int, float] = field(default_factory=dict)
    due_s: float = float("inf")
    limit_s: float = float("inf")
    token: int = 0

    @property
    def key(self) -> BarrierKey:
        """What it is known by."""
        return self.group.group, self.channel, self.number, self.monitored

    def missing(self) -> Ranks:
        """Ranks that have not arrived."""
        return tuple(rank for rank in range(len(self.group.members)) if rank not in self.arrived)

    def reason(self) -> str:
        """Why it has not ended."""
        missing = self.missing()
        return f"waiting for {len(missing)} of {len(self.group.members)}: {name_ranks(missing)}"

    def where(self) -> Where:
        """Its place, for errors."""
        operation = "monitored_barrier" if self.monitored else "barrier"
        return Where(operation, self.number, self.group.name, self.group.epoch, self.channel)


class Barriers:
    """The machine. Its barriers are for reading."""

    def __init__(self) -> None:
        self.waiting: dict[BarrierKey, Barrier] = {}
        self.released = 0
        self.broken = 0
        self._outcomes: OrderedDict[BarrierKey, Facts | None] = OrderedDict()
        self._plain_ended: OrderedDict[BarrierKey, Facts | None] = OrderedDict()
        self._deadlines: Deadlines[Barrier] = Deadlines()

    @property
    def deadline(self) -> float | None:
        """When to call `expire`."""
        return self._deadlines.first

    def arrive(self, host: int, group: GroupInfo, message: BarrierArrive, now: float) -> list[Effect]:
        """Ranks of a host have entered a barrier of a living group; they have been checked to be members there."""
        key = (message.group, message.channel, message.number, message.monitored)
        if key in self._outcomes:
            return [Send(host, BarrierEnds(*key[:3], self._outcomes[key]))]
        if not message.ranks or key in self._plain_ended:
            return []
        barrier = self.waiting.get(key)
        if barrier is None:
            barrier = Barrier(group, message.channel, message.number, message.monitored, now)
            barrier.token = self._deadlines.add(float("inf"), barrier)
            self.waiting[key] = barrier
        for rank in message.ranks:
            barrier.arrived.setdefault(rank, now)
        barrier.wait_all |= message.wait_all
        if not barrier.missing():
            return self._end(barrier, None)
        self._shorten(barrier, message, now)
        return []

    def _shorten(self, barrier: Barrier, message: BarrierArrive, now: float) -> None:
        limit_s = message.timeout_s if message.timeout_s > 0 else 0.0  # also where it is not a number
        if barrier.monitored and now + limit_s < barrier.due_s:
            barrier.due_s, barrier.limit_s = now + limit_s, limit_s
            self._deadlines.discard(barrier.token)
            barrier.token = self._deadlines.add(barrier.due_s, barrier)

    def leave(self, key: tuple[int, str, int]) -> list[Effect]:
        """A host says that a plain barrier has ended there without us."""
        barrier = self.waiting.get((*key, False))
        if barrier is not None:
            self._drop(barrier, None)
        return []

    def expire(self, now: float) -> list[Effect]:
        """Breaks what is due."""
        effects: list[Effect] = []
        while (barrier := self._deadlines.pop_due(now)) is not None:
            error = DeadlineError(barrier.limit_s, barrier.missing()).at(barrier.where())
            effects += self._end(barrier, error)
        return effects

    def group_ended(self, group: int, errors: dict[int, Facts]) -> list[Effect]:
        """A group's epoch is over: its monitored barriers break, for each host with its own error."""
        effects: list[Effect] = []
        for barrier in [barrier for barrier in self.waiting.values() if barrier.group.group == group]:
            if barrier.monitored:
                self.broken += 1
                effects += [Send(host, BarrierEnds(*barrier.key[:3], error)) for host, error in errors.items()]
            self._drop(barrier, None)
        for ended in (self._outcomes, self._plain_ended):
            for key in [key for key in ended if key[0] == group]:
                del ended[key]  # nobody can arrive any more
        return effects

    def _end(self, barrier: Barrier, error: HocketError | None) -> list[Effect]:
        facts = None if error is None else error_to_facts(error)
        self._drop(barrier, facts)
        if error is None:
            self.released += 1
        else:
            self.broken += 1
        if not barrier.monitored:
            return []
        return [Send(host.host, BarrierEnds(*barrier.key[:3], facts)) for host in barrier.group.hosts]

    def _drop(self, barrier: Barrier, outcome: Facts | None) -> None:
        self._deadlines.discard(barrier.token)
        del self.waiting[barrier.key]
        ended = self._outcomes if barrier.monitored else self._plain_ended
        ended[barrier.key] = outcome
        while len(ended) > ENDED_KEPT:
            ended.popitem(last=False)

    def check(self) -> None:
        """Asserts what holds between any two events."""
        for key, barrier in self.waiting.items():
            assert barrier.key == key and barrier.arrived and barrier.missing(), f"barrier {key} should have ended"
            assert key not in self._outcomes and key not in self._plain_ended, f"barrier {key} has ended and waits"
        assert len(self._deadlines) == len(self.waiting), "every barrier has a deadline, and nothing else has"
        assert max(len(self._outcomes), len(self._plain_ended)) <= ENDED_KEPT, "the past grows without bound"
