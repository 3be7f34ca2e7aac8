"""The vocabulary: rounds, and the powers of two."""

import dataclasses

import pytest

from hocket.worker.schedules.schedule import Action, Round, ceil_log2, doublings, floor_power_of_two


def test_a_round_stores_unless_told_to_reduce() -> None:
    assert Round(1, (0,), None, ()).action is Action.STORE


def test_a_round_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Round(1, (0,), None, ()).to = 2  # type: ignore[misc]


def test_equal_rounds_are_equal_and_hash_alike() -> None:
    assert len({Round(1, (0,), 2, (3,)), Round(1, (0,), 2, (3,)), Round(1, (0,), 2, (3,), Action.REDUCE)}) == 2


def test_powers_of_two_agree_with_their_definitions() -> None:
    for size in range(1, 1030):
        distances = list(doublings(size))
        assert distances == [2**k for k in range(11) if 2**k < size]
        assert ceil_log2(size) == len(distances)
        assert floor_power_of_two(size) == max(2**k for k in range(11) if 2**k <= size)
