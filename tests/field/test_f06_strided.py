"""F06: arrays that do not lie in one piece, as inputs and as targets in place."""

from typing import Any

import numpy as np
import pytest
from harness.cases import Layout, after_check, on_layouts, on_unlike_layouts, ranks, values

import hocket


def halves(n: int) -> tuple[list[Any], list[Any]]:
    bases = [np.full(8, -1.0) for _ in range(n)]
    views = [base[::2] for base in bases]
    for rank, view in enumerate(views):
        view[:] = 10 * rank + np.arange(1, 5)
    return bases, views


@on_layouts(2)
@pytest.mark.parametrize("kind", ["broadcast", "all_reduce", "reduce"])
async def test_f06abc_in_place_on_every_other_element(layout: Layout, kind: str) -> None:
    async with ranks(layout) as world:
        bases, views = halves(2)
        calls = {
            "broadcast": lambda c: c.broadcast(views[c.rank], src=0),
            "all_reduce": lambda c: c.all_reduce(views[c.rank]),
            "reduce": lambda c: c.reduce(views[c.rank], dst=0),
        }
        await values(world, calls[kind])
        expected = {
            "broadcast": [[1, 2, 3, 4], [1, 2, 3, 4]],
            "all_reduce": [[12, 14, 16, 18]] * 2,
            "reduce": [[12, 14, 16, 18], [11, 12, 13, 14]],
        }
        assert [view.tolist() for view in views] == expected[kind]
        assert all((base[1::2] == -1).all() for base in bases)
        assert all(array.flags.writeable for array in (*bases, *views))
        await after_check(world)


@on_layouts(2)
async def test_f06d_scatter_of_strided_entries(layout: Layout) -> None:
    async with ranks(layout) as world:
        outs = [np.zeros(3) for _ in range(2)]

        def call(client: hocket.Client) -> Any:
            entries = [np.linspace(0, 5, 6)[::2], 100 + np.linspace(0, 5, 6)[::2]] if client.rank == 0 else None
            return client.scatter(outs[client.rank], entries, src=0)

        await values(world, call)
        assert [out.tolist() for out in outs] == [[0, 2, 4], [100, 102, 104]]


@on_layouts(2)
async def test_f06e_all_gather_of_views_with_an_offset(layout: Layout) -> None:
    async with ranks(layout) as world:
        outs = [[np.zeros(4, int) for _ in range(2)] for _ in range(2)]
        await values(world, lambda c: c.all_gather(outs[c.rank], np.arange(8)[4 * c.rank : 4 * c.rank + 4]))
        assert [[out.tolist() for out in own] for own in outs] == [[[0, 1, 2, 3], [4, 5, 6, 7]]] * 2


@on_layouts(2)
async def test_f06f_broadcast_backwards(layout: Layout) -> None:
    async with ranks(layout) as world:
        bases = [np.zeros(8), np.full(8, -1.0)]
        bases[0][::-1] = np.arange(1, 9)
        await values(world, lambda c: c.broadcast(bases[c.rank][::-1], src=0))
        assert bases[1][::-1].tolist() == list(range(1, 9)) and bases[1].tolist() == list(range(8, 0, -1))


@on_layouts(2)
async def test_f06g_fortran_order(layout: Layout) -> None:
    async with ranks(layout) as world:
        mine = np.asfortranarray([[1.0, 2.0], [3.0, 4.0]])
        xs = [mine, np.zeros((2, 2), order="F")]
        await values(world, lambda c: c.broadcast(xs[c.rank], src=0))
        assert xs[1].tolist() == [[1, 2], [3, 4]]
        into_c = [mine, np.zeros((2, 2))]
        await values(world, lambda c: c.broadcast(into_c[c.rank], src=0))
        assert into_c[1].tolist() == [[1, 2], [3, 4]]


