"""The shell around a group's `Mailbox`: it runs on the engine's socket thread, which makes all calls and sends.

The caller's thread only prepares flat memory. A message of at most `EAGER_NBYTES` is copied at once, so that its array
is the caller's again when the call returns; larger ones, and arrays that are received into, are locked meanwhile.
"""

import asyncio
import itertools
import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from hocket.client.arrays import FlatOutput, as_input, as_output, flat_input, lock, unlock
from hocket.client.mailbox import Mailbox
from hocket.client.objects import dumps, loads
from hocket.client.prepare_objects import frame, unframe
from hocket.client.transfer import Finish, Send
from hocket.client.work import Work
from hocket.fabric.dtypes import wire_dtype
from hocket.protocol.errors import (
    AbortedError,
    ArgumentError,
    ArgumentTypeError,
    HocketError,
    MismatchError,
    copy_of,
)
from hocket.protocol.frames import Buffers
from hocket.protocol.limits import EAGER_NBYTES
from hocket.protocol.messages import Message

if TYPE_CHECKING:
    from hocket.client.membership import Membership

HEADS, BODIES = "\0objects", "\0objects/bodies"
"""Channels, behind the caller's own, on which lists of objects travel: first their size, then they themselves."""
TAG_BOUND = 1 << 62


class _Pending:
    """One send or receive between call and end: its locks, its staging, its `Work`."""

    def __init__(self, work: Work, name: str, out: FlatOutput | None, locked: list[Any], keep: object) -> None:
        self.work, self.name, self.out, self.keep = work, name, out, keep
        self._held = lock(locked)

    def end(self, error: HocketError | None, source: int | None) -> None:
        unlock(self._held)
        if error is None and self.out is not None:
            self.out.commit()
        self.work.source = source
        self.work.complete(None if self.out is None else self.keep, error)


