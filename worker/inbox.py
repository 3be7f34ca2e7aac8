"""Chunks that arrive from other hosts for one channel: placed where the bridge wants them, or kept until it does."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from hocket.fabric.arena import PAGE_NBYTES
from hocket.fabric.board import Bytes
from hocket.protocol.errors import HocketError, WireError
from hocket.protocol.limits import BLOCK_WINDOW
from hocket.protocol.messages import Chunk

Key = tuple[int, int, int, int]
"""host, operation number, block, step"""
SPARE = 8
"""Buffers that are kept for the next chunks: memory that is touched for the first time costs ten times a copy."""
SPARE_NBYTES = 4 << 20
"""Larger ones are not kept."""


@dataclass(slots=True)
class _Arrival:
    """One chunk on its way: where it goes, and who waits for it."""

    views: list[memoryview]
    early: Bytes | None = None
    """the buffer that it is kept in"""
    complete: bool = False
    waiter: asyncio.Future[None] | None = None


@dataclass(slots=True)
class Inbox:
    """See the module. ``chunk_nbytes`` bounds a chunk; ``number`` is the operation that the bridge is at."""

    chunk_nbytes: int
    number: int = 1
    _arrivals: dict[Key, _Arrival] = field(default_factory=dict)
    _filling: set[Key] = field(default_factory=set)
    _settled: asyncio.Event = field(default_factory=asyncio.Event)
    _gone: dict[int, HocketError] = field(default_factory=dict)
    _spare: list[Bytes] = field(default_factory=list)

    def _buffer(self, nbytes: int) -> Bytes:
        """Memory for a chunk that begins at a page: elsewhere sockets are read at half the speed."""
        for index, spare in enumerate(self._spare):
            if len(spare) >= nbytes:
                return self._spare.pop(index)
        memory = np.empty(nbytes + PAGE_NBYTES, np.uint8)
        start = -memory.__array_interface__["data"][0] % PAGE_NBYTES
        return memory[start : start + nbytes]

    def give_back(self, buffer: Bytes) -> None:
        """What `receive` gave is not needed any more."""
        if len(self._spare) < SPARE and len(buffer) <= SPARE_NBYTES:
            self._spare.append(buffer)

    def sink(self, host: int, chunk: Chunk, nbytes: int) -> Sequence[memoryview] | None:
        """Where a chunk's bytes go; None for one that nobody needs any more.

        Raises:
            WireError: it is larger than a chunk can be, or there are more of them than a host may be ahead.
        """
        if chunk.number < self.number:
            return None
        key = (host, chunk.number, chunk.block, chunk.step)
        arrival = self._arrivals.get(key)
        if arrival is None:
            ahead = sum(1 for other in self._arrivals.values() if other.early is not None)
            if nbytes > self.chunk_nbytes or ahead > 64 * BLOCK_WINDOW:
                raise WireError(f"chunk of {nbytes} bytes from host {host}, which nobody waits for")
            early = self._buffer(nbytes)
            arrival = self._arrivals[key] = _Arrival([early[:nbytes].data], early)
        elif arrival.complete or key in self._filling:
            raise WireError(f"chunk {key} came twice")
        self._filling.add(key)
        return arrival.views

    def arrived(self, host: int, chunk: Chunk, nbytes: int) -> None:
        """The chunk's bytes are all in place."""
        key = (host, chunk.number, chunk.block, chunk.step)
        self._filling.discard(key)
        self._settled.set()
        arrival = self._arrivals.get(key)
        if arrival is None:
            return
        arrival.complete = True
        if arrival.waiter is not None and not arrival.waiter.done():
            arrival.waiter.set_result(None)

    async def take(self, key: Key, views: list[memoryview]) -> None:
        """Receives a chunk into ``views``, in place unless it has begun to arrive already."""
        arrival = self._arrivals.get(key)
        if arrival is None:
            arrival = self._arrivals[key] = _Arrival(views)
        await self._arrives(key, arrival)
        if arrival.early is not None:
            _copy_out(arrival.views[0], views)
            self.give_back(arrival.early)

    async def receive(self, key: Key, nbytes: int) -> tuple[memoryview, Bytes]:
        """Receives a chunk: its bytes, and the buffer that they stand in, which is to be given back.

        Raises:
            WireError: another number of bytes came.
        """
        arrival = self._arrivals.get(key)
        if arrival is None:
            buffer = self._buffer(nbytes)
            arrival = self._arrivals[key] = _Arrival([buffer[:nbytes].data], buffer)
        await self._arrives(key, arrival)
        [view], early = arrival.views, arrival.early
        assert early is not None, "a chunk that is received has a buffer"
        if len(view) != nbytes:
            raise WireError(f"chunk of {len(view)} bytes came, {nbytes} were expected")
        return view, early

    async def _arrives(self, key: Key, arrival: _Arrival) -> None:
        if not arrival.complete:
            if key[0] in self._gone:
                raise self._gone[key[0]]
            arrival.waiter = asyncio.get_running_loop().create_future()
            await arrival.waiter
        del self._arrivals[key]

    def fail(self, error: HocketError) -> None:
        """Wakes whoever waits with ``error``."""
        for arrival in self._arrivals.values():
            if arrival.waiter is not None and not arrival.waiter.done():
                arrival.waiter.set_exception(error)

    async def leave(self, number: int) -> None:
        """Operation ``number`` is over: drops its chunks, and waits for those that are being written right now."""
        self.number = number + 1
        while any(key[1] <= number for key in self._filling):
            self._settled.clear()
            await self._settled.wait()
        self._drop(number)

    def pass_by(self, number: int) -> None:
        """Operation ``number`` is over, and nobody has waited for chunks of it: drops what came all the same."""
        self.number = number + 1
        if self._arrivals:
            self._drop(number)

    def _drop(self, number: int) -> None:
        for key in [key for key in self._arrivals if key[1] <= number]:
            del self._arrivals[key]

    def host_gone(self, host: int, error: HocketError) -> None:
        """The link to ``host`` has ended: nothing of its will be written any more, who waits for it gets ``error``."""
        self._filling = {key for key in self._filling if key[0] != host}
        self._settled.set()
        self._gone[host] = error
        for key, arrival in self._arrivals.items():
            if key[0] == host and arrival.waiter is not None and not arrival.waiter.done():
                arrival.waiter.set_exception(error)


def _copy_out(early: memoryview, views: list[memoryview]) -> None:
    if sum(map(len, views)) != len(early):
        raise WireError(f"chunk of {len(early)} bytes came, {sum(map(len, views))} were expected")
    start = 0
    for view in views:
        view[:] = early[start : start + len(view)]
        start += len(view)
