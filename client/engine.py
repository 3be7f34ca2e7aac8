"""The two threads of a process that uses hocket: one for sockets, one for data. They serve all clients in it.

The caller's event loop is never held up and never needed: small operations end inside the call, everything else goes on
in these threads, also while the caller computes.
"""

import asyncio
import atexit
import contextlib
import os
import select
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from hocket.fabric.bells import RECHECK_S, Bells
from hocket.fabric.lane import Lane

T = TypeVar("T")
SPIN_S = 30e-6
"""How long the data thread looks again and again before it sleeps, where each rank has a core."""
CORES = len(os.sched_getaffinity(0))


class Engine:
    """See the module. Use `engine`, which makes one for each process."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.loop = asyncio.new_event_loop()
        self._lanes: tuple[Lane, ...] = ()
        self._sleepers: dict[int, tuple[Bells, int]] = {}
        self._lock = threading.Lock()
        self._wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._poller = select.poll()
        self._poller.register(self._wake_fd, select.POLLIN)
        self._closers: list[Callable[[], None]] = []
        self._retired: list[Bells] = []
        self.forked = False
        """set in the child of a fork, where this engine's threads do not exist"""
        self._stopping = False
        self._io = threading.Thread(target=self._run_loop, name="hocket-io", daemon=True)
        self._data = threading.Thread(target=self._carry, name="hocket-data", daemon=True)
        self._io.start()
        self._data.start()

    # --- sockets -----------------------------------------------------------------------------------------------------

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()

    def call(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Runs a coroutine on the socket thread."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def soon(self, function: Callable[..., object], *arguments: Any) -> None:
        """Calls a function on the socket thread."""
        self.loop.call_soon_threadsafe(function, *arguments)

    # --- data --------------------------------------------------------------------------------------------------------

    def add_sleeper(self, bells: Bells, place: int) -> None:
        """The data thread sleeps on this bell, among others."""
        with self._lock:
            fd = bells.fds[place]
            self._sleepers[fd] = bells, place
            self._poller.register(fd, select.POLLIN)
        self.wake()

    def retire(self, bells: Bells, fd: int) -> None:
        """Closes bells that nobody sleeps on any more, once the data thread has let go of them."""
        with self._lock:
            if self._sleepers.pop(fd, None) is not None:
                self._poller.unregister(fd)
            self._retired.append(bells)
        self.wake()

    def add_lane(self, lane: Lane) -> None:
        """The data thread carries this lane from now on."""
        with self._lock:
            self._lanes += (lane,)

    def remove_lane(self, lane: Lane) -> None:
        """The lane is done with."""
        with self._lock:
            self._lanes = tuple(other for other in self._lanes if other is not lane)

    def wake(self) -> None:
        """Has the data thread look at its lanes."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_write(self._wake_fd, 1)

    def _carry(self) -> None:
        spin_until = 0.0
        while not self._stopping:
            if self._retired:
                self._close_retired()
            busy = [lane for lane in self._lanes if not lane.idle]
            if _poll(busy):
                spin_until = 0.0
                continue
            if busy and self._may_spin(busy):
                now_s = time.perf_counter()
                spin_until = spin_until or now_s + SPIN_S
                if now_s < spin_until:
                    continue
            self._sleep(busy)
            spin_until = 0.0

    def _close_retired(self) -> None:
        with self._lock:
            retired, self._retired = self._retired, []
        for bells in retired:
            bells.close()

    @staticmethod
    def _may_spin(busy: list[Lane]) -> bool:
        return all(len(lane.seat.locals) <= CORES for lane in busy)

    def _sleep(self, busy: list[Lane]) -> None:
        """Sleeps until a bell rings, the earliest deadline passes, or for `RECHECK_S` while anything is under way."""
        with self._lock:
            # with nothing under way nobody needs to ring: whoever begins something wakes us by our own descriptor
            sleepers = list(self._sleepers.values())
        for bells, place in sleepers if busy else ():
            bells.lie_down(place)
        if not _poll(busy):
            deadline_s = min((lane.deadline_s for lane in busy), default=float("inf"))
            wait_s = min(RECHECK_S if busy else 60.0, max(0.0, deadline_s - time.monotonic()))
            self._poller.poll(wait_s * 1e3)
        for bells, place in sleepers:
            bells.get_up(place)
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._wake_fd)

    # --- the end -----------------------------------------------------------------------------------------------------

    def at_exit(self, closer: Callable[[], None]) -> None:
        """Has ``closer`` called when the interpreter ends, before the threads stop."""
        self._closers.append(closer)

    def forget_closer(self, closer: Callable[[], None]) -> None:
        """The client has been closed by its owner."""
        if closer in self._closers:
            self._closers.remove(closer)

    def stop(self) -> None:
        """At the end of the interpreter: clients say goodbye, threads end."""
        if os.getpid() != self.pid:
            return
        for closer in list(self._closers):
            closer()
        self._stopping = True
        self.wake()
        self._data.join(1.0)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._io.join(1.0)


def _poll(lanes: list[Lane]) -> bool:
    """Gives every lane its turn. Returns whether anything moved."""
    moved = False
    for lane in lanes:
        moved = lane.poll() or moved
    return moved


_engine: Engine | None = None
_engine_lock = threading.Lock()


def engine() -> Engine:
    """This process's engine, started at its first use."""
    global _engine
    with _engine_lock:
        if _engine is None:
            _engine = Engine()
            atexit.register(_engine.stop)
        return _engine


def _forget_in_child() -> None:
    """A fork's child begins anew: the parent's threads do not exist here, its descriptors are not to be touched."""
    global _engine, _engine_lock
    _engine_lock = threading.Lock()
    if _engine is not None:
        _engine.forked = True
    _engine = None


os.register_at_fork(after_in_child=_forget_in_child)
