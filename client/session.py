"""The rank's connection to its worker. Everything here runs on the engine's socket thread unless it says otherwise."""

import asyncio
import itertools
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass

from hocket.client.engine import Engine
from hocket.client.membership import Membership
from hocket.fabric.arena import Arena
from hocket.fabric.bells import WORKER_BELL, Bells
from hocket.fabric.board import Board
from hocket.protocol.addresses import Address
from hocket.protocol.connection import Connection
from hocket.protocol.doorway import dial
from hocket.protocol.errors import (
    ClosedError,
    CoordinatorUnavailableError,
    HocketError,
    Member,
    MemberLostError,
    WireError,
    error_from_facts,
)
from hocket.protocol.frames import Buffers
from hocket.protocol.handshake import introduce
from hocket.protocol.messages import (
    ChannelReady,
    Done,
    Failed,
    Goodbye,
    GroupEnded,
    GroupReady,
    Joined,
    Message,
    MonitoredEnds,
    P2PData,
    P2POffer,
    P2PRefuse,
    P2PTake,
    P2PWithdraw,
    Verdict,
)

log = logging.getLogger("hocket.client")

ANSWER_GRACE_S = 5.0
"""How much longer than a request's own time limit its answer may take before the coordinator counts as away."""
P2P = (P2POffer, P2PTake, P2PData, P2PRefuse, P2PWithdraw)


@dataclass(frozen=True, slots=True)
class OpenedBoard:
    """A channel's board, as its lane needs it."""

    board: Board
    bridged: bool
    bells: tuple[int, ...]


