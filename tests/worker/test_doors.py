"""Strangers at a worker's doors: whatever they send, they lose their connection; those who are in notice nothing."""

import asyncio
import contextlib
import errno
import os
import socket
import struct
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from harness.service import Service, clients

import hocket
from hocket.coordinator.config import CoordinatorConfig
from hocket.coordinator.server import Coordinator
from hocket.protocol.addresses import Address
from hocket.protocol.connection import Connection
from hocket.protocol.doorway import dial
from hocket.protocol.errors import AuthError, HocketError
from hocket.protocol.frames import HEADER, MAGIC, encode_frame
from hocket.protocol.handshake import introduce
from hocket.protocol.limits import PROTOCOL_VERSIONS
from hocket.protocol.messages import Hello, Join, Proof, Refused
from hocket.worker import doors
from hocket.worker.agent import Worker
from hocket.worker.config import WorkerConfig
from hocket.worker.doors import Doors

LIMIT_S = 20.0
HELLO = encode_frame(Hello(*PROTOCOL_VERSIONS, "client", "", bytes(32)))
JUNK: dict[str, bytes] = {
    "text": b"GET / HTTP/1.1\r\nHost: here\r\n\r\n",
    "zeros": bytes(200),
    "an endless message": MAGIC + struct.pack("<IQ", 2**32 - 1, 0),
    "a payload of 2^40 bytes": HEADER.pack(MAGIC, len(HELLO) - HEADER.size, 2**40) + HELLO[HEADER.size :],
    "a message that is none": HEADER.pack(MAGIC, 3, 0) + b"\xc1\xc1\xc1",
    "no hello first": encode_frame(Proof(b"x" * 32)),
    "a request before the handshake": encode_frame(Join(1, "test", 0, 1, "x", 1, 1.0, False)),
    "a role that is not served": encode_frame(Hello(*PROTOCOL_VERSIONS, "queen", "", bytes(32))),
    "another version": encode_frame(Hello(90, 99, "client", "", bytes(32))),
    "a short nonce": encode_frame(Hello(*PROTOCOL_VERSIONS, "client", "", b"x")),
    "a wrong proof": HELLO + encode_frame(Proof(b"x" * 32)),
    "half a hello": HELLO[:-7],
}


@dataclass(slots=True)
class House:
    """A worker with all its doors open, and ranks inside that are at work."""

    worker: Worker
    found: list[hocket.Client]
    doors: dict[str, Address]
    rounds: int = 0

    async def work(self) -> None:
        """One sum of all ranks."""
        arrays = [np.full(4, rank + 1.0) for rank in range(len(self.found))]
        await asyncio.gather(*(_await(c.all_reduce(x)) for c, x in zip(self.found, arrays, strict=True)))
        assert all((x == 3.0).all() for x in arrays)
        self.rounds += 1

    async def keep_working(self) -> None:
        """Sums until cancelled."""
        while True:
            await self.work()
            await asyncio.sleep(0)


async def _await(work: Any) -> Any:
    return await work


@asynccontextmanager
async def house(token: bytes = b"", at_work: bool = True) -> AsyncIterator[House]:
    """Two ranks on one worker, one of them without shared memory, that sum all the time; checked at the end."""
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="hk"))
        coordinator = await stack.enter_async_context(Coordinator(CoordinatorConfig(port=0, http_port=0, token=token)))
        worker = Worker(
            WorkerConfig(
                coordinator=Address("127.0.0.1", coordinator.port),
                socket=f"{folder}/w.sock",
                listen=Address("127.0.0.1", 0),
                data_address=Address("127.0.0.1", 0),
                name="h",
                token=token,
            )
        )
        await worker.start()
        stack.push_async_callback(worker.stop)
        await worker.registered()
        assert worker._data_address is not None
        places = {
            "unix": Address(path=worker.config.socket),
            "tcp": Address("127.0.0.1", worker.listen_port),
            "data": Address("127.0.0.1", worker._data_address[1]),
        }
        running = Service(coordinator, [worker], folder)
        found = await stack.enter_async_context(clients(running, [0, 0], remote=(1,)))
        made = House(worker, found, places)
        await made.work()
        working = asyncio.create_task(made.keep_working()) if at_work else None
        async with asyncio.timeout(LIMIT_S):
            yield made
        if working is not None:
            before = made.rounds
            while made.rounds < before + 3 and not working.done():  # noqa: ASYNC110 - on this very loop
                await asyncio.sleep(0)
            working.cancel()
            assert (await asyncio.gather(working, return_exceptions=True))[0].__class__ is asyncio.CancelledError
        await made.work()


