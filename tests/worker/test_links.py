"""Data links between workers: cut, made anew, refused, and what groups make of it. Over real sockets."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
import pytest
from harness.service import Service, clients, service

import hocket
from hocket.protocol.addresses import Address
from hocket.protocol.connection import Connection
from hocket.protocol.doorway import dial
from hocket.protocol.errors import HocketError
from hocket.protocol.frames import Buffers
from hocket.protocol.handshake import introduce
from hocket.protocol.messages import Credit, HostInfo, Message, P2PData, PeerHello
from hocket.worker.doors import Doors
from hocket.worker.links import Links

LIMIT_S = 20.0


# --- two workers' links by themselves --------------------------------------------------------------------------------


@dataclass(slots=True)
class Side:
    """One worker's links, and what they were told."""

    number: int
    links: Links = field(init=False)
    doors: Doors = field(init=False)
    info: HostInfo = field(init=False)
    heard: list[tuple[int, Message]] = field(default_factory=list)
    payloads: list[bytearray] = field(default_factory=list)
    gone: list[tuple[int, HocketError]] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def open(self, token: bytes = b"") -> None:
        """Listens."""
        self.links = Links(token, self._heard, self._gone, self._sink)
        self.links.me, self.links.instance = self.number, f"instance {self.number}"
        self.doors = Doors(token, 0o600)
        listener = self.doors.open(Address("127.0.0.1", 0), "the test", "peer", self.links.accept)
        port = listener.getsockname()[1]
        self.info = HostInfo(self.number, f"h{self.number}", "127.0.0.1", port, 1, self.links.instance)

    def _heard(self, host: int, message: Message, _nbytes: int) -> None:
        self.heard.append((host, message))
        self.news.set()

    def _gone(self, host: int, error: HocketError) -> None:
        self.gone.append((host, error))
        self.news.set()

    def _sink(self, _host: int, _message: Message, nbytes: int) -> Buffers:
        self.payloads.append(bytearray(nbytes))
        return [memoryview(self.payloads[-1])]

    def connection(self, to: int) -> Connection:
        """The connection behind a link."""
        found = self.links._links[to].connection
        assert found is not None
        return found

    async def until(self, condition: Callable[[], bool]) -> None:
        """Waits for news until a condition holds."""
        while not condition():
            self.news.clear()
            await self.news.wait()


@asynccontextmanager
async def sides(*numbers: int) -> AsyncIterator[list[Side]]:
    made = [Side(number) for number in numbers]
    for side in made:
        side.open()
    try:
        async with asyncio.timeout(LIMIT_S):
            yield made
    finally:
        for side in made:
            await side.links.close()
            await side.doors.close()


def credit(number: int) -> Credit:
    return Credit(7, "", number, 0)


@pytest.mark.parametrize("first", [0, 1], ids=["the dialler first", "the other first"])
async def test_what_is_sent_before_the_link_is_up_arrives_in_order_and_once(first: int) -> None:
    async with sides(1, 2) as made:
        a, b = made
        for side, other in ((a, b), (b, a)) if first == 0 else ((b, a), (a, b)):
            side.links.ensure(other.info)
            for number in range(20):
                side.links.send(other.number, credit(number))
        assert a.links.is_reachable(2) and b.links.is_reachable(1)
        await asyncio.gather(a.links.sent(2), b.links.sent(1))
        for side in made:
            await side.until(lambda side=side: len(side.heard) >= 20)  # type: ignore[misc]
        assert a.heard == [(2, credit(number)) for number in range(20)]
        assert b.heard == [(1, credit(number)) for number in range(20)]
        a.links.ensure(b.info)
        assert len(a.links._links) == len(b.links._links) == 1 and not a.gone and not b.gone


async def test_a_payload_arrives_with_its_message() -> None:
    async with sides(1, 2) as (a, b):
        a.links.ensure(b.info)
        payload = bytes(range(256)) * 5_000
        a.links.send(2, P2PData(7, "", 0, 1, 1, 0), [memoryview(payload)])
        a.links.send(2, credit(1))
        await b.until(lambda: len(b.heard) == 2)
        assert b.payloads == [bytearray(payload)]


