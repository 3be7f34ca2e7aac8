"""Folding lets algorithms for powers of two serve any number of hosts."""

from collections.abc import Iterator

import pytest

from hocket.worker.schedules.folding import folded
from hocket.worker.schedules.schedule import Action, Round


def pass_on(place: int, core: int) -> Iterator[Round]:
    """A round that tells the places of a core apart: send to the next one, receive from the one before."""
    yield Round((place + 1) % core, (0,), (place - 1) % core, (0,))


def test_a_power_of_two_is_left_alone() -> None:
    for rank in range(8):
        assert list(folded(rank, 8, (0,), pass_on)) == list(pass_on(rank, 8))


def test_the_odd_host_of_a_pair_only_hands_over_and_takes_back() -> None:
    assert list(folded(3, 6, (0, 1), pass_on)) == [Round(2, (0, 1), None, ()), Round(None, (), 2, (0, 1))]


def test_the_even_host_of_a_pair_works_for_both() -> None:
    assert list(folded(2, 6, (0, 1), pass_on)) == [
        Round(None, (), 3, (0, 1), Action.REDUCE),
        Round(4, (0,), 0, (0,)),
        Round(3, (0, 1), None, ()),
    ]


def test_a_host_without_a_partner_knows_the_others_by_their_ranks() -> None:
    assert list(folded(5, 6, (0, 1), pass_on)) == [Round(0, (0,), 4, (0,))]


def test_rounds_without_a_peer_on_one_side_stay_so() -> None:
    def first_to_second(place: int, _core: int) -> Iterator[Round]:
        if place < 2:
            yield Round(None, (), 0, (0,)) if place else Round(1, (0,), None, ())

    assert list(folded(4, 5, (0,), first_to_second)) == []
    assert list(folded(2, 5, (0,), first_to_second)) == [Round(None, (), 0, (0,))]


@pytest.mark.parametrize("size", range(1, 34))
def test_every_place_of_the_core_is_taken_once(size: int) -> None:
    places = []

    def note(place: int, core: int) -> Iterator[Round]:
        places.append((place, core))
        yield from ()

    for rank in range(size):
        list(folded(rank, size, (0,), note))
    core = 2 ** (size.bit_length() - 1)
    assert places == [(place, core) for place in range(core)]
