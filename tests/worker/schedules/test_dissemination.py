"""The dissemination barrier keeps its promises for any number of hosts."""

from functools import partial

import pytest

from hocket.worker.schedules import dissemination
from hocket.worker.schedules.check import Tally
from hocket.worker.schedules.choose import Kind
from hocket.worker.schedules.contract import verify
from hocket.worker.schedules.schedule import Round, ceil_log2


@pytest.mark.parametrize("size", range(1, 34))
def test_no_host_leaves_before_it_has_heard_of_all_in_the_promised_rounds(size: int) -> None:
    outcome = verify(Kind.BARRIER, size, 0, partial(dissemination.barrier, size=size))
    assert set(outcome.tallies) == {Tally(ceil_log2(size), 0, 0)}
    assert outcome.elapsed == ceil_log2(size)


def test_messages_of_a_barrier_carry_nothing() -> None:
    assert list(dissemination.barrier(0, 5)) == [Round(1, (), 4, ()), Round(2, (), 3, ()), Round(4, (), 1, ())]
