"""F11: arrays of operations under way: results before the wait, inputs that are dropped or changed."""

import asyncio
import gc
from typing import Any

import numpy as np
import pytest
from harness.cases import Layout, on_layouts, on_unlike_layouts, ranks, values

import hocket

SIZE = 300_000


@on_layouts(2)
async def test_f11a_the_result_is_there_after_the_wait(layout: Layout) -> None:
    async with ranks(layout) as world:
        xs = [np.full(SIZE, rank + 1.0) for rank in range(2)]

        async def call(client: hocket.Client) -> None:
            x = xs[client.rank]
            work = client.all_reduce(x, async_op=True)
            assert await work is x
            x /= 2
            assert (x == 1.5).all()

        await values(world, call)


@on_unlike_layouts(2)
@pytest.mark.parametrize("size", [10, SIZE])
async def test_f11b_a_dropped_input_is_kept_until_it_has_left(layout: Layout, size: int) -> None:
    async with ranks(layout) as world:
        work = world[0].isend(np.ones(size), dst=1)
        gc.collect()
        others = [np.full(size, 99.0) for _ in range(20)]
        out = np.zeros(size)
        await world[1].recv(out, src=0)
        await work
        assert (out == 1).all() and len(others) == 20


@on_unlike_layouts(2)
@pytest.mark.parametrize("size", [10, SIZE])
async def test_f11c_an_array_in_flight_cannot_be_changed(layout: Layout, size: int) -> None:
    async with ranks(layout) as world:
        x, out = np.ones(size), np.zeros(size)
        work = world[0].isend(x, dst=1)
        if size == SIZE:
            with pytest.raises(ValueError, match="read-only"):
                x[:] = 99
        else:
            x[:] = 99
        await world[1].recv(out, src=0)
        await work
        assert (out == 1).all() and x.flags.writeable


@on_layouts(2)
async def test_f11c_collectives_lock_what_they_still_use(layout: Layout) -> None:
    async with ranks(layout) as world:
        xs, outs = [np.ones(SIZE) for _ in world], [np.zeros(2 * SIZE) for _ in world]
        work = world[0].all_gather_into_tensor(outs[0], xs[0])
        for array in (xs[0], outs[0]):
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 99
        with pytest.raises(hocket.ArgumentError, match="in use by another operation"):
            world[0].all_reduce(outs[0], channel="other")
        await world[1].all_gather_into_tensor(outs[1], xs[1])
        await work
        xs[0][0] = outs[0][0] = 5
        with pytest.raises(hocket.AbortedError):
            await world[1].all_reduce(outs[1], channel="other")


@on_layouts(2)
async def test_f11d_many_outstanding_operations_awaited_in_reverse(layout: Layout) -> None:
    async with ranks(layout) as world:

        async def call(client: hocket.Client) -> None:
            xs = [np.full(5000, i * (client.rank + 1.0)) for i in range(64)]
            works = [client.all_reduce(x, async_op=True) for x in xs]
            for work in reversed(works):
                await work
            assert all((x == 3 * i).all() for i, x in enumerate(xs))

        await values(world, call)


@on_layouts(2)
@pytest.mark.parametrize("size", [1, SIZE])
async def test_f11e_a_callback_sees_the_final_value(layout: Layout, size: int) -> None:
    async with ranks(layout) as world:

        async def call(client: hocket.Client) -> list[tuple[bool, float, float, bool]]:
            seen: list[Any] = []
            told = asyncio.Event()
            loop = asyncio.get_running_loop()
            x = np.full(size, client.rank + 1.0)
            work = client.all_reduce(x)
            work.add_done_callback(
                lambda done: seen.append((done.is_completed(), float(x[0]), float(x[-1]), x.flags.writeable))
            )
            early = work.is_completed()
            assert not early or (x == 3).all()
            await work
            work.add_done_callback(lambda _done: loop.call_soon_threadsafe(told.set))
            await told.wait()
            return seen

        assert await values(world, call) == [[(True, 3.0, 3.0, True)]] * 2


@on_layouts(2)
async def test_f11_cancelled_operations_do_not_write_afterwards(layout: Layout) -> None:
    async with ranks(layout) as world:
        x = np.ones(SIZE)
        waiting = asyncio.create_task(_wait(world[0].all_reduce(x)))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        x[:] = 7
        with pytest.raises(hocket.AbortedError) as caught:
            await world[1].all_reduce(np.ones(SIZE))
        assert caught.value.rank == 0 and (x == 7).all()
        ys = [np.ones(2), np.ones(2)]
        await values(world, lambda c: c.all_reduce(ys[c.rank]))
        assert (ys[0] == 2).all() and (x == 7).all()


async def _wait(work: Any) -> None:
    await work
