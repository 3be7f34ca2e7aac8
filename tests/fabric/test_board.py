"""The board: where things stand, that both sides see them, and which signatures are still there."""

import itertools
import os
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.fabric.arena import PAGE_NBYTES, Arena
from hocket.fabric.board import EVERYTHING, Board, Layout, stage
from hocket.protocol.errors import WireError
from hocket.protocol.limits import SIGNATURE_NBYTES


@pytest.fixture
def sides() -> Iterator[tuple[Board, Board]]:
    """One board of three members, mapped twice."""
    made = Board.create("test", 3, 1000)
    attached = Board(Arena.attach(os.dup(made.arena.fd)))
    yield made, attached
    made.close()
    attached.close()


def address(view: "np.ndarray[tuple[int], np.dtype[np.uint8]]") -> int:
    found: int = view.__array_interface__["data"][0]
    return found


# --- places ----------------------------------------------------------------------------------------------------------


@given(st.integers(1, 300), st.integers(1, 10_000))
def test_nothing_on_a_board_overlaps_and_slots_begin_at_pages(size: int, block_nbytes: int) -> None:
    layout = Layout(size, block_nbytes)
    assert layout.texts >= PAGE_NBYTES + size * 128
    assert layout.slots - layout.texts == size * 2 * SIGNATURE_NBYTES
    assert (layout.results - layout.slots) // (2 * size) >= block_nbytes
    assert (layout.nbytes - layout.results) // 2 >= block_nbytes
    for offset in (layout.texts, layout.slots, layout.results, layout.nbytes):
        assert offset % PAGE_NBYTES == 0


def test_every_slot_has_memory_of_its_own(sides: tuple[Board, Board]) -> None:
    board, _ = sides
    slots = [board.slot(member, block) for member in range(3) for block in range(2)]
    slots += [board.result_slot(block) for block in range(2)]
    assert {len(slot) for slot in slots} == {1000}
    starts = sorted(address(slot) for slot in slots)
    assert all(after - before >= 1000 for before, after in itertools.pairwise(starts))
    assert all(start % PAGE_NBYTES == 0 for start in starts)


def test_slots_alternate_with_the_number_of_the_block(sides: tuple[Board, Board]) -> None:
    board, _ = sides
    assert address(board.slot(1, 0)) == address(board.slot(1, 2)) != address(board.slot(1, 1))
    assert address(board.result_slot(1)) == address(board.result_slot(7)) != address(board.result_slot(0))


# --- words -----------------------------------------------------------------------------------------------------------


@given(
    st.tuples(st.integers(0, 1 << 38), st.integers(0, (1 << 24) - 1)),
    st.tuples(st.integers(0, 1 << 38), st.integers(0, (1 << 24) - 1)),
)
def test_stages_sort_like_number_and_count(a: tuple[int, int], b: tuple[int, int]) -> None:
    assert (stage(*a) < stage(*b)) == (a < b)


def test_the_other_side_sees_words_and_data(sides: tuple[Board, Board]) -> None:
    mine, theirs = sides
    assert (theirs.size, theirs.block_nbytes) == (3, 1000)
    mine.set_posted(2, stage(5, 1))
    mine.set_read(1, stage(5, 2))
    mine.set_reduced(0, stage(5, 3))
    mine.set_result(stage(5, 4))
    mine.set_bridge_read(stage(5, 5))
    assert [theirs.posted(member) for member in range(3)] == [0, 0, stage(5, 1)]
    assert [theirs.read(member) for member in range(3)] == [0, stage(5, 2), 0]
    assert [theirs.reduced(member) for member in range(3)] == [stage(5, 3), 0, 0]
    assert (theirs.result, theirs.bridge_read) == (stage(5, 4), stage(5, 5))
    mine.slot(2, 1)[:] = 7
    mine.result_slot(1)[:] = 8
    assert (theirs.slot(2, 1) == 7).all() and (theirs.result_slot(1) == 8).all()
    assert not theirs.slot(2, 0).any() and not theirs.slot(1, 1).any()


def test_a_contest_only_rises(sides: tuple[Board, Board]) -> None:
    mine, theirs = sides
    mine.contest(7)
    mine.contest(3)
    assert theirs.contested == 7
    mine.contest(EVERYTHING)
    assert theirs.contested == EVERYTHING > stage(1 << 38, 0)


def test_what_is_no_board_is_refused() -> None:
    for head in (b"", b"\0" * 8, Board.create("other", 2, 4096).arena.buffer[:8] + (1 << 40).to_bytes(8, "little")):
        arena = Arena.create("other", PAGE_NBYTES)
        arena.buffer[: len(head)] = head
        with pytest.raises(WireError, match="not a board"):
            Board(arena)


# --- signatures ------------------------------------------------------------------------------------------------------


def test_a_signature_is_there_once_its_member_has_entered(sides: tuple[Board, Board]) -> None:
    mine, theirs = sides
    assert theirs.signature(1, 1) is None
    mine.sign(1, 1, b"first", 1234)
    assert theirs.signature(1, 1) == b"first"
    assert (theirs.signed(1), theirs.signed_at_ns(1)) == (1, 1234)
    assert theirs.signature(0, 1) is None and theirs.signature(1, 2) is None


def test_the_signature_before_stays_until_the_next_but_one(sides: tuple[Board, Board]) -> None:
    mine, theirs = sides
    mine.sign(1, 1, b"first, and a long one", 0)
    mine.sign(1, 2, b"second", 0)
    assert (theirs.signature(1, 1), theirs.signature(1, 2)) == (b"first, and a long one", b"second")
    mine.sign(1, 3, b"third", 0)
    assert (theirs.signature(1, 1), theirs.signature(1, 3)) == (None, b"third")


def test_all_have_signed_when_the_last_has(sides: tuple[Board, Board]) -> None:
    mine, theirs = sides
    for member, number in ((0, 4), (1, 5), (2, 3)):
        mine.sign(member, number, b"", 0)
    assert theirs.all_signed(3) and not theirs.all_signed(4)


def test_the_longest_signature_leaves_its_neighbours_alone(sides: tuple[Board, Board]) -> None:
    mine, theirs = sides
    longest = bytes(range(256)) * (SIGNATURE_NBYTES // 256)
    mine.sign(0, 2, b"before", 0)
    mine.sign(1, 1, b"other", 0)
    mine.sign(0, 1, longest[: SIGNATURE_NBYTES - 8], 0)
    mine.sign(0, 2, b"before", 0)
    assert theirs.signature(0, 1) == longest[: SIGNATURE_NBYTES - 8]
    assert (theirs.signature(0, 2), theirs.signature(1, 1)) == (b"before", b"other")
