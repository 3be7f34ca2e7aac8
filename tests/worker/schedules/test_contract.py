"""What collectives promise, and that `verify` notices when a promise is broken."""

from collections.abc import Iterator

import pytest

from hocket.worker.schedules import ring
from hocket.worker.schedules.check import ScheduleError
from hocket.worker.schedules.choose import Kind
from hocket.worker.schedules.contract import held_after, held_before, verify
from hocket.worker.schedules.schedule import Action, Round


def nothing(_host: int) -> Iterator[Round]:
    yield from ()


@pytest.mark.parametrize(
    ("kind", "chunks", "before", "after"),
    [
        (Kind.ALL_REDUCE, 2, [(0, 1), (0, 1)], [(0, 1), (0, 1)]),
        (Kind.REDUCE, 1, [(0,), (0,)], [(), (0,)]),
        (Kind.BROADCAST, 1, [(), (0,)], [(0,), (0,)]),
        (Kind.ALL_GATHER, 2, [(0,), (1,)], [(0, 1), (0, 1)]),
        (Kind.GATHER, 2, [(0,), (1,)], [(), (0, 1)]),
        (Kind.SCATTER, 2, [(), (0, 1)], [(0,), (1,)]),
        (Kind.REDUCE_SCATTER, 2, [(0, 1), (0, 1)], [(0,), (1,)]),
        (Kind.ALL_TO_ALL, 4, [(0, 1), (2, 3)], [(0, 2), (1, 3)]),
        (Kind.BARRIER, 0, [(), ()], [(), ()]),
    ],
)
def test_two_hosts_with_root_1_hold_before_and_after(
    kind: Kind, chunks: int, before: list[tuple[int, ...]], after: list[tuple[int, ...]]
) -> None:
    assert held_before(kind, 2, chunks, 1) == before
    assert held_after(kind, 2, chunks, 1) == after


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind is not Kind.BARRIER])
def test_doing_nothing_fulfils_no_promise_that_moves_data(kind: Kind) -> None:
    chunks = {Kind.ALL_TO_ALL: 4}.get(kind, 2)
    with pytest.raises(ScheduleError, match=r"ends with chunk \d incomplete"):
        verify(kind, 2, chunks, nothing)


def test_leaving_a_barrier_without_word_of_all_is_found() -> None:
    with pytest.raises(ScheduleError, match=r"host 0 leaves without word of hosts \[1\]"):
        verify(Kind.BARRIER, 2, 0, nothing)


def test_sums_that_are_grouped_otherwise_on_another_host_are_found() -> None:
    def everyone_to_everyone(host: int) -> Iterator[Round]:
        # Each host must send its own contribution to both others before it adds anything: chunk 0 is sent in both
        # rounds, while what arrives is added in the order of arrival.
        others = [(host + 1) % 3, (host + 2) % 3]
        for other in others:
            yield Round(other, (0,), None, ())
        for other in others:
            yield Round(None, (), other, (0,), Action.REDUCE)

    with pytest.raises(ScheduleError, match=r"host 1 has other bits in chunk 0: \(\(1\+2\)\+0\), not \(\(0\+1\)\+2\)"):
        verify(Kind.ALL_REDUCE, 3, 1, everyone_to_everyone)


def test_a_reduction_that_stops_halfway_is_found() -> None:
    with pytest.raises(ScheduleError, match="host 0 ends with chunk 1 incomplete"):
        verify(Kind.ALL_REDUCE, 4, 4, lambda host: ring.reduce_scatter(host, 4))
