"""The worker's one look at the board: what it takes for sealed, and what not."""

from collections.abc import Iterator

import pytest

from hocket.fabric.board import Board, stage
from hocket.fabric.contest import judge
from hocket.protocol.errors import AbortedError, MismatchError
from hocket.protocol.signature import NO_ROOT, Signature, encode_signature, withdrawn

BLOCK_NBYTES = 256
NUMBER = 3


@pytest.fixture
def board() -> Iterator[Board]:
    found = Board.create("test", 2, BLOCK_NBYTES)
    yield found
    found.close()


def enter(board: Board, *signatures: Signature) -> None:
    for member, signature in enumerate(signatures):
        board.sign(member, NUMBER, encode_signature(signature), 0)


def look(board: Board, *, locals_: tuple[int, ...] = (0, 1), bridged: bool = False) -> object:
    return judge(board, NUMBER, locals_, bridged)


def all_gather(nbytes: int) -> Signature:
    return Signature("all_gather", "uint8", 1, (), "", NO_ROOT, (nbytes,), (nbytes, nbytes))


def all_reduce(nbytes: int) -> Signature:
    return Signature("all_reduce", "uint8", 1, ((nbytes,),), "SUM", NO_ROOT, (nbytes,), (nbytes,))


def test_looking_raises_the_hand_first(board: Board) -> None:
    assert look(board) is False
    assert board.contested == NUMBER


def test_it_is_not_sealed_before_all_have_entered(board: Board) -> None:
    enter(board, Signature("barrier"))
    assert look(board) is False
    enter(board, Signature("barrier"), Signature("barrier"))
    assert look(board) is True


def test_it_is_sealed_once_all_have_posted_their_last_block(board: Board) -> None:
    enter(board, all_gather(300), all_gather(300))
    board.set_posted(0, stage(NUMBER, 2))
    board.set_posted(1, stage(NUMBER, 1))
    assert look(board) is False
    board.set_posted(1, stage(NUMBER, 2))
    assert look(board) is True


def test_who_owes_nothing_need_not_post(board: Board) -> None:
    enter(
        board,
        Signature("broadcast", "uint8", 1, ((9,),), "", 0, (9,), ()),
        Signature("broadcast", "uint8", 1, ((9,),), "", 0, (), (9, 0)),
    )
    assert look(board) is False
    board.set_posted(0, stage(NUMBER, 1))
    assert look(board) is True


def test_a_small_reduction_is_sealed_by_its_posts(board: Board) -> None:
    enter(board, all_reduce(200), all_reduce(200))
    for member in range(2):
        board.set_posted(member, stage(NUMBER, 1))
    assert look(board) is True


def test_a_reduction_in_shares_is_sealed_once_all_shares_are_reduced(board: Board) -> None:
    enter(board, all_reduce(300), all_reduce(300))
    for member in range(2):
        board.set_posted(member, stage(NUMBER, 2))
    board.set_reduced(0, stage(NUMBER, 2))
    board.set_reduced(1, stage(NUMBER, 1))
    assert look(board) is False
    board.set_reduced(1, stage(NUMBER, 2))
    assert look(board) is True


def test_between_hosts_a_reduction_is_sealed_by_the_result_of_all(board: Board) -> None:
    enter(board, all_reduce(300), all_reduce(300))
    board.set_posted(0, stage(NUMBER, 2))
    board.set_reduced(0, stage(NUMBER, 2))
    assert look(board, locals_=(0,), bridged=True) is False
    board.set_posted(1, stage(NUMBER, 2))
    assert look(board, locals_=(0,), bridged=True) is False
    board.set_result(stage(NUMBER, 2))
    assert look(board, locals_=(0,), bridged=True) is True


def test_calls_that_do_not_match_or_were_withdrawn_are_everybody_s_error(board: Board) -> None:
    enter(board, all_reduce(8), all_reduce(9))
    assert isinstance(look(board), MismatchError)
    enter(board, all_reduce(8), withdrawn("all_reduce", AbortedError(1, "cancelled")))
    assert isinstance(look(board), AbortedError)


def test_signatures_that_are_gone_prove_nothing(board: Board) -> None:
    enter(board, Signature("barrier"), Signature("barrier"))
    board.sign(1, NUMBER + 2, encode_signature(Signature("barrier")), 0)
    assert look(board) is False
