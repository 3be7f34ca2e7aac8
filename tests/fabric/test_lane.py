"""A lane: operations one after the other, and how each of them ends, once."""

import math
import random
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lanes import KINDS, UNFINISHED, Call, Lanes, operation

from hocket.fabric.contest import judge
from hocket.protocol.errors import (
    AbortedError,
    ClosedError,
    DeadlineError,
    EpochEndedError,
    HocketError,
    Member,
    MemberLostError,
)

LOST = MemberLostError((Member(1, "h", 7),), "killed", "")


def calls_of(kind: str, size: int, nbytes: int = 40, salt: int = 0) -> list[Call]:
    return [mine for mine, _ in operation(kind, size, nbytes, 0, salt)]


def outcomes(calls: list[Call]) -> list[Any]:
    return [mine.outcome for mine in calls]


def in_the_past() -> float:
    return time.monotonic() - 1


# --- order -----------------------------------------------------------------------------------------------------------


def test_operations_are_numbered_and_carried_out_in_the_order_of_calls() -> None:
    with Lanes(2) as host:
        rounds = [calls_of(kind, 2, 600, salt) for salt, kind in enumerate(KINDS)]
        for calls in rounds:
            host.lanes[0].submit(calls[0].op)
        assert [calls[0].op.number for calls in rounds] == list(range(1, len(KINDS) + 1))
        for done, calls in enumerate(rounds):
            host.lanes[1].submit(calls[1].op)
            host.poll()
            ended = [each[0].outcome for each in rounds]
            assert ended == [None] * (done + 1) + [UNFINISHED] * (len(KINDS) - done - 1)
        assert all(lane.idle for lane in host.lanes)


def test_a_lane_that_waits_says_when_it_must_be_looked_at_again() -> None:
    with Lanes(2) as host:
        lane = host.lanes[0]
        assert lane.deadline_s == math.inf
        first, second = calls_of("barrier", 2)[0], calls_of("barrier", 2)[0]
        second.op.deadline_s = time.monotonic() + 3
        lane.submit(first.op)
        lane.submit(second.op)
        assert lane.deadline_s == second.op.deadline_s
        assert first.op.deadline_s == pytest.approx(time.monotonic() + 60, abs=5)


def test_waiting_long_is_warned_of_with_those_that_are_missing() -> None:
    with Lanes(3) as host:
        mine = calls_of("barrier", 3)[1]
        host.lanes[1].submit(mine.op)
        host.poll()
        assert host.late == []
        current = host.lanes[1]._current
        assert current is not None
        current.warn_s = in_the_past()
        host.poll()
        host.poll()
        [(where, _, missing)] = host.late
        assert (where.operation, where.number, missing) == ("barrier", 1, (0, 2))


# --- deadlines -------------------------------------------------------------------------------------------------------


def test_a_deadline_asks_for_a_verdict_once_and_names_the_missing() -> None:
    with Lanes(3) as host:
        mine = calls_of("all_reduce", 3)[2]
        mine.op.deadline_s = in_the_past() + 100
        host.lanes[2].submit(mine.op)
        host.poll()
        mine.op.deadline_s = in_the_past()
        for _ in range(3):
            host.lanes[2].poll()
        [(rank, number, reason)] = host.asked
        assert (rank, number, mine.outcome) == (2, 1, UNFINISHED)
        assert isinstance(reason, DeadlineError) and reason.missing == (0, 1)
        host.lanes[2].verdict(1, reason)
        host.poll()
        assert isinstance(mine.outcome, DeadlineError)
        assert mine.outcome.where is not None and mine.outcome.where.operation == "all_reduce"


def test_time_that_earlier_operations_take_counts_for_those_behind_them() -> None:
    with Lanes(2) as host:
        first, second = calls_of("barrier", 2)[0], calls_of("barrier", 2)[0]
        host.lanes[0].submit(first.op)
        second.op.deadline_s = in_the_past()
        host.lanes[0].submit(second.op)
        host.poll()
        assert first.outcome is UNFINISHED
        assert isinstance(second.outcome, DeadlineError)


# --- cancelling ------------------------------------------------------------------------------------------------------


