"""Chunks of schedules as memory: all hosts mean the same bytes by an id, and together they mean all of them."""

import logging
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lanes import KINDS as LANE_KINDS
from lanes import operation

from hocket.fabric.board import Board
from hocket.fabric.plan import Plan, plan_for
from hocket.protocol.signature import FAMILY, decode_signature, encode_signature
from hocket.worker.exchange import CONVERGING, KINDS, Exchange
from hocket.worker.schedules.choose import Kind

BLOCK_NBYTES = 4096
PLACEMENTS = [
    ((0,), (1,)),
    ((0, 1, 2), (3,)),
    ((0, 2), (1, 3)),
    ((3,), (0,), (1, 2)),
    ((0,), (1,), (2,), (3,), (4,)),
]
MOVING = [kind for kind in LANE_KINDS if kind != "barrier"]


@pytest.fixture(scope="module")
def boards() -> Iterator[dict[int, Board]]:
    made = {size: Board.create("test", size, BLOCK_NBYTES) for size in range(1, 6)}
    yield made
    for board in made.values():
        board.close()


def plan(kind: str, size: int, nbytes: int, root: int) -> Plan:
    texts = tuple(mine.op.text for mine, _ in operation(kind, size, nbytes, root, 0))
    found = plan_for(texts, BLOCK_NBYTES)
    assert isinstance(found, Plan)
    return found


def spans(views: list[Any]) -> list[tuple[int, int]]:
    """Where views begin and how long they are, of those that hold anything."""
    return [(view.__array_interface__["data"][0], len(view)) for view in views if len(view)]


def test_every_collective_has_a_way_between_hosts() -> None:
    assert set(KINDS) <= set(FAMILY)
    gathered = {kind for kind in FAMILY if KINDS.get(kind, Kind.ALL_GATHER) is Kind.ALL_GATHER}
    assert gathered == {
        "barrier",
        "all_gather",
        "all_gather_into_tensor",
        "all_gather_coalesced",
        "all_gather_object",
        "scan",
        "exscan",
    }


@pytest.mark.parametrize("members", PLACEMENTS, ids=str)
@pytest.mark.parametrize("kind", MOVING)
def test_chunks_of_a_block_never_share_a_byte(
    boards: dict[int, Board], kind: str, members: tuple[tuple[int, ...], ...]
) -> None:
    size = sum(map(len, members))
    for nbytes in (0, 1, 100, 3000, 9000):
        for root in range(size):
            agreed = plan(kind, size, nbytes, root)
            exchange = Exchange(boards[size], agreed, 1, members)
            for block in range(agreed.nblocks):
                choice = exchange.choose(block)
                views_of = exchange.views(block, choice)
                count = choice.chunks
                used = sorted(span for chunk in range(count) for span in spans(views_of(chunk)))
                assert all(start + length <= after for (start, length), (after, _) in pairwise(used))


@pytest.mark.parametrize("members", PLACEMENTS, ids=str)
@pytest.mark.parametrize(
    ("kind", "nbytes"),
    [("all_gather", 3000), ("all_to_all", 500), ("all_reduce", 3000), ("broadcast", 3000), ("reduce_scatter", 500)],
)
def test_the_chunks_of_all_blocks_are_all_that_moves(
    boards: dict[int, Board], kind: str, nbytes: int, members: tuple[tuple[int, ...], ...]
) -> None:
    size = sum(map(len, members))
    agreed = plan(kind, size, nbytes, 0)
    exchange = Exchange(boards[size], agreed, 1, members)
    moved = 0
    for block in range(agreed.nblocks):
        choice = exchange.choose(block)
        views_of = exchange.views(block, choice)
        moved += sum(len(view) for chunk in range(choice.chunks) for view in views_of(chunk))
    sends = [sum(shape.signature.sends) for shape in agreed.shapes]
    # a reduction's result is one host's contribution, the same on all
    assert moved == (sends[0] if agreed.shapes[0].reduces else sum(sends))


def test_what_was_chosen_is_logged_once_for_an_operation(
    boards: dict[int, Board], caplog: pytest.LogCaptureFixture
) -> None:
    agreed = plan("all_reduce", 2, 9000, 0)
    exchange = Exchange(boards[2], agreed, 7, ((0,), (1,)))
    with caplog.at_level(logging.DEBUG, "hocket.worker"):
        chosen = [exchange.choose(block).name for block in range(agreed.nblocks)]
    first = agreed.shapes[0].piece(0)[1]
    assert len(chosen) > 1 and caplog.messages == [
        f"all_reduce #7: {chosen[0]} among 2 hosts, {agreed.nblocks} blocks, the first of {first} bytes"
    ]


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(MOVING), st.sampled_from(PLACEMENTS), st.integers(0, 5000), st.integers(0, 4))
def test_all_hosts_choose_the_same_schedule(
    kind: str, members: tuple[tuple[int, ...], ...], nbytes: int, root: int
) -> None:
    """Hosts have the same plan, but boards of their own; nothing else may matter."""
    size = sum(map(len, members))
    agreed, again = plan(kind, size, nbytes, root), plan(kind, size, nbytes, root)
    host, other = (Board.create("test", size, BLOCK_NBYTES) for _ in range(2))
    try:
        for block in range(agreed.nblocks):
            mine = Exchange(host, agreed, 1, members).choose(block)
            theirs = Exchange(other, again, 1, members).choose(block)
            assert (mine.name, mine.chunks) == (theirs.name, theirs.chunks)
            for chunk in range(mine.chunks):
                lengths = [
                    [len(view) for view in Exchange(board, agreed, 1, members).views(block, mine)(chunk)]
                    for board in (host, other)
                ]
                assert lengths[0] == lengths[1]
    finally:
        host.close()
        other.close()


def test_the_root_s_host_is_found_by_its_rank(boards: dict[int, Board]) -> None:
    members = ((3,), (0,), (1, 2))
    found = [Exchange(boards[4], plan("broadcast", 4, 8, root), 1, members).root_host for root in range(4)]
    assert found == [1, 2, 2, 0]
    assert Exchange(boards[4], plan("all_reduce", 4, 8, 0), 1, members).root_host == 0


def test_what_comes_together_at_the_root_is_known(boards: dict[int, Board]) -> None:
    members = ((0, 1), (2,))
    for kind, converging in (("gather", True), ("reduce", True), ("scatter", False), ("all_reduce", False)):
        assert (Exchange(boards[3], plan(kind, 3, 8, 0), 1, members).kind in CONVERGING) is converging


def test_results_are_read_in_the_accumulator_s_dtype(boards: dict[int, Board]) -> None:
    text = operation("all_reduce", 2, 64, 0, 0)[0][0].op.text
    signature = decode_signature(text)
    halves = encode_signature(type(signature)("all_reduce", "bfloat16", 2, ((32,),), "SUM", -1, (64,), (64,)))
    agreed = plan_for((halves, halves), BLOCK_NBYTES)
    assert isinstance(agreed, Plan)
    exchange = Exchange(boards[2], agreed, 1, ((0,), (1,)))
    choice = exchange.choose(0)
    views = [view for chunk in range(choice.chunks) for view in exchange.views(0, choice)(chunk)]
    assert sum(len(exchange.typed(view)) for view in views) == 32
    assert exchange.typed(views[0]).dtype == np.float32
