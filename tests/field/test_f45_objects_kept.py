"""F45: objects arrive as they were: types, nesting, one for each rank."""

import datetime
from typing import Any

import numpy as np
import pytest
from harness.cases import Layout, on_layouts, ranks, values

import hocket

PAIRS: dict[str, tuple[Any, Any]] = {
    "a-dicts-of-arrays": ({"a": np.array([1, 2])}, {"b": np.array([3])}),
    "b-strings": ("ab", "cd"),
    "c-nested-lists": ([[1], [2]], [[3]]),
    "d-tuple-and-none": ((1, 2), None),
    "e-0d-and-empty": (np.array(5.0), {}),
    "f-strided": (np.arange(10)[::3], np.arange(6).reshape(2, 3).T),
    "numbers": (2**100, -(2**70)),
    "floats": (1.5, complex(1, -2)),
    "bytes": (b"\0\1", bytearray(b"x")),
    "keys": ({(1, 2): "t", 3: "i", None: "n", b"b": 0, True: 1.0}, {frozenset({1}): set()}),
    "sets": ({1, 2}, frozenset("ab")),
    "bools": (True, False),
    "scalars": (np.float32(1.5), np.int64(-1)),
    "dates": (datetime.datetime(2024, 1, 2, 3, 4, 5, 6), datetime.date(2020, 2, 29)),
    "big": (np.arange(100_000.0), "x" * 300_000),
    "empty": ([], ()),
    "bfloat16-ish": (np.zeros(0, "f2"), np.array([True])),
}


def same(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and bool((a == b).all())
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


@on_layouts(2)
async def test_f45_exactly_one_object_for_each_rank(layout: Layout) -> None:
    async with ranks(layout) as world:
        for objects in PAIRS.values():
            await exchanged(world, objects)


async def exchanged(world: list[hocket.Client], objects: tuple[Any, Any]) -> None:
    async def call(client: hocket.Client) -> Any:
        mine = objects[client.rank]
        every = await client.all_gather_object(None, mine)
        given: list[Any] = [None, None]
        await client.all_gather_object(given, mine)
        root = await client.gather_object(mine, dst=0)
        part: list[Any] = [None]
        await client.scatter_object_list(part, list(objects) if client.rank == 1 else None, src=1)
        shared = list(objects) if client.rank == 0 else [None, None]
        await client.broadcast_object_list(shared, src=0)
        return every, given, root, part[0], shared

    for rank, (every, given, root, part, shared) in enumerate(await values(world, call)):
        for found in (every, given, shared):
            assert type(found) is list and len(found) == 2
            assert all(map(same, found, objects)), (found, objects)
        assert same(part, objects[rank])
        assert root is None if rank else all(map(same, root, objects))


@on_layouts(2)
async def test_f45_received_objects_are_copies(layout: Layout) -> None:
    async with ranks(layout) as world:
        mine = [{"x": np.arange(3), "l": [1]}, {"x": np.arange(3), "l": [1]}]
        found = await values(world, lambda c: c.all_gather_object(None, mine[c.rank]))
        for every in found:
            for one in every:
                one["x"][:] = -1
                one["l"].append(2)
        assert all(one["x"].tolist() == [0, 1, 2] and one["l"] == [1] for one in mine)


@on_layouts(2)
async def test_f45_lists_of_another_length_are_told_apart(layout: Layout) -> None:
    async with ranks(layout) as world:
        with pytest.raises(hocket.ArgumentError, match="object_list"):
            world[0].all_gather_object([None] * 3, 1)
        with pytest.raises(hocket.AbortedError):
            await world[1].all_gather_object(None, 1)
        lists = [[1, 2], [None]]
        outcomes_ = [world[r].broadcast_object_list(lists[r], src=0) for r in range(2)]
        for work in outcomes_:
            with pytest.raises(hocket.MismatchError):
                await work
        assert lists[1] == [None]
