"""Executes schedules with symbols for data, and finds every rule that they break.

A `Value` remembers which contributions went into it and how they were added up. Two hosts that end with equal
values end with the same bits in floating point, provided that adding is commutative; it need not be associative.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hocket.worker.schedules.schedule import Action, Round


class ScheduleError(AssertionError):
    """Schedules that do not fit together: a defect in them, never a mistake of a user or a peer."""


@dataclass(frozen=True, slots=True)
class Value:
    """What a chunk holds: its contributions, and the sum as it was formed, equal for a+b and b+a."""

    contributions: frozenset[int]
    form: str

    @classmethod
    def of(cls, contribution: int) -> "Value":
        """A contribution by itself."""
        return cls(frozenset((contribution,)), str(contribution))

    def plus(self, other: "Value") -> "Value":
        """The sum of both. Raises `ScheduleError` where a contribution is in both."""
        twice = self.contributions & other.contributions
        if twice:
            raise ScheduleError(f"contributions {sorted(twice)} used twice in {self.form} + {other.form}")
        first, second = sorted((self.form, other.form))
        return Value(self.contributions | other.contributions, f"({first}+{second})")


class Tally(NamedTuple):
    """What one host did: rounds, and chunks sent and received (the same chunk counts each time)."""

    rounds: int
    sent: int
    received: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a simulation ended, host by host.

    Args:
        contents: chunk id to value.
        heard: hosts that a host has heard of, directly or through others, itself included.
        tallies: rounds and chunks.
        elapsed: when the last host was done, in units of the `duration` given to `simulate`.
    """

    contents: tuple[dict[int, Value], ...]
    heard: tuple[frozenset[int], ...]
    tallies: tuple[Tally, ...]
    elapsed: float


def each_message_takes_one(_chunks: int) -> float:
    """The duration that makes `Outcome.elapsed` the number of rounds on the longest chain of messages."""
    return 1.0


def simulate(
    schedules: Iterable[Iterator[Round]],
    initial: Sequence[Mapping[int, Value]],
    *,
    buffered: bool = True,
    duration: Callable[[int], float] = each_message_takes_one,
) -> Outcome:
    """Executes one schedule for each host, with messages in order from each host to each other one.

    Args:
        schedules: rounds of host 0, 1, ...
        initial: for each host, what its chunks hold at the start; a host lacks the chunks not named.
        buffered: False: a message leaves only once its receiver waits for it.
        duration: time that a message of so many chunks keeps its sender, and its receiver, busy.

    Returns:
        The final contents and counts. They do not depend on the order in which hosts proceed.

    Raises:
        ScheduleError: deadlock; a message that is not what its receiver expects, or that nobody receives; a chunk
            sent or reduced that its host lacks; a contribution added twice; a round without sense.
    """
    simulation = _Simulation(schedules, initial, buffered, duration)
    simulation.run()
    hosts = simulation.hosts
    return Outcome(
        tuple(host.contents for host in hosts),
        tuple(host.heard for host in hosts),
        tuple(Tally(host.rounds, host.sent, host.received) for host in hosts),
        max((host.clock for host in hosts), default=0.0),
    )


@dataclass(slots=True)
class _Message:
    chunks: tuple[int, ...]
    values: tuple[Value, ...]
    heard: frozenset[int]
    start: float
    """When the sender's round began."""
    end: float | None
    """When the sender is rid of it; None: not taken yet."""


@dataclass(slots=True)
class _Host:
    index: int
    schedule: Iterator[Round]
    contents: dict[int, Value]
    heard: frozenset[int]
    clock: float = 0.0
    rounds: int = 0
    sent: int = 0
    received: int = 0
    now: Round | None = None
    """The round under way."""
    outgoing: _Message | None = None
    waiting: bool = False
    arrival: float = 0.0
    done: bool = False

    def __str__(self) -> str:
        return f"host {self.index}, round {self.rounds}"


