"""The steps on the board: in every order in which ranks may take them, the bytes come out right."""

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lanes import KINDS, UNFINISHED, Lanes, call, operation

from hocket.fabric.board import Board, stage
from hocket.fabric.plan import Plan, plan_for
from hocket.fabric.program import CUT_ELEMENTS, cut, has_posted, may_write, result_view
from hocket.protocol.errors import MismatchError
from hocket.protocol.signature import NO_ROOT, Signature, encode_signature

OPERATIONS = st.lists(
    st.tuples(st.sampled_from(KINDS), st.sampled_from([0, 1, 40, 250, 257, 700, 1500]), st.integers(0, 5)),
    min_size=1,
    max_size=8,
)


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 5), OPERATIONS, st.integers(0, 2**32))
def test_ranks_get_what_they_must_however_their_steps_interleave(size: int, wanted: Any, seed: int) -> None:
    """Each rank goes through the same operations at a pace of its own; blocks are so small that most take several."""
    order = random.Random(seed)
    with Lanes(size) as host:
        rounds = [operation(kind, size, n, root, salt) for salt, (kind, n, root) in enumerate(wanted)]
        for calls in rounds:
            for lane, (mine, _) in zip(host.lanes, calls, strict=True):
                lane.submit(mine.op)
        busy = list(range(size))
        patience = 100_000
        while busy and patience:
            patience -= 1
            at = order.choice(busy)
            favoured = order.randrange(1, 20)
            for _ in range(favoured):
                host.lanes[at]._step()
            busy = [rank for rank in busy if not host.lanes[rank].idle]
        assert not busy, f"ranks {busy} are stuck"
        for calls in rounds:
            for mine, expected in calls:
                assert mine.outcome is None
                assert [recv.tobytes() for recv in mine.recvs] == [one.tobytes() for one in expected]
        assert host.asked == []


def test_calls_that_do_not_match_are_an_error_on_every_rank_and_the_next_ones_go_on() -> None:
    with Lanes(3) as host:
        wrong = [
            call(
                Signature("all_reduce", "uint8", 1, ((n,),), "BXOR", NO_ROOT, (n,), (n,)),
                [data := np.zeros(n, np.uint8)],
                [data],
            )
            for n in (4, 4, 5)
        ]
        right = operation("all_gather", 3, 600, 0, 1)
        for lane, bad, (good, _) in zip(host.lanes, wrong, right, strict=True):
            lane.submit(bad.op)
            lane.submit(good.op)
        host.poll()
        assert all(isinstance(mine.outcome, MismatchError) for mine in wrong)
        assert len({id(mine.outcome) for mine in wrong}) == 3
        assert all(error.outcome.array_intact for error in wrong)
        for mine, expected in right:
            assert mine.outcome is None
            assert [recv.tobytes() for recv in mine.recvs] == [one.tobytes() for one in expected]


def test_nobody_completes_before_the_last_has_entered() -> None:
    for kind in KINDS:
        with Lanes(3) as host:
            calls = operation(kind, 3, 40, 2, 0)
            for rank in (0, 2):
                host.lanes[rank].submit(calls[rank][0].op)
            host.poll()
            assert [mine.outcome for mine, _ in calls] == [UNFINISHED] * 3, kind
            host.lanes[1].submit(calls[1][0].op)
            host.poll()
            assert [mine.outcome for mine, _ in calls] == [None] * 3, kind


def test_nobody_completes_what_the_worker_has_its_hand_on() -> None:
    for kind in KINDS:
        with Lanes(2) as host:
            calls = operation(kind, 2, 600, 0, 0)
            host.board.contest(1)
            for lane, (mine, _) in zip(host.lanes, calls, strict=True):
                lane.submit(mine.op)
            host.poll()
            assert [mine.outcome for mine, _ in calls] == [UNFINISHED] * 2, kind
            assert sorted(host.asked) == [(0, 1, None), (1, 1, None)]
            for lane in host.lanes:
                lane.verdict(1, None)
            host.poll()
            for mine, expected in calls:
                assert mine.outcome is None, kind
                assert [recv.tobytes() for recv in mine.recvs] == [one.tobytes() for one in expected]


# --- rules -----------------------------------------------------------------------------------------------------------


@given(st.integers(0, 100_000), st.integers(1, 40))
def test_shares_cover_everything_in_order_at_whole_pairs(elements: int, count: int) -> None:
    edges = [cut(elements, index, count) for index in range(count + 1)]
    assert edges[0] == 0 and edges[-1] == elements
    assert edges == sorted(edges)
    grain = CUT_ELEMENTS if elements >= CUT_ELEMENTS * count else 2
    assert all(edge % grain == 0 for edge in edges[:-1])


@pytest.fixture
def board() -> Any:
    found = Board.create("test", 2, 256)
    yield found
    found.close()


def test_a_slot_is_free_once_all_readers_are_two_blocks_further(board: Board) -> None:
    for member in range(2):
        board.set_read(member, stage(5, 1))
    assert may_write(board, (0, 1), False, 5, 2, 9)
    assert not may_write(board, (0, 1), False, 5, 3, 9)
    board.set_read(1, stage(5, 2))
    assert not may_write(board, (0, 1), False, 5, 3, 9)
    board.set_read(0, stage(5, 2))
    assert may_write(board, (0, 1), False, 5, 3, 9)


def test_the_first_block_may_come_early_after_an_operation_of_at_most_one(board: Board) -> None:
    for member in range(2):
        board.set_read(member, stage(4, 0))  # they have left operation 3, not 4
    assert may_write(board, (0, 1), False, 5, 0, 1)
    assert may_write(board, (0, 1), False, 5, 0, 0)
    assert not may_write(board, (0, 1), False, 5, 0, 2)
    assert not may_write(board, (0, 1), False, 5, 0, -1)
    assert not may_write(board, (0, 1), False, 5, 1, 1)


def test_between_hosts_the_bridge_is_a_reader_too(board: Board) -> None:
    for member in range(2):
        board.set_read(member, stage(6, 0))
    assert may_write(board, (0, 1), False, 5, 0, 3)
    assert not may_write(board, (0, 1), True, 5, 0, 3)
    board.set_bridge_read(stage(5, 0))
    assert may_write(board, (0, 1), True, 5, 0, 3)


def gathered(lengths: tuple[int, ...]) -> Plan:
    texts = [encode_signature(Signature("all_gather", "uint8", 1, (), "", NO_ROOT, (n,), lengths)) for n in lengths]
    found = plan_for(tuple(texts), 256)
    assert isinstance(found, Plan)
    return found


def test_who_owes_less_than_others_has_posted_when_that_is_there(board: Board) -> None:
    plan = gathered((0, 300))
    assert has_posted(board, plan, 0, 3, 0) and has_posted(board, plan, 0, 3, 1)
    board.set_posted(1, stage(3, 1))
    assert has_posted(board, plan, 1, 3, 0) and not has_posted(board, plan, 1, 3, 1)
    board.set_posted(1, stage(4, 0))
    assert has_posted(board, plan, 1, 3, 1)


def test_results_stand_in_the_accumulator_s_dtype(board: Board) -> None:
    signature = Signature("reduce_scatter", "float16", 2, (), "SUM", NO_ROOT, (64, 64), (64,))
    plan = plan_for((encode_signature(signature),) * 2, 256)
    assert isinstance(plan, Plan)
    first, second = (result_view(board, plan, 0, part, 16) for part in range(2))
    assert first.dtype == np.float32 and first.shape == (16,)
    first[:], second[:] = 1, 2
    assert (first == 1).all() and (second == 2).all()