def test_a_call_that_is_cancelled_before_its_turn_ends_at_once_and_its_place_is_kept() -> None:
    with Lanes(2) as host:
        rounds = [calls_of("barrier", 2) for _ in range(3)]
        for calls in rounds:
            host.lanes[0].submit(calls[0].op)
        host.lanes[0].cancel(rounds[1][0].op, "changed its mind")
        assert isinstance(rounds[1][0].outcome, AbortedError)
        for calls in rounds:
            host.lanes[1].submit(calls[1].op)
        host.poll()
        assert outcomes(rounds[0]) == [None, None]
        assert {(number, type(reason)) for _, number, reason in host.asked} == {(2, AbortedError)}
        reason = next(reason for _, _, reason in host.asked if reason is not None)
        assert "changed its mind" in str(reason)
        for lane in host.lanes:
            lane.verdict(2, reason)
        host.poll()
        assert isinstance(rounds[1][1].outcome, AbortedError)
        assert outcomes(rounds[2]) == [None, None]


def test_a_call_under_way_is_cancelled_only_by_a_verdict() -> None:
    with Lanes(2) as host:
        calls = calls_of("all_reduce", 2)
        host.lanes[0].submit(calls[0].op)
        host.poll()
        host.lanes[0].cancel(calls[0].op, "changed its mind")
        assert calls[0].outcome is UNFINISHED and len(host.asked) == 1
        host.lanes[0].verdict(1, None)  # it completes all the same
        host.lanes[1].submit(calls[1].op)
        host.poll()
        assert outcomes(calls) == [None, None]


def test_cancelling_what_is_over_does_nothing() -> None:
    with Lanes(1) as host:
        [mine] = calls_of("all_reduce", 1)
        host.lanes[0].submit(mine.op)
        host.poll()
        host.lanes[0].cancel(mine.op, "too late")
        host.poll()
        assert mine.outcome is None and host.asked == []


def test_a_verdict_for_another_operation_is_not_taken_for_this_one() -> None:
    with Lanes(2) as host:
        calls = calls_of("barrier", 2)
        host.lanes[0].submit(calls[0].op)
        host.poll()
        host.lanes[0].verdict(7, AbortedError(1, "another one"))
        host.lanes[1].submit(calls[1].op)
        host.poll()
        assert outcomes(calls) == [None, None]


def test_an_error_tells_whether_the_array_has_been_written() -> None:
    for nbytes, intact in ((100, True), (256 * 20, False)):
        with Lanes(2) as host:
            calls = calls_of("all_reduce", 2, nbytes)
            for lane, mine in zip(host.lanes, calls, strict=True):
                lane.submit(mine.op)
            host.board.contest(1)
            host.poll()  # all but the last block
            for lane in host.lanes:
                lane.verdict(1, AbortedError(0, "cut"))
            host.poll()
            assert [error.array_intact for error in outcomes(calls)] == [intact, intact]


# --- the end of the epoch --------------------------------------------------------------------------------------------


def test_when_the_epoch_ends_nothing_new_starts_and_what_is_under_way_waits_for_its_verdict() -> None:
    with Lanes(2) as host:
        rounds = [calls_of("barrier", 2) for _ in range(3)]
        for calls in rounds[:2]:
            host.lanes[0].submit(calls[0].op)
        host.poll()
        host.lanes[0].finish(LOST)
        host.lanes[0].submit(rounds[2][0].op)
        assert [calls[0].outcome is UNFINISHED for calls in rounds] == [True, False, False]
        assert all(isinstance(calls[0].outcome, MemberLostError) for calls in rounds[1:])
        assert rounds[1][0].outcome is not rounds[2][0].outcome is not LOST
        host.lanes[0].verdict(1, LOST)
        host.poll()
        assert isinstance(rounds[0][0].outcome, MemberLostError)
        host.lanes[0].finish(EpochEndedError(2))
        late = calls_of("barrier", 2)[0]
        host.lanes[0].submit(late.op)
        assert isinstance(late.outcome, MemberLostError)


def test_without_a_worker_everything_ends() -> None:
    with Lanes(2) as host:
        rounds = [calls_of("barrier", 2) for _ in range(2)]
        for calls in rounds:
            host.lanes[0].submit(calls[0].op)
        host.poll()
        host.lanes[0].abandon(ClosedError("the worker is gone"))
        assert all(isinstance(calls[0].outcome, ClosedError) for calls in rounds)
        assert host.lanes[0].idle


# --- one outcome -----------------------------------------------------------------------------------------------------


class Worker:
    """Decides as a worker does whose group lives on one host."""

    def __init__(self, host: Lanes) -> None:
        self._host, self._decided = host, dict[int, HocketError | None]()

    def answer(self, rank: int, number: int, reason: HocketError | None) -> None:
        if number not in self._decided:
            if number > 1 and number - 1 not in self._decided:  # while it still stands on the board
                before = self._judge(number - 1)
                if before:
                    self._decided[number - 1] = None if before is True else before
            seen = self._judge(number)
            error = seen if isinstance(seen, HocketError) else reason or AbortedError(-1, "nobody said why")
            self._decided[number] = None if seen is True else error
        self._host.lanes[rank].verdict(number, self._decided[number])

    def _judge(self, number: int) -> HocketError | bool:
        return judge(self._host.board, number, tuple(range(self._host.size)), False)


