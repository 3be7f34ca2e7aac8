"""Ranks made of `hocket.protocol` alone, for tests of what a worker does with whatever it is sent."""

import asyncio
import os
from collections.abc import Callable
from typing import TypeVar

from hocket.protocol.addresses import Address
from hocket.protocol.connection import Connection
from hocket.protocol.doorway import dial
from hocket.protocol.errors import HocketError
from hocket.protocol.frames import Buffers
from hocket.protocol.handshake import introduce
from hocket.protocol.messages import NOBODY, GroupReady, Join, Joined, Message

M = TypeVar("M", bound=Message)
LIMIT_S = 10.0


class RawRank:
    """A connection to a worker that says only what the test says, and keeps all that it hears."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.heard: list[Message] = []
        self.payloads: list[bytearray] = []
        self.ended = asyncio.Event()
        self._news = asyncio.Event()
        connection.start(self._take, self._closed, self._sink)

    @classmethod
    async def connect(cls, address: str | tuple[str, int]) -> "RawRank":
        """Connects to a worker's socket (a path) or its TCP port, as a client."""
        to = Address(path=address) if isinstance(address, str) else Address(*address)
        connection = await dial(to, "the test")
        await introduce(connection, "client", "", b"")
        return cls(connection)

    def _sink(self, _message: Message, nbytes: int) -> Buffers:
        self.payloads.append(bytearray(nbytes))
        return [memoryview(self.payloads[-1])]

    def _take(self, message: Message, _nbytes: int, fds: list[int]) -> None:
        for fd in fds:
            os.close(fd)
        self.heard.append(message)
        self._news.set()

    def _closed(self, _error: HocketError | None) -> None:
        self.ended.set()
        self._news.set()

    def say(self, message: Message, payload: bytes = b"", fds: tuple[int, ...] = ()) -> None:
        """Sends."""
        self.connection.send(message, [memoryview(payload)] if payload else [], fds)

    async def hear(self, kind: type[M], which: Callable[[M], bool] = lambda _message: True) -> M:
        """The first message of a kind that has come, or that comes within the limit; it counts as heard."""
        async with asyncio.timeout(LIMIT_S):
            while True:
                for message in self.heard:
                    if isinstance(message, kind) and which(message):
                        self.heard.remove(message)
                        return message
                assert not self.ended.is_set(), f"the connection ended before a {kind.__name__} came"
                self._news.clear()
                await self._news.wait()

    async def hangs_up(self) -> None:
        """Waits until the worker has closed the connection."""
        async with asyncio.timeout(LIMIT_S):
            await self.ended.wait()

    def join(self, job: str = "test", rank: int = NOBODY, size: int = NOBODY, *, shared: bool = False) -> None:
        """Asks into a job."""
        self.say(Join(1, job, rank, size, f"raw {rank}", os.getpid(), LIMIT_S, shared))

    async def joined(self) -> Joined:
        """The answer of the worker, for a client without a world."""
        return await self.hear(Joined)

    async def world(self) -> GroupReady:
        """The world that we asked into."""
        return await self.hear(GroupReady)

    def close(self) -> None:
        """Hangs up."""
        self.connection.close()


async def raw_world(sockets: list[str], job: str = "test") -> tuple[list[RawRank], int]:
    """A world with a rank for each socket, none of which shares memory. Returns them and the group's number."""
    ranks = [await RawRank.connect(path) for path in sockets]
    for number, rank in enumerate(ranks):
        rank.join(job, number, len(ranks))
    ready = [await rank.world() for rank in ranks]
    return ranks, ready[0].info.group
