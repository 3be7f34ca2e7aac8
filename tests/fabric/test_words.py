"""Litmus tests of the board's ordering rules: what one core writes in order, another one must not see out of order.

Two processes run against each other on shared memory. Names of the patterns: Alglave, Maranget and Tautschnig, "Herding
cats", TOPLAS 36(2), 2014, doi:10.1145/2627752.
"""

import multiprocessing as mp
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hocket.fabric import core, words
from hocket.fabric.arena import PAGE_NBYTES, Arena
from hocket.fabric.words import LockedWords, fence_by_lock

ROUNDS = 20_000
MINE, OTHERS, SEEN = 0, 8, 16
"""Words that stand in cache lines of their own."""
CHOICES = [
    pytest.param(LockedWords, fence_by_lock, id="locks"),
    pytest.param(words.words_of, words.fence, id="chosen"),
    pytest.param(
        core.native and core.native.Words,
        core.native and core.native.fence,
        id="native",
        marks=pytest.mark.skipif(core.native is None, reason="there is no native core here"),
    ),
]
Side = Callable[[Any, Callable[[], None], Any], None]


def side_by_side(
    words_of: Any, fence: Callable[[], None], *sides: Side
) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    """Runs each side in a process of its own, on one page of words and a page of data, and returns the data."""
    arena = Arena.create("litmus", 2 * PAGE_NBYTES + 8 * 2 * ROUNDS)
    data = np.frombuffer(arena.buffer, np.int64, offset=2 * PAGE_NBYTES)

    def run(side: Side) -> None:
        shared = words_of(memoryview(arena.buffer)[: 2 * PAGE_NBYTES])
        side(shared, fence, data)
        os._exit(0)

    context = mp.get_context("fork")
    children = [context.Process(target=run, args=(side,)) for side in sides]
    for child in children:
        child.start()
    for child in children:
        child.join(120)
    assert [child.exitcode for child in children] == [0] * len(sides)
    arena.close()
    return data


@pytest.mark.parametrize(("words_of", "fence"), CHOICES)
def test_who_sees_the_word_sees_the_data_that_were_written_before_it(words_of: Any, fence: Any) -> None:
    """Message passing: data, then the word that announces them; the reader looks in the opposite order."""

    def writer(shared: Any, _fence: Any, data: Any) -> None:
        for number in range(1, ROUNDS + 1):
            data[0] = number
            shared[MINE] = number

    def reader(shared: Any, _fence: Any, data: Any) -> None:
        at = 0
        while at < ROUNDS:
            at = shared[MINE]
            if data[0] < at:
                data[1] += 1

    assert side_by_side(words_of, fence, writer, reader)[1] == 0


@pytest.mark.parametrize(("words_of", "fence"), CHOICES)
def test_of_two_who_write_and_then_look_at_each_other_one_sees_the_other(words_of: Any, fence: Any) -> None:
    """Store buffering, with fences: the hand and the posts of `contest`, the sleeper and the post of `bells`."""

    def half(mine: int, other: int) -> Side:
        def side(shared: Any, fence: Any, data: Any) -> None:
            for number in range(1, ROUNDS + 1):
                while shared[other + SEEN] < number - 1:  # rounds begin together
                    pass
                shared[mine] = number
                fence()
                data[(mine > 0) * ROUNDS + number - 1] = shared[other]
                shared[mine + SEEN] = number

        return side

    found = side_by_side(words_of, fence, half(MINE, OTHERS), half(OTHERS, MINE))
    numbers = np.arange(1, ROUNDS + 1)
    missed = (found[:ROUNDS] < numbers) & (found[ROUNDS : 2 * ROUNDS] < numbers)
    assert not missed.any(), f"in rounds {numbers[missed][:10]} neither saw the other"


@pytest.mark.parametrize("words_of", [LockedWords, words.words_of])
def test_words_are_whole_numbers_of_64_bits_that_end_with_the_memory(words_of: Any) -> None:
    memory = bytearray(28)
    found = words_of(memoryview(memory))
    found[0], found[2] = (1 << 64) - 1, 5
    assert (len(found), found[0], found[1], found[2]) == (3, (1 << 64) - 1, 0, 5)
    assert memory[16:24] == (5).to_bytes(8, "little")
    with pytest.raises(IndexError):
        found[3]
    with pytest.raises((OverflowError, ValueError)):
        found[0] = 1 << 64
    found.release()
    with pytest.raises((IndexError, ValueError)):
        found[0]


@pytest.mark.skipif(core.native is None, reason="there is no native core here")
def test_the_core_and_the_board_place_words_alike() -> None:
    from hocket.fabric import board

    native = core.native
    assert (native.LINE_WORDS, native.COUNT_BITS) == (board.LINE_WORDS, board.COUNT_BITS)
    names = ("CONTESTED", "RESULT", "BRIDGE_READ", "SIGNED", "POSTED", "READ", "REDUCED", "SIGNED_AT", "CALL", "OFFER")
    assert [getattr(native, name) for name in names] == [getattr(board, f"_{name}") for name in names]
    assert native.PAGE_NBYTES == PAGE_NBYTES
