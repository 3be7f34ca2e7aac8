"""F39: inside a running event loop, outside of one, and in one after another."""

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from harness.processes import Rank, RealService, real_service

import hocket


@pytest.fixture(scope="module")
def hosts() -> Iterator[RealService]:
    """Two hosts that serve all tests here, each with a job of its own."""
    with real_service(2) as service:
        yield service


async def awaited(rank: Rank) -> float:
    client = await rank.connect(timeout=20)
    x = np.array([rank.number + 1.0])
    await client.all_reduce(x)
    await client.close()
    return float(x[0])


def facade(rank: Rank) -> float:
    import hocket.client.sync as dist

    dist.init_process_group(timeout=20)
    x = np.array([rank.number + 1.0])
    dist.all_reduce(x)
    dist.destroy_process_group()
    return float(x[0])


async def facade_in_a_coroutine(rank: Rank) -> float:
    return facade(rank)


async def facade_without_an_end(rank: Rank) -> float:
    """A notebook that is just closed: nothing says goodbye but the interpreter's end."""
    import hocket.client.sync as dist

    dist.init_process_group(timeout=20)
    x = np.array([rank.number + 1.0])
    dist.all_reduce(x)
    return float(x[0])


async def beside_a_ticker(rank: Rank) -> list[float]:
    async with rank.connect(timeout=60) as client:
        gaps, over = [], asyncio.Event()

        async def ticker() -> None:
            last_s = time.monotonic()
            while not over.is_set():
                try:
                    async with asyncio.timeout(0.01):
                        await over.wait()
                except TimeoutError:
                    now_s = time.monotonic()
                    gaps.append(now_s - last_s)
                    last_s = now_s

        x = np.full(8 << 20, rank.number + 1.0)
        await client.barrier()
        task = asyncio.create_task(ticker())
        begun_s = time.monotonic()
        rounds = 0
        while time.monotonic() - begun_s < 1.5:
            x[:] = rank.number + 1.0 if rounds == 0 else 1.5
            over_all = np.zeros(1)
            await client.all_reduce(x)
            rounds += 1
            over_all[0] = time.monotonic() - begun_s >= 1.5
            await client.all_reduce(over_all)
            if over_all[0]:
                break
        took_s = time.monotonic() - begun_s
        over.set()
        await task
        return [max(gaps), len(gaps) / took_s, float(x[0])]


def in_one_loop_after_another(rank: Rank) -> list[float]:
    connecting = rank.connect(timeout=20)  # built outside of any loop
    found = []

    async def first() -> hocket.Client:
        client = await connecting
        x = np.array([rank.number + 1.0])
        await client.all_reduce(x)
        found.append(float(x[0]))
        return client

    async def second(client: hocket.Client) -> None:
        x = np.array([rank.number + 1.0])
        await client.all_reduce(x)
        group = await client.new_group([0, 1])
        await group.all_reduce(x)
        found.append(float(x[0]))
        await client.close()

    client = asyncio.run(first())
    asyncio.run(second(client))
    return found


def a_work_from_another_loop(rank: Rank) -> list[float]:
    """An operation that is started in one loop is awaited in the next, and waited for without any."""

    async def start() -> Any:
        client = await rank.connect(timeout=20)
        x, y = np.full(500_000, 1.0), np.array([1.0])
        return client, client.all_reduce(x), client.all_reduce(y)

    async def finish(work: Any) -> float:
        return float((await work)[0])

    client, one, two = asyncio.run(start())
    found = [asyncio.run(finish(one)), float(two.wait()[0])]
    asyncio.run(client.close())
    return found


CASES = {
    "a-awaited": (awaited, 3.0),
    "b-facade-in-a-coroutine": (facade_in_a_coroutine, 3.0),
    "b-facade-without-an-end": (facade_without_an_end, 3.0),
    "c-facade-in-a-script": (facade, 3.0),
    "e-one-loop-after-another": (in_one_loop_after_another, [3.0, 6.0]),
    "e-a-work-from-another-loop": (a_work_from_another_loop, [2.0, 2.0]),
}


@pytest.mark.parametrize("case", CASES)
def test_f39_event_loops(hosts: RealService, case: str) -> None:
    body, expected = CASES[case]
    placement = (0, len(case) % 2)
    ranks = hosts.start(body, placement, job=f"{case}{placement}")
    assert [rank.result() for rank in ranks] == [expected, expected]
    assert [rank.status() for rank in ranks] == [0, 0]
    assert [line for rank in ranks for line in rank.log if "different loop" in line or "Exception" in line] == []


@pytest.mark.parametrize("placement", [(0, 0), (0, 1)], ids=["one-host", "two-hosts"])
def test_f39d_the_loop_goes_on_while_large_arrays_move(hosts: RealService, placement: tuple[int, ...]) -> None:
    for rank in hosts.start(beside_a_ticker, placement, job=f"ticker{placement}"):
        longest_gap_s, ticks_per_s, _ = rank.result(within_s=40)
        assert longest_gap_s < 0.2 and ticks_per_s >= 50
