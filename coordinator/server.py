"""The coordinator on the network: an asyncio shell around `core`, on any loop, also inside another program's.

Whoever connects is a stranger until it has proved that it knows the token and registered as a worker. A stranger costs
a bounded time and a bounded number of connections, and its end is logged once with its address; nothing that it sends
can end the service or disturb a worker.
"""

import asyncio
import logging
import socket
import time
from itertools import count

from hocket.coordinator.config import VARIABLES, CoordinatorConfig
from hocket.coordinator.core import Core
from hocket.coordinator.events import (
    Disconnect,
    Effect,
    Event,
    Log,
    Send,
    TimerFired,
    WorkerGone,
    WorkerJoins,
    WorkerSays,
)
from hocket.coordinator.http import HttpServer
from hocket.protocol.addresses import is_loopback
from hocket.protocol.connection import Connection
from hocket.protocol.doorway import listen
from hocket.protocol.errors import ConnectError, HocketError, WireError, error_to_facts
from hocket.protocol.handshake import admit
from hocket.protocol.limits import HANDSHAKE_TIMEOUT_S
from hocket.protocol.messages import (
    AskOperations,
    HostInfo,
    Message,
    OperationInfo,
    OperationsReport,
    Refused,
    Register,
    Registered,
)

STRANGERS = 512
"""Connections that may be unauthenticated at a time; one more costs the oldest its place."""
ACCEPT_PAUSE_S = 0.1
NUMBERING_BEGAN_S = 1_767_225_600
"""2026-01-01: groups and hosts are numbered by their time, so that a restarted coordinator uses no number twice."""
NUMBERS_PER_S = 100
OPERATIONS_LIMIT_S = 1.0
logger = logging.getLogger("hocket.coordinator")


