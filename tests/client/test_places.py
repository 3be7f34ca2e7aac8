"""Which rank of a group a caller means, and what it is told where there is none."""

import re
from typing import Any

import numpy as np
import pytest

from hocket.client.places import NOWHERE, Place, check_member, in_world_ranks, resolve
from hocket.protocol.errors import (
    AbortedError,
    ArgumentError,
    ArgumentTypeError,
    DeadlineAbortedError,
    DeadlineError,
    HocketError,
    Member,
    MemberLostError,
    MismatchError,
    error_from_facts,
    error_to_facts,
)

WORLD = Place("world", 2, 4, (0, 1, 2, 3), 2)
PAIR = Place("pair", 0, 2, (1, 2), 1)
SERVICES = Place("services", 1, 3, (NOWHERE,) * 3)
MIXED = Place("mixed", 0, 3, (NOWHERE, 5, 7))


@pytest.mark.parametrize(
    ("place", "world", "group_rank", "found"),
    [
        (WORLD, 0, None, 0),
        (WORLD, 3, None, 3),
        (WORLD, None, 3, 3),
        (WORLD, None, None, 0),
        (PAIR, 1, None, 0),
        (PAIR, 2, None, 1),
        (PAIR, None, 0, 0),
        (PAIR, None, 1, 1),
        (SERVICES, 2, None, 2),
        (SERVICES, None, 2, 2),
        (SERVICES, None, None, 0),
        (MIXED, 7, None, 2),
        (MIXED, None, 0, 0),
        (PAIR, np.int64(2), None, 1),
        (PAIR, None, np.uint8(1), 1),
    ],
)
def test_world_ranks_and_group_ranks_name_the_same_members(
    place: Place, world: int | None, group_rank: int | None, found: int
) -> None:
    for name in ("src", "dst"):
        rank = resolve(place, name, world, group_rank)
        assert (rank, type(rank)) == (found, int)


def refusal(place: Place, world: Any, group_rank: Any = None, default: int | None = 0) -> ArgumentError:
    with pytest.raises(ArgumentError) as caught:
        resolve(place, "dst", world, group_rank, default)
    return caught.value


def test_a_world_rank_that_is_no_member_is_named_with_the_members() -> None:
    error = refusal(PAIR, 0)
    assert (error.argument, error.given) == ("dst", "0")
    assert "[1, 2]" in str(error)
    assert "'group_dst'" in error.allowed


@pytest.mark.parametrize("world", [-1, -2, 3, 4, 1 << 70])
def test_a_world_rank_out_of_range_is_refused_and_never_counted_from_the_end(world: int) -> None:
    assert refusal(PAIR, world).given == str(world)


def test_a_member_without_a_world_is_not_found_by_the_mark_that_it_has_none() -> None:
    error = refusal(MIXED, NOWHERE)
    assert "[5, 7]" in error.allowed


@pytest.mark.parametrize("group_rank", [-1, 2, 100])
def test_a_group_rank_out_of_range_is_named_with_the_range(group_rank: int) -> None:
    error = refusal(PAIR, None, group_rank)
    assert (error.argument, error.given) == ("group_dst", str(group_rank))
    assert "from 0 to 1" in error.allowed


@pytest.mark.parametrize(("world", "group_rank"), [(1, 0), (0, 0), (5, 5)])
def test_giving_both_is_refused_even_where_they_agree(world: int, group_rank: int) -> None:
    error = refusal(PAIR, world, group_rank)
    assert error.argument == "dst"
    assert "not both" in error.allowed
    assert f"'group_dst' is {group_rank}" in error.given


@pytest.mark.parametrize("rank", [True, False, np.True_, 1.0, "1", [1], object(), np.float64(1), np.arange(2)])
def test_what_is_no_whole_number_is_refused_by_type(rank: Any) -> None:
    for world, group_rank, argument in ((rank, None, "dst"), (None, rank, "group_dst")):
        error = refusal(PAIR, world, group_rank)
        assert isinstance(error, ArgumentTypeError)
        assert error.argument == argument
        assert type(rank).__name__ in error.given


def test_a_default_outside_the_group_asks_for_the_root() -> None:
    error = refusal(PAIR, None)
    assert error.given == "not given, and its default, rank 0, is not in group [1, 2]"
    assert "one of [1, 2]" in error.allowed


def test_without_a_default_the_root_must_be_named() -> None:
    assert refusal(WORLD, None, default=None).given == "not given"
    assert resolve(WORLD, "src", 2, None, None) == 2


def test_another_default_is_a_world_rank_too() -> None:
    assert resolve(PAIR, "src", None, None, 2) == 1


def test_a_group_of_which_the_caller_is_no_member_says_who_is() -> None:
    with pytest.raises(ArgumentError, match=r"rank 0 is not in group \[1, 2\]"):
        check_member(Place("pair", NOWHERE, 2, (1, 2), world_rank=0))
    with pytest.raises(ArgumentError, match=r"this rank is not in group \[0, 1\]"):
        check_member(Place("services", NOWHERE, 2, (NOWHERE, NOWHERE)))


@pytest.mark.parametrize("place", [WORLD, PAIR, SERVICES, MIXED])
def test_members_may_call(place: Place) -> None:
    check_member(place)


def test_users_know_members_by_their_world_rank_where_they_have_one() -> None:
    assert [PAIR.shown(rank) for rank in range(2)] == [1, 2]
    assert [SERVICES.shown(rank) for rank in range(3)] == [0, 1, 2]
    assert [MIXED.shown(rank) for rank in range(3)] == [0, 5, 7]


def test_a_large_group_is_listed_briefly() -> None:
    place = Place("large", 0, 1000, tuple(range(1, 1001)), 1)
    assert place.members == "[1, 2, 3, 4, 5, 6, 7, 8, ..., 1000] (1000 in all)"
    assert len(str(refusal(place, 0))) < 300


ERRORS: list[HocketError] = [
    MismatchError((((0,), "barrier()"), ((1,), "scan()")), "rank 0 sends 2 to rank 1, rank 1 expects 1"),
    DeadlineError(2.0, (1,)),
    AbortedError(0, "cancelled"),
    DeadlineAbortedError(1, 2.0, (0,)),
    MemberLostError((Member(1, "host", 17),), "killed"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.code)
def test_errors_name_members_by_the_ranks_that_users_know(error: HocketError) -> None:
    facts = error_to_facts(error)
    before, after = str(error), str(in_world_ranks(error_from_facts(facts), PAIR))
    assert re.findall(r"rank (\d)", after) == [str(int(rank) + 1) for rank in re.findall(r"rank (\d)", before)]
    assert re.findall(r"rank (\d)", before) != []
    for place in (SERVICES, WORLD):
        assert str(in_world_ranks(error_from_facts(facts), place)) == before
