"""Recursive halving and doubling keeps its promises for any number of hosts."""

from functools import partial

import pytest

from hocket.worker.schedules import halving_doubling
from hocket.worker.schedules.check import Tally
from hocket.worker.schedules.choose import Kind
from hocket.worker.schedules.contract import verify
from hocket.worker.schedules.schedule import Action, Round

SIZES = range(1, 34)


@pytest.mark.parametrize("size", SIZES)
def test_all_reduce_is_complete_and_equal_everywhere_in_the_promised_rounds_and_bytes(size: int) -> None:
    core = halving_doubling.chunks(size)
    outcome = verify(Kind.ALL_REDUCE, size, core, partial(halving_doubling.all_reduce, size=size))
    doublings, extra = size.bit_length() - 1, size - core
    for host, tally in enumerate(outcome.tallies):
        paired, sits_out = host < 2 * extra, host < 2 * extra and host % 2 == 1
        chunks = core if sits_out else 2 * (core - 1) + core * paired
        assert tally == Tally(2 if sits_out else 2 * doublings + 2 * paired, chunks, chunks)
    assert outcome.elapsed == 2 * doublings + (2 if extra else 0)


def test_chunks_are_the_largest_power_of_two_that_does_not_exceed_the_hosts() -> None:
    assert [halving_doubling.chunks(size) for size in (1, 2, 3, 4, 7, 8, 33)] == [1, 2, 2, 4, 4, 8, 32]


def test_the_way_back_mirrors_the_way_there() -> None:
    assert list(halving_doubling.all_reduce(1, 4)) == [
        Round(0, (0, 1), 0, (2, 3), Action.REDUCE),
        Round(3, (3,), 3, (2,), Action.REDUCE),
        Round(3, (2,), 3, (3,)),
        Round(0, (2, 3), 0, (0, 1)),
    ]


@pytest.mark.parametrize("size", SIZES)
def test_no_round_sends_a_chunk_that_it_also_receives(size: int) -> None:
    for rank in range(size):
        assert not any(set(turn.send) & set(turn.recv) for turn in halving_doubling.all_reduce(rank, size))
