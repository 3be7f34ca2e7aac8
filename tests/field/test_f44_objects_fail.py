"""F44: one rank's object cannot travel, or cannot be read where it arrives."""

import contextlib
import pickle
import threading
from typing import Any

import numpy as np
import pytest
from harness.cases import Layout, after_check, error_of, on_layouts, on_unlike_layouts, outcomes, ranks

import hocket


class Unpicklable(Exception):  # noqa: N818 - what a user's code raises
    def __reduce__(self) -> Any:
        raise TypeError("not me")


class Grumpy:
    """Its serialisation raises an exception that itself cannot be pickled."""

    def __reduce__(self) -> Any:
        raise Unpicklable("boom")


class ReadsBadly:
    def __reduce__(self) -> Any:
        return _explode, ()


def _explode() -> None:
    raise RuntimeError("cannot be made here")


class Elsewhere:
    """A class that the receivers do not have."""

    def __reduce__(self) -> Any:
        return "Elsewhere"


BAD = {
    "lambda": lambda: {"f": lambda: 0},
    "lock": lambda: [threading.Lock()],
    "raises": Grumpy,
    "socket": lambda: contextlib.nullcontext,
    "recursive": lambda: _recursive(),
}


def _recursive() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


@on_unlike_layouts(3)
@pytest.mark.parametrize("what", ["lambda", "lock", "raises", "recursive"])
@pytest.mark.parametrize("allow_pickle", [False, True])
async def test_f44abde_everybody_hears_whose_object_cannot_travel(
    layout: Layout, what: str, allow_pickle: bool
) -> None:
    if allow_pickle and what == "recursive":
        return  # pickle takes lists that hold themselves
    async with ranks(layout, allow_pickle=allow_pickle) as world:
        for kind in ("all_gather_object", "gather_object", "scatter_object_list", "broadcast_object_list"):
            await fails_everywhere(world, kind, what, allow_pickle)
        await after_check(world)


async def fails_everywhere(world: list[hocket.Client], kind: str, what: str, allow_pickle: bool) -> None:
    bad = BAD[what]()
    lists = [[None] * 3 for _ in world]

    def call(client: hocket.Client) -> Any:
        mine = bad if client.rank == 1 else client.rank
        match kind:
            case "all_gather_object":
                return client.all_gather_object(lists[client.rank], mine)
            case "gather_object":
                return client.gather_object(mine, lists[client.rank] if client.rank == 0 else None, dst=0)
            case "scatter_object_list":
                objects = [1, 2, bad] if client.rank == 1 else None
                return client.scatter_object_list(lists[client.rank], objects, src=1)
            case _:
                given = [1, bad, 3] if client.rank == 1 else lists[client.rank]
                return client.broadcast_object_list(given, src=1)

    found = await outcomes(world, call)
    for one in found:
        error = error_of(one, hocket.SerialiseError)
        assert error.rank == 1 and error.type_name, str(error)
    own = str(found[1].error)
    if what == "raises" and allow_pickle:
        assert all("boom" in str(one.error) for one in found)
    if not allow_pickle:
        assert any(word in own for word in ("allow_pickle", "depth", "itself", "nested")), own
    assert lists == [[None] * 3 for _ in world]


@on_layouts(3)
async def test_f44c_receivers_that_cannot_read_an_object_name_its_source(layout: Layout) -> None:
    async with ranks(layout, allow_pickle=True) as world:
        lists: list[list[Any]] = [[ReadsBadly()], [None], [None]]
        found = await outcomes(world, lambda c: c.broadcast_object_list(lists[c.rank], src=0))
        for rank in (1, 2):
            error = error_of(found[rank], hocket.SerialiseError)
            assert error.rank == 0 and "cannot be made here" in str(error)
            assert lists[rank] == [None]
        assert found[0].error is None or isinstance(found[0].error, hocket.SerialiseError)
        await after_check(world)


@on_layouts(2)
async def test_f44_a_receiver_that_does_not_allow_pickle_reads_none(layout: Layout) -> None:
    ran: list[int] = []

    class Trap:
        def __reduce__(self) -> Any:
            return ran.append, (1,)

    async with ranks(layout, allow_pickle=True) as world:
        world[1].allow_pickle = False
        lists: list[list[Any]] = [[complex, np.dtype("f4")], [None, None]]
        found = await outcomes(world, lambda c: c.broadcast_object_list(lists[c.rank], src=0))
        assert error_of(found[1], hocket.SerialiseError).rank == 0
        assert "allow_pickle" in str(found[1].error) and ran == [] and lists[1] == [None, None]
        await after_check(world)


def test_f44_the_trap_of_these_tests_would_work() -> None:
    with pytest.raises(RuntimeError, match="cannot be made here"):
        pickle.loads(pickle.dumps(ReadsBadly()))


@on_layouts(2)
async def test_f44_point_to_point_objects_fail_on_the_sender_alone(layout: Layout) -> None:
    async with ranks(layout) as world:
        with pytest.raises(hocket.SerialiseError) as caught:
            await world[0].send_object_list([lambda: 0], dst=1)
        assert caught.value.rank == 0
        out: list[Any] = [None]
        work = world[1].recv_object_list(out, src=0)
        await world[0].send_object_list(["well"], dst=1)
        await work
        assert out == ["well"]
        await after_check(world)
