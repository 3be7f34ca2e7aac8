"""F18: arrays without elements."""

from typing import Any

import numpy as np
import pytest
from harness.cases import (
    Layout,
    after_check,
    errors,
    on_layouts,
    on_unlike_layouts,
    outcomes,
    ranks,
    values,
    who_called,
)

import hocket

SHAPE = (1, 0, 2)


@on_unlike_layouts(3)
@pytest.mark.parametrize("dtype", ["f4", "i8", "?", "c16"])
async def test_f18_every_operation_takes_no_elements(layout: Layout, dtype: str) -> None:
    async with ranks(layout) as world:

        async def call(client: hocket.Client) -> None:
            def none(shape: tuple[int, ...] = SHAPE) -> Any:
                return np.zeros(shape, dtype)

            x, n = none(), client.size
            for work in (
                client.all_reduce(none()),
                client.broadcast(none(), src=1),
                client.reduce(none(), dst=2),
                client.scan(none()),
                client.exscan(none()),
                client.scatter(none(), [none() for _ in range(n)] if client.rank == 1 else None, src=1),
                client.all_gather_into_tensor(none((0,)), none((0,))),
                client.all_gather_into_tensor(none((3, 0, 2)), none()),
                client.reduce_scatter_tensor(none((0,)), none((0,))),
                client.reduce_scatter(none((0,)), [none((0,)) for _ in range(n)]),
                client.all_to_all_single(none((0,)), none((0,))),
                client.all_to_all_single(none((0, 4)), none((0, 4)), [0] * n, [0] * n),
                client.all_to_all([none() for _ in range(n)], [none() for _ in range(n)]),
                client.all_reduce_coalesced([none(), none((0,))]),
            ):
                await work
            outs = [none() for _ in range(n)]
            await client.all_gather(outs, x)
            gathered = await client.gather(x, dst=0)
            for out in (*outs, *(gathered or [])):
                assert out.shape == SHAPE and out.dtype == np.dtype(dtype)
            if client.rank == 0:
                await client.send(none((0,)), dst=2)
            if client.rank == 2:
                await client.recv(none((0,)), src=0)

        await values(world, call, within_s=4.0)
        await after_check(world)


@on_layouts(3)
async def test_f18_ragged_lists_with_nothing_from_one_rank(layout: Layout) -> None:
    async with ranks(layout) as world:
        rows = [2, 0, 2]
        outs = [[np.full((r, 3), -1.0) for r in rows] for _ in world]
        mine = [np.arange(3.0 * r).reshape(r, 3) + 10 * rank for rank, r in enumerate(rows)]
        await values(world, lambda c: c.all_gather(outs[c.rank], mine[c.rank]))
        assert all((out == x).all() for own in outs for out, x in zip(own, mine, strict=True))
        parts = [np.full(r, -1.0) for r in rows]
        await values(
            world, lambda c: c.scatter(parts[c.rank], [np.full(r, 5.0) for r in rows] if c.rank == 1 else None, src=1)
        )
        assert [part.tolist() for part in parts] == [[5, 5], [], [5, 5]]


@on_layouts(3)
async def test_f18_lists_that_do_not_say_so_are_a_mismatch(layout: Layout) -> None:
    async with ranks(layout) as world:
        mine = [np.ones((2, 3)), np.ones((0, 3)), np.ones((2, 3))]
        outs = [[np.full_like(mine[r], -1.0) for _ in world] for r in range(3)]
        found = await errors(world, hocket.MismatchError, lambda c: c.all_gather(outs[c.rank], mine[c.rank]))
        for error in found:
            assert "[0, 3]" in who_called(error)[1] and "[2, 3]" in who_called(error)[0] == who_called(error)[2]
        assert all((out == -1).all() for own in outs for out in own)
        await after_check(world)


@on_layouts(3)
async def test_f18_no_elements_still_wait_for_everybody(layout: Layout) -> None:
    async with ranks(layout) as world:
        early = [client.all_reduce(np.zeros(0)) for client in world[:2]]
        assert [work.done() for work in early] == [False, False]
        await world[2].all_reduce(np.zeros(0))
        for work in early:
            await work
        x = [np.zeros(0), np.zeros(0), np.zeros(1)]
        found = await outcomes(world, lambda c: c.all_reduce(x[c.rank]))
        assert all(isinstance(one.error, hocket.MismatchError) for one in found)
        await after_check(world)
