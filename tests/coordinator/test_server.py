import asyncio
import contextlib
import logging
import os
import re
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from fake_workers import FREE_PORTS, LOOPS, FakeWorker, run, world_of

from hocket.coordinator import server
from hocket.coordinator.config import CoordinatorConfig
from hocket.coordinator.server import Coordinator
from hocket.protocol import handshake
from hocket.protocol.addresses import Address
from hocket.protocol.auth import NONCE_NBYTES
from hocket.protocol.connection import Connection
from hocket.protocol.doorway import dial
from hocket.protocol.errors import (
    ArgumentError,
    AuthError,
    ConnectError,
    CoordinatorUnavailableError,
    MemberLostError,
    WireError,
    error_from_facts,
)
from hocket.protocol.frames import encode_frame
from hocket.protocol.handshake import introduce
from hocket.protocol.messages import (
    AskOperations,
    BarrierArrive,
    BarrierEnds,
    GroupLost,
    Heartbeat,
    Hello,
    OperationInfo,
    OperationsReport,
    Refused,
    RequestFailed,
    SessionEnds,
    SessionJoins,
)


@asynccontextmanager
async def two_workers(
    config: CoordinatorConfig = FREE_PORTS,
) -> AsyncIterator[tuple[Coordinator, FakeWorker, FakeWorker]]:
    async with Coordinator(config) as coordinator:
        first, second = await FakeWorker.connect(coordinator, "a"), await FakeWorker.connect(coordinator, "b")
        try:
            yield coordinator, first, second
        finally:
            first.close()
            second.close()


@pytest.mark.parametrize("loop", LOOPS)
def test_two_workers_get_a_world_and_hear_of_its_end(loop: str) -> None:
    async def main() -> None:
        async with two_workers() as (_, first, second):
            info = await world_of(first, second)
            assert [(member.rank, member.host) for member in info.members] == [(0, first.host), (1, second.host)]
            assert [(host.name, host.address, host.port) for host in info.hosts] == [
                ("a", "127.0.0.1", 5000),
                ("b", "127.0.0.1", 5000),
            ]
            second.say(SessionEnds(1, "killed", "signal 9"))
            lost = await first.hear(GroupLost)
            error = error_from_facts(lost.error)
            assert isinstance(error, MemberLostError)
            assert (lost.group, error.ranks, error.host, error.cause) == (info.group, (1,), "b", "killed")

    run(main, loop)


def test_a_closed_connection_is_the_loss_of_the_worker() -> None:
    async def main() -> None:
        async with two_workers() as (_, first, second):
            await world_of(first, second)
            second.close()
            error = error_from_facts((await first.hear(GroupLost)).error)
            assert isinstance(error, MemberLostError)
            assert error.cause == "worker lost"

    run(main)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_silent_worker_is_lost_and_its_connection_closed(loop: str) -> None:
    async def main() -> None:
        async with two_workers(replace(FREE_PORTS, liveness_s=0.2, heartbeat_s=0.05)) as (_, first, second):
            await world_of(first, second)
            error = error_from_facts((await first.hear_alive(GroupLost)).error)
            assert isinstance(error, MemberLostError)
            assert (error.cause, error.host) == ("unreachable", "b")
            with pytest.raises(CoordinatorUnavailableError, match="silent for 0.2 s"):
                await second.hear(Heartbeat)
            with pytest.raises(WireError):
                await second.hear(Heartbeat)

    run(main, loop)


def test_heartbeats_come_back() -> None:
    async def main() -> None:
        async with two_workers() as (_, first, _second):
            first.say(Heartbeat(1.25))
            assert await first.hear(Heartbeat) == Heartbeat(1.25)

    run(main)


def test_a_joiner_hears_of_its_deadline_without_anything_else_happening() -> None:
    async def main() -> None:
        async with two_workers() as (_, first, _second):
            first.say(SessionJoins(7, 1, "x", 0, 2, "", 100, 0.05))
            failed = await first.hear(RequestFailed)
            assert failed.request == 7
            assert "rank 1 did not arrive" in str(error_from_facts(failed.error))

    run(main)


def test_a_monitored_barrier_ends_for_both_hosts() -> None:
    async def main() -> None:
        async with two_workers() as (_, first, second):
            info = await world_of(first, second)
            first.say(BarrierArrive(info.group, "", 1, (0,), True, False, 9.0))
            second.say(BarrierArrive(info.group, "", 1, (1,), True, False, 9.0))
            for worker in (first, second):
                assert await worker.hear(BarrierEnds) == BarrierEnds(info.group, "", 1, None)

    run(main)


