"""Shared memory: what it holds, who may map it, who owns the descriptor."""

import os

import numpy as np
import pytest

from hocket.fabric.arena import PAGE_NBYTES, Arena
from hocket.protocol.errors import WireError


def is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


@pytest.mark.parametrize(("wanted", "nbytes"), [(1, 4096), (4096, 4096), (4097, 8192)])
def test_fresh_memory_is_zero_and_takes_whole_pages(wanted: int, nbytes: int) -> None:
    arena = Arena.create("test", wanted)
    assert arena.nbytes == len(arena.buffer) == nbytes
    assert bytes(arena.buffer) == bytes(nbytes)
    arena.close()


def test_who_attaches_sees_what_the_other_writes_and_no_longer_needs_the_descriptor() -> None:
    mine = Arena.create("test", PAGE_NBYTES)
    handed = os.dup(mine.fd)
    theirs = Arena.attach(handed)
    assert not is_open(handed)
    mine.buffer[7] = 42
    assert theirs.buffer[7] == 42
    theirs.buffer[8] = 43
    assert mine.buffer[8] == 43
    theirs.close()
    mine.close()


def test_nobody_can_change_the_size_and_kill_the_others_by_it() -> None:
    arena = Arena.create("test", 2 * PAGE_NBYTES)
    for nbytes in (0, PAGE_NBYTES, 3 * PAGE_NBYTES):
        with pytest.raises(PermissionError):
            os.ftruncate(arena.fd, nbytes)
    arena.close()


def test_memory_that_could_shrink_is_refused_and_its_descriptor_closed() -> None:
    fd = os.memfd_create("unsealed", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, PAGE_NBYTES)
    with pytest.raises(WireError, match="shrink"):
        Arena.attach(fd)
    assert not is_open(fd)


def test_what_is_no_memory_is_refused_and_its_descriptor_closed() -> None:
    reading, writing = os.pipe()
    with pytest.raises(WireError, match="not shared memory"):
        Arena.attach(reading)
    assert not is_open(reading)
    os.close(writing)


def test_views_outlive_the_handle_and_closing_twice_does_nothing() -> None:
    arena = Arena.create("test", PAGE_NBYTES)
    fd, view = arena.fd, np.frombuffer(arena.buffer, np.uint8)
    view[3] = 9
    arena.close()
    arena.close()
    assert not is_open(fd)
    assert view[3] == 9
