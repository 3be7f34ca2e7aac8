"""Recursive doubling keeps its promises for any number of hosts."""

from functools import partial

import pytest

from hocket.worker.schedules import recursive_doubling
from hocket.worker.schedules.check import Tally
from hocket.worker.schedules.choose import Kind
from hocket.worker.schedules.contract import verify
from hocket.worker.schedules.schedule import Action, Round


@pytest.mark.parametrize("size", range(1, 34))
def test_all_reduce_is_complete_and_equal_everywhere_in_the_promised_rounds_and_bytes(size: int) -> None:
    outcome = verify(Kind.ALL_REDUCE, size, 1, partial(recursive_doubling.all_reduce, size=size))
    doublings = size.bit_length() - 1
    extra = size - 2**doublings
    for host, tally in enumerate(outcome.tallies):
        paired, sits_out = host < 2 * extra, host < 2 * extra and host % 2 == 1
        turns = 1 if sits_out else doublings + paired
        assert tally == Tally(2 if sits_out else doublings + 2 * paired, turns, turns)
    assert outcome.elapsed == doublings + (2 if extra else 0)


def test_both_partners_of_an_exchange_send_all_they_have() -> None:
    assert list(recursive_doubling.all_reduce(2, 4)) == [
        Round(3, (0,), 3, (0,), Action.REDUCE),
        Round(0, (0,), 0, (0,), Action.REDUCE),
    ]


def test_with_three_hosts_the_second_sits_out_and_gets_the_result() -> None:
    assert list(recursive_doubling.all_reduce(1, 3)) == [Round(0, (0,), None, ()), Round(None, (), 0, (0,))]
    assert list(recursive_doubling.all_reduce(0, 3)) == [
        Round(None, (), 1, (0,), Action.REDUCE),
        Round(2, (0,), 2, (0,), Action.REDUCE),
        Round(1, (0,), None, ()),
    ]