class Coordinator:
    """A running coordinator: `start` it, `stop` it, or use it as an async context manager.

    ``port`` and ``http_port`` are the real ones once it runs, also where 0 was configured.
    """

    def __init__(self, config: CoordinatorConfig | None = None) -> None:
        self.config = config or CoordinatorConfig()
        first = max(1, int((time.time() - NUMBERING_BEGAN_S) * NUMBERS_PER_S))
        self.core = Core(self.config.liveness_s, self.config.heartbeat_s, first)
        self.port = self.config.port
        self.http_port = self.config.http_port
        self.strangers_turned_away = 0
        self._token = b""
        self._workers: dict[int, Connection] = {}
        self._admissions: set[asyncio.Task[None]] = set()
        self._strangers: dict[asyncio.Task[None], Connection] = {}
        self._hosts = count(first)
        self._requests = count(1)
        self._questions: dict[tuple[int, int], asyncio.Future[tuple[OperationInfo, ...]]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due_s: float | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._listener: socket.socket | None = None
        self._http = HttpServer(self)

    async def __aenter__(self) -> "Coordinator":
        await self.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listens for workers and for HTTP.

        Raises:
            ArgumentError: the settings are unsafe or make no sense; see `CoordinatorConfig.check`.
            ConnectError: an address cannot be listened on; it names the setting that changes it.
        """
        self.config.check()
        self._token = self.config.read_token()
        self._loop = asyncio.get_running_loop()
        self._listener = listen(self.config.address, f"--host, --port or {VARIABLES['host']}, {VARIABLES['port']}")
        self.port = int(self._listener.getsockname()[1])
        try:
            self.http_port = await self._http.start()
        except BaseException:
            self._listener.close()
            raise
        self._accepting = asyncio.create_task(self._accept(self._listener))

    async def stop(self) -> None:
        """Closes everything and frees the ports. Workers keep their groups' collectives going without us."""
        if self._timer is not None:
            self._timer.cancel()
        strangers = list(self._strangers.values())  # those whose admission has not begun to run, too
        tasks = [*self._admissions, *([self._accepting] if self._accepting else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._listener is not None:
            self._listener.close()
        workers, self._workers = self._workers, {}
        for connection in [*workers.values(), *strangers]:
            connection.close()
        await self._http.stop()

    @property
    def now(self) -> float:
        """The clock of the machines, in seconds."""
        return self._loop.time()

    # --- strangers ---------------------------------------------------------------------------------------------------

    async def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                sock, _ = await self._loop.sock_accept(listener)
            except OSError as broken:  # out of descriptors, or the other side is gone again
                logger.warning("cannot accept a connection: %s", broken)
                await asyncio.sleep(ACCEPT_PAUSE_S)
                continue
            try:
                connection = Connection(sock)
            except OSError as broken:
                logger.warning("a connection ended as it began: %s", broken)
                sock.close()
                continue
            if len(self._strangers) >= STRANGERS:
                oldest = self._strangers.pop(next(iter(self._strangers)))
                _refuse(oldest, WireError(f"{STRANGERS} others wait to be let in"))
            task = asyncio.create_task(self._admit(connection))
            self._admissions.add(task)
            self._strangers[task] = connection
            task.add_done_callback(self._admission_ended)
            await asyncio.sleep(0)  # a flood must not keep those from being let in who are there

    def _admission_ended(self, task: asyncio.Task[None]) -> None:
        self._admissions.discard(task)
        self._strangers.pop(task, None)

    async def _admit(self, connection: Connection) -> None:
        try:
            await admit(connection, ("worker",), self._token)
            async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
                register = await connection.receive()
            self._register(connection, register)
        except (HocketError, TimeoutError) as refused:
            self.strangers_turned_away += 1
            reason = refused if isinstance(refused, HocketError) else WireError("it did not register in time")
            logger.warning("turned away %s: %s", connection.peer, reason)
            _refuse(connection, reason)
        except BaseException:
            connection.close()
            raise

    def _register(self, connection: Connection, register: Message) -> None:
        if not isinstance(register, Register):
            raise WireError(f"expected Register, found {type(register).__name__}")
        peer = connection.peer_host
        if is_loopback(register.address) and not is_loopback(peer):
            detail = f"host {register.name!r} advertises it to its peers, but is at {peer}: they would reach themselves"
            raise ConnectError(register.address, "HOCKET_DATA_ADDRESS or --data-address", detail)
        host = next(self._hosts)
        address = register.address or peer
        info = HostInfo(host, register.name, address, register.port, register.pid, register.instance)
        self.core.membership.check_worker(info)
        logger.info("worker %r, pid %d, joins from %s as host %d", info.name, info.pid, connection.peer, host)
        self._workers[host] = connection
        connection.send(Registered(host, float(self.config.liveness_s), float(self.config.heartbeat_s)))
        self._handle(WorkerJoins(info, is_local=is_loopback(peer) or peer == connection.local_host))
        connection.start(
            lambda message, nbytes, fds: self._says(host, message), lambda error: self._worker_closed(host, error)
        )

    # --- workers -----------------------------------------------------------------------------------------------------

    def _says(self, host: int, message: Message) -> None:
        if isinstance(message, OperationsReport):
            answer = self._questions.get((host, message.request))
            if answer is not None and not answer.done():
                answer.set_result(message.operations)
        self._handle(WorkerSays(host, message))

    def _worker_closed(self, host: int, error: HocketError | None) -> None:
        if self._workers.pop(host, None) is not None:
            detail = f"its worker's connection ended: {error}" if error else "its worker's connection was closed"
            logger.warning("host %d is lost: %s", host, detail)
            self._handle(WorkerGone(host, "worker lost", detail))

    def _handle(self, event: Event) -> None:
        for effect in self.core.handle(event, self.now):
            self._perform(effect)
        self._set_timer()

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Send(host, message):
                if (connection := self._workers.get(host)) is not None:
                    connection.send(message)
            case Disconnect(host, error):
                if (connection := self._workers.pop(host, None)) is not None:
                    connection.send(Refused(error))
                    connection.close()
            case Log(level, text):
                logger.log(level, "%s", text)

    def _set_timer(self) -> None:
        due = self.core.deadline
        if self._timer is not None:
            if self._timer_due_s == due:
                return
            self._timer.cancel()
        self._timer_due_s = due  # uvloop's handles do not tell when
        self._timer = None if due is None else self._loop.call_at(due, self._timer_fired)

    def _timer_fired(self) -> None:
        self._timer = None
        self._handle(TimerFired())

    async def ask_operations(self, limit_s: float | None = None) -> dict[int, tuple[OperationInfo, ...] | None]:
        """What is under way on each host; None for those that did not answer within ``limit_s`` (1 second)."""
        request = next(self._requests)
        asked = {host: self._loop.create_future() for host in self._workers}
        self._questions.update({(host, request): answer for host, answer in asked.items()})
        try:
            for host in asked:
                self._workers[host].send(AskOperations(request))
            if asked:
                await asyncio.wait(asked.values(), timeout=OPERATIONS_LIMIT_S if limit_s is None else limit_s)
            return {host: answer.result() if answer.done() else None for host, answer in asked.items()}
        finally:
            for host in asked:
                del self._questions[host, request]


def _refuse(connection: Connection, error: HocketError) -> None:
    """Tells why and hangs up, unless it has hung up already."""
    connection.send(Refused(error_to_facts(error)))
    connection.close(error)
