from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hocket.client import channel as module
from hocket.client import prepare
from hocket.client.channel import BoardChannel, RemoteChannel
from hocket.client.places import Place
from hocket.client.session import OpenedBoard
from hocket.fabric.arena import PAGE_NBYTES, Arena
from hocket.fabric.bells import Bells
from hocket.fabric.board import Board
from hocket.fabric.operation import Operation
from hocket.protocol.errors import (
    AbortedError,
    EpochEndedError,
    HocketError,
    Where,
    WireError,
    error_from_facts,
    error_to_facts,
)
from hocket.protocol.messages import Contest, Done, Submit
from hocket.protocol.reduce_ops import ReduceOp

ROUNDS = 100
"""More than any operation here takes."""
ENDED = EpochEndedError("the group has moved on")


class FakeEngine:
    def __init__(self) -> None:
        self.lanes: list[Any] = []
        self.wakes = 0

    def add_lane(self, lane: Any) -> None:
        self.lanes.append(lane)

    def remove_lane(self, lane: Any) -> None:
        self.lanes.remove(lane)

    def wake(self) -> None:
        self.wakes += 1


class FakeMembership:
    """Rank ``rank`` of ``size`` on one host; what it would send to the worker is in ``posts``."""

    def __init__(self, rank: int, size: int = 2, bells: Bells | None = None) -> None:
        self.rank = rank
        members = [SimpleNamespace(rank=number, host=1, pid=100 + number) for number in range(size)]
        self.info = SimpleNamespace(group=5, name="world", epoch=1, members=members)
        self.me = members[rank]
        self.session = SimpleNamespace(engine=FakeEngine(), bells=bells, place=rank + 1)
        self.posts: list[tuple[Any, bytes]] = []

    def post(self, message: Any, payload: tuple[memoryview, ...] = ()) -> None:
        self.posts.append((message, b"".join(payload)))

    def where(self, operation: str, number: int, channel: str) -> Where:
        return Where(operation, number, "world", 1, channel)

    def late(self, *_what: Any) -> None:
        raise AssertionError("nothing here takes that long")


class Call:
    """One operation and how it ended."""

    def __init__(self, rank: int, values: list[float] | None = None, size: int = 2, timeout_s: float = 60.0) -> None:
        place = Place("world", rank, size, tuple(range(size)), rank)
        self.array = None if values is None else np.array(values)
        made = prepare.barrier(place) if values is None else prepare.all_reduce(place, self.array, ReduceOp.SUM)
        self._made, self.outcomes = made, list[HocketError | None]()
        kind = made.signature.kind
        self.op = Operation(kind, made.text, list(made.sends), made.recvs, timeout_s, self._ended)

    def _ended(self, error: HocketError | None) -> None:
        if error is None:
            self._made.commit()
        self.outcomes.append(error)

    @property
    def error(self) -> HocketError:
        (error,) = self.outcomes
        assert error is not None
        return error


@contextmanager
def board_channels(size: int = 2) -> Iterator[tuple[list[BoardChannel], list[FakeMembership], OpenedBoard]]:
    bells = Bells(Arena.create("bells", PAGE_NBYTES))
    board = Board.create("test", size, 4096)
    memberships = [FakeMembership(rank, size, bells) for rank in range(size)]
    channels = [BoardChannel(membership, "") for membership in memberships]  # type: ignore[arg-type]
    yield channels, memberships, OpenedBoard(board, False, tuple(range(1, size + 1)))
    board.close()
    bells.close()


def carry(*memberships: FakeMembership) -> None:
    """What the data threads do."""
    lanes = [lane for membership in memberships for lane in membership.session.engine.lanes]
    for _ in range(ROUNDS):
        for lane in lanes:
            lane.poll()


def posted(membership: FakeMembership, kind: type[Any]) -> list[Any]:
    return [message for message, _ in membership.posts if isinstance(message, kind)]


# --- on a board ------------------------------------------------------------------------------------------------------


def test_operations_called_before_the_board_is_there_are_carried_out_in_order_once_it_is() -> None:
    with board_channels() as (channels, memberships, opened):
        early = [[Call(rank, [rank + 1.0]), Call(rank, [10.0])] for rank in (0, 1)]
        for channel, calls in zip(channels, early, strict=True):
            for call in calls:
                channel.submit(call.op)
        assert [call.outcomes for calls in early for call in calls] == [[]] * 4
        for channel in channels:
            channel.opened(opened)
        carry(*memberships)
        assert [[call.outcomes for call in calls] for calls in early] == [[[None], [None]]] * 2
        assert [[call.array.tolist() for call in calls] for calls in early] == [[[3.0], [20.0]]] * 2
        assert [call.op.number for call in early[0]] == [1, 2]


def test_the_time_of_an_operation_runs_from_the_call_although_there_is_no_board_yet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with board_channels() as (channels, _memberships, _opened):
        monkeypatch.setattr(module.time, "monotonic", lambda: 1000.0)
        call = Call(0, timeout_s=5.0)
        channels[0].submit(call.op)
        assert call.op.deadline_s == 1005.0


