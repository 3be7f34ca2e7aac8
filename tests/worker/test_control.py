"""Workers and a coordinator that is late, goes away, comes back, or refuses: over real sockets."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_workers import FakeWorker
from harness.service import Service, clients, service

import hocket
from hocket.coordinator.config import CoordinatorConfig
from hocket.coordinator.server import Coordinator
from hocket.protocol.addresses import Address
from hocket.protocol.errors import AuthError, CoordinatorUnavailableError, HocketError
from hocket.worker.agent import Worker
from hocket.worker.config import WorkerConfig

LIMIT_S = 20.0


@pytest.fixture(autouse=True)
def eager_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that look for a coordinator often, so that tests do not wait."""
    monkeypatch.setattr("hocket.worker.control.RECONNECT_FIRST_S", 0.01)
    monkeypatch.setattr("hocket.worker.control.RECONNECT_LAST_S", 0.05)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@asynccontextmanager
async def coordinator(port: int, **settings: Any) -> AsyncIterator[Coordinator]:
    async with Coordinator(CoordinatorConfig(port=port, http_port=0, **settings)) as running:
        yield running


@asynccontextmanager
async def worker(folder: Path, port: int, number: int = 0, **settings: Any) -> AsyncIterator[Worker]:
    """A worker that looks for its coordinator at a port where nobody may listen yet."""
    made = Worker(
        WorkerConfig(
            coordinator=Address("127.0.0.1", port),
            socket=str(folder / f"w{number}.sock"),
            data_address=Address(f"127.0.0.{number + 1}", 0),
            **{"name": f"h{number}", **settings},
        )
    )
    await made.start()
    try:
        yield made
    finally:
        await made.stop()


async def summed(found: list[hocket.Client], **how: Any) -> None:
    """All clients take part in one sum."""
    arrays = [np.full(3, rank + 1.0) for rank in range(len(found))]
    async with asyncio.timeout(LIMIT_S):
        await asyncio.gather(*(as_task(c.all_reduce(x, **how)) for c, x in zip(found, arrays, strict=True)))
    assert all((x == len(found) * (len(found) + 1) / 2).all() for x in arrays)


async def as_task(work: Any) -> Any:
    return await work


async def told_apart(sender: hocket.Client, receiver: hocket.Client) -> None:
    """A message arrives."""
    x, y = np.arange(4.0), np.zeros(4)
    async with asyncio.timeout(LIMIT_S):
        await asyncio.gather(as_task(sender.send(x, receiver.rank)), as_task(receiver.recv(y, sender.rank)))
    assert (x == y).all()


async def restarted(running: Service, fresh: Coordinator) -> None:
    """Waits until all workers are with a new coordinator."""
    async with asyncio.timeout(LIMIT_S):
        while len(fresh.core.membership.hosts) < len(running.workers):  # noqa: ASYNC110 - all share this loop
            await asyncio.sleep(0)
        for each in running.workers:
            await each.registered()


async def test_a_worker_that_started_first_joins_a_coordinator_that_comes_later(tmp_path: Path) -> None:
    port = free_port()
    async with worker(tmp_path, port) as early:
        path = f"unix:{early.config.socket}"
        joining = [hocket.connect(path, job="j", rank=rank, world_size=2, timeout=LIMIT_S) for rank in range(2)]
        opened = [asyncio.create_task(as_task(each)) for each in joining]  # the ranks, too, are there before it
        async with coordinator(port), asyncio.timeout(LIMIT_S):
            await early.registered()
            found = list(await asyncio.gather(*opened))
            await summed(found)
            for client in found:
                await client.close()


async def test_a_rank_whose_worker_finds_no_coordinator_hears_so_within_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hocket.client.session.ANSWER_GRACE_S", 0.1)
    async with worker(tmp_path, free_port()) as lonely:
        with pytest.raises(CoordinatorUnavailableError):
            await hocket.connect(f"unix:{lonely.config.socket}", rank=0, world_size=1, timeout=0.1)


