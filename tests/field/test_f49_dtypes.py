"""F49: byte orders, records, strings, dates, objects and small integers."""

from typing import Any

import numpy as np
import pytest
from harness.cases import Layout, after_check, error_of, errors, on_layouts, on_unlike_layouts, outcomes, ranks, values

import hocket

RECORD = np.dtype([("a", "u8"), ("b", "f4")])


@on_unlike_layouts(2)
@pytest.mark.parametrize(("theirs", "mine"), [("<f8", "=f8"), (">f8", ">f8"), (">f8", "=f8"), ("=f8", ">f8")])
async def test_f49abc_byte_orders_may_differ(layout: Layout, theirs: str, mine: str) -> None:
    async with ranks(layout) as world:
        xs = [np.array([1, 2.5], theirs), np.zeros(2, mine)]
        await values(world, lambda c: c.broadcast(xs[c.rank], src=0))
        assert xs[1].tolist() == [1, 2.5] and xs[1].dtype == np.dtype(mine)
        out = np.zeros(2, mine)
        await values(world, lambda c: c.send(xs[0], dst=1) if c.rank == 0 else c.recv(out, src=0))
        assert out.tolist() == [1, 2.5]
        outs = [[np.zeros(2, mine), np.zeros(2, theirs)] for _ in world]
        await values(world, lambda c: c.all_gather(outs[c.rank], xs[c.rank]))
        assert all(o.tolist() == [1, 2.5] for own in outs for o in own)


@on_unlike_layouts(2)
@pytest.mark.parametrize("dtype", [">i4", ">f4", ">f8", ">u2", ">c16", ">f2"])
async def test_f49d_reductions_keep_the_byte_order(layout: Layout, dtype: str) -> None:
    async with ranks(layout) as world:
        xs = [np.array([1, 2], dtype), np.array([3, 4], dtype)]
        parts = [np.zeros(1, dtype) for _ in world]
        await values(world, lambda c: c.reduce_scatter_tensor(parts[c.rank], xs[c.rank]))
        await values(world, lambda c: c.all_reduce(xs[c.rank]))
        assert all(x.tolist() == [4, 6] and x.dtype == np.dtype(dtype) for x in xs)
        assert [part.tolist() for part in parts] == [[4], [6]]


@on_layouts(2)
async def test_f49ef_records_move_and_do_not_reduce(layout: Layout) -> None:
    async with ranks(layout) as world:
        xs = [np.array([(1, 0.5), (2, 1.5)], RECORD), np.zeros(2, RECORD)]
        await values(world, lambda c: c.broadcast(xs[c.rank], src=0))
        assert xs[1].tolist() == [(1, 0.5), (2, 1.5)]
        found = await errors(world, hocket.UnsupportedError, lambda c: c.all_reduce(xs[c.rank]))
        for error in found:
            assert ("SUM" in str(error) and "a" in error.dtype and "uint64" in str(error)) or "u8" in str(error), str(
                error
            )
        assert xs[0].tolist() == [(1, 0.5), (2, 1.5)]
        other = np.dtype([("a", "u8"), ("c", "f4")])
        ys = [np.zeros(2, RECORD), np.zeros(2, other)]
        await errors(world, hocket.MismatchError, lambda c: c.broadcast(ys[c.rank], src=0))
        await after_check(world)


@on_unlike_layouts(2)
@pytest.mark.parametrize("kind", ["broadcast", "all_reduce", "all_gather", "send"])
async def test_f49g_object_arrays_are_refused_with_advice(layout: Layout, kind: str) -> None:
    async with ranks(layout) as world:
        x = np.array([{}, None], object)

        def call(client: hocket.Client) -> Any:
            match kind:
                case "broadcast":
                    return client.broadcast(x, src=0)
                case "all_reduce":
                    return client.all_reduce(x)
                case "all_gather":
                    return client.all_gather([x, x], x)
                case _:
                    return client.send(x, dst=1 - client.rank)

        for one in await outcomes(world, call, within_s=1.0):
            error = error_of(one, hocket.ArgumentTypeError)
            assert isinstance(error, TypeError) and "object" in str(error) and "all_gather_object" in str(error)
        nested = np.zeros(1, [("a", object)])
        await errors(world, hocket.ArgumentTypeError, lambda c: c.broadcast(nested, src=0))
        await after_check(world)


@on_unlike_layouts(2)
@pytest.mark.parametrize(
    "array",
    [
        np.array(["abcde", "xy"]),
        np.array([b"abc", b"d"]),
        np.array(["2020-01-01", "NaT"], "M8[ns]"),
        np.array([1, -5], "m8[s]"),
        np.array(["äß", ""], ">U5"),
        np.zeros(2, "V7"),
    ],
    ids=lambda array: str(array.dtype),
)
async def test_f49h_strings_and_dates_are_exact_or_unsupported(layout: Layout, array: Any) -> None:
    async with ranks(layout) as world:
        xs = [array, np.zeros_like(array)]
        found = await outcomes(world, lambda c: c.broadcast(xs[c.rank], src=0))
        if found[0].error is None:
            assert found[1].error is None and xs[1].tobytes() == xs[0].tobytes()
        else:
            assert all(isinstance(one.error, hocket.UnsupportedError) for one in found)
            assert all(str(array.dtype.name) in str(one.error) or array.dtype.str in str(one.error) for one in found)
        await errors(world, hocket.UnsupportedError, lambda c: c.all_reduce(xs[c.rank].copy()))
        await after_check(world)


@on_unlike_layouts(2)
@pytest.mark.parametrize(
    ("dtype", "values_", "expected"),
    [
        ("u2", (65535, 1), 0),
        ("i2", (-1, 2), 1),
        ("u1", (255, 3), 2),
        ("i1", (127, 1), -128),
        ("i4", (2**31 - 1, 1), -(2**31)),
        ("u8", (2**64 - 1, 2), 1),
        ("i8", (2**63 - 1, 1), -(2**63)),
    ],
)
async def test_f49i_integers_wrap_as_in_numpy(
    layout: Layout, dtype: str, values_: tuple[int, int], expected: int
) -> None:
    async with ranks(layout) as world:
        for count in (1, 40_000):
            xs = [np.full(count, value, dtype) for value in values_]
            await values(world, lambda c, xs=xs: c.all_reduce(xs[c.rank]))
            assert all((x == expected).all() and x.dtype == np.dtype(dtype) for x in xs)


@on_unlike_layouts(2)
@pytest.mark.parametrize(
    ("dtype", "op"),
    [("c8", "MAX"), ("c16", "MIN"), ("f4", "BAND"), ("f8", "BOR"), ("f2", "BXOR"), ("c8", "BAND"), ("i4", "AVG")],
)
async def test_f49_what_a_dtype_cannot_do_is_said_on_every_rank(layout: Layout, dtype: str, op: str) -> None:
    async with ranks(layout) as world:
        kind = getattr(hocket.ReduceOp, op)
        for call in (
            lambda c: c.all_reduce(np.ones(2, dtype), op=kind),
            lambda c: c.reduce(np.ones(2, dtype), dst=1, op=kind),
            lambda c: c.reduce_scatter_tensor(np.ones(1, dtype), np.ones(2, dtype), op=kind),
            lambda c: c.scan(np.ones(2, dtype), op=kind),
        ):
            for error in await errors(world, hocket.UnsupportedError, call, within_s=1.0):
                assert error.dtype == np.dtype(dtype).name and op in error.does_not
        await after_check(world)
