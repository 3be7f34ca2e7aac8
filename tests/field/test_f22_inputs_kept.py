"""F22: what is only read stays as it is, bit for bit."""

from typing import Any

import numpy as np
import pytest
from harness.cases import Layout, after_check, on_layouts, on_unlike_layouts, ranks, values

import hocket


@on_layouts(2)
async def test_f22_reduce_writes_only_at_its_destination(layout: Layout) -> None:
    async with ranks(layout) as world:
        xs = [np.array([[1, 2], [3, 4]]), np.array([[4, 5], [6, 7]])]
        await values(world, lambda c: c.reduce(xs[c.rank], dst=0))
        assert [x.tolist() for x in xs] == [[[5, 7], [9, 11]], [[4, 5], [6, 7]]]


@on_unlike_layouts(3)
@pytest.mark.parametrize("count", [1, 7, 100_003])
@pytest.mark.parametrize("dtype", ["i8", "f2"])
async def test_f22_inputs_of_every_operation_are_kept_at_any_size(layout: Layout, count: int, dtype: str) -> None:
    n, dst = 3, 2
    async with ranks(layout) as world:
        xs = [((np.arange(n * count) * 7 + rank) % 51).astype(dtype) for rank in range(n)]
        kept = [x.copy() for x in xs]

        async def call(client: hocket.Client) -> Any:
            rank, parts = client.rank, np.split(xs[client.rank], n)
            mine = xs[rank].copy() if rank == dst else xs[rank]
            outs = [np.empty(count, dtype) for _ in range(n)]
            small, wide = np.empty(count, dtype), np.empty(n * count, dtype)
            await client.reduce(mine, dst=dst)
            await client.reduce_scatter(small, parts)
            await client.reduce_scatter_tensor(small, xs[rank])
            await client.gather(parts[0], outs if rank == dst else None, dst=dst)
            await client.all_gather(outs, parts[1])
            await client.all_gather_into_tensor(wide, parts[2])
            await client.scatter(small, parts if rank == dst else None, src=dst)
            await client.all_to_all(outs, parts)
            await client.all_to_all_single(wide, xs[rank])
            await client.all_gather_object(None, parts[0][:10])
            return mine

        total = (await values(world, call, within_s=30.0))[dst]
        assert (total == sum(x.astype("f8") for x in kept)).all()
        assert all((x == y).all() and x.flags.writeable for x, y in zip(xs, kept, strict=True))
        await after_check(world)


@on_layouts(2)
async def test_f22_one_array_may_be_input_and_output(layout: Layout) -> None:
    async with ranks(layout) as world:
        xs = [np.arange(4.0) + 10 * rank for rank in range(2)]
        await values(world, lambda c: c.all_to_all_single(xs[c.rank], xs[c.rank]))
        assert [x.tolist() for x in xs] == [[0, 1, 10, 11], [2, 3, 12, 13]]
        ys = [np.full(6, -1.0) for _ in world]
        for rank, y in enumerate(ys):
            y[3 * rank : 3 * rank + 3] = rank + 1
        await values(world, lambda c: c.all_gather_into_tensor(ys[c.rank], ys[c.rank][3 * c.rank : 3 * c.rank + 3]))
        assert all(y.tolist() == [1, 1, 1, 2, 2, 2] for y in ys)
        zs = [np.arange(4.0) for _ in world]
        await values(world, lambda c: c.reduce_scatter_tensor(zs[c.rank][:2], zs[c.rank]))
        assert [z.tolist() for z in zs] == [[0, 2, 2, 3], [4, 6, 2, 3]]
