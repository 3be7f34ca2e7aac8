"""F47: handles of groups on ranks that are no members."""

import asyncio
from typing import Any

import numpy as np
from harness.cases import Layout, after_check, error_of, on_layouts, outcome, ranks, values

import hocket


@on_layouts(3)
async def test_f47_non_members_hold_distinct_handles_and_are_refused_at_once(layout: Layout) -> None:
    async with ranks(layout) as world:

        async def call(client: hocket.Client) -> Any:
            g1, g2 = await client.new_group([1, 2]), await client.new_group([2])
            assert g1 is not g2 and g1 != g2 and len({g1: "a", g2: "b"}) == 2
            assert g1.ranks == (1, 2) and g2.ranks == (2,) and (g1.size, g2.size) == (2, 1)
            assert "[1, 2]" in repr(g1) and "[2]" in repr(g2)
            if client.rank:
                x, y = np.array([client.rank]), np.array([2])
                await client.all_reduce(x, group=g1)
                await g1.all_reduce(y)
                return int(x[0]), int(y[0]), g1.rank
            x = np.array([5])
            for use in (
                lambda: client.all_reduce(x, group=g1),
                lambda: g1.all_reduce(x),
                lambda: client.barrier(group=g2),
                lambda: g1.monitored_barrier(),
                lambda: client.send(x, dst=1, group=g1),
                lambda: client.recv(x, src=1, group=g1),
                lambda: g1.all_gather_object(None, 1),
                lambda: g1.send_object_list([1], dst=1),
                lambda: g1.new_group([1]),
                lambda: g1.split(0),
            ):
                one = await outcome(use)
                error = error_of(one, hocket.ArgumentError)
                assert error.argument == "group" and one.took_s < 1.0
                assert "rank 0 is not in group [1, 2]" in str(error) or "rank 0 is not in group [2]" in str(error)
            assert x[0] == 5 and x.flags.writeable
            return g1.rank, g2.rank, g1.epoch

        assert await values(world, call) == [(-1, -1, -1), (3, 4, 0), (3, 4, 1)]
        await after_check(world)


@on_layouts(3)
async def test_f47_members_do_not_wait_for_non_members(layout: Layout) -> None:
    async with ranks(layout) as world:

        async def call(client: hocket.Client) -> float:
            group = await client.new_group([0, 2])
            x = np.array([1.0])
            await group.all_reduce(x)
            return float(x[0])

        async with asyncio.timeout(5):
            assert await asyncio.gather(call(world[0]), call(world[2])) == [2, 2]
        await after_check(world)
