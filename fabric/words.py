"""Words of shared memory in an order that other cores see: read with acquire, written with release, and a full fence.

Plain Python has no such thing. Without the native core a lock is taken instead, whose atomic instructions order what is
around them: the data before the word that announces them, and a word that was read before the data. x86 keeps loads in
order, and stores; there only the full fence is needed.
"""

import platform
import threading
from collections.abc import Callable
from typing import Protocol

from hocket.fabric.core import native


class Words(Protocol):
    """Shared 64-bit words."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> int: ...

    def __setitem__(self, index: int, value: int, /) -> None: ...

    def release(self) -> None:
        """Gives the memory up: no word can be reached any more."""


_lock = threading.Lock()


def fence_by_lock() -> None:
    """Orders this thread's earlier loads and stores before its later ones."""
    _lock.acquire()
    _lock.release()


class LockedWords:
    """`Words` without the native core: eight bytes that stand at a multiple of eight are read and written as one."""

    def __init__(self, buffer: memoryview) -> None:
        self._words = buffer[: len(buffer) // 8 * 8].cast("Q")

    def __len__(self) -> int:
        return len(self._words)

    def __getitem__(self, index: int, /) -> int:
        value = self._words[index]
        fence_by_lock()
        return value

    def __setitem__(self, index: int, value: int, /) -> None:
        fence_by_lock()
        self._words[index] = value

    def release(self) -> None:
        """See `Words`."""
        self._words.release()


def _plain_words(buffer: memoryview) -> Words:
    return buffer[: len(buffer) // 8 * 8].cast("Q")


def _choose() -> Callable[[memoryview], Words]:
    if native is not None:
        words: Callable[[memoryview], Words] = native.Words
        return words
    return _plain_words if platform.machine() in ("x86_64", "AMD64") else LockedWords


words_of: Callable[[memoryview], Words] = _choose()
"""The words in writable shared memory."""
fence: Callable[[], None] = fence_by_lock if native is None else native.fence
"""Orders this thread's earlier loads and stores before its later ones."""
