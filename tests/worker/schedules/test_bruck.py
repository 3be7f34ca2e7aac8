"""Bruck's algorithms keep their promises for any number of hosts."""

from functools import partial

import pytest

from hocket.worker.schedules import bruck
from hocket.worker.schedules.check import Tally
from hocket.worker.schedules.choose import Kind
from hocket.worker.schedules.contract import verify
from hocket.worker.schedules.schedule import Round, ceil_log2

SIZES = range(1, 34)


@pytest.mark.parametrize("size", SIZES)
def test_all_gather_brings_every_chunk_to_every_host_in_the_promised_rounds_and_bytes(size: int) -> None:
    outcome = verify(Kind.ALL_GATHER, size, size, partial(bruck.all_gather, size=size))
    assert set(outcome.tallies) == {Tally(ceil_log2(size), size - 1, size - 1)}
    assert outcome.elapsed == ceil_log2(size)


@pytest.mark.parametrize("size", SIZES)
def test_all_to_all_delivers_every_chunk_in_the_promised_rounds_and_bytes(size: int) -> None:
    outcome = verify(Kind.ALL_TO_ALL, size, size * size, partial(bruck.all_to_all, size=size))
    hops = sum(bin(distance).count("1") for distance in range(size))
    assert set(outcome.tallies) == {Tally(ceil_log2(size), hops, hops)}
    assert outcome.elapsed == ceil_log2(size)


def test_all_gather_sends_in_the_last_round_only_what_the_peer_lacks() -> None:
    assert list(bruck.all_gather(4, 5)) == [
        Round(3, (4,), 0, (0,)),
        Round(2, (4, 0), 1, (1, 2)),
        Round(0, (4,), 3, (3,)),
    ]


def test_all_to_all_forwards_a_chunk_under_its_own_id_through_a_third_host() -> None:
    from_0_to_3 = 3
    hops = [(rank, turn.to) for rank in range(4) for turn in bruck.all_to_all(rank, 4) if from_0_to_3 in turn.send]
    assert hops == [(0, 1), (1, 3)]


def test_all_to_all_sends_half_the_array_a_round_for_a_power_of_two() -> None:
    assert [len(turn.send) for turn in bruck.all_to_all(5, 16)] == [8, 8, 8, 8]
