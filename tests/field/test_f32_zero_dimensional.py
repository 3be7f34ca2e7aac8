"""F32: 0-dimensional arrays work; what cannot be filled in place is refused with advice."""

from typing import Any

import numpy as np
import pytest
from harness.cases import Layout, after_check, error_of, on_layouts, on_unlike_layouts, outcomes, ranks, values

import hocket


@on_layouts(3)
async def test_f32_zero_dimensional_arrays_keep_their_shape(layout: Layout) -> None:
    async with ranks(layout) as world:

        async def call(client: hocket.Client) -> Any:
            def mine() -> Any:
                return np.array(client.rank + 1.0)

            total, mean, third, part = mine(), mine(), mine(), np.array(0.0)
            outs, flat = [np.array(0.0) for _ in range(3)], np.zeros(3)
            await client.all_reduce(total)
            await client.all_reduce(mean, op=hocket.ReduceOp.AVG)
            await client.broadcast(third, src=2)
            await client.all_gather(outs, mine())
            gathered = await client.gather(mine(), dst=1)
            await client.all_gather_into_tensor(flat, mine())
            await client.scatter(part, [np.array(10.0 * r) for r in range(3)] if client.rank == 0 else None, src=0)
            message = np.array(-1.0)
            if client.rank == 0:
                await client.send(mine(), dst=1)
            elif client.rank == 1:
                await client.recv(message, src=0)
                assert message.shape == () and message == 1
            for x in (total, mean, third, part, *outs, *(gathered or [])):
                assert x.shape == ()
            gathered_list = None if gathered is None else [float(x) for x in gathered]
            return [
                float(total),
                float(mean),
                float(third),
                [float(x) for x in outs],
                gathered_list,
                flat.tolist(),
                float(part),
            ]

        found = await values(world, call)
        for rank, one in enumerate(found):
            assert one == [6, 2, 3, [1, 2, 3], [1, 2, 3] if rank == 1 else None, [1, 2, 3], 10.0 * rank]


@on_unlike_layouts(3)
@pytest.mark.parametrize("value", [np.float64(1.0), 1.0, 1, [1.0, 2.0], (1.0,), True, None, "1", b"1", np.int8(3), 1j])
async def test_f32_what_is_no_array_is_a_type_error_and_the_others_hear(layout: Layout, value: Any) -> None:
    async with ranks(layout) as world:
        x = [np.ones(2) for _ in world]
        found = await outcomes(world, lambda c: c.all_reduce(value if c.rank == 1 else x[c.rank]), within_s=1.0)
        error = error_of(found[1], hocket.ArgumentTypeError)
        assert isinstance(error, TypeError) and error.argument == "tensor"
        assert (str(value) if value is None else type(value).__name__) in str(error) and (
            "numpy.array" in str(error) or "bytearray" in str(error)
        )
        for rank in (0, 2):
            assert error_of(found[rank], hocket.AbortedError).rank == 1
            assert (x[rank] == 1).all()
        await after_check(world)


@on_layouts(2)
async def test_f32_what_has_the_buffer_protocol_is_reduced_in_place(layout: Layout) -> None:
    import array

    async with ranks(layout) as world:
        doubles = [array.array("d", [1.0, 2.0]) for _ in world]
        raw = [bytearray(b"\1\2") for _ in world]
        await values(world, lambda c: c.all_reduce(doubles[c.rank]))
        await values(world, lambda c: c.all_reduce(memoryview(raw[c.rank])))
        assert [list(one) for one in doubles] == [[2, 4]] * 2 and raw == [bytearray(b"\2\4")] * 2
