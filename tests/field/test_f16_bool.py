"""F16: arrays of bool in every operation."""

from typing import Any

import numpy as np
import pytest
from harness.cases import Layout, after_check, errors, on_layouts, on_unlike_layouts, ranks, values

import hocket

MINE = ([True, False, True, False], [True, True, False, False])


REDUCED = {
    "MAX": [True, True, True, False],
    "SUM": [True, True, True, False],
    "MIN": [True, False, False, False],
    "PRODUCT": [True, False, False, False],
    "BOR": [True, True, True, False],
    "BAND": [True, False, False, False],
    "BXOR": [False, True, True, False],
    "LOR": [True, True, True, False],
    "LAND": [True, False, False, False],
    "LXOR": [False, True, True, False],
}


@on_unlike_layouts(2)
@pytest.mark.parametrize("times", [1, 50_000])
async def test_f16_reductions_of_bool_stay_bool(layout: Layout, times: int) -> None:
    async with ranks(layout) as world:
        for op, expected in REDUCED.items():
            xs = [np.tile(np.array(mine), times) for mine in MINE]
            outs = [np.zeros(2 * times, bool) for _ in world]

            async def call(client: hocket.Client, xs: Any = xs, outs: Any = outs, op: str = op) -> None:
                kind = getattr(hocket.ReduceOp, op)
                await client.reduce_scatter_tensor(outs[client.rank], xs[client.rank], op=kind)
                await client.all_reduce(xs[client.rank], op=kind)

            await values(world, call)
            for x in xs:
                assert x.dtype == bool and (x == np.tile(expected, times)).all() and set(x.view("u1")) <= {0, 1}, op
            assert (np.concatenate(outs) == xs[0]).all()


@on_layouts(2)
async def test_f16_avg_of_bool_is_unsupported_on_every_rank(layout: Layout) -> None:
    async with ranks(layout) as world:
        xs = [np.array(mine) for mine in MINE]
        found = await errors(world, hocket.UnsupportedError, lambda c: c.all_reduce(xs[c.rank], op=hocket.ReduceOp.AVG))
        assert all(error.dtype == "bool" and "AVG" in str(error) for error in found)
        assert [x.tolist() for x in xs] == [list(mine) for mine in MINE]
        await after_check(world)


@on_layouts(2)
async def test_f16_moving_operations_are_exact(layout: Layout) -> None:
    async with ranks(layout) as world:
        xs = [np.array(mine) for mine in MINE]

        async def call(client: hocket.Client) -> list[Any]:
            mine, rank = xs[client.rank], client.rank
            copy, part, swapped = mine.copy(), np.zeros(2, bool), np.zeros(4, bool)
            both = [np.zeros(4, bool) for _ in world]
            await client.broadcast(copy, src=1)
            gathered = await client.gather(mine, dst=0)
            await client.all_gather(both, mine)
            await client.scatter(part, [mine[:2], mine[2:]] if rank == 0 else None, src=0)
            await client.all_to_all_single(swapped, mine)
            return [x if x is None else np.array(x).tolist() for x in (copy, gathered, both, part, swapped)]

        a, b = map(list, MINE)
        assert await values(world, call) == [
            [b, [a, b], [a, b], a[:2], a[:2] + b[:2]],
            [b, None, [a, b], a[2:], a[2:] + b[2:]],
        ]