@on_layouts(2)
async def test_f06h_gather_of_a_column(layout: Layout) -> None:
    async with ranks(layout) as world:
        matrices = [np.arange(6.0).reshape(3, 2) + 10 * rank for rank in range(2)]
        outs = [np.zeros((3, 4))[:, 1], np.zeros((3, 4))[:, 2]]

        def call(client: hocket.Client) -> Any:
            return client.gather(matrices[client.rank][:, 1], outs if client.rank == 0 else None, dst=0)

        await values(world, call)
        assert [out.tolist() for out in outs] == [[1, 3, 5], [11, 13, 15]]
        assert outs[0].base[:, 0].tolist() == [0, 0, 0], "the neighbours of the column are untouched"


@on_unlike_layouts(3)
@pytest.mark.parametrize("count", [7, 100_003])
@pytest.mark.parametrize(
    "kind", ["all_reduce", "reduce_scatter_tensor", "all_gather_into_tensor", "all_to_all_single", "scan"]
)
async def test_f06_strided_inputs_and_outputs_of_any_size_and_kind(layout: Layout, count: int, kind: str) -> None:
    n = 3
    async with ranks(layout) as world:
        rng = np.random.default_rng(1)
        inputs = [rng.integers(0, 1000, (n * count, 2)).astype("i8") for _ in range(n)]
        kept = [x.copy() for x in inputs]
        sizes = {
            "all_gather_into_tensor": n * n * count,
            "all_to_all_single": n * count,
            "reduce_scatter_tensor": count,
        }
        outs = [np.full((sizes.get(kind, 1), 3), -1, "i8") for _ in range(n)]

        def call(client: hocket.Client) -> Any:
            mine, out = inputs[client.rank][:, 1], outs[client.rank][::-1, 2]
            if kind in ("all_reduce", "scan"):
                return getattr(client, kind)(mine)
            return getattr(client, kind)(out, mine)

        await values(world, call)
        columns = [x[:, 1] for x in kept]
        parts = [x.reshape(n, count) for x in columns]
        for rank in range(n):
            got = outs[rank][::-1, 2]
            expected = {
                "all_reduce": sum(columns),
                "scan": sum(columns[: rank + 1]),
                "reduce_scatter_tensor": sum(part[rank] for part in parts),
                "all_gather_into_tensor": np.concatenate(columns),
                "all_to_all_single": np.concatenate([part[rank] for part in parts]),
            }[kind]
            if kind in ("all_reduce", "scan"):
                got = inputs[rank][:, 1]
            else:
                assert (inputs[rank] == kept[rank]).all() and (outs[rank][:, :2] == -1).all()
            assert (got == expected).all()
            assert (inputs[rank][:, 0] == kept[rank][:, 0]).all()
        await after_check(world)


@on_unlike_layouts(2)
@pytest.mark.parametrize("count", [5, 200_000])
async def test_f06_strided_messages_point_to_point(layout: Layout, count: int) -> None:
    async with ranks(layout) as world:
        base = np.full((count, 3), -1.0)

        async def call(client: hocket.Client) -> None:
            if client.rank == 0:
                await client.send(np.arange(2.0 * count)[::2], dst=1)
            else:
                await client.recv(base[::-1, 1], src=0)

        await values(world, call)
        assert (base[::-1, 1] == np.arange(0, 2 * count, 2)).all()
        assert (base[:, 0] == -1).all() and (base[:, 2] == -1).all()


@on_layouts(2)
async def test_f06_broadcast_from_an_array_whose_elements_share_memory(layout: Layout) -> None:
    async with ranks(layout) as world:
        spread = np.broadcast_to(np.array([[3.0], [4.0]]), (2, 5))
        out = np.zeros((2, 5))
        await values(world, lambda c: c.broadcast(spread if c.rank == 0 else out, src=0))
        assert (out == spread).all()
        with pytest.raises(hocket.ArgumentError, match="tensor"):
            await world[0].all_reduce(spread)