@pytest.mark.parametrize("placement", [[0, 0], [0, 1], [1, 0, 1]], ids=str)
@pytest.mark.parametrize("remote", [(), (0,)], ids=["", "one remote"])
async def test_groups_never_notice_that_the_coordinator_went_away_and_came_back(
    placement: list[int], remote: tuple[int, ...]
) -> None:
    """Also where workers are numbered anew, and where it is after the return that a channel is first used."""
    async with service(max(placement) + 1) as running:
        shift = await FakeWorker.connect(running.coordinator, "another")  # workers are not to get their numbers back
        shift.close()
        async with clients(running, placement, remote=remote) as found:
            await summed(found)
            port = running.coordinator.port
            await running.coordinator.stop()
            await summed(found)
            await summed(found, channel="opened without a coordinator")
            await told_apart(found[0], found[-1])
            async with coordinator(port) as fresh:
                await restarted(running, fresh)
                await summed(found)
                await summed(found, channel="opened after its return")
                await told_apart(found[-1], found[0])
                work = found[0].all_reduce(np.ones(1), timeout=0.05)
                with pytest.raises(hocket.DeadlineError):
                    await work
                for client in found[1:]:
                    with pytest.raises(hocket.AbortedError):
                        await client.all_reduce(np.ones(1))
                await summed(found)


async def test_new_worlds_form_with_a_coordinator_that_came_back_beside_those_that_it_does_not_know() -> None:
    async with service(2) as running, clients(running, [0, 1], job="old") as old:
        await summed(old)
        port = running.coordinator.port
        await running.coordinator.stop()
        async with coordinator(port) as fresh:
            await restarted(running, fresh)
            async with clients(running, [1, 0], job="new") as new:
                await summed(new)
                await summed(old)
                await told_apart(new[0], new[1])
                await told_apart(old[0], old[1])
            await new[0].close()
            await summed(old)
            async with clients(running, [0, 1], job="old", timeout=LIMIT_S) as again:
                await summed(again)
                await summed(old)


async def test_a_member_of_a_world_that_the_coordinator_does_not_know_is_told_to_connect_again() -> None:
    async with service() as running, clients(running, [0, 0]) as found:
        port = running.coordinator.port
        await running.coordinator.stop()
        async with coordinator(port) as fresh:
            await restarted(running, fresh)
            with pytest.raises(HocketError, match="connect again"):
                await found[0].join("late", 1)
            await summed(found)


async def test_members_are_told_of_a_loss_while_the_coordinator_is_away() -> None:
    async with service(2) as running, clients(running, [0, 1, 0]) as found:
        await summed(found)
        await running.coordinator.stop()
        await found[2].close()
        for client in found[:2]:
            with pytest.raises(hocket.MemberLostError) as lost:
                await client.barrier()
            assert (lost.value.rank, lost.value.cause) == (2, "left")


async def test_a_world_asked_for_during_an_outage_forms_after_it() -> None:
    async with service(2) as running:
        port = running.coordinator.port
        await running.coordinator.stop()
        joining = [
            asyncio.create_task(
                as_task(hocket.connect(running.socket(rank), job="j", rank=rank, world_size=2, timeout=LIMIT_S))
            )
            for rank in range(2)
        ]
        await asyncio.sleep(0)
        async with coordinator(port) as fresh:
            await restarted(running, fresh)
            found = list(await asyncio.gather(*joining))
            await summed(found)
            for client in found:
                await client.close()


async def test_a_worker_with_the_wrong_token_gives_up_with_the_reason(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_bytes(b"right")
    async with coordinator(0, token_file=str(token)) as running, worker(tmp_path, running.port, token=b"wrong") as made:
        with pytest.raises(AuthError, match="token"):
            await made.registered()


async def test_a_worker_that_is_replaced_under_its_name_ends_with_the_reason(tmp_path: Path) -> None:
    async with (
        coordinator(0) as running,
        worker(tmp_path, running.port, 0, name="same") as first,
        asyncio.timeout(LIMIT_S),
    ):
        await first.registered()
        async with worker(tmp_path, running.port, 1, name="same") as second:
            await second.registered()
            with pytest.raises(HocketError, match="another worker registered under this name"):
                await first.run()
            async with hocket.connect(f"unix:{second.config.socket}", rank=0, world_size=1) as client:
                await summed([client])
