"""F33: a receive's array is smaller or larger than what was sent, or of another dtype."""

from typing import Any

import numpy as np
import pytest
from harness.cases import Layout, after_check, error_of, on_layouts, on_unlike_layouts, outcome, outcomes, ranks, values

import hocket


@on_unlike_layouts(2)
@pytest.mark.parametrize("scale", [1, 20_000])
@pytest.mark.parametrize(
    ("shape", "dtype"), [((4,), "f4"), ((8,), "f4"), ((6,), "i4"), ((3,), "f8"), ((0,), "f4"), ((24,), "u1")]
)
async def test_f33abd_a_wrong_buffer_is_a_mismatch_and_stays_as_it_is(
    layout: Layout, shape: tuple[int], dtype: str, scale: int
) -> None:
    async with ranks(layout) as world:
        sent, buffer = np.arange(6.0 * scale, dtype="f4"), np.full(shape[0] * scale, 7, dtype)

        async def call(client: hocket.Client) -> Any:
            return await (client.send(sent, dst=1) if client.rank == 0 else client.recv(buffer, src=0))

        found = await outcomes(world, call)
        error = error_of(found[1], hocket.MismatchError)
        text = str(error)
        assert f"float32[{6 * scale}]" in text and f"{np.dtype(dtype)}[{shape[0] * scale}]" in text
        assert error.operation == "recv" and [r for ranks_, _ in error.calls for r in ranks_] == [0, 1]
        assert (buffer == 7).all() and buffer.flags.writeable
        assert found[0].error is None if scale == 1 else isinstance(found[0].error, hocket.MismatchError)
        await exchange(world, 9.0)
        await after_check(world)


async def exchange(world: list[hocket.Client], value: float) -> None:
    out = np.array([-1.0])

    async def call(client: hocket.Client) -> None:
        await (client.send(np.array([value]), dst=1) if client.rank == 0 else client.recv(out, src=0))

    await values(world, call)
    assert out[0] == value


@on_unlike_layouts(2)
@pytest.mark.parametrize("count", [6, 120_000])
async def test_f33c_another_shape_of_the_same_size_is_filled(layout: Layout, count: int) -> None:
    async with ranks(layout) as world:
        out = np.zeros((2, count // 2), "f4")
        sent = np.arange(count, dtype="f4")

        async def call(client: hocket.Client) -> None:
            await (client.send(sent, dst=1) if client.rank == 0 else client.recv(out, src=0))

        await values(world, call)
        assert (out.reshape(-1) == sent).all()


@on_layouts(2)
async def test_f33_the_receiver_may_be_first_or_last_and_messages_behind_a_refused_one_arrive(layout: Layout) -> None:
    async with ranks(layout) as world:
        for first in (0, 1):
            small, right = np.zeros(2), np.zeros(3)

            async def sender(client: hocket.Client) -> None:
                await client.send(np.arange(3.0), dst=1)
                await client.send(np.arange(3.0) + 10, dst=1)

            async def receiver(client: hocket.Client, small: Any = small, right: Any = right) -> None:
                one = await outcome(lambda: client.recv(small, src=0))
                error_of(one, hocket.MismatchError)
                await client.recv(right, src=0)

            calls = [sender(world[0]), receiver(world[1])]
            if first == 1:
                work = world[1].irecv(np.zeros(1), src=0)
                await world[0].send(np.zeros(2), dst=1)
                error_of(await outcome(lambda work=work: work), hocket.MismatchError)
            for call in calls:
                await call
            assert (small == 0).all() and right.tolist() == [10, 11, 12]
        await after_check(world)