def knock(at: Address) -> socket.socket:
    """A stranger's connection."""
    family, target = (socket.AF_UNIX, at.path) if at.path else (socket.AF_INET, (at.host, at.port))
    sock = socket.socket(family)
    sock.setblocking(False)
    with contextlib.suppress(BlockingIOError):  # it is on its way
        sock.connect(target)
    return sock


async def turned_away(sock: socket.socket) -> bytes:
    """What the stranger is told, once it has been hung up on."""
    loop, told = asyncio.get_running_loop(), b""
    with contextlib.suppress(ConnectionResetError):
        while piece := await loop.sock_recv(sock, 4096):
            told += piece
    sock.close()
    return told


DOORS = ("unix", "tcp", "data")


@pytest.mark.parametrize("door", DOORS)
async def test_junk_costs_its_sender_the_connection_and_nobody_anything_else(
    door: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hocket.protocol.handshake.HANDSHAKE_TIMEOUT_S", 0.2)  # for those that send too little
    async with house() as made:
        loop = asyncio.get_running_loop()
        strangers = [knock(made.doors[door]) for _ in JUNK]
        for sock, sent in zip(strangers, JUNK.values(), strict=True):
            await loop.sock_sendall(sock, sent)
        await asyncio.gather(*(turned_away(sock) for sock in strangers))
        assert not made.worker._doors._tasks


@pytest.mark.parametrize("door", DOORS)
async def test_a_stranger_that_says_nothing_is_turned_away_in_time(door: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hocket.protocol.handshake.HANDSHAKE_TIMEOUT_S", 0.1)
    async with house() as made:
        told = await turned_away(knock(made.doors[door]))
        assert told == b""


async def test_a_peer_that_proves_itself_and_says_no_more_is_turned_away_in_time(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("hocket.worker.links.HANDSHAKE_TIMEOUT_S", 0.1)
    async with house() as made:
        peer = await dial(made.doors["data"], "the test")
        await introduce(peer, "peer", "", b"")
        with pytest.raises(HocketError):
            await peer.receive()
        assert not made.worker._doors._tasks
    assert "did not say who it is" in caplog.text


async def test_a_client_at_the_peers_door_and_a_peer_at_the_clients_are_told_where_they_are() -> None:
    async with house() as made:
        for door, role, other in (("data", "client", "peer"), ("tcp", "peer", "client"), ("unix", "worker", "client")):
            connection = await dial(made.doors[door], "the test")
            with pytest.raises(AuthError, match=f"a {role} is not served here, only {other}"):
                await introduce(connection, role, "", b"")


async def test_only_who_knows_the_token_comes_in_by_tcp_while_the_socket_asks_for_none() -> None:
    async with house(b"secret") as made:
        for door, role in (("tcp", "client"), ("data", "peer")):
            connection = await dial(made.doors[door], "the test")
            with pytest.raises(AuthError, match="token"):
                await introduce(connection, role, "", b"guess")
            connection = await dial(made.doors[door], "the test")
            await introduce(connection, role, "", b"secret")
            connection.close()
        connection = await dial(made.doors["unix"], "the test")
        await introduce(connection, "client", "", b"")
        connection.close()
        async with hocket.connect(str(made.doors["tcp"]), rank=0, world_size=1, job="far", token="secret") as client:
            assert (await client.all_reduce(np.ones(1)))[0] == 1.0


@pytest.mark.parametrize("door", DOORS)
async def test_two_hundred_quick_visitors_do_not_disturb_those_who_are_in(door: str) -> None:
    async with house() as made:
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(20):
            strangers = [knock(made.doors[door]) for _ in range(10)]
            await asyncio.sleep(0)
            for number, sock in enumerate(strangers):
                if number % 2:  # a reset rather than an end in good order
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                sock.close()
        while made.worker._doors._tasks:  # noqa: ASYNC110 - on this very loop
            await asyncio.sleep(0)
        assert len(os.listdir("/proc/self/fd")) <= before


# --- doors by themselves ---------------------------------------------------------------------------------------------


@asynccontextmanager
async def a_door(enter: Callable[[Connection], Any]) -> AsyncIterator[tuple[Doors, Address, socket.socket]]:
    found = Doors(b"", 0o600)
    listener = found.open(Address("127.0.0.1", 0), "the test", "client", enter)
    try:
        async with asyncio.timeout(LIMIT_S):
            yield found, Address("127.0.0.1", listener.getsockname()[1]), listener
    finally:
        await found.close()


async def test_no_more_than_so_many_may_wait_at_the_door(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(doors, "STRANGERS", 5)
    entered: list[Connection] = []

    async def enter(connection: Connection) -> None:
        entered.append(connection)

    async with a_door(enter) as (found, at, _):
        waiting = [knock(at) for _ in range(5)]
        while len(found._tasks) < 5:  # noqa: ASYNC110 - on this very loop
            await asyncio.sleep(0)
        assert await turned_away(knock(at)) == b""
        gone = knock(at)
        gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        gone.close()  # whoever is gone already has no name any more
        assert await turned_away(knock(at)) == b""
        waiting.pop().close()
        while len(found._tasks) == 5:  # noqa: ASYNC110 - on this very loop
            await asyncio.sleep(0)
        connection = await dial(at, "the test")
        await introduce(connection, "client", "", b"")
        connection.close()
        for sock in waiting:
            sock.close()
    assert len(entered) == 1 and "5 others are at the door" in caplog.text
    entered[0].close()


async def test_when_descriptors_run_out_the_door_pauses_and_then_opens_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doors, "OVERLOAD_PAUSE_S", 0.02)
    entered = asyncio.Event()
    tried: list[bool] = []

    async def enter(connection: Connection) -> None:
        connection.close()
        entered.set()

    class Overloaded(socket.socket):
        """A listener whose process has no descriptor left for the first few visitors."""

        def accept(self) -> Any:
            tried.append(len(tried) < 3)
            if tried[-1]:
                raise OSError(errno.EMFILE, "Too many open files")
            return super().accept()

    def listen(address: Address, _setting: str, _mode: int) -> socket.socket:
        sock = Overloaded()
        sock.bind((address.host, address.port))
        sock.listen()
        sock.setblocking(False)
        return sock

    monkeypatch.setattr(doors, "listen", listen)
    async with a_door(enter) as (found, at, _):
        connection = await dial(at, "the test")
        await introduce(connection, "client", "", b"")
        await entered.wait()
        assert tried[:4] == [True, True, True, False] and len(tried) <= 6, "it asks once for each pause"
        connection.close()
        assert found._listeners


async def test_a_door_that_closes_lets_go_of_all_who_stand_in_it() -> None:
    inside = asyncio.Event()

    async def enter(connection: Connection) -> None:
        inside.set()
        await asyncio.Event().wait()

    async with a_door(enter) as (found, at, _):
        half = await dial(at, "the test")
        idle = knock(at)
        await introduce(half, "client", "", b"")
        await inside.wait()
        while len(found._tasks) < 2:  # noqa: ASYNC110 - on this very loop
            await asyncio.sleep(0)
        await found.close()
        with pytest.raises(HocketError):
            await half.receive()
        assert await turned_away(idle) == b""
        assert not found._tasks


async def test_an_address_that_is_taken_is_named_with_its_setting() -> None:
    async def enter(connection: Connection) -> None:
        connection.close()

    async with a_door(enter) as (found, at, _):
        with pytest.raises(HocketError) as refused:
            found.open(at, "--listen", "client", enter)
        assert str(at) in str(refused.value) and "--listen" in str(refused.value)


async def test_a_visitor_is_told_why_it_is_turned_away() -> None:
    async def enter(connection: Connection) -> None:
        connection.close()

    async with a_door(enter) as (_, at, _listener):
        connection = await dial(at, "the test")
        connection.send(Hello(90, 99, "client", "", bytes(32)))
        refused = await connection.receive()
        assert isinstance(refused, Refused) and "versions 90-99" in str(refused.error)
        connection.close()
