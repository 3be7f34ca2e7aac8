"""Who holds an operation up, by what stands on the board."""

from collections.abc import Iterator

import pytest

from hocket.fabric.board import Board, stage
from hocket.fabric.contest import behind
from hocket.protocol.signature import Signature, encode_signature

BLOCK_NBYTES = 1 << 12


@pytest.fixture
def board() -> Iterator[Board]:
    made = Board.create("behind", 3, BLOCK_NBYTES)
    yield made
    made.close()


def enter(board: Board, *members: int, kind: str = "all_reduce", blocks: int = 1, number: int = 5) -> None:
    nbytes = blocks * BLOCK_NBYTES
    recvs = (nbytes,) if kind == "all_reduce" else (nbytes,) * 3
    op = "SUM" if kind == "all_reduce" else ""
    text = encode_signature(Signature(kind, "float64", 8, ((nbytes // 8,),), op, -1, (nbytes,), recvs))
    for member in members:
        board.sign(member, number, text, 0)


def test_those_who_have_not_come(board: Board) -> None:
    enter(board, 0)
    assert behind(board, 5, (0, 1, 2), False) == (1, 2)
    assert behind(board, 5, (0,), True) == ()


@pytest.mark.parametrize("word", ["set_posted", "set_reduced", "set_read"])
def test_who_has_done_less_than_the_others(board: Board, word: str) -> None:
    enter(board, 0, 1, 2, blocks=4)
    for member in (0, 2):
        getattr(board, word)(member, stage(5, 1))
    assert behind(board, 5, (0, 1, 2), False) == (1,)
    assert behind(board, 5, (0, 2), True) == () or word != "set_reduced"


def test_words_of_earlier_operations_count_for_nothing(board: Board) -> None:
    enter(board, 0, 1, 2)
    board.set_read(0, stage(4, 3))
    assert behind(board, 5, (0, 1, 2), False) == ()


def test_a_host_that_has_not_delivered_its_block_names_its_members(board: Board) -> None:
    enter(board, 0, 1, 2, blocks=3)
    board.set_posted(2, stage(5, 1))
    assert behind(board, 5, (2,), True) == (2,)
    board.set_reduced(2, stage(5, 1))
    assert behind(board, 5, (2,), True) == ()


def test_of_a_small_reduction_members_only_owe_what_they_post(board: Board) -> None:
    enter(board, 0, 1, 2)
    assert behind(board, 5, (2,), True) == (2,)
    board.set_posted(2, stage(5, 1))
    assert behind(board, 5, (2,), True) == ()


def test_a_host_whose_members_are_ready_waits_for_another_one(board: Board) -> None:
    enter(board, 0, 1, 2, kind="all_gather", blocks=3)
    board.set_posted(2, stage(5, 1))
    assert behind(board, 5, (2,), True) == ()
    board.set_bridge_read(stage(5, 2))
    assert behind(board, 5, (2,), True) == (2,)
    board.set_posted(2, stage(5, 3))
    assert behind(board, 5, (2,), True) == (2,), "it has not read the block whose slot is needed"
    board.set_read(2, stage(5, 1))
    assert behind(board, 5, (2,), True) == ()


def test_calls_that_do_not_match_are_nobody_s_delay(board: Board) -> None:
    enter(board, 0, 1)
    enter(board, 2, blocks=2)
    assert behind(board, 5, (0, 1, 2), False) == ()
