"""A handle on an operation under way: awaitable on any event loop, usable without one."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Generator
from typing import Any

from hocket.protocol.errors import ClosedError, DeadlineError, HocketError
from hocket.protocol.limits import VERDICT_TIMEOUT_S

log = logging.getLogger("hocket.client")

Callback = Callable[["Work"], object]

TURN_S = 1e-3
"""Awaits of what has ended already give the loop a turn only so often: one after the other, they would starve it."""
_turned_s = 0.0


def _nothing(_cause: str) -> None:
    """There is nothing left to cancel."""


class Work:
    """The outcome of one operation, now or later. The operation is under way whether or not anybody waits.

    ``await work`` gives the operation's outputs; of one that has completed already it does so without yielding to the
    loop, but for a turn each millisecond. Cancelling the awaiting task cancels the operation for the whole group,
    unless it completes all the same, and returns only when the caller's arrays will not be written any more.
    """

    __slots__ = (
        "__weakref__",
        "_callbacks",
        "_cancel",
        "_done",
        "_error",
        "_lock",
        "_seen",
        "_value",
        "source",
        "what",
    )

    def __init__(self, what: str, cancel: Callable[[str], None]) -> None:
        self.what = what
        self.source: int | None = None
        """rank of the sender, once a receive is done"""
        self._cancel = cancel
        self._lock = threading.Lock()
        self._done = self._seen = False
        self._value: Any = None
        self._error: HocketError | None = None
        self._callbacks: list[Callback] = []

    def __repr__(self) -> str:
        state = "under way" if not self._done else f"failed: {self._error}" if self._error else "done"
        return f"<Work {self.what}: {state}>"

    def complete(self, value: Any, error: HocketError | None) -> None:
        """Sets the outcome. For hocket itself: called once, from whichever thread carried the operation out."""
        with self._lock:
            assert not self._done, f"{self.what} ended twice"
            self._value, self._error, self._done = value, error, True
            self._cancel = _nothing  # it holds the operation, whose arrays are the caller's again
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            self._call(callback)

    def _call(self, callback: Callback) -> None:
        try:
            callback(self)
        except Exception:
            log.exception("a callback of %s failed", self.what)

    # --- asking ------------------------------------------------------------------------------------------------------

    def done(self) -> bool:
        """Whether the operation has ended, well or not."""
        return self._done

    def is_completed(self) -> bool:
        """torch's spelling of `done`."""
        return self._done

    def exception(self) -> HocketError | None:
        """The error of an operation that has ended, or None. Raises `ClosedError` while it is under way."""
        if not self._done:
            raise ClosedError(f"{self.what} is still under way: await it first")
        self._seen = True
        return self._error

    def result(self) -> Any:
        """The outputs of an operation that has ended; raises its error. Raises `ClosedError` while it is under way."""
        error = self.exception()
        if error is not None:
            raise error
        return self._value

    def add_done_callback(self, callback: Callback) -> None:
        """Has ``callback(work)`` called when the operation ends, from the thread that ends it; at once if it has."""
        with self._lock:
            if not self._done:
                self._callbacks.append(callback)
                return
        self._call(callback)

    def cancel(self, cause: str = "cancelled by its caller") -> bool:
        """Ends the operation for the group unless it completes all the same. Returns whether it was under way."""
        if self._done:
            return False
        self._cancel(cause)
        return True

    # --- waiting -----------------------------------------------------------------------------------------------------

    def wait(self, timeout: float | None = None) -> Any:
        """Blocks this thread until the operation ends, and returns its outputs. Not for a coroutine: await instead.

        Raises:
            DeadlineError: ``timeout`` seconds have passed; the operation goes on.
        """
        if not self._done:
            ended = threading.Event()
            self.add_done_callback(lambda _work: ended.set())
            if not ended.wait(timeout):
                raise DeadlineError(timeout or 0.0, (), f"{self.what} is still under way")
        return self.result()

    def __await__(self) -> Generator[Any, None, Any]:
        if not self._done:
            yield from self._ended().__await__()
        return self.result()

    async def _ended(self) -> None:
        future = self._future()
        try:
            await asyncio.shield(future)
        except asyncio.CancelledError:
            self.cancel()
            await self._settle(future)
            self._seen = True
            raise

    async def _settle(self, future: "asyncio.Future[None]") -> None:
        """After a cancellation: waits until nobody touches the caller's arrays any more, whatever else is cancelled."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + VERDICT_TIMEOUT_S
        while not future.done() and loop.time() < deadline_s:
            try:
                await asyncio.wait({future}, timeout=deadline_s - loop.time())
            except asyncio.CancelledError:
                continue

    def _future(self) -> "asyncio.Future[None]":
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()

        def tell(_work: "Work") -> None:
            try:
                loop.call_soon_threadsafe(lambda: None if future.done() else future.set_result(None))
            except RuntimeError:
                log.debug("the loop that waited for %s is closed", self.what)

        self.add_done_callback(tell)
        return future

    def __del__(self) -> None:
        if getattr(self, "_error", None) is not None and not self._seen:
            log.error("%s failed and nobody looked: %s", self.what, self._error)


class Finished(Work):
    """The outcome of an operation that has ended well inside its call: nothing is to come, nothing can be cancelled."""

    __slots__ = ()

    def __init__(self, what: str, value: Any) -> None:
        self.what = what
        self._value = value
        self._done = True

    source = None
    _error = None

    def complete(self, value: Any, error: HocketError | None) -> None:
        """It has ended already."""
        raise AssertionError(f"{self.what} ended twice")

    def exception(self) -> HocketError | None:
        """None: it has ended well."""
        return None

    def result(self) -> Any:
        """The operation's outputs."""
        return self._value

    def add_done_callback(self, callback: Callback) -> None:
        """Calls ``callback(work)`` at once."""
        self._call(callback)

    def wait(self, timeout: float | None = None) -> Any:
        """The operation's outputs, at once."""
        return self._value

    def __await__(self) -> Generator[Any, None, Any]:
        global _turned_s
        now_s = time.monotonic()
        if now_s - _turned_s > TURN_S:
            _turned_s = now_s
            yield  # what asyncio.sleep(0) does
        return self._value

    def __del__(self) -> None:
        """There is no error that anybody could have missed."""
