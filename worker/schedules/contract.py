"""What each kind of collective promises: who holds which chunks before, and who holds what after.

`verify` executes the schedules of all hosts with symbols and compares; the rules that hold for any schedule are in
`check.py`.
"""

from collections.abc import Callable, Iterator

from hocket.worker.schedules.check import Outcome, ScheduleError, Value, each_message_takes_one, simulate
from hocket.worker.schedules.choose import Kind
from hocket.worker.schedules.schedule import Round

REDUCTIONS = (Kind.ALL_REDUCE, Kind.REDUCE, Kind.REDUCE_SCATTER)


def held_before(kind: Kind, size: int, chunks: int, root: int = 0) -> list[tuple[int, ...]]:
    """For each host, the ids of the chunks that it holds at the start.

    In a reduction that is all of them, with the host's own contribution in each.
    """
    every, hosts = tuple(range(chunks)), range(size)
    match kind:
        case Kind.ALL_REDUCE | Kind.REDUCE | Kind.REDUCE_SCATTER:
            return [every for _ in hosts]
        case Kind.BROADCAST | Kind.SCATTER:
            return [every if host == root else () for host in hosts]
        case Kind.ALL_GATHER | Kind.GATHER:
            return [(host,) for host in hosts]
        case Kind.ALL_TO_ALL:
            return [tuple(range(host * size, (host + 1) * size)) for host in hosts]
        case Kind.BARRIER:
            return [() for _ in hosts]


def held_after(kind: Kind, size: int, chunks: int, root: int = 0) -> list[tuple[int, ...]]:
    """For each host, the ids of the chunks that it must hold complete at the end; what else it holds is scratch."""
    every, hosts = tuple(range(chunks)), range(size)
    match kind:
        case Kind.ALL_REDUCE | Kind.BROADCAST | Kind.ALL_GATHER:
            return [every for _ in hosts]
        case Kind.REDUCE | Kind.GATHER:
            return [every if host == root else () for host in hosts]
        case Kind.REDUCE_SCATTER | Kind.SCATTER:
            return [(host,) for host in hosts]
        case Kind.ALL_TO_ALL:
            return [tuple(range(host, size * size, size)) for host in hosts]
        case Kind.BARRIER:
            return [() for _ in hosts]


def verify(
    kind: Kind,
    size: int,
    chunks: int,
    rounds: Callable[[int], Iterator[Round]],
    root: int = 0,
    *,
    buffered: bool = True,
    duration: Callable[[int], float] = each_message_takes_one,
) -> Outcome:
    """Executes a collective among `size` hosts and checks that it does what its kind promises.

    Args:
        chunks: number of chunks that the schedules work on.
        rounds: gives the schedule of a host by its index.
        buffered, duration: as for `simulate`.

    Raises:
        ScheduleError: a chunk is absent or incomplete, or differs between hosts; a host leaves a barrier too early;
            or a rule of `simulate` is broken.
    """
    sums = kind in REDUCTIONS
    before = held_before(kind, size, chunks, root)
    initial = [{chunk: Value.of(host if sums else chunk) for chunk in before[host]} for host in range(size)]
    outcome = simulate(map(rounds, range(size)), initial, buffered=buffered, duration=duration)
    everybody = frozenset(range(size))
    first_seen: dict[int, Value] = {}
    for host, ids in enumerate(held_after(kind, size, chunks, root)):
        for chunk in ids:
            value = outcome.contents[host].get(chunk)
            if value is None or value.contributions != (everybody if sums else {chunk}):
                raise ScheduleError(f"host {host} ends with chunk {chunk} incomplete: {value}")
            first = first_seen.setdefault(chunk, value)
            if value != first:
                raise ScheduleError(f"host {host} has other bits in chunk {chunk}: {value.form}, not {first.form}")
        if kind is Kind.BARRIER and outcome.heard[host] != everybody:
            raise ScheduleError(f"host {host} leaves without word of hosts {sorted(everybody - outcome.heard[host])}")
    return outcome
