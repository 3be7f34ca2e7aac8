"""Pairwise exchange keeps its promises for any number of hosts."""

from functools import partial

import pytest

from hocket.worker.schedules import pairwise
from hocket.worker.schedules.check import Tally
from hocket.worker.schedules.choose import Kind
from hocket.worker.schedules.contract import verify
from hocket.worker.schedules.schedule import Round


@pytest.mark.parametrize("size", range(1, 34))
def test_all_to_all_delivers_every_chunk_in_the_promised_rounds_and_bytes(size: int) -> None:
    outcome = verify(Kind.ALL_TO_ALL, size, size * size, partial(pairwise.all_to_all, size=size))
    assert set(outcome.tallies) == {Tally(size - 1, size - 1, size - 1)}
    assert outcome.elapsed == size - 1


def test_hosts_exchange_in_pairs_when_their_number_is_a_power_of_two() -> None:
    for size in (2, 4, 8, 16):
        for rank in range(size):
            assert [turn.to for turn in pairwise.all_to_all(rank, size)] == [rank ^ step for step in range(1, size)]
            assert all(turn.to == turn.source for turn in pairwise.all_to_all(rank, size))


def test_hosts_shift_when_their_number_is_no_power_of_two() -> None:
    assert list(pairwise.all_to_all(1, 3)) == [Round(2, (5,), 0, (1,)), Round(0, (3,), 2, (7,))]


def test_chunks_go_straight_from_source_to_destination() -> None:
    for size in range(2, 10):
        for rank in range(size):
            for turn in pairwise.all_to_all(rank, size):
                assert [divmod(chunk, size) for chunk in turn.send] == [(rank, turn.to)]
