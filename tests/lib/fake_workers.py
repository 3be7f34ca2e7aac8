"""Workers made of `hocket.protocol` alone, for tests of the coordinator over real sockets."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import uvloop

from hocket.coordinator.config import CoordinatorConfig
from hocket.coordinator.server import Coordinator
from hocket.protocol.addresses import Address
from hocket.protocol.connection import Connection
from hocket.protocol.doorway import dial
from hocket.protocol.errors import error_from_facts
from hocket.protocol.handshake import introduce
from hocket.protocol.messages import (
    GroupFormed,
    GroupInfo,
    Heartbeat,
    Message,
    Refused,
    Register,
    Registered,
    SessionJoins,
)

M = TypeVar("M", bound=Message)
LIMIT_S = 10.0
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}
FREE_PORTS = CoordinatorConfig(port=0, http_port=0)


class FakeWorker:
    """A registered worker that does only what the test says."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.host = 0

    @classmethod
    async def connect(
        cls,
        coordinator: Coordinator,
        name: str = "a",
        address: str = "",
        token: bytes = b"",
        instance: str = "first",
        port: int = 5000,
    ) -> "FakeWorker":
        """Registers. Raises what the coordinator refuses it with."""
        worker = cls(await dial(Address("127.0.0.1", coordinator.port), "the test"))
        try:
            await introduce(worker.connection, "worker", "", token)
            worker.say(Register(name, address, port, 77, instance))
            worker.host = (await worker.hear(Registered)).host
        except BaseException:
            worker.connection.close()
            raise
        return worker

    def say(self, message: Message) -> None:
        """Sends."""
        self.connection.send(message)

    async def hear(self, kind: type[M]) -> M:
        """The next message of a kind, within the test's limit; others before it are dropped. Raises a `Refused`."""
        async with asyncio.timeout(LIMIT_S):
            while True:
                message = await self.connection.receive()
                if isinstance(message, kind):
                    return message
                if isinstance(message, Refused):
                    raise error_from_facts(message.error)

    async def hear_alive(self, kind: type[M]) -> M:
        """As `hear`, giving signs of life in the meantime."""
        async with asyncio.timeout(LIMIT_S):
            while True:
                self.say(Heartbeat(0.0))
                message = await self.connection.receive()
                if isinstance(message, kind):
                    return message

    async def settle(self) -> None:
        """Returns once the coordinator has dealt with all that was said."""
        self.say(Heartbeat(0.5))
        while (await self.hear(Heartbeat)).sent_s != 0.5:
            pass

    def close(self) -> None:
        """Hangs up."""
        self.connection.close()


async def world_of(*workers: FakeWorker, job: str = "x", timeout_s: float = 60.0) -> GroupInfo:
    """A world with one rank on each worker, session number 1 there."""
    for rank, worker in enumerate(workers):
        worker.say(SessionJoins(1, 1, job, rank, len(workers), f"client {rank}", 100 + rank, timeout_s))
    formed = [await worker.hear(GroupFormed) for worker in workers]
    return formed[0].info


def run(main: Callable[[], Awaitable[Any]], loop: str = "asyncio") -> None:
    """Runs a test's coroutine on a loop, in debug mode where that is asyncio's own."""

    async def bounded() -> None:
        async with asyncio.timeout(3 * LIMIT_S):
            await main()

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(bounded())
