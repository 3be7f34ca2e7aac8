"""Binomial trees keep their promises for any number of hosts and any root."""

from functools import partial

import pytest

from hocket.worker.schedules import binomial
from hocket.worker.schedules.choose import Kind
from hocket.worker.schedules.contract import verify
from hocket.worker.schedules.schedule import Action, Round, ceil_log2

SIZES = range(1, 34)


def roots_of(size: int) -> list[int]:
    return list(range(size)) if size <= 17 else sorted({0, 1, size // 2, size - 1})


@pytest.mark.parametrize("size", SIZES)
def test_broadcast_brings_the_array_from_any_root_to_all_in_the_promised_rounds_and_bytes(size: int) -> None:
    for root in roots_of(size):
        outcome = verify(Kind.BROADCAST, size, 1, partial(binomial.broadcast, size=size, root=root), root)
        assert outcome.elapsed == ceil_log2(size)
        assert outcome.tallies[root].sent == ceil_log2(size)
        for host, tally in enumerate(outcome.tallies):
            assert tally.received == (host != root)
            assert tally.rounds == tally.sent + tally.received


@pytest.mark.parametrize("size", SIZES)
def test_reduce_brings_every_contribution_to_any_root_in_the_promised_rounds_and_bytes(size: int) -> None:
    for root in roots_of(size):
        outcome = verify(Kind.REDUCE, size, 1, partial(binomial.reduce, size=size, root=root), root)
        assert outcome.elapsed == ceil_log2(size)
        assert outcome.tallies[root].received == ceil_log2(size)
        for host, tally in enumerate(outcome.tallies):
            assert tally.sent == (host != root)
            assert tally.rounds == tally.sent + tally.received


@pytest.mark.parametrize("size", SIZES)
def test_gather_brings_every_chunk_to_any_root_in_the_promised_rounds_and_bytes(size: int) -> None:
    for root in roots_of(size):
        rounds = partial(binomial.gather, size=size, root=root)
        outcome = verify(Kind.GATHER, size, size, rounds, root)
        assert outcome.elapsed == ceil_log2(size)
        assert outcome.tallies[root].received == size - 1
        for host, tally in enumerate(outcome.tallies):
            assert tally.sent == (0 if host == root else tally.received + 1)
        assert verify(Kind.GATHER, size, size, rounds, root, duration=float).elapsed == size - 1


@pytest.mark.parametrize("size", SIZES)
def test_scatter_brings_chunk_r_from_any_root_to_host_r_in_the_promised_rounds_and_bytes(size: int) -> None:
    for root in roots_of(size):
        rounds = partial(binomial.scatter, size=size, root=root)
        outcome = verify(Kind.SCATTER, size, size, rounds, root)
        assert outcome.elapsed == ceil_log2(size)
        assert outcome.tallies[root].sent == size - 1
        for host, tally in enumerate(outcome.tallies):
            assert tally.received == (0 if host == root else tally.sent + 1)
        assert verify(Kind.SCATTER, size, size, rounds, root, duration=float).elapsed == size - 1


def test_the_largest_sub_tree_is_served_first_and_awaited_last() -> None:
    assert [turn.to for turn in binomial.broadcast(0, 6, 0)] == [4, 2, 1]
    assert [turn.source for turn in binomial.reduce(0, 6, 0)] == [1, 2, 4]


def test_sub_trees_are_forwarded_whole() -> None:
    assert list(binomial.scatter(1, 6, 3)) == [  # at place 4 of 6, with place 5, host 2, below it
        Round(None, (), 3, (1, 2)),
        Round(2, (2,), None, ()),
    ]
    assert list(binomial.gather(1, 6, 3)) == [
        Round(None, (), 2, (2,)),
        Round(3, (1, 2), None, ()),
    ]


def test_only_reduce_reduces() -> None:
    assert {turn.action for turn in binomial.reduce(0, 8, 0)} == {Action.REDUCE}
    assert {turn.action for turn in binomial.gather(0, 8, 0)} == {Action.STORE}
