"""Chunks that arrive from other hosts for one channel: placed where the bridge wants them, or kept until it does."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from hocket.protocol.errors import HocketError, WireError
from hocket.protocol.limits import BLOCK_WINDOW
from hocket.protocol.messages import Chunk

Key = tuple[int, int, int, int]
"""host, operation number, block, step"""


@dataclass(slots=True)
class _Arrival:
    """One chunk on its way: where it goes, and who waits for it."""

    views: list[memoryview]
    early: bytearray | None = None
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
            early = bytearray(nbytes)
            arrival = self._arrivals[key] = _Arrival([memoryview(early)], early)
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
        if not arrival.complete:
            if key[0] in self._gone:
                raise self._gone[key[0]]
            arrival.waiter = asyncio.get_running_loop().create_future()
            await arrival.waiter
        del self._arrivals[key]
        if arrival.early is not None:
            _copy_out(arrival.early, views)

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


def _copy_out(early: bytearray, views: list[memoryview]) -> None:
    if sum(map(len, views)) != len(early):
        raise WireError(f"chunk of {len(early)} bytes came, {sum(map(len, views))} were expected")
    start = 0
    for view in views:
        view[:] = early[start : start + len(view)]
        start += len(view)
