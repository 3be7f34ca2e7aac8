"""F07: src and dst are world ranks, group_src and group_dst ranks in the group."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest
from harness.cases import Layout, after_check, error_of, on_layouts, on_unlike_layouts, outcome, ranks, values

import hocket

Use = Callable[[hocket.Client, hocket.Group], Awaitable[Any]]


async def in_group(world: list[hocket.Client], members: list[int], use: Use) -> list[Any]:
    """What ``use`` gives on the members of a new group, while the others do nothing."""

    async def call(client: hocket.Client) -> Any:
        if client.rank not in members:
            return None
        return await use(client, await client.new_group(members))

    return await values(world, call)


@on_layouts(4)
async def test_f07ab_gather_at_a_world_rank_and_at_a_group_rank(layout: Layout) -> None:
    async with ranks(layout) as world:

        async def use(client: hocket.Client, group: hocket.Group) -> Any:
            mine = np.array([10 * client.rank])
            first = await client.gather(mine, dst=1, group=group)
            second = await client.gather(mine, group_dst=1, group=group)
            return [None if x is None else [e.tolist() for e in x] for x in (first, second)]

        found = await in_group(world, [1, 2], use)
        assert found[1] == [[[10], [20]], None] and found[2] == [None, [[10], [20]]]
        await after_check(world)


@on_layouts(4)
async def test_f07c_a_root_outside_the_group_is_named_with_the_members(layout: Layout) -> None:
    async with ranks(layout) as world:

        async def use(client: hocket.Client, group: hocket.Group) -> Any:
            mine, found = np.array([10 * client.rank]), []
            for call in (
                lambda: client.gather(mine, dst=0, group=group),
                lambda: client.broadcast(mine, src=3, group=group),
                lambda: client.reduce(mine, dst=0, group=group),
                lambda: client.scatter(mine, None, src=3, group=group),
                lambda: client.gather(mine, dst=1, group_dst=0, group=group),
                lambda: client.gather(mine, group_dst=2, group=group),
                lambda: client.broadcast(mine, src=-1, group=group),
                lambda: client.gather_object(mine, dst=0, group=group),
            ):
                one = await outcome(call)
                found.append((error_of(one, hocket.ArgumentError), one.took_s))
            x = np.array([1])
            await client.all_reduce(x, group=group)
            assert x[0] == 2, "the channel stays in step after all these"
            return found

        for member in (1, 2):
            found = (await in_group(world, [1, 2], use))[member]
            assert all(took_s < 1.0 for _, took_s in found)
            errors = [error for error, _ in found]
            assert (errors[0].argument, errors[0].given) == ("dst", "0") and "[1, 2]" in errors[0].allowed
            assert [error.argument for error in errors] == [
                "dst", "src", "dst", "src", "dst", "group_dst", "src", "dst"
            ]  # fmt: skip
            assert "both" in str(errors[4])
            break
        await after_check(world)


@on_layouts(4)
async def test_f07de_objects_scattered_and_arrays_broadcast_from_a_world_rank(layout: Layout) -> None:
    async with ranks(layout) as world:

        async def use(client: hocket.Client, group: hocket.Group) -> Any:
            out: list[Any] = [None]
            await client.scatter_object_list(out, ["a", "b"] if client.rank == 2 else None, src=2, group=group)
            x = np.array([100 + client.rank])
            await client.broadcast(x, src=2, group=group)
            return out[0], int(x[0])

        assert await in_group(world, [1, 2], use) == [None, ("a", 102), ("b", 102), None]


@on_layouts(4)
async def test_f07g_send_and_recv_name_world_ranks(layout: Layout) -> None:
    async with ranks(layout) as world:

        async def use(client: hocket.Client, group: hocket.Group) -> Any:
            x = np.array([7 if client.rank == 1 else 0])
            if client.rank == 1:
                await client.send(x, dst=2, group=group)
                await client.send(x + 1, group_dst=1, group=group)
                return None
            work = client.recv(x, src=1, group=group)
            await work
            y = np.array([0])
            other = client.recv(y, group_src=0, group=group)
            await other
            return int(x[0]), work.source, int(y[0]), other.source

        assert (await in_group(world, [1, 2], use))[2] == (7, 1, 8, 1)


@on_unlike_layouts(4)
@pytest.mark.parametrize("members", [[1, 3], [3, 0], [2, 3, 1]])
async def test_f07_every_rooted_operation_agrees_on_the_root(layout: Layout, members: list[int]) -> None:
    async with ranks(layout) as world:
        ordered = sorted(members)

        async def use(client: hocket.Client, group: hocket.Group) -> Any:
            assert group.ranks == tuple(ordered)
            found: list[Any] = []
            for place, root in enumerate(ordered):
                for how in ({"src": root}, {"group_src": place}):
                    x = np.array([client.rank])
                    await group.broadcast(x, **how)
                    out = np.array([-1])
                    entries = [np.array([10 * root + m]) for m in ordered] if client.rank == root else None
                    await group.scatter(out, entries, **how)
                    objects: list[Any] = [client.rank]
                    await group.broadcast_object_list(objects, **how)
                    found.append((int(x[0]), int(out[0]), objects[0]))
                for how in ({"dst": root}, {"group_dst": place}):
                    x = np.array([client.rank])
                    await group.reduce(x, **how)
                    gathered = await group.gather_object(client.rank, **how)
                    found.append((int(x[0]), gathered))
            return found

        found = await in_group(world, members, use)
        for rank in ordered:
            for place, root in enumerate(ordered):
                mine = found[rank][4 * place : 4 * place + 4]
                assert mine[:2] == [(root, 10 * root + rank, root)] * 2
                total = sum(ordered) if rank == root else rank
                assert mine[2:] == [(total, ordered if rank == root else None)] * 2


@on_layouts(4)
async def test_f07_ranks_outside_are_never_held_up(layout: Layout) -> None:
    async with ranks(layout) as world:
        joined = asyncio.Event()

        async def inside(client: hocket.Client) -> Any:
            group = await client.new_group([1, 2])
            joined.set()
            return await client.gather(np.array([client.rank]), dst=2, group=group)

        async def outside(client: hocket.Client) -> Any:
            one = await outcome(lambda: client.new_group([1, 2]))
            assert one.took_s < 0.5 and one.value.rank == -1
            return None

        calls = [outside(world[0]), outside(world[3])]
        await asyncio.gather(*calls)
        await asyncio.gather(inside(world[1]), inside(world[2]))
        await after_check(world)
