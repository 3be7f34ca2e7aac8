"""Doorbells: who sleeps is woken, who is awake is left alone."""

import os
import select
from collections.abc import Iterator

import pytest

from hocket.fabric.arena import PAGE_NBYTES, Arena
from hocket.fabric.bells import Bells, make_bell


@pytest.fixture
def pair() -> Iterator[tuple[Bells, Bells]]:
    """Two processes' views of one host's bells: the first owns place 1, the second place 2."""
    page = Arena.create("bells", PAGE_NBYTES)
    first, second = Bells(page), Bells(Arena.attach(os.dup(page.fd)))
    one, two = make_bell(), make_bell()
    first.add(1, one)
    first.add(2, os.dup(two))
    second.add(1, os.dup(one))
    second.add(2, two)
    yield first, second
    first.close()
    second.close()


def rung(bells: Bells, place: int) -> bool:
    return bool(select.select([bells.fds[place]], [], [], 0)[0])


def test_a_sleeper_is_woken_by_a_ring_from_another_process(pair: tuple[Bells, Bells]) -> None:
    first, second = pair
    first.lie_down(1)
    assert not rung(first, 1)
    second.ring((1,))
    assert rung(first, 1)
    first.get_up(1)
    assert not rung(first, 1)


def test_nobody_rings_for_those_that_are_awake(pair: tuple[Bells, Bells]) -> None:
    first, second = pair
    second.ring((1, 2))
    assert not rung(first, 1) and not rung(second, 2)
    first.lie_down(1)
    first.get_up(1)
    second.ring((1,))
    assert not rung(first, 1)


def test_a_ring_reaches_the_places_that_are_named_and_no_others(pair: tuple[Bells, Bells]) -> None:
    first, second = pair
    first.lie_down(1)
    second.lie_down(2)
    first.ring((2,))
    assert rung(second, 2) and not rung(first, 1)


def test_rings_that_come_together_are_emptied_at_once(pair: tuple[Bells, Bells]) -> None:
    first, second = pair
    first.lie_down(1)
    for _ in range(3):
        second.ring((1,))
    first.get_up(1)
    assert not rung(first, 1)


def test_a_bell_that_is_full_wakes_all_the_same(pair: tuple[Bells, Bells]) -> None:
    first, second = pair
    first.lie_down(1)
    os.eventfd_write(first.fds[1], 2**64 - 2)
    second.ring((1,))
    assert rung(first, 1)


def test_a_place_whose_bell_is_not_known_is_passed_over(pair: tuple[Bells, Bells]) -> None:
    first, second = pair
    first.lie_down(1)
    second.remove(1)
    second.ring((1, 3))
    second.remove(1)
    assert not rung(first, 1)


def test_a_new_bell_takes_the_place_of_the_old_one_which_is_closed(pair: tuple[Bells, Bells]) -> None:
    first, _ = pair
    old, new = first.fds[2], make_bell()
    first.add(2, new)
    assert first.fds[2] == new
    with pytest.raises(OSError):
        os.fstat(old)


def test_closing_closes_every_descriptor() -> None:
    bells = Bells(Arena.create("bells", PAGE_NBYTES))
    fds = [make_bell(), make_bell(), bells.page.fd]
    bells.add(1, fds[0])
    bells.add(2, fds[1])
    bells.close()
    for fd in fds:
        with pytest.raises(OSError):
            os.fstat(fd)