class PointToPoint:
    """Sends and receives of one membership. `send` and `recv` come from any thread, the rest on the socket thread."""

    def __init__(self, membership: "Membership") -> None:
        self._membership = membership
        self._mailbox = Mailbox(membership.info.group, membership.rank, len(membership.info.members))
        self._engine = membership.session.engine
        self._pending: dict[int, _Pending] = {}
        self._numbers = itertools.count(1)
        self._timer: asyncio.TimerHandle | None = None
        self._waiters: set[asyncio.Task[None]] = set()
        self._order = threading.Lock()

    # --- calls -------------------------------------------------------------------------------------------------------

    def send(self, tensor: Any, peer: int, tag: int, channel: str, timeout_s: float) -> Work:
        """Starts a send to group rank ``peer``."""
        _check(tag, channel)
        array = as_input(tensor, "tensor")
        dtype = wire_dtype(array.dtype, "tensor")
        data = flat_input(array)
        small = data.nbytes <= EAGER_NBYTES
        flat = memoryview(data.tobytes()) if small else data.data
        locked = [] if small or not isinstance(tensor, np.ndarray) else [tensor]
        return self._start("send", peer, flat, tag, channel, dtype, array.size, timeout_s, None, locked, tensor)

    def recv(self, tensor: Any, peer: int | None, tag: int, channel: str, timeout_s: float) -> Work:
        """Starts a receive from group rank ``peer``, or from anybody."""
        _check(tag, channel)
        array = as_output(tensor, "tensor")
        dtype = wire_dtype(array.dtype, "tensor")
        out = FlatOutput(array)
        locked = [tensor] if isinstance(tensor, np.ndarray) else []
        return self._start("recv", peer, out.flat.data, tag, channel, dtype, array.size, timeout_s, out, locked, tensor)

    def _start(
        self,
        name: str,
        peer: int | None,
        flat: memoryview,
        tag: int,
        channel: str,
        dtype: str,
        count: int,
        timeout_s: float,
        out: FlatOutput | None,
        locked: list[Any],
        keep: object,
    ) -> Work:
        number = next(self._numbers)
        work = Work(name, lambda cause: self._engine.soon(self._cancel, number, cause))
        pending = _Pending(work, name, out, locked, keep)
        begun_s = time.monotonic()

        def begin() -> None:
            self._pending[number] = pending
            call = self._mailbox.send if name == "send" else self._mailbox.recv
            deadline_s = begun_s + timeout_s
            self._perform(call(number, flat, peer, tag, channel, dtype, count, deadline_s, begun_s))  # type: ignore[arg-type]

        self._engine.soon(begin)
        return work

    def _cancel(self, number: int, cause: str) -> None:
        if number in self._pending:
            self._perform(self._mailbox.cancel(number, AbortedError(self._membership.rank, cause)))

    # --- objects -----------------------------------------------------------------------------------------------------

    def send_objects(
        self, objects: list[Any], peer: int, tag: int, channel: str, timeout_s: float, allow_pickle: bool
    ) -> Work:
        """Sends a list of objects: their size on one channel, then their bytes on another."""
        _check(tag, channel)
        mine = self._membership.place.shown(self._membership.rank)
        body = frame([dumps(item, rank=mine, allow_pickle=allow_pickle) for item in objects])
        head = np.array([len(objects), body.nbytes], np.int64)
        with self._order:
            self.send(head, peer, tag, channel + HEADS, timeout_s)
            return self.send(body, peer, tag, channel + BODIES, timeout_s)

    def recv_objects(
        self, objects: list[Any], peer: int | None, tag: int, channel: str, timeout_s: float, allow_pickle: bool
    ) -> Work:
        """Receives a list of objects into ``objects``, whose length must be the sender's."""
        _check(tag, channel)
        if not isinstance(objects, list):
            raise ArgumentTypeError("object_list", type(objects).__name__, "a list to be filled")
        whole = Work("recv_object_list", lambda cause: _ignore(head.cancel(cause)))
        sizes = np.zeros(2, np.int64)
        until_s = time.monotonic() + timeout_s

        def got_head(work: Work) -> None:
            error = work.exception()
            if error is not None:
                whole.complete(None, error)
                return
            body = np.empty(int(sizes[1]), np.uint8)
            left_s = max(0.001, until_s - time.monotonic())
            second = self.recv(body, work_source(work), tag, channel + BODIES, left_s)
            second.add_done_callback(lambda done: self._fill(whole, done, objects, sizes, body, allow_pickle))

        def work_source(work: Work) -> int:
            assert work.source is not None
            return self._group_rank(work.source)

        head = self.recv(sizes, peer, tag, channel + HEADS, timeout_s)
        head.add_done_callback(got_head)
        return whole

    def _fill(self, whole: Work, done: Work, objects: list[Any], sizes: Any, body: Any, allow_pickle: bool) -> None:
        error = done.exception()
        whole.source = done.source
        if error is None and int(sizes[0]) != len(objects):
            source = done.source if done.source is not None else -1
            theirs, mine = ((source,), f"send_object_list of {sizes[0]}"), f"recv_object_list of {len(objects)}"
            error = MismatchError((theirs, ((self._membership.place.shown(self._membership.rank),), mine)))
        if error is None:
            try:
                source = done.source if done.source is not None else -1
                objects[:] = [loads(part, rank=source, allow_pickle=allow_pickle) for part in unframe(body)]
            except HocketError as broken:
                error = broken
        whole.complete(objects if error is None else None, error)

    def _group_rank(self, shown: int) -> int:
        place = self._membership.place
        return next(rank for rank in range(place.size) if place.shown(rank) == shown)

    # --- the socket thread -------------------------------------------------------------------------------------------

    def sink(self, message: Message, nbytes: int) -> Buffers | None:
        """Where a payload goes."""
        return self._mailbox.sink(message, nbytes)

    def received(self, message: Message, _nbytes: int) -> None:
        """A message for this mailbox."""
        self._perform(self._mailbox.handle_message(message))

    def end(self, error: HocketError, disconnected: bool = False) -> None:
        """The epoch has ended, or with it the connection."""
        self._perform(self._mailbox.end(error, disconnected))

    def _perform(self, effects: list[Send | Finish]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                self._send(effect)
            else:
                self._finish(effect)
        self._arm()

    def _send(self, effect: Send) -> None:
        try:
            self._membership.session.send(effect.message, () if effect.payload is None else (effect.payload,))
        except HocketError:
            return  # the connection has ended, of which `end` tells every operation
        if effect.ticket is not None:
            task = self._engine.loop.create_task(self._written(effect.ticket))
            self._waiters.add(task)
            task.add_done_callback(self._waiters.discard)

    async def _written(self, ticket: int) -> None:
        try:
            await self._membership.session.written()
        except HocketError:
            return  # as above
        self._perform(self._mailbox.written(ticket))

    def _finish(self, effect: Finish) -> None:
        pending = self._pending.pop(effect.handle)  # type: ignore[call-overload]
        place = self._membership.place
        source = None if effect.source is None else place.shown(effect.source)
        error = effect.error
        if error is not None:
            where = self._membership.where(pending.name, int(str(effect.handle)), "")
            error = self._membership.shown(copy_of(error).at(where))
        pending.end(error, source)

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline_s = self._mailbox.deadline
        if deadline_s is not None and deadline_s < float("inf"):
            delay_s = max(0.0, deadline_s - time.monotonic())
            self._timer = self._engine.loop.call_later(delay_s, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._perform(self._mailbox.tick(time.monotonic()))


def _ignore(_value: object) -> None:
    """For callbacks that are to return nothing."""


def _check(tag: int, channel: str) -> None:
    if isinstance(tag, bool) or not hasattr(tag, "__index__"):
        raise ArgumentTypeError("tag", f"{tag!r} ({type(tag).__name__})", "a whole number")
    if not -TAG_BOUND < int(tag) < TAG_BOUND:
        raise ArgumentError("tag", str(tag), f"a number between {-TAG_BOUND} and {TAG_BOUND}")
    if not isinstance(channel, str):
        raise ArgumentTypeError("channel", repr(channel), "a string")
