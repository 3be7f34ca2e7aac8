"""What hosts carry to each other along with signatures: when they do, and that shares of another length are refused."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from lanes import KINDS, operation

from hocket.fabric.board import Board, stage
from hocket.fabric.plan import Plan, plan_for
from hocket.fabric.program import result_view
from hocket.protocol.errors import AbortedError, WireError
from hocket.protocol.limits import SMALL_NBYTES
from hocket.protocol.signature import Signature, decode_signature, encode_signature, withdrawn
from hocket.worker.carried import Carrier, small_shapes
from hocket.worker.compression import Feedback

BLOCK_NBYTES = 4 * SMALL_NBYTES
MEMBERS = ((0, 2), (1,))
MOVING = [kind for kind in KINDS if kind != "barrier"]


def texts_of(kind: str, nbytes: int, size: int = 3) -> tuple[bytes, ...]:
    return tuple(mine.op.text for mine, _ in operation(kind, size, nbytes, 1, 0))


@pytest.fixture
def board() -> Iterator[Board]:
    made = Board.create("test", 3, BLOCK_NBYTES)
    yield made
    made.close()


def carriers(board: Board) -> list[Carrier]:
    return [Carrier(board, MEMBERS, me, Feedback()) for me in range(len(MEMBERS))]


def posted(board: Board, kind: str, nbytes: int) -> tuple[Plan, list[Any]]:
    """All members' pieces on one board, as each host has them of its own: the plan, and what each member must get."""
    calls = operation(kind, 3, nbytes, 1, 0)
    plan = plan_for(tuple(mine.op.text for mine, _ in calls), BLOCK_NBYTES)
    assert isinstance(plan, Plan)
    for rank, (mine, _) in enumerate(calls):
        for reader, piece in enumerate(mine.op.sends):
            place = plan.shapes[rank].place(reader)
            board.slot(rank, 1)[place : place + len(piece)] = piece
        board.set_posted(rank, stage(1, 1))
    return plan, [expected for _, expected in calls]


def shares(board: Board, plan: Plan) -> list[list[bytes]]:
    """By receiving host and sending host."""
    found = []
    for carrier in carriers(board):
        texts = tuple(encode_signature(plan.shapes[rank].signature) for rank in carrier.locals)
        shapes = carrier.shapes(carrier.me, texts)
        assert shapes is not None and carrier.is_ready(shapes, 1)
        make = carrier.made_for(shapes, 1)
        found.append([make(host) for host in range(len(MEMBERS))])
    return [[row[host] for row in found] for host in range(len(MEMBERS))]


@pytest.mark.parametrize("kind", MOVING)
def test_little_is_carried_and_more_is_not(kind: str) -> None:
    assert small_shapes(texts_of(kind, 64), 3, BLOCK_NBYTES) is not None
    assert small_shapes(texts_of(kind, 3 * SMALL_NBYTES), 3, BLOCK_NBYTES) is None


def test_what_takes_several_blocks_is_not_carried_however_little() -> None:
    assert small_shapes(texts_of("all_gather", 1000), 3, 512) is None


def test_calls_that_do_not_match_and_withdrawn_ones_carry_nothing() -> None:
    right = decode_signature(texts_of("all_reduce", 64)[0])
    wrong: list[Signature] = [
        dataclasses.replace(right, dtype="int8"),
        dataclasses.replace(right, op="MAX"),
        dataclasses.replace(right, sends=(63,)),
        decode_signature(texts_of("barrier", 0)[0]),
        withdrawn("all_reduce", AbortedError(0, "cancelled")),
    ]
    for other in wrong:
        assert small_shapes((encode_signature(right), encode_signature(other)), 3, BLOCK_NBYTES) is None


def test_pieces_for_another_number_of_members_carry_nothing() -> None:
    assert small_shapes(texts_of("all_to_all", 64), 4, BLOCK_NBYTES) is None


@pytest.mark.parametrize("kind", MOVING)
def test_a_share_that_is_longer_or_shorter_than_owed_is_refused(kind: str, board: Board) -> None:
    plan, _ = posted(board, kind, 64)
    for carrier, row in zip(carriers(board), shares(board, plan), strict=True):
        other = 1 - carrier.me
        if kind == "gather" and plan.root not in carrier.locals:
            continue  # it looks at nothing
        for wrong in (row[other] + b"x", row[other][:-1]):
            if wrong != row[other]:
                bad = [wrong if host == other else share for host, share in enumerate(row)]
                with pytest.raises(WireError, match="expected"):
                    carrier.finish(plan, 1, bad)


def test_hosts_come_to_the_same_bits_of_a_sum_rounded_once(board: Board) -> None:
    signature = Signature("all_reduce", "float16", 2, ((5,),), "SUM", -1, (10,), (10,))
    plan = plan_for((encode_signature(signature),) * 3, BLOCK_NBYTES)
    assert isinstance(plan, Plan)
    inputs = [np.array([1, 2048, 0.1, -3, 6e4], np.float16), np.ones(5, np.float16), np.full(5, 0.5, np.float16)]
    for rank, array in enumerate(inputs):
        board.slot(rank, 1)[:10] = array.view(np.uint8)
        board.set_posted(rank, stage(1, 1))
    results = []
    for carrier, row in zip(carriers(board), shares(board, plan), strict=True):
        carrier.finish(plan, 1, row)
        results.append(result_view(board, plan, 1, 0, 5).copy())
    assert results[0].tobytes() == results[1].tobytes()
    assert results[0].tolist() == np.sum([array.astype(np.float32) for array in inputs], axis=0).tolist()
