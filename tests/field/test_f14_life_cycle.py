"""F14: init, destroy, init again, after good ends and bad ones, with one job name and one port throughout."""

import socket
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from harness.processes import Rank, RealService, facts_of, real_service

import hocket


@pytest.fixture
def host() -> Iterator[RealService]:
    """One host."""
    with real_service(1) as service:
        yield service


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def one_cycle(rank: Rank, **how: Any) -> float:
    async with rank.connect(**how) as client:
        group = await client.new_group([0, 1])
        x = np.array([rank.number + 1.0])
        await client.all_reduce(x, group=group)
        return float(x[0])


async def cycles(rank: Rank) -> list[tuple[float, float]]:
    found = []
    for _ in range(5):
        begun_s = time.monotonic()
        total = await one_cycle(rank, timeout=20)
        found.append((total, time.monotonic() - begun_s))
    if rank.number == 0:
        try:
            await one_cycle(rank, timeout=1)
        except hocket.DeadlineError as error:
            rank.say("alone", **facts_of(error))
    await rank.heard()
    found.append((await one_cycle(rank, timeout=20), 0.0))
    return found


def facade_cycles(rank: Rank) -> list[Any]:
    """The same with the blocking twin."""
    import hocket.client.sync as dist

    found: list[Any] = []
    for _ in range(5):
        begun_s = time.monotonic()
        dist.init_process_group(timeout=20)
        group = dist.new_group([0, 1])
        x = np.array([rank.number + 1.0])
        dist.all_reduce(x, group=group)
        dist.destroy_process_group()
        found.append((float(x[0]), time.monotonic() - begun_s, dist.is_initialized()))
    begun_s = time.monotonic()
    for call in (lambda: dist.all_reduce(x), dist.barrier, lambda: dist.new_group([0])):
        try:
            call()
        except hocket.ClosedError as error:
            found.append(str(error))
    found.append(time.monotonic() - begun_s)
    return found


async def is_killed(rank: Rank) -> None:
    client = await rank.connect(timeout=20)
    await client.barrier()
    rank.say("in")
    await client.recv(np.zeros(1), src=1 - rank.number, timeout=60)


async def dies_while_joining(rank: Rank) -> None:
    rank.say("joining")
    await rank.connect(timeout=60)


def test_f14_five_cycles_a_failed_start_and_another_one(host: RealService) -> None:
    ranks = host.start(cycles, (0, 0))
    alone = ranks[0].wait_for("alone", within_s=40)
    assert alone["facts"]["missing"] == [1] and alone["facts"]["limit_s"] == 1
    for rank in ranks:
        rank.tell("go on")
    for rank in ranks:
        assert [total for total, took_s in rank.result() if took_s < 5.0] == [3] * 6


def test_f14_the_same_with_the_blocking_twin(host: RealService) -> None:
    for rank in host.start(facade_cycles, (0, 0)):
        found = rank.result(within_s=40)
        assert [(total, is_in) for total, took_s, is_in in found[:5] if took_s < 5.0] == [(3, False)] * 5
        assert len(found) == 9 and found[8] < 1.0
        assert all("init_process_group" in text for text in found[5:8])


def test_f14_both_ranks_are_killed_and_come_back_under_the_same_name(host: RealService) -> None:
    for _ in range(3):
        ranks = host.start(is_killed, (0, 0))
        for rank in ranks:
            rank.wait_for("in")
        for rank in ranks:
            rank.kill()
        assert [rank.status() for rank in ranks] == [-9, -9]
    begun_s = time.monotonic()
    again = host.start(once, (0, 0))
    assert [rank.result() for rank in again] == [3, 3] and time.monotonic() - begun_s < 5.0


async def once(rank: Rank) -> float:
    return await one_cycle(rank, timeout=20)


def test_f14_one_of_the_ranks_is_killed_while_it_waits_for_the_other(host: RealService) -> None:
    first = host.start_one(dies_while_joining, 0, (0, 0))
    first.wait_for("joining")
    host.coordinator.wait_for_log("joins from")
    first.kill()
    first.status()
    assert [rank.result() for rank in host.start(once, (0, 0))] == [3, 3]


def test_f14_the_ports_are_free_once_the_service_has_ended_and_can_be_taken_at_once() -> None:
    port, http_port = free_port(), free_port()
    for _ in range(2):
        with real_service(1, ["--port", str(port)]) as service:
            assert service.port == port
            assert [rank.result() for rank in service.start(once, (0, 0))] == [3, 3]
            http_port = service.http_port
        for number in (port, http_port):
            with socket.socket() as other:
                other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                other.bind(("127.0.0.1", number))
                other.listen()


def test_f14_a_worker_that_was_killed_leaves_nothing_in_its_successor_s_way(host: RealService) -> None:
    assert [rank.result() for rank in host.start(once, (0, 0))] == [3, 3]
    host.workers[0].kill()
    host.workers[0].status()
    host.workers[0] = host.start_worker(0)
    assert [rank.result() for rank in host.start(once, (0, 0))] == [3, 3]