def test_a_second_worker_of_the_same_name_replaces_the_first() -> None:
    async def main() -> None:
        async with Coordinator(FREE_PORTS) as coordinator:
            old = await FakeWorker.connect(coordinator, "a", instance="first")
            new = await FakeWorker.connect(coordinator, "a", instance="second")
            with pytest.raises(ConnectError, match="it was replaced: a new worker registered as 'a'"):
                await old.hear(Heartbeat)
            with pytest.raises(ConnectError, match="another worker registered under this name since"):
                await FakeWorker.connect(coordinator, "a", instance="first")
            await new.settle()
            assert list(coordinator.core.membership.hosts) == [new.host]
            old.close()
            new.close()

    run(main)


def test_a_forced_loopback_address_on_another_host_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with Coordinator(FREE_PORTS) as coordinator:
            monkeypatch.setattr(Connection, "peer_host", property(lambda self: "10.77.0.2"))
            with pytest.raises(ConnectError) as caught:
                await FakeWorker.connect(coordinator, "far", address="127.0.1.1")
            assert str(caught.value) == (
                "cannot use 127.0.1.1: host 'far' advertises it to its peers, but is at 10.77.0.2: "
                "they would reach themselves (set by HOCKET_DATA_ADDRESS or --data-address)"
            )
            worker = await FakeWorker.connect(coordinator, "far")
            (host,) = coordinator.core.membership.hosts.values()
            assert (host.info.address, host.is_local) == ("10.77.0.2", False)
            worker.close()

    run(main)


def test_an_address_that_was_configured_is_the_one_that_peers_get() -> None:
    async def main() -> None:
        async with Coordinator(FREE_PORTS) as coordinator:
            worker = await FakeWorker.connect(coordinator, address="10.1.2.3")
            (host,) = coordinator.core.membership.hosts.values()
            assert host.info.address == "10.1.2.3"
            worker.close()

    run(main)


def test_the_token_lets_in_who_knows_it() -> None:
    async def main() -> None:
        async with Coordinator(replace(FREE_PORTS, token=b"secret")) as coordinator:
            with pytest.raises(AuthError):
                await FakeWorker.connect(coordinator, token=b"guess")
            worker = await FakeWorker.connect(coordinator, token=b"secret")
            worker.close()

    run(main)


@pytest.mark.parametrize("setting", ["host", "http_host"])
def test_another_address_than_loopback_needs_a_token(setting: str) -> None:
    async def main() -> None:
        config = replace(FREE_PORTS, **{setting: "0.0.0.0"})  # type: ignore[arg-type]
        with pytest.raises(ArgumentError, match="set --token-file or HOCKET_TOKEN_FILE"):
            await Coordinator(config).start()
        async with Coordinator(replace(config, token=b"secret")) as coordinator:
            assert coordinator.port > 0

    run(main)


def test_a_port_in_use_is_named_with_its_setting_and_nothing_stays_open() -> None:
    async def main() -> None:
        async with Coordinator(FREE_PORTS) as other:
            with pytest.raises(ConnectError, match=rf"127.0.0.1:{other.port}.*HOCKET_COORDINATOR_PORT"):
                await Coordinator(replace(FREE_PORTS, port=other.port)).start()
            with pytest.raises(ConnectError, match=rf"127.0.0.1:{other.http_port}.*HOCKET_HTTP_HOST"):
                await Coordinator(replace(FREE_PORTS, http_port=other.http_port)).start()

    run(main)


@pytest.mark.parametrize("loop", LOOPS)
def test_after_the_end_the_ports_are_free_and_connections_closed(loop: str) -> None:
    async def main() -> None:
        coordinator = Coordinator(FREE_PORTS)
        await coordinator.start()
        worker = await FakeWorker.connect(coordinator)
        stranger = await dial(Address("127.0.0.1", coordinator.port), "the test")
        await coordinator.stop()
        for connection in (worker.connection, stranger):
            with pytest.raises(WireError):
                await connection.receive()
        for port in (coordinator.port, coordinator.http_port):
            with socket.create_server(("127.0.0.1", port)):
                pass

    run(main, loop)


# --- strangers -------------------------------------------------------------------------------------------------------