class _Simulation:
    def __init__(
        self,
        schedules: Iterable[Iterator[Round]],
        initial: Sequence[Mapping[int, Value]],
        buffered: bool,
        duration: Callable[[int], float],
    ) -> None:
        pairs = enumerate(zip(schedules, initial, strict=True))
        self.hosts = [_Host(i, schedule, dict(held), frozenset((i,))) for i, (schedule, held) in pairs]
        self.buffered, self.duration = buffered, duration
        self.links: defaultdict[tuple[int, int], deque[_Message]] = defaultdict(deque)

    def run(self) -> None:
        moved = True
        while moved:
            moved = False
            for host in self.hosts:
                while self._advance(host):
                    moved = True
        stuck = [f"{host}, waits in {host.now}" for host in self.hosts if not host.done]
        if stuck:
            raise ScheduleError(f"deadlock: {'; '.join(stuck)}")
        left = [f"{source} to {to}: {message.chunks}" for (source, to), link in self.links.items() for message in link]
        if left:
            raise ScheduleError(f"messages that nobody received: {'; '.join(left)}")

    def _advance(self, host: _Host) -> bool:
        """Makes one move for this host. False: it is done, or has to wait for another host."""
        if host.now is None:
            return self._begin(host)
        if host.waiting:
            return self._receive(host, host.now)
        departure = host.outgoing.end if host.outgoing else host.clock
        if departure is None:
            return False
        host.clock = max(departure, host.arrival)
        host.now = host.outgoing = None
        return True

    def _begin(self, host: _Host) -> bool:
        if host.done:
            return False
        host.now = next(host.schedule, None)
        if host.now is None:
            host.done = True
            return False
        host.rounds += 1
        self._check_round(host, host.now)
        host.waiting, host.arrival = host.now.source is not None, host.clock
        if host.now.to is not None:
            self._send(host, host.now.to, host.now.send)
        return True

    def _check_round(self, host: _Host, now: Round) -> None:
        for peer in (now.to, now.source):
            if peer is not None and (peer == host.index or not 0 <= peer < len(self.hosts)):
                raise ScheduleError(f"{host}: no such peer in {now}")
        if now.to is None and now.source is None:
            raise ScheduleError(f"{host}: idle, which takes no round")
        if (now.to is None and now.send) or (now.source is None and now.recv):
            raise ScheduleError(f"{host}: chunks without a peer in {now}")
        if len(set(now.send)) < len(now.send) or len(set(now.recv)) < len(now.recv):
            raise ScheduleError(f"{host}: a chunk twice in one message, {now}")

    def _send(self, host: _Host, to: int, chunks: tuple[int, ...]) -> None:
        lacking = [chunk for chunk in chunks if chunk not in host.contents]
        if lacking:
            raise ScheduleError(f"{host}: sends chunks {lacking} that it does not hold")
        values = tuple(host.contents[chunk] for chunk in chunks)
        end = host.clock + self.duration(len(chunks)) if self.buffered else None
        host.outgoing = _Message(chunks, values, host.heard, host.clock, end)
        host.sent += len(chunks)
        self.links[host.index, to].append(host.outgoing)

    def _receive(self, host: _Host, now: Round) -> bool:
        assert now.source is not None, "waits without a source"
        link = self.links[now.source, host.index]
        if not link:
            return False
        message = link.popleft()
        if message.chunks != now.recv:
            raise ScheduleError(f"{host}: expects {now.recv} from host {now.source}, gets {message.chunks}")
        for chunk, value in zip(message.chunks, message.values, strict=True):
            if now.action is Action.STORE:
                host.contents[chunk] = value
            elif chunk not in host.contents:
                raise ScheduleError(f"{host}: reduces into chunk {chunk} that it does not hold")
            else:
                host.contents[chunk] = host.contents[chunk].plus(value)
        host.heard |= message.heard
        host.received += len(message.chunks)
        host.arrival = max(host.clock, message.start) + self.duration(len(message.chunks))
        if message.end is None:
            message.end = host.arrival
        host.waiting = False
        return True
