"""F30: a NaN of any rank is seen by all."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from harness.cases import Layout, on_unlike_layouts, ranks, values

import hocket

NAN, INF = np.nan, np.inf
DTYPES = ["f2", "f4", "f8", ml_dtypes.bfloat16]


@on_unlike_layouts(2)
@pytest.mark.parametrize("dtype", DTYPES)
async def test_f30_max_and_min_as_numpy_has_them(layout: Layout, dtype: Any) -> None:
    async with ranks(layout) as world:
        await max_and_min(world, dtype, False, 1)
        await max_and_min(world, dtype, True, 1)
        await max_and_min(world, dtype, True, 30_000)


async def max_and_min(world: list[hocket.Client], dtype: Any, swap: bool, times: int) -> None:
    inputs = [np.tile(np.array(x, dtype), times) for x in ([1, NAN, 3, NAN, -INF], [1, 2, NAN, NAN, NAN])]
    if swap:
        inputs.reverse()
    for op in (hocket.ReduceOp.MAX, hocket.ReduceOp.MIN):
        xs = [x.copy() for x in inputs]
        await values(world, lambda c, xs=xs, op=op: c.all_reduce(xs[c.rank], op=op))
        for x in xs:
            assert (x[::5] == 1).all() and np.isnan(np.delete(x.reshape(-1, 5), 0, 1).astype("f4")).all()


@on_unlike_layouts(3)
@pytest.mark.parametrize("dtype", DTYPES)
async def test_f30_nan_on_any_rank_in_any_operation(layout: Layout, dtype: Any) -> None:
    async with ranks(layout) as world:
        for k, count in ((0, 1), (1, 3), (2, 1), (1, 40_000)):
            others = iter([1.0, 2.0])
            fills = [NAN if rank == k else next(others) for rank in range(3)]
            for op in (hocket.ReduceOp.MAX, hocket.ReduceOp.MIN, hocket.ReduceOp.SUM, hocket.ReduceOp.PRODUCT):

                async def call(
                    client: hocket.Client, fills: list[float] = fills, op: Any = op, count: int = count
                ) -> None:
                    x = np.full(3 * count, fills[client.rank], dtype)
                    root, part = x.copy(), np.zeros(count, dtype)
                    await client.reduce(root, dst=0, op=op)
                    await client.reduce_scatter_tensor(part, x, op=op)
                    await client.all_reduce(x, op=op)
                    for found in (x, part, root) if client.rank == 0 else (x, part):
                        assert np.isnan(found.astype("f4")).all()

                await values(world, call)
