"""The worker's control stream: it registers with the coordinator, stays in touch, and comes back after an outage."""

import asyncio
import logging
import os
from collections.abc import Callable

from hocket.protocol.connection import Connection
from hocket.protocol.doorway import dial
from hocket.protocol.errors import AuthError, HocketError, WireError, error_from_facts
from hocket.protocol.handshake import introduce
from hocket.protocol.limits import HEARTBEAT_S, RECONNECT_FIRST_S, RECONNECT_LAST_S
from hocket.protocol.messages import Heartbeat, Message, Refused, Register, Registered
from hocket.worker.config import WorkerConfig

log = logging.getLogger("hocket.worker")


class Control:
    """See the module. ``prepare`` opens the data port once our address on the route to the coordinator is known, and
    returns what to register; ``on_message`` gets everything but heartbeats.
    """

    def __init__(
        self,
        config: WorkerConfig,
        instance: str,
        prepare: Callable[[str], tuple[str, int]],
        on_registered: Callable[[int], None],
        on_message: Callable[[Message], None],
    ) -> None:
        self._config, self._instance = config, instance
        self._prepare, self._on_registered, self._on_message = prepare, on_registered, on_message
        self._connection: Connection | None = None
        self._held: list[Message] = []
        self.registered = asyncio.Event()
        self.refused: HocketError | None = None

    @property
    def is_up(self) -> bool:
        """Whether the coordinator can be reached right now."""
        return self._connection is not None and not self._connection.closed

    def send(self, message: Message, *, hold: bool = False) -> None:
        """Sends; while the coordinator is away a message is dropped, or kept for its return with ``hold``."""
        if self.is_up and self.registered.is_set():
            assert self._connection is not None
            self._connection.send(message)
        elif hold:
            self._held.append(message)

    async def run(self) -> None:
        """Keeps the connection for ever. Raises what makes coming back useless: a wrong token, a refusal."""
        delay_s, told = RECONNECT_FIRST_S, False
        while True:
            try:
                await self._serve_once()
                delay_s, told = RECONNECT_FIRST_S, False
            except AuthError:
                raise
            except HocketError as error:
                if self.refused is not None:
                    raise self.refused from error
                if not told:
                    log.warning("coordinator %s: %s; trying again", self._config.coordinator, error)
                    told = True
            self.registered.clear()
            await asyncio.sleep(delay_s)
            delay_s = min(delay_s * 2, RECONNECT_LAST_S)

    async def _serve_once(self) -> None:
        connection = await dial(self._config.coordinator, "--coordinator (HOCKET_COORDINATOR)")
        try:
            await introduce(connection, "worker", "", self._config.token)
            address, port = self._prepare(connection.local_host)
            connection.send(Register(self._config.name, address, port, os.getpid(), self._instance))
            answer = await connection.receive()
            if isinstance(answer, Refused):
                self.refused = error_from_facts(answer.error)
                raise self.refused
            if not isinstance(answer, Registered):
                raise WireError(f"expected Registered, found {type(answer).__name__}")
            await self._stay(connection, answer)
        finally:
            connection.close()

    async def _stay(self, connection: Connection, answer: Registered) -> None:
        closed = asyncio.Event()
        self._connection = connection
        self.registered.set()
        self._on_registered(answer.host)
        connection.start(self._received, lambda _error: closed.set())
        for message in self._held:
            connection.send(message)
        self._held.clear()
        loop = asyncio.get_running_loop()
        interval_s = answer.heartbeat_s or HEARTBEAT_S
        while not closed.is_set():
            connection.send(Heartbeat(loop.time()))
            try:
                async with asyncio.timeout(interval_s):
                    await closed.wait()
            except TimeoutError:
                continue
        log.warning("coordinator %s is gone; groups that exist go on", self._config.coordinator)

    def _received(self, message: Message, _nbytes: int, _fds: list[int]) -> None:
        if isinstance(message, Refused):  # whether we may come back is answered when we do
            log.warning("coordinator %s: %s", self._config.coordinator, error_from_facts(message.error))
        elif not isinstance(message, Heartbeat):
            self._on_message(message)