async def test_a_link_that_is_cut_is_told_to_both_sides_once_and_made_anew_when_it_is_needed() -> None:
    async with sides(1, 2) as (a, b):
        a.links.ensure(b.info)
        b.links.ensure(a.info)
        await asyncio.gather(a.links.sent(2), b.links.sent(1))
        a.connection(2)._socket.shutdown(socket.SHUT_RDWR)
        await a.until(lambda: bool(a.gone))
        await b.until(lambda: bool(b.gone))
        assert [host for host, _ in a.gone] == [2] and [host for host, _ in b.gone] == [1]
        assert not a.links.is_reachable(2) and not b.links.is_reachable(1)
        with pytest.raises(HocketError):
            await a.links.sent(2)
        a.links.send(2, credit(99))  # dropped
        for side, other in ((a, b), (b, a)):
            side.links.ensure(other.info)
            side.links.send(other.number, credit(1))
        await a.until(lambda: bool(a.heard))
        await b.until(lambda: bool(b.heard))
        assert (a.heard, b.heard) == ([(2, credit(1))], [(1, credit(1))])
        assert len(a.gone) == len(b.gone) == 1


async def test_a_second_connection_takes_the_place_of_the_first_whose_late_end_means_nothing_more() -> None:
    async with sides(1, 2) as (a, b):
        a.links.ensure(b.info)
        await a.links.sent(2)
        a.links.send(2, credit(1))
        await b.until(lambda: len(b.heard) == 1)
        old = b.connection(1)
        a.links.forget(2)  # this side has given the link up; the other has not heard of it
        a.links.ensure(b.info)
        a.links.send(2, credit(2))
        await b.until(lambda: len(b.heard) == 2)
        old.close()
        await asyncio.sleep(0)
        assert [host for host, _ in b.gone] == [1] and b.links.is_reachable(1)
        b.links.send(1, credit(3))
        await a.until(lambda: bool(a.heard))
        assert a.heard == [(2, credit(3))]


async def test_a_peer_that_looks_for_another_incarnation_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    async with sides(2) as (b,):
        for message in (PeerHello(1, "x", "an earlier one"), credit(1)):
            peer = await dial(Address("127.0.0.1", b.info.port), "the test")
            await introduce(peer, "peer", "", b"")
            peer.send(message)
            with pytest.raises(HocketError):
                await peer.receive()
        assert not b.links._links and "another worker" in caplog.text


async def test_a_host_where_nobody_listens_counts_as_gone_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hocket.worker.links.CONNECT_TIMEOUT_S", 0.1)
    monkeypatch.setattr("hocket.worker.links.RECONNECT_FIRST_S", 0.01)
    async with sides(1) as (a,):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))  # and never listens
            a.links.ensure(HostInfo(2, "h2", "127.0.0.1", taken.getsockname()[1], 1, "nobody"))
            with pytest.raises(HocketError, match="h2"):
                await a.links.sent(2)
            assert [host for host, _ in a.gone] == [2]


async def test_a_host_that_ought_to_connect_and_does_not_counts_as_gone_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hocket.worker.links.CONNECT_TIMEOUT_S", -1.9)
    async with sides(5) as (a,):
        a.links.ensure(HostInfo(2, "h2", "127.0.0.1", 1, 1, "nobody"))
        with pytest.raises(HocketError, match="h2 did not connect to us"):
            await a.links.sent(2)


# --- groups over links that are cut ----------------------------------------------------------------------------------


def cut(running: Service, one: int, other: int) -> None:
    """Cuts the link between two hosts, as a network would, at both its ends."""
    for here, there in ((one, other), (other, one)):
        links = running.workers[here]._links
        link = links._links[running.workers[there].number]
        if link.connection is not None and not link.connection.closed:
            link.connection._socket.shutdown(socket.SHUT_RDWR)


async def outcomes(works: list[Any]) -> list[Any]:
    async def one(work: Any) -> Any:
        return await work

    async with asyncio.timeout(LIMIT_S):
        return await asyncio.gather(*map(one, works), return_exceptions=True)


async def sum_up(found: list[Any], elements: int = 2) -> None:
    for result in await outcomes([each.all_reduce(np.ones(elements)) for each in found]):
        assert (result == len(found)).all()