HELLO = encode_frame(Hello(1, 1, "worker", "", b"n" * NONCE_NBYTES))
STRANGERS = {
    "hangs up": b"",
    "junk": os.urandom(64),
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "announces too much": struct.pack("<4sIQ", b"HKT1", 10, 1 << 40),
    "announces a large message": struct.pack("<4sIQ", b"HKT1", 1 << 30, 0),
    "half a hello": HELLO[: len(HELLO) // 2],
    "a hello, then silence": HELLO,
    "wrong role": encode_frame(Hello(1, 1, "client", "", b"n" * NONCE_NBYTES)),
    "wrong version": encode_frame(Hello(8, 9, "worker", "", b"n" * NONCE_NBYTES)),
    "pickle": b"cposix\nsystem\n(S'touch /tmp/hocket-was-here'\ntR.",
    "idle": None,
}


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("kind", STRANGERS)
def test_a_stranger_is_closed_and_logged_once_and_disturbs_nobody(
    kind: str, loop: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(handshake, "HANDSHAKE_TIMEOUT_S", 0.1)

    async def main() -> None:
        async with two_workers() as (coordinator, first, second):
            reader, writer = await asyncio.open_connection("127.0.0.1", coordinator.port)
            name = writer.get_extra_info("sockname")
            data = STRANGERS[kind]
            if data is not None:
                writer.write(data)
                if not data:
                    writer.write_eof()
            with contextlib.suppress(ConnectionResetError):
                await reader.read()
            writer.close()
            await first.settle()
            told = [record.getMessage() for record in caplog.records if f"127.0.0.1:{name[1]}" in record.getMessage()]
            assert len(told) == 1 and told[0].startswith("turned away")
            assert coordinator.strangers_turned_away == 1
            assert (await world_of(first, second)).epoch == 1

    with caplog.at_level(logging.INFO):
        run(main, loop)


def test_many_strangers_cost_the_oldest_of_them_its_place_and_a_worker_still_gets_in(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server, "STRANGERS", 4)

    async def main() -> None:
        async with Coordinator(FREE_PORTS) as coordinator:
            idle = [await dial(Address("127.0.0.1", coordinator.port), "the test") for _ in range(5)]
            worker = await FakeWorker.connect(coordinator)
            with pytest.raises(WireError, match="4 others wait to be let in"):
                await refused(idle[0])
            assert not idle[4].closed
            worker.close()
            for connection in idle:
                connection.close()

    run(main)
    assert len(re.findall("turned away", caplog.text)) >= 2


async def refused(connection: Connection) -> None:
    message = await connection.receive()
    assert isinstance(message, Refused)
    raise error_from_facts(message.error)


def test_a_worker_that_never_registers_is_turned_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HANDSHAKE_TIMEOUT_S", 0.05)

    async def main() -> None:
        async with Coordinator(FREE_PORTS) as coordinator:
            connection = await dial(Address("127.0.0.1", coordinator.port), "the test")
            await introduce(connection, "worker", "", b"")
            with pytest.raises(WireError, match="did not register in time"):
                await refused(connection)
            connection.close()

    run(main)


def test_a_worker_that_says_something_else_first_is_turned_away() -> None:
    async def main() -> None:
        async with Coordinator(FREE_PORTS) as coordinator:
            connection = await dial(Address("127.0.0.1", coordinator.port), "the test")
            await introduce(connection, "worker", "", b"")
            connection.send(Heartbeat(0.0))
            with pytest.raises(WireError, match="expected Register, found Heartbeat"):
                await refused(connection)
            connection.close()

    run(main)


# --- operations ------------------------------------------------------------------------------------------------------


def test_workers_are_asked_what_is_under_way_and_the_silent_ones_noted() -> None:
    async def main() -> None:
        async with two_workers() as (coordinator, first, second):
            operation = OperationInfo("x", 1, "world", 1, "", 5, "barrier", (0,), (1,), 2.0, (2.0,))
            asking = asyncio.create_task(coordinator.ask_operations(limit_s=0.1))
            question = await first.hear(AskOperations)
            first.say(OperationsReport(question.request, (operation,)))
            second.say(OperationsReport(question.request + 1, ()))
            assert await asking == {first.host: (operation,), second.host: None}

    run(main)


def test_nobody_to_ask_is_no_operation() -> None:
    async def main() -> None:
        async with Coordinator(FREE_PORTS) as coordinator:
            assert await coordinator.ask_operations() == {}

    run(main)
