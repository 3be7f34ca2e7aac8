"""F29: AVG divides by the number of members, and refuses what it cannot divide exactly."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from harness.cases import Layout, after_check, errors, on_layouts, on_unlike_layouts, ranks, values

import hocket

AVG = hocket.ReduceOp.AVG


def calls(x: Any) -> list[Any]:
    return [
        lambda c: c.all_reduce(x[c.rank], op=AVG),
        lambda c: c.reduce(x[c.rank], dst=1, op=AVG),
        lambda c: c.reduce_scatter_tensor(np.zeros(1, x[0].dtype), x[c.rank], op=AVG),
        lambda c: c.reduce_scatter(np.zeros(1, x[0].dtype), [x[c.rank][:1], x[c.rank][1:]], op=AVG),
        lambda c: c.scan(x[c.rank], op=AVG),
        lambda c: c.all_reduce_coalesced([x[c.rank]], op=AVG),
    ]


@on_unlike_layouts(2)
@pytest.mark.parametrize("dtype", ["i8", "i4", "u1", "?", "i2", "u8"])
async def test_f29ab_avg_of_integers_is_unsupported_everywhere(layout: Layout, dtype: str) -> None:
    async with ranks(layout) as world:
        x = [np.array([2, 4], dtype), np.array([4, 8], dtype)]
        kept = [one.copy() for one in x]
        for call in calls(x):
            for error in await errors(world, hocket.UnsupportedError, call):
                assert error.dtype == str(np.dtype(dtype)) and "AVG" in error.does_not
        assert all((a == b).all() for a, b in zip(x, kept, strict=True))
        await after_check(world)


@on_unlike_layouts(2)
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "c8", "c16", ml_dtypes.bfloat16])
async def test_f29c_avg_of_floats(layout: Layout, dtype: Any) -> None:
    async with ranks(layout) as world:
        x = [np.array([1, 2, 3, 4], dtype), np.array([3, 4, 5, 6], dtype)]
        parts = [np.zeros(2, dtype) for _ in world]
        roots = [one.copy() for one in x]
        await values(world, lambda c: c.reduce_scatter_tensor(parts[c.rank], x[c.rank], op=AVG))
        await values(world, lambda c: c.reduce(roots[c.rank], dst=0, op=AVG))
        await values(world, lambda c: c.all_reduce(x[c.rank], op=AVG))
        expected = np.array([2, 3, 4, 5], dtype)
        assert all((one == expected).all() and one.dtype == np.dtype(dtype) for one in x)
        assert (roots[0] == expected).all() and (np.concatenate(parts) == expected).all()


@on_layouts(3)
@pytest.mark.parametrize("count", [4, 50_000])
async def test_f29d_a_sub_group_divides_by_its_own_size(layout: Layout, count: int) -> None:
    async with ranks(layout) as world:

        async def call(client: hocket.Client) -> float | None:
            if client.rank == 2:
                return None
            x = np.full(count, 2.0 + 2 * client.rank)
            await client.all_reduce(x, op=AVG, group=await client.new_group([0, 1]))
            assert (x == x[0]).all()
            return float(x[0])

        assert await values(world, call) == [3, 3, None]
        x = [np.full(count, float(rank)) for rank in range(3)]
        await values(world, lambda c: c.all_reduce(x[c.rank], op=AVG))
        assert all((one == 1).all() for one in x)


@on_layouts(3)
async def test_f29_half_precision_averages_do_not_overflow_on_the_way(layout: Layout) -> None:
    async with ranks(layout) as world:
        x = [np.full(3, 60000, "f2") for _ in world]
        await values(world, lambda c: c.all_reduce(x[c.rank], op=AVG))
        assert all((one == 60000).all() for one in x)
