"""Ring schedules keep their promises for any number of hosts."""

from functools import partial

import pytest

from hocket.worker.schedules import ring
from hocket.worker.schedules.check import Tally
from hocket.worker.schedules.choose import Kind
from hocket.worker.schedules.contract import verify
from hocket.worker.schedules.schedule import Action, Round

SIZES = range(1, 34)


@pytest.mark.parametrize("size", SIZES)
def test_all_reduce_is_complete_and_equal_everywhere_in_the_promised_rounds_and_bytes(size: int) -> None:
    outcome = verify(Kind.ALL_REDUCE, size, size, partial(ring.all_reduce, size=size))
    assert set(outcome.tallies) == {Tally(*[2 * (size - 1)] * 3)}
    assert outcome.elapsed == 2 * (size - 1)


@pytest.mark.parametrize("size", SIZES)
def test_reduce_scatter_completes_chunk_r_at_host_r_in_the_promised_rounds_and_bytes(size: int) -> None:
    outcome = verify(Kind.REDUCE_SCATTER, size, size, partial(ring.reduce_scatter, size=size))
    assert set(outcome.tallies) == {Tally(size - 1, size - 1, size - 1)}
    assert outcome.elapsed == size - 1


@pytest.mark.parametrize("size", SIZES)
def test_all_gather_brings_every_chunk_to_every_host_in_the_promised_rounds_and_bytes(size: int) -> None:
    outcome = verify(Kind.ALL_GATHER, size, size, partial(ring.all_gather, size=size))
    assert set(outcome.tallies) == {Tally(size - 1, size - 1, size - 1)}
    assert outcome.elapsed == size - 1


def test_a_host_speaks_to_its_right_and_listens_to_its_left_neighbour_only() -> None:
    for size in range(2, 9):
        for rank in range(size):
            peers = {(turn.to, turn.source) for turn in ring.all_reduce(rank, size)}
            assert peers == {((rank + 1) % size, (rank - 1) % size)}


def test_all_reduce_of_three_hosts_reads_as_in_the_paper() -> None:
    assert list(ring.all_reduce(0, 3)) == [
        Round(1, (2,), 2, (1,), Action.REDUCE),
        Round(1, (1,), 2, (0,), Action.REDUCE),
        Round(1, (0,), 2, (2,)),
        Round(1, (2,), 2, (1,)),
    ]