@settings(max_examples=200, deadline=None)
@given(
    st.integers(2, 4),
    st.lists(st.tuples(st.sampled_from(KINDS), st.sampled_from([0, 40, 700])), min_size=1, max_size=5),
    st.integers(0, 2**32),
)
def test_an_operation_ends_the_same_way_everywhere_whenever_anybody_wants_to_end_it(
    size: int, wanted: list[tuple[str, int]], seed: int
) -> None:
    """A worker judges, as a real one does, whatever it is asked; ranks call, cancel and go on at random moments."""
    dice = random.Random(seed)
    with Lanes(size) as host:
        rounds = [operation(kind, size, nbytes, 0, salt) for salt, (kind, nbytes) in enumerate(wanted)]
        called, worker = [0] * size, Worker(host)
        patience = 20_000
        while patience and not all(mine.outcome is not UNFINISHED for calls in rounds for mine, _ in calls):
            patience -= 1
            rank = dice.randrange(size)
            if called[rank] < len(rounds) and dice.random() < 0.2:
                host.lanes[rank].submit(rounds[called[rank]][rank][0].op)
                called[rank] += 1
            elif called[rank] and dice.random() < 0.02:
                host.lanes[rank].cancel(rounds[dice.randrange(called[rank])][rank][0].op, "dice")
            elif host.asked and dice.random() < 0.3:
                worker.answer(*host.asked.pop(dice.randrange(len(host.asked))))
            else:
                host.lanes[rank]._step()
        assert patience, f"stuck at {[[mine.outcome for mine, _ in calls] for calls in rounds]}"
        for calls in rounds:
            ended = {mine.outcome is None for mine, _ in calls}
            assert len(ended) == 1, f"one operation, two outcomes: {[mine.outcome for mine, _ in calls]}"
            for mine, expected in calls if ended == {True} else ():
                assert [recv.tobytes() for recv in mine.recvs] == [one.tobytes() for one in expected]


def test_a_straggler_finds_the_signatures_of_what_the_others_completed_though_they_have_aborted_the_next_one() -> None:
    with Lanes(3) as host:
        rounds = [calls_of("all_gather", 3, 40, salt) for salt in range(3)]
        quick, slow = host.lanes[:2], host.lanes[2]
        slow.submit(rounds[0][2].op)
        slow.poll()
        for turn in range(3):
            for lane, mine in zip(quick, rounds[turn], strict=False):
                lane.submit(mine.op)
        for _ in range(3):
            for lane in quick:
                lane.poll()
        assert outcomes(rounds[0]) == [None, None, UNFINISHED]
        host.board.contest(2)
        aborted = AbortedError(0, "cancelled")
        for lane in quick:
            lane.verdict(2, aborted)
            lane.poll()
        assert [host.board.signed(member) for member in range(3)] == [2, 2, 1]
        assert quick[0].missing() == (2,)
        slow.poll()
        assert host.asked[-1] == (2, 1, None)
        slow.verdict(1, None)
        slow.submit(rounds[1][2].op)
        slow.submit(rounds[2][2].op)
        host.poll()
        slow.verdict(2, aborted)
        host.poll()
        assert [each.outcome is None for calls in rounds for each in calls] == [True] * 3 + [False] * 3 + [True] * 3


def test_a_fault_in_the_program_ends_the_operation_and_not_the_lane() -> None:
    with Lanes(2) as host:
        calls = calls_of("all_gather", 2)
        calls[0].op.recvs = [np.zeros(40, np.uint8), np.zeros(3, np.uint8)]  # too short: copying into it fails
        for lane, mine in zip(host.lanes, calls, strict=True):
            lane.submit(mine.op)
        host.poll()
        assert calls[1].outcome is None
        [(rank, number, reason)] = host.asked
        assert (rank, number) == (0, 1) and isinstance(reason, AbortedError)
        host.lanes[0].verdict(1, None)
        host.poll()
        assert isinstance(calls[0].outcome, AbortedError)
        following = calls_of("barrier", 2)
        for lane, mine in zip(host.lanes, following, strict=True):
            lane.submit(mine.op)
        host.poll()
        assert outcomes(following) == [None, None]
