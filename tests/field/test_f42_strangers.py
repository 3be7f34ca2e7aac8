"""F42: every listener is on loopback unless asked for, and strangers cost a running job nothing."""

import asyncio
import os
import pickle
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
from harness.processes import Host, Rank, RealService, real_service

from hocket.protocol.auth import NONCE_NBYTES
from hocket.protocol.frames import HEADER, MAGIC, encode_frame
from hocket.protocol.limits import HANDSHAKE_TIMEOUT_S, PROTOCOL_VERSIONS
from hocket.protocol.messages import Hello

LOOPBACK = struct.pack("<I", struct.unpack(">I", socket.inet_aton("127.0.0.1"))[0]).hex().upper()
SLOWEST_S = 2.0
GROWTH_NBYTES = 20 << 20
HELLO = Hello(*PROTOCOL_VERSIONS, "worker", "no such job", b"n" * NONCE_NBYTES)


async def keeps_reducing(rank: Rank) -> Any:
    """Reduces until the test says to end; returns the slowest round and whether all were right."""
    async with rank.connect(timeout=30) as client:
        slowest_s, right, over = 0.0, True, np.zeros(1)
        rank.say("ready")
        told = rank.hear_later() if rank.number == 0 else None
        while not over[0]:
            x, begun_s = np.array([rank.number + 1.0]), time.perf_counter()
            await client.all_reduce(x)
            slowest_s = max(slowest_s, time.perf_counter() - begun_s)
            right = right and x[0] == 3.0
            over[0] = told is not None and told.done()
            await client.broadcast(over, src=0)
            await asyncio.sleep(0.002)
        return {"slowest_s": slowest_s, "right": bool(right)}


@pytest.fixture
def service() -> Iterator[RealService]:
    with real_service([Host(options=("--listen", "127.0.0.1:0"))]) as found:
        yield found


def ports_of(pid: int) -> set[int]:
    """TCP ports that a process listens on."""
    inodes = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            inodes.add(os.readlink(f"/proc/{pid}/fd/{fd}").removeprefix("socket:[").removesuffix("]"))
        except OSError:
            continue
    with open(f"/proc/{pid}/net/tcp") as table:
        rows = [row.split() for row in table.readlines()[1:]]
    return {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A" and row[9] in inodes}


def test_every_listener_is_on_loopback_when_nothing_is_configured() -> None:
    with real_service() as service:
        ranks = service.start(keeps_reducing, (0, 0))
        for rank in ranks:
            rank.wait_for("ready")
        assert service.coordinator.listens_on() == {LOOPBACK}
        assert service.workers[0].listens_on() == {LOOPBACK}
        assert [rank.listens_on() for rank in ranks] == [set(), set()]
        ranks[0].tell("end")
        assert all(rank.result()["right"] for rank in ranks)


def strangers(port: int, stack: ExitStack, trap: str) -> list[socket.socket]:
    """Whatever comes to an open port. Returns the connections that say nothing more."""
    for _ in range(200):
        socket.create_connection(("127.0.0.1", port)).close()

    class Trap:
        def __reduce__(self) -> Any:
            return os.system, (f"touch {trap}",)

    said = [
        os.urandom(64),
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        HEADER.pack(MAGIC, 1 << 31, 1 << 40),
        HEADER.pack(MAGIC, 10, 1 << 40),
        encode_frame(HELLO)[:-7],
        encode_frame(HELLO),
        pickle.dumps(Trap()),
        *[b""] * 50,
    ]
    kept = []
    for what in said:
        connection = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        connection.sendall(what)
        kept.append(connection)
    return kept


def test_strangers_are_closed_within_ten_seconds_and_a_running_job_goes_on(service: RealService, tmp_path: Any) -> None:
    ranks = service.start(keeps_reducing, (0, 0))
    for rank in ranks:
        rank.wait_for("ready")
    daemons = [service.coordinator, service.workers[0]]
    before = [daemon.rss_nbytes() for daemon in daemons]
    trap = str(tmp_path / "created")
    ports = {port for daemon in daemons for port in ports_of(daemon.pid)} - {service.http_port}
    assert len(ports) == 3, "the coordinator's port, the worker's for ranks and the worker's for other workers"
    with ExitStack() as stack:
        kept = [connection for port in ports for connection in strangers(port, stack, trap)]
        for connection in kept:
            connection.settimeout(HANDSHAKE_TIMEOUT_S + 5)
            try:
                while connection.recv(4096):
                    pass
            except ConnectionResetError:
                continue
    growth = [daemon.rss_nbytes() - was for daemon, was in zip(daemons, before, strict=True)]
    assert max(growth) < GROWTH_NBYTES
    assert not os.path.exists(trap)
    assert all(daemon.running for daemon in daemons)
    ranks[0].tell("end")
    for result in [rank.result() for rank in ranks]:
        assert result["right"] and result["slowest_s"] < SLOWEST_S