def test_a_small_operation_that_nobody_has_to_be_waited_for_ends_inside_the_call() -> None:
    with board_channels() as (channels, memberships, opened):
        for channel in channels:
            channel.opened(opened)
        first, second = Call(0, [1.0]), Call(1, [2.0])
        channels[0].submit(first.op)
        assert first.outcomes == []
        channels[1].submit(second.op)
        assert second.outcomes == [None]
        carry(memberships[0])
        assert (first.outcomes, first.array.tolist()) == ([None], [3.0])


def test_a_large_operation_is_left_to_the_data_thread() -> None:
    with board_channels(1) as (channels, memberships, opened):
        channels[0].opened(opened)
        engine = memberships[0].session.engine
        small, large = Call(0, [1.0], size=1), Call(0, [1.0] * (module.INLINE_NBYTES // 8 + 1), size=1)
        before = engine.wakes
        channels[0].submit(small.op)
        assert (small.outcomes, engine.wakes) == ([None], before)
        channels[0].submit(large.op)
        assert (large.outcomes, engine.wakes) == ([], before + 1)
        carry(memberships[0])
        assert large.outcomes == [None]


def test_an_operation_cancelled_before_the_board_is_there_ends_and_keeps_its_place_in_the_order() -> None:
    with board_channels() as (channels, memberships, opened):
        cancelled, after = Call(0, [1.0]), Call(0, [2.0])
        channels[0].submit(cancelled.op)
        channels[0].submit(after.op)
        channels[0].cancel(cancelled.op, "no longer wanted")
        assert isinstance(cancelled.error, AbortedError)
        assert (cancelled.error.rank, cancelled.error.cause) == (0, "no longer wanted")
        channels[0].cancel(cancelled.op, "again")
        assert len(cancelled.outcomes) == 1
        theirs = [Call(1, [5.0]), Call(1, [7.0])]
        for channel in channels:
            channel.opened(opened)
        for call in theirs:
            channels[1].submit(call.op)
        carry(*memberships)
        contest = [*posted(memberships[0], Contest), *posted(memberships[1], Contest)][0]
        assert contest.number == 1
        for channel in channels:  # as the worker does: all hear of a verdict
            channel.verdict(1, error_from_facts(contest.error))
        carry(*memberships)
        assert isinstance(theirs[0].error, AbortedError)
        assert theirs[0].array.tolist() == [5.0]
        assert (after.array.tolist(), theirs[1].array.tolist()) == ([9.0], [9.0])


def test_cancelling_an_operation_under_way_asks_for_a_verdict_and_ends_nothing_by_itself() -> None:
    with board_channels() as (channels, memberships, opened):
        channels[0].opened(opened)
        call = Call(0, [1.0])
        channels[0].submit(call.op)
        channels[0].cancel(call.op, "no longer wanted")
        assert call.outcomes == []
        (contest,) = posted(memberships[0], Contest)
        assert (contest.group, contest.channel, contest.number, contest.rank) == (5, "", 1, 0)
        error = error_from_facts(contest.error)
        assert isinstance(error, AbortedError)
        channels[0].verdict(1, error)
        carry(memberships[0])
        assert (call.error.cause, str(call.error.where)) == (
            "no longer wanted",
            str(Where("all_reduce", 1, "world", 1)),
        )  # type: ignore[attr-defined]


def test_an_interrupt_inside_the_call_fails_the_operation_here_and_lets_the_others_complete(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with board_channels() as (channels, memberships, opened):
        for channel in channels:
            channel.opened(opened)
        theirs, mine = Call(0, [1.0]), Call(1, [2.0])
        channels[0].submit(theirs.op)
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr("hocket.fabric.program.reduce_into", interrupt)
            channels[1].submit(mine.op)
        (contest,) = posted(memberships[1], Contest)
        assert "interrupted (KeyboardInterrupt())" in error_from_facts(contest.error).cause  # type: ignore[attr-defined]
        for channel in channels:
            channel.verdict(1, None)  # all had posted what they owe
        carry(*memberships)
        assert (theirs.outcomes, theirs.array.tolist()) == ([None], [3.0])
        assert isinstance(mine.error, AbortedError)
        after = [Call(rank, [5.0]) for rank in (0, 1)]
        for channel, call in zip(channels, after, strict=True):
            channel.submit(call.op)
        carry(*memberships)
        assert [call.array.tolist() for call in after] == [[10.0], [10.0]]


def interrupt(*_arguments: Any) -> None:
    raise KeyboardInterrupt


def test_after_the_epochs_end_nothing_starts_with_or_without_a_board() -> None:
    with board_channels() as (channels, _memberships, opened):
        waiting, late = Call(0, [1.0]), Call(0, [1.0])
        channels[0].submit(waiting.op)
        channels[0].finish(ENDED)
        channels[0].submit(late.op)
        for call in (waiting, late):
            assert isinstance(call.error, EpochEndedError)
            assert call.error.where is not None
        channels[0].opened(opened)
        last = Call(0, [1.0])
        channels[0].submit(last.op)
        assert isinstance(last.error, EpochEndedError)


def test_each_operation_gets_an_error_of_its_own() -> None:
    with board_channels() as (channels, _memberships, _opened):
        channels[0].finish(ENDED)
        first, second = Call(0), Call(0, [1.0])
        channels[0].submit(first.op)
        channels[0].submit(second.op)
        assert first.error is not second.error
        assert [str(call.error).split(" ")[0] for call in (first, second)] == ["barrier", "all_reduce"]
        assert ENDED.where is None


def test_abandoning_ends_what_is_under_way_and_the_engine_forgets_the_lane() -> None:
    with board_channels() as (channels, memberships, opened):
        channels[0].opened(opened)
        call = Call(0, [1.0])
        channels[0].submit(call.op)
        channels[0].abandon(ENDED)
        assert isinstance(call.error, EpochEndedError)
        assert memberships[0].session.engine.lanes == []


# --- without shared memory -------------------------------------------------------------------------------------------


def remote() -> tuple[RemoteChannel, FakeMembership]:
    membership = FakeMembership(1)
    return RemoteChannel(membership, "side"), membership  # type: ignore[arg-type]


def done(number: int, error: HocketError | None = None, recvs: tuple[int, ...] = ()) -> Done:
    return Done(5, "side", number, recvs, None if error is None else error_to_facts(error))


def test_a_remote_operation_goes_to_the_worker_with_its_bytes_and_number() -> None:
    channel, membership = remote()
    calls = [Call(1, [1.0, 2.0]), Call(1)]
    for call in calls:
        channel.submit(call.op)
    (first, first_bytes), (second, second_bytes) = membership.posts
    assert isinstance(first, Submit)
    assert (first.group, first.channel, first.number, first.sends, first.recvs) == (5, "side", 1, (16,), (16,))
    assert first_bytes == np.array([1.0, 2.0]).tobytes()
    assert (second.number, second_bytes) == (2, b"")


def test_what_the_worker_brings_goes_straight_into_the_outputs() -> None:
    channel, _membership = remote()
    call = Call(1, [1.0, 2.0])
    channel.submit(call.op)
    answer = done(1, recvs=(16,))
    (room,) = channel.room(answer, 16) or []
    memoryview(room).cast("B")[:] = np.array([5.0, 6.0]).tobytes()
    channel.done(answer)
    assert (call.outcomes, call.array.tolist()) == ([None], [5.0, 6.0])


def test_an_error_from_the_worker_names_the_operation() -> None:
    channel, _membership = remote()
    call = Call(1, [1.0])
    channel.submit(call.op)
    channel.done(done(1, AbortedError(0, "its reasons")))
    assert str(call.error) == "all_reduce #1 in group 'world' (epoch 1, channel 'side'): aborted by rank 0: its reasons"
    channel.done(done(1))
    assert len(call.outcomes) == 1


def test_there_is_no_room_for_an_operation_that_nobody_waits_for() -> None:
    channel, _membership = remote()
    assert channel.room(done(7, recvs=(8,)), 8) is None


def test_an_operation_of_unknown_size_learns_it_from_the_answer_which_must_add_up() -> None:
    channel, _membership = remote()
    call = Call(1)
    call.op.recvs = None
    channel.submit(call.op)
    for recvs, nbytes in (((3, 4), 8), ((-1, 9), 8)):
        with pytest.raises(WireError, match="bytes announced"):
            channel.room(done(1, recvs=recvs), nbytes)
    assert [len(memoryview(room)) for room in channel.room(done(1, recvs=(3, 0, 5)), 8) or []] == [3, 5]
    assert call.op.recvs is not None
    assert [len(part) for part in call.op.recvs] == [3, 0, 5]


def test_cancelling_asks_the_worker() -> None:
    channel, membership = remote()
    call = Call(1, [1.0])
    channel.submit(call.op)
    channel.cancel(call.op, "no longer wanted")
    (contest,) = posted(membership, Contest)
    assert (contest.number, contest.rank, call.outcomes) == (1, 1, [])
    assert error_from_facts(contest.error).cause == "no longer wanted"  # type: ignore[attr-defined]


def test_an_operation_that_is_withdrawn_tells_the_worker_and_ends_at_once() -> None:
    channel, membership = remote()
    call = Call(1, [1.0])
    call.op.error = AbortedError(1, "wrong argument")
    channel.submit(call.op)
    assert len(posted(membership, Submit)) == 1
    assert isinstance(call.error, AbortedError)


def test_after_the_epochs_end_nothing_is_sent_and_what_is_under_way_waits_for_the_worker() -> None:
    channel, membership = remote()
    under_way, late = Call(1, [1.0]), Call(1, [1.0])
    channel.submit(under_way.op)
    channel.finish(ENDED)
    channel.submit(late.op)
    assert len(membership.posts) == 1
    assert (under_way.outcomes, type(late.error)) == ([], EpochEndedError)
    channel.abandon(ENDED)
    assert isinstance(under_way.error, EpochEndedError)
