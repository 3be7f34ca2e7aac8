"""F05: shapes or dtypes differ between ranks. All raise, nothing is written, the channel stays in step."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from harness.cases import Layout, after_check, errors, on_layouts, on_unlike_layouts, ranks, values, who_called

import hocket

MAKERS: dict[str, tuple[Callable[[], np.ndarray], Callable[[], np.ndarray], tuple[str, str]]] = {
    "a-all_reduce-sizes": (lambda: np.ones(100, "f4"), lambda: np.ones(200, "f4"), ("float32[100]", "float32[200]")),
    "c-all_reduce-dtypes": (
        lambda: np.array([1, 2], "i4"),
        lambda: np.array([1.0, 2.0], "f4"),
        ("int32[2]", "float32[2]"),
    ),
    "e-all_reduce-large": (
        lambda: np.ones((4096, 100), "f4"),
        lambda: np.ones((4094, 100), "f4"),
        ("float32[4096, 100]", "float32[4094, 100]"),
    ),
    "same-bytes-other-shape": (lambda: np.ones((2, 3)), lambda: np.ones((3, 2)), ("float64[2, 3]", "float64[3, 2]")),
    "empty-against-one": (lambda: np.ones(0), lambda: np.ones(1), ("float64[0]", "float64[1]")),
    "0d-against-1d": (lambda: np.ones(()), lambda: np.ones(1), ("float64[]", "float64[1]")),
    "above-2-blocks": (lambda: np.ones(400_000), lambda: np.ones(400_001), ("float64[400000]", "float64[400001]")),
    "float16-bfloat16": (
        lambda: np.ones(4, "f2"),
        lambda: np.ones(4, _bfloat16()),
        ("float16[4]", "bfloat16[4]"),
    ),
}


def _bfloat16() -> Any:
    import ml_dtypes

    return np.dtype(ml_dtypes.bfloat16)


@on_unlike_layouts(2)
@pytest.mark.parametrize("case", MAKERS)
async def test_f05_all_reduce_of_unequal_arrays_is_a_mismatch_on_both_ranks(case: str, layout: Layout) -> None:
    first, second, texts = MAKERS[case]
    async with ranks(layout) as world:
        arrays = [first(), second()]
        found = await errors(world, hocket.MismatchError, lambda client: client.all_reduce(arrays[client.rank]))
        for error in found:
            calls = who_called(error)
            assert all(text in calls[rank] for rank, text in enumerate(texts)), calls
            assert (error.operation, error.number, error.array_intact) == ("all_reduce", 1, True)
        assert all(np.all(array == made()) for array, made in zip(arrays, (first, second), strict=True))
        assert all(array.flags.writeable for array in arrays)
        await after_check(world)


@on_layouts(2)
async def test_f05b_all_gather_of_another_shape_is_a_mismatch(layout: Layout) -> None:
    async with ranks(layout) as world:
        inputs = [np.zeros((3, 4)), np.zeros(())]
        outs = [[np.full_like(inputs[r], -1) for _ in range(2)] for r in range(2)]
        found = await errors(world, hocket.MismatchError, lambda c: c.all_gather(outs[c.rank], inputs[c.rank]))
        for error in found:
            assert "float64[3, 4]" in who_called(error)[0] and "float64[]" in who_called(error)[1]
        assert all((out == -1).all() for own in outs for out in own)
        await after_check(world)


@on_unlike_layouts(2)
@pytest.mark.parametrize(("theirs", "mine"), [("f2", "i8"), ("f4", "i4"), ("f8", "c8"), ("i8", "f8"), ("u1", "?")])
async def test_f05d_broadcast_into_another_dtype_is_a_mismatch(layout: Layout, theirs: str, mine: str) -> None:
    async with ranks(layout) as world:
        arrays = [np.array([1, 0], theirs), np.zeros(2, mine)]
        found = await errors(world, hocket.MismatchError, lambda c: c.broadcast(arrays[c.rank], src=0))
        for error in found:
            assert f"{arrays[0].dtype}[2]" in who_called(error)[0]
            assert f"{arrays[1].dtype}[2]" in who_called(error)[1]
        assert (arrays[1] == 0).all()
        await after_check(world)


@on_layouts(3)
async def test_f05_differing_ops_and_roots_are_named(layout: Layout) -> None:
    async with ranks(layout) as world:
        ops = [hocket.ReduceOp.SUM, hocket.ReduceOp.SUM, hocket.ReduceOp.MAX]
        xs = [np.ones(4) for _ in range(3)]
        found = await errors(world, hocket.MismatchError, lambda c: c.all_reduce(xs[c.rank], op=ops[c.rank]))
        assert [("SUM" in who_called(e)[0], "MAX" in who_called(e)[2]) for e in found] == [(True, True)] * 3
        assert found[0].calls[0][0] == (0, 1), "ranks that called the same are named together"
        found = await errors(world, hocket.MismatchError, lambda c: c.broadcast(xs[c.rank], src=c.rank % 2))
        assert [("root=0" in who_called(e)[2], "root=1" in who_called(e)[1]) for e in found] == [(True, True)] * 3
        assert all((x == 1).all() for x in xs)
        await after_check(world)


@on_unlike_layouts(3)
@pytest.mark.parametrize(
    "kind", ["reduce", "reduce_scatter_tensor", "all_gather_into_tensor", "scan", "all_to_all_single"]
)
async def test_f05_every_kind_of_collective_refuses_a_third_rank_that_differs(layout: Layout, kind: str) -> None:
    async with ranks(layout) as world:
        sizes = [6, 6, 9]
        inputs = [np.full(size, 7.0) for size in sizes]
        outs = [np.full(size, -1.0) for size in sizes]

        def call(client: hocket.Client) -> Any:
            mine, out = inputs[client.rank], outs[client.rank]
            match kind:
                case "reduce":
                    return client.reduce(mine, dst=1)
                case "scan":
                    return client.scan(mine)
                case "reduce_scatter_tensor":
                    return client.reduce_scatter_tensor(out[: len(mine) // 3], mine)
                case "all_gather_into_tensor":
                    return client.all_gather_into_tensor(np.tile(out, 3), mine)
                case _:
                    return client.all_to_all_single(out, mine)

        found = await errors(world, hocket.MismatchError, call)
        assert all(kind == error.operation and "float64[9]" in who_called(error)[2] for error in found)
        assert all((x == 7).all() for x in inputs) and all((x == -1).all() for x in outs)
        await after_check(world)


@on_layouts(2)
async def test_f05_right_and_wrong_calls_may_alternate(layout: Layout) -> None:
    async with ranks(layout) as world:
        for turn in range(20):
            xs = [np.ones(3), np.ones(3 + turn % 2)]
            if turn % 2:
                await errors(world, hocket.MismatchError, lambda c, xs=xs: c.all_reduce(xs[c.rank]))
            else:
                await values(world, lambda c, xs=xs: c.all_reduce(xs[c.rank]))
                assert all((x == 2).all() for x in xs)
        await after_check(world)


@on_layouts(2)
async def test_f05_several_calls_in_flight_fail_or_succeed_each_for_itself(layout: Layout) -> None:
    async with ranks(layout) as world:
        xs = [[np.ones(size) for size in (5, 6 + rank, 300_000, 300_000 + rank, 7)] for rank in range(2)]

        async def call(client: hocket.Client) -> list[bool]:
            works = [client.all_reduce(x) for x in xs[client.rank]]
            found = []
            for work in works:
                try:
                    await work
                    found.append(True)
                except hocket.MismatchError:
                    found.append(False)
            return found

        assert await values(world, call) == [[True, False, True, False, True]] * 2
        assert [[float(x[-1]) for x in own] for own in xs] == [[2, 1, 2, 1, 2]] * 2
        await after_check(world)


@on_layouts(2)
async def test_f05_mismatch_names_world_ranks_in_a_sub_group(layout: Layout) -> None:
    placement = (0, *layout.placement)
    shifted = Layout(layout.name, placement, tuple(r + 1 for r in layout.remote))
    async with ranks(shifted) as world:

        async def call(client: hocket.Client) -> dict[int, str]:
            if client.rank == 0:
                return {}
            group = await client.new_group([1, 2])
            with pytest.raises(hocket.MismatchError) as caught:
                await group.all_reduce(np.ones(client.rank))
            return who_called(caught.value)

        found = await values(world, call)
        assert set(found[1]) == {1, 2} and "float64[2]" in found[1][2]
        await after_check(world)