async def beyond(moment_s: float, work: Callable[[], Awaitable[None]]) -> None:
    """Works until a moment has passed, and once more."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + moment_s
    while loop.time() < until_s:
        await work()
    await work()


@pytest.mark.parametrize("elements", [1, 2_000_000], ids=["small", "large"])
@pytest.mark.parametrize("with_coordinator", [True, False], ids=["", "no coordinator"])
async def test_both_sides_of_a_cut_end_the_group_each_naming_the_other(
    elements: int, with_coordinator: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hocket.worker.agent.UNREACHABLE_GRACE_S", 0.1 if not with_coordinator else 1.0)
    async with service(2) as running, clients(running, [0, 0, 1]) as found:
        await sum_up(list(found))
        if not with_coordinator:
            await running.coordinator.stop()
        works = [client.all_reduce(np.ones(elements)) for client in (found[0], found[2])]
        await asyncio.sleep(0)
        cut(running, 0, 1)
        works.insert(1, found[1].all_reduce(np.ones(elements)))
        results = await outcomes(works)
        assert all(isinstance(error, hocket.MemberLostError) for error in results), results
        assert [(error.ranks, error.cause) for error in results] == [
            ((2,), "unreachable"),
            ((2,), "unreachable"),
            ((0, 1), "unreachable"),
        ]


async def test_a_group_made_right_after_a_cut_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hocket.worker.agent.UNREACHABLE_GRACE_S", 0.3)
    async with service(2) as running, clients(running, [0, 1], job="a") as found:
        await sum_up(list(found))
        for attempt in range(3):
            cut(running, 0, 1)
            for error in await outcomes([client.barrier(timeout=5) for client in found[:]] if attempt == 0 else []):
                assert isinstance(error, hocket.MemberLostError)
            async with clients(running, [1, 0, 1], job=f"b{attempt}") as again:
                await sum_up(list(again))
                if attempt == 2:
                    await beyond(0.4, lambda again=again: sum_up(list(again)))  # type: ignore[misc]


async def test_a_cut_between_two_of_three_hosts_ends_the_groups_of_those_two_and_no_other() -> None:
    async with (
        service(3) as running,
        clients(running, [0, 1, 2], job="all") as everybody,
        clients(running, [0, 2], job="beside") as beside,
    ):
        await sum_up(list(everybody))
        await sum_up(list(beside))
        works = [client.barrier() for client in everybody[:2]]
        cut(running, 0, 1)
        errors = await outcomes(works)
        errors += await outcomes([everybody[2].barrier()])
        assert all(isinstance(error, hocket.MemberLostError) for error in errors), errors
        assert {error.cause for error in errors} == {"unreachable"}
        await sum_up(list(beside))


@pytest.mark.parametrize("kind", ["barrier", "all_reduce", "gather", "reduce"])
async def test_nobody_hangs_where_a_third_host_has_what_two_that_are_cut_apart_lack(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third host may hold the result: the hole that is left open. Who lacks something hears of the lost member."""
    monkeypatch.setattr("hocket.worker.group.BLOCK_NBYTES", 16 << 10)
    async with service(3) as running:
        for elements in (1, 100_000):
            async with clients(running, [0, 1, 2, 2], job=f"{elements}") as found:
                await sum_up(list(found))
                works = []
                for client in found:
                    x = np.ones(elements)
                    how: dict[str, Any] = {} if kind in ("barrier", "all_reduce") else {"dst": 2}
                    works.append(getattr(client, kind)(*([] if kind == "barrier" else [x]), **how))
                    if client.rank == 0:
                        cut(running, 0, 1)
                for rank, result in enumerate(await outcomes(works)):
                    lost = isinstance(result, hocket.MemberLostError) and result.cause == "unreachable"
                    assert lost or not isinstance(result, BaseException), f"rank {rank}: {result!r}"


async def test_what_was_complete_before_a_cut_stays_so_for_all() -> None:
    async with service(2) as running:
        for attempt in range(10):
            async with clients(running, [0, 1], job=f"j{attempt}") as found:
                await sum_up(list(found))
                works = [client.all_reduce(np.full(3, 2.0)) for client in found]
                await works[attempt % 2]
                cut(running, 0, 1)
                for result in await outcomes(works):
                    assert isinstance(result, np.ndarray) and list(result) == [4.0] * 3


@pytest.mark.parametrize("placement", [[0, 1, 1], [0, 1, 2]], ids=str)
async def test_a_cut_at_any_moment_leaves_nobody_waiting_and_nobody_with_another_error(
    placement: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hocket.worker.group.BLOCK_NBYTES", 16 << 10)
    async with service(max(placement) + 1) as running:
        for trial in range(20):
            chance = Random(f"{placement} {trial}")
            async with clients(running, placement, job=f"{trial}") as found:
                await sum_up(list(found))
                x = np.ones(chance.choice([1, 30_000, 200_000]))
                works = [client.all_reduce(x.copy()) for client in found]
                works += [client.broadcast(x.copy(), src=1) for client in found]
                for _ in range(chance.randrange(60)):
                    await asyncio.sleep(0)
                cut(running, 0, 1)
                for result in await outcomes(works):
                    lost = isinstance(result, hocket.MemberLostError) and result.cause == "unreachable"
                    assert lost or not isinstance(result, BaseException), f"trial {trial}: {result!r}"
