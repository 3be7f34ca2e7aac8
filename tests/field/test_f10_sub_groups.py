"""F10: sub-groups are matched by their members, whoever creates which in which order and when."""

import asyncio
import random

import numpy as np
import pytest
from harness.cases import Layout, after_check, error_of, on_layouts, on_unlike_layouts, outcome, ranks, values

import hocket


@on_layouts(4)
async def test_f10_disjoint_groups_form_apart_whatever_the_delays(layout: Layout) -> None:
    rng = random.Random(10)
    async with ranks(layout, timeout=10) as world:
        loop = asyncio.get_running_loop()

        async def one(client: hocket.Client, delay_s: float) -> list[int]:
            started = loop.create_future()
            loop.call_later(delay_s, started.set_result, None)
            await started
            members = [0, 3] if client.rank in (0, 3) else [1, 2]
            group = await client.new_group(members)
            await client.barrier(group=group)
            outs = [np.array([-1]) for _ in members]
            await client.all_gather(outs, np.array([client.rank]), group=group)
            return [int(out[0]) for out in outs]

        for turn in range(50 if layout.name in ("one host", "two hosts") else 10):
            scale_s = 0.2 if turn < 3 else 0.01
            delays = [rng.uniform(0, scale_s) for _ in world]
            found = await asyncio.gather(*(one(client, delays[client.rank]) for client in world))
            assert found == [[0, 3], [1, 2], [1, 2], [0, 3]]
        await after_check(world)


@on_unlike_layouts(4)
async def test_f10_a_lone_caller_hears_who_is_missing(layout: Layout) -> None:
    async with ranks(layout, timeout=0.5) as world:
        one = await outcome(lambda: world[0].new_group([0, 3]))
        error = error_of(one, hocket.DeadlineError)
        assert error.missing == (3,) and error.limit_s == 0.5 and 0.5 <= one.took_s < 2.5
        await after_check(world)
        groups = await asyncio.gather(world[0].new_group([0, 3]), world[3].new_group([0, 3]))
        x = [np.array([1.0]), np.array([2.0])]
        await asyncio.gather(*(group.all_reduce(a) for group, a in zip(groups, x, strict=True)))
        assert [a[0] for a in x] == [3, 3]


@on_layouts(4)
async def test_f10_overlapping_groups_in_different_orders(layout: Layout) -> None:
    async with ranks(layout, timeout=10) as world:

        async def call(client: hocket.Client) -> list[tuple[int, ...]]:
            wanted = [[0, 1, 2], [1, 2, 3], [0, 3], [2, 1]]
            mine = [members for members in wanted if client.rank in members]
            if client.rank % 2:
                mine.reverse()
            groups = await asyncio.gather(*(client.new_group(members) for members in mine))
            found = []
            for group in sorted(groups, key=lambda group: group.ranks):
                x = np.array([2.0**client.rank])
                await group.all_reduce(x)
                assert x[0] == sum(2.0**rank for rank in group.ranks)
                found.append(group.ranks)
            return found

        assert await values(world, call) == [
            [(0, 1, 2), (0, 3)],
            [(0, 1, 2), (1, 2), (1, 2, 3)],
            [(0, 1, 2), (1, 2), (1, 2, 3)],
            [(0, 3), (1, 2, 3)],
        ]


@on_layouts(4)
async def test_f10_order_given_does_not_matter_and_doubles_are_refused(layout: Layout) -> None:
    async with ranks(layout, timeout=10) as world:

        async def call(client: hocket.Client) -> tuple[tuple[int, ...], int]:
            given = [3, 1, 0, 2] if client.rank % 2 else [0, 2, 3, 1]
            group = await client.new_group(given)
            return group.ranks, group.rank

        assert await values(world, call) == [((0, 1, 2, 3), rank) for rank in range(4)]
        for wrong in ([0, 0], [0, 7], [], [-1, 0], ["0"], [0, 1.0]):
            one = await outcome(lambda wrong=wrong: world[0].new_group(wrong))
            assert error_of(one, hocket.ArgumentError).argument == "ranks" and one.took_s < 1.0
        await after_check(world)


@on_layouts(4)
async def test_f10_split_by_color_and_key(layout: Layout) -> None:
    async with ranks(layout, timeout=10) as world:

        async def call(client: hocket.Client) -> tuple[tuple[int, ...], int] | None:
            color = None if client.rank == 3 else client.rank % 2
            group = await client.split(color, key=-client.rank)
            if group is None:
                return None
            x = np.array([1.0])
            await group.all_reduce(x)
            return group.ranks, int(x[0])

        assert await values(world, call) == [((2, 0), 2), ((1,), 1), ((2, 0), 2), None]


@on_layouts(4)
async def test_f10_groups_of_groups(layout: Layout) -> None:
    async with ranks(layout, timeout=10) as world:

        async def call(client: hocket.Client) -> tuple[int, ...] | None:
            if client.rank == 0:
                return None
            outer = await client.new_group([1, 2, 3])
            if client.rank == 2:
                inner = await outer.new_group([1, 3])
                assert inner.rank == -1
                return None
            inner = await outer.new_group([3, 1])
            x = np.array([float(client.rank)])
            await inner.all_reduce(x)
            assert x[0] == 4
            return inner.ranks

        assert await values(world, call) == [None, (1, 3), None, (1, 3)]


@pytest.mark.parametrize("size", [2, 3])
async def test_f10_members_that_disagree_are_told_who_asked_for_what(size: int) -> None:
    async with ranks(Layout("one host", (0,) * size), timeout=0.5) as world:
        first = outcome(lambda: world[0].new_group([0, 1]))
        second = outcome(lambda: world[1].new_group([1]))
        third = outcome(lambda: world[1].new_group(list(range(size)) if size > 2 else [1]))
        one, two, three = await asyncio.gather(first, second, third)
        error = error_of(one, hocket.DeadlineError)
        assert error.missing == (1,)
        assert two.error is None
        if size > 2:
            assert "asked for" in str(error) and error_of(three, hocket.DeadlineError).missing == (0, 2)
        await after_check(world)
