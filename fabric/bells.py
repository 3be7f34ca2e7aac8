"""Doorbells: how a member that found nothing to do sleeps without using a core, and how the others wake it.

Every session has a place on its host's bells page and an eventfd. A sleeper writes 1 to its place, looks at the board
once more, then sleeps on its eventfd; who posts looks at the places of those that may be waiting and rings where it
finds a 1. The two look-after-write orders need a full fence (see `words`). A ring that is missed all the same costs
`RECHECK_S`, never a hang.
"""

import contextlib
import os
from collections.abc import Iterable

from hocket.fabric.arena import Arena
from hocket.fabric.words import Words, fence, words_of

PLACES = 2048
"""Places on a bells page: sessions that one worker can have at a time, and its own."""
WORKER_BELL = 0
"""The worker's place: it stands in for members elsewhere, and wants to know of posts for them."""
RECHECK_S = 0.05


class Bells:
    """The bells of one host that one process knows."""

    def __init__(self, page: Arena) -> None:
        self.page = page
        self._asleep: Words = words_of(memoryview(page.buffer))
        self.fds: dict[int, int] = {}

    def add(self, place: int, fd: int) -> None:
        """Takes over the eventfd of a place; one that is known already is closed."""
        old = self.fds.pop(place, None)
        if old is not None:
            os.close(old)
        self.fds[place] = fd

    def remove(self, place: int) -> None:
        """Forgets a place."""
        fd = self.fds.pop(place, None)
        if fd is not None:
            os.close(fd)

    def ring(self, places: Iterable[int]) -> None:
        """Wakes whoever sleeps at these places."""
        fence()
        for place in places:
            if self._asleep[place]:
                fd = self.fds.get(place)
                if fd is not None:
                    with contextlib.suppress(BlockingIOError):  # a counter that is full wakes just as well
                        os.eventfd_write(fd, 1)

    def lie_down(self, place: int) -> None:
        """Says that ``place`` is about to sleep. Look at the board once more afterwards, then sleep on its fd."""
        self._asleep[place] = 1
        fence()

    def get_up(self, place: int) -> None:
        """Says that ``place`` is awake, and empties its eventfd."""
        self._asleep[place] = 0
        fd = self.fds.get(place)
        if fd is not None:
            with contextlib.suppress(BlockingIOError):  # nobody rang
                os.eventfd_read(fd)

    def close(self) -> None:
        """Closes all descriptors."""
        for fd in self.fds.values():
            os.close(fd)
        self.fds.clear()
        self._asleep.release()
        self.page.close()


def make_bell() -> int:
    """A new eventfd."""
    return os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