class Session:
    """See the module. One for each `Client`."""

    def __init__(self, engine: Engine, worker: Address, shared: bool) -> None:
        self.engine = engine
        self.worker = worker
        self.shared = shared and bool(worker.path)
        self.number = -1
        self.host = ""
        self.place = WORKER_BELL
        self.bells: Bells | None = None
        self.memberships: dict[int, Membership] = {}
        self.closed: HocketError | None = None
        self._connection: Connection | None = None
        self._requests = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Message]] = {}
        self._on_lost: Callable[[HocketError], None] | None = None

    # --- requests ----------------------------------------------------------------------------------------------------

    async def open(self, token: bytes, on_lost: Callable[[HocketError], None]) -> None:
        """Connects to the worker. Raises `ConnectError`, `AuthError` or `WireError`."""
        connection = await dial(self.worker, "HOCKET_WORKER or connect(worker=...)")
        await introduce(connection, "client", "", b"" if self.worker.path else token)
        self._connection, self._on_lost = connection, on_lost
        connection.start(self._received, self._lost, self._sink)

    async def request(self, make: Callable[[int], Message], timeout_s: float) -> Message:
        """Sends a request and waits for its answer. Raises the error that the answer is."""
        answer = self.expect(make)
        try:
            await asyncio.wait({answer}, timeout=timeout_s + ANSWER_GRACE_S)
            if not answer.done():
                raise CoordinatorUnavailableError(f"no answer within {timeout_s + ANSWER_GRACE_S:g} s")
            return answer.result()  # or its error, of which some are TimeoutErrors themselves
        finally:
            answer.cancel()

    def expect(self, make: Callable[[int], Message]) -> "asyncio.Future[Message]":
        """Sends a request; the future gives its answer."""
        number = next(self._requests)
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        future.add_done_callback(lambda _: self._waiting.pop(number, None))
        self.send(make(number))
        return future

    def send(self, message: Message, payload: tuple[memoryview, ...] = ()) -> None:
        """Sends to the worker. Raises what ended the connection."""
        if self._connection is None or self.closed is not None:
            raise self.closed or ClosedError("the client is not connected")
        self._connection.send(message, payload)

    async def written(self) -> None:
        """Waits until what was sent has left this process."""
        if self._connection is not None and self._connection.queued:
            await self._connection.written()

    # --- what comes --------------------------------------------------------------------------------------------------

    def _received(self, message: Message, nbytes: int, fds: list[int]) -> None:
        if isinstance(message, Joined):
            self._joined(message, fds)
        elif isinstance(message, ChannelReady):
            self._channel_ready(message, fds)
        elif isinstance(message, GroupReady):
            self.memberships[message.info.group] = Membership(self, message.info, message.rank)
            self._answer(message.request, message)
        elif isinstance(message, Failed):
            self._fail(message.request, error_from_facts(message.error))
        else:
            self._for_membership(message, nbytes)

    def _for_membership(self, message: Message, nbytes: int) -> None:
        membership = self.memberships.get(getattr(message, "group", -1))
        if membership is None:
            return
        if isinstance(message, Verdict):
            error = None if message.error is None else error_from_facts(message.error)
            membership.verdict(message.channel, message.number, error)
        elif isinstance(message, GroupEnded):
            membership.end(error_from_facts(message.error))
        elif isinstance(message, Done):
            membership.remote_done(message)
        elif isinstance(message, MonitoredEnds):
            membership.monitored_ends(message)
        elif isinstance(message, P2P):
            membership.p2p.received(message, nbytes)
        else:
            raise WireError(f"a worker does not send {type(message).__name__}")

    def _sink(self, message: Message, nbytes: int) -> Buffers | None:
        membership = self.memberships.get(getattr(message, "group", -1))
        if membership is None:
            return None
        if isinstance(message, Done):
            return membership.remote_room(message, nbytes)
        if isinstance(message, P2POffer | P2PData):
            return membership.p2p.sink(message, nbytes)
        raise WireError(f"{type(message).__name__} carries no payload")

    def _joined(self, message: Joined, fds: list[int]) -> None:
        if self.shared:
            page, mine, workers = fds
            self.place = message.bell
            self.bells = Bells(Arena.attach(page))
            self.bells.add(WORKER_BELL, workers)
            self.bells.add(self.place, mine)
            self.engine.add_sleeper(self.bells, self.place)
        self.number, self.host = message.session, message.host
        if message.alone:
            self._answer(message.request, message)

    def _channel_ready(self, message: ChannelReady, fds: list[int]) -> None:
        assert self.bells is not None, "a board came to a client without shared memory"
        board = Board(Arena.attach(fds[0]))
        for place, fd in zip(message.new_bells, fds[1:], strict=True):
            if place == self.place:
                os.close(fd)
            else:
                self.bells.add(place, fd)
        membership = self.memberships.get(message.group)
        if membership is None:
            board.close()
            return
        membership.channel_ready(message.channel, OpenedBoard(board, message.bridged, message.bells))
        self._answer(message.request, message)

    def _answer(self, request: int, message: Message) -> None:
        future = self._waiting.get(request)
        if future is not None and not future.done():
            future.set_result(message)

    def _fail(self, request: int, error: HocketError) -> None:
        future = self._waiting.get(request)
        if future is not None and not future.done():
            future.set_exception(error)

    # --- the end -----------------------------------------------------------------------------------------------------

    async def close(self, detail: str) -> None:
        """Says goodbye and closes. Nothing is under way any more when it returns."""
        if self.closed is None and self._connection is not None:
            self._connection.send(Goodbye(detail))
            self.closed = ClosedError("the client was closed")
            try:
                async with asyncio.timeout(ANSWER_GRACE_S):
                    await self.written()
            except (TimeoutError, HocketError) as error:
                log.debug("goodbye was not delivered: %s", error)
            self._connection.close()
            self._finish(self.closed)

    def _lost(self, error: HocketError | None) -> None:
        if self.closed is None:
            worker = Member(-1, self.host or str(self.worker))
            lost = MemberLostError((worker,), "worker lost", str(error) if error else "its connection closed")
            self.closed = lost
            self._finish(lost)
            if self._on_lost is not None:
                self._on_lost(lost)

    def _finish(self, error: HocketError) -> None:
        for future in list(self._waiting.values()):
            if not future.done():
                future.set_exception(error)
                future.exception()
        for membership in list(self.memberships.values()):
            membership.abandon(error)
        self.memberships.clear()
        if self.bells is not None:
            bells, self.bells = self.bells, None
            self.engine.retire(bells, bells.fds[self.place])
