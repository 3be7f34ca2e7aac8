"""F35: what was started goes on by itself, also while the caller computes or waits for nothing."""

import asyncio
import time
from typing import Any

import numpy as np
import pytest
from harness.cases import Layout, on_layouts, on_unlike_layouts, ranks, values
from harness.processes import Rank, real_service

import hocket


def compute(slice_s: float) -> float:
    until_s, found = time.perf_counter() + slice_s, 0.0
    while time.perf_counter() < until_s:
        found += 1.0
    return found


async def poll(works: list[Any]) -> float:
    """The same beside the loop: the service of these tests runs in it."""
    return await asyncio.to_thread(keep_looking, works)


def keep_looking(works: list[Any], within_s: float = 4.0) -> float:
    """Computes in slices, awaiting nothing, until all works are completed."""
    begun_s = time.perf_counter()
    while not all(work.is_completed() for work in works):
        assert time.perf_counter() - begun_s < within_s, f"no progress: {works}"
        compute(0.005)
    return time.perf_counter() - begun_s


@on_unlike_layouts(2)
@pytest.mark.parametrize("count", [1, 200_000])
async def test_f35_messages_are_delivered_without_any_await(layout: Layout, count: int) -> None:
    async with ranks(layout) as world:
        out = np.zeros(count)
        works = [world[0].isend(np.full(count, 7.0), dst=1), world[1].irecv(out, src=0)]
        assert await poll(works) < 2.0 and (out == 7).all()
        for work in works:
            begun_s = time.perf_counter()
            await work
            assert time.perf_counter() - begun_s < 0.05
            work.wait()


@on_unlike_layouts(2)
@pytest.mark.parametrize("count", [1, 400_000])
async def test_f35_collectives_go_on_without_any_await(layout: Layout, count: int) -> None:
    async with ranks(layout) as world:
        xs = [np.full(count, 1.0 + client.rank) for client in world]
        works = [client.all_reduce(x, async_op=True) for client, x in zip(world, xs, strict=True)]
        await poll(works)
        assert all((x == 3).all() for x in xs)
        outs = [np.zeros(2 * count) for _ in world]
        await poll([c.all_gather_into_tensor(out, x) for c, out, x in zip(world, outs, xs, strict=True)])
        assert all((out == 3).all() for out in outs)


@on_layouts(2)
async def test_f35_the_same_with_an_await_between_the_looks(layout: Layout) -> None:
    async with ranks(layout) as world:

        async def call(client: hocket.Client) -> float:
            out = np.zeros(1)
            work = client.isend(np.array([7.0]), dst=1) if client.rank == 0 else client.irecv(out, src=0)
            async with asyncio.timeout(2.0):
                for _ in iter(work.done, True):
                    await asyncio.sleep(0)
            return float(out[0])

        assert await values(world, call) == [0, 7]


async def a_rank_that_only_computes(rank: Rank) -> list[float]:
    async with rank.connect() as client:
        out, x = np.zeros(1), np.full(500_000, 1.0 + rank.number)
        small, peer = np.array([7.0]), 1 - rank.number
        await client.barrier()
        works = [client.isend(small, dst=peer), client.irecv(out, src=peer), client.all_reduce(x)]
        took_s = keep_looking(works)
        return [took_s, float(out[0]), float(x[0]), float(x[-1])]


def test_f35_a_busy_process_progresses_while_its_loop_is_held_up() -> None:
    with real_service(2) as service:
        for rank in service.start(a_rank_that_only_computes, (0, 1)):
            took_s, *found = rank.result()
            assert took_s < 2.0 and found == [7, 3, 3]
