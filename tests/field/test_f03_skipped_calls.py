"""F03: one rank makes fewer calls than the others."""

import asyncio
from typing import Any

import numpy as np
import pytest
from harness.cases import Layout, error_of, on_layouts, on_unlike_layouts, outcome, ranks, values, who_called

import hocket


async def two_rounds(world: list[hocket.Client]) -> None:
    for _ in range(2):
        xs = [np.array([1.0]) for _ in world]
        await values(world, lambda c, xs=xs: c.all_reduce(xs[c.rank]))
        assert all(x[0] == len(world) for x in xs)


@on_layouts(2)
@pytest.mark.parametrize("count", [1, 500_000])
async def test_f03a_a_rank_that_leaves_is_named_as_having_left(layout: Layout, count: int) -> None:
    async with ranks(layout) as world:
        await two_rounds(world)
        x = np.full(count, 1.0)
        one, _ = await asyncio.gather(outcome(lambda: world[0].all_reduce(x)), world[1].close())
        error = error_of(one, hocket.MemberLostError)
        assert (error.rank, error.cause, error.ranks) == (1, "left", (1,)) and one.took_s < 5.0
        assert error.host and error.pid > 0 and "rank 1" in str(error) and "left" in str(error)
        assert (error.operation, error.number, error.group) == ("all_reduce", 3, "world")
        assert (x == 1).all() and x.flags.writeable
        later = await outcome(lambda: world[0].barrier())
        assert error_of(later, hocket.MemberLostError).rank == 1


@on_unlike_layouts(3)
@pytest.mark.parametrize("other", ["barrier", "broadcast", "all_gather", "gather_object", "reduce"])
async def test_f03bc_another_operation_under_the_same_number_is_a_mismatch(layout: Layout, other: str) -> None:
    async with ranks(layout) as world:
        await two_rounds(world)
        x = [np.array([5.0]) for _ in world]

        def call(client: hocket.Client) -> Any:
            if client.rank != 1:
                return client.all_reduce(x[client.rank])
            match other:
                case "barrier":
                    return client.barrier()
                case "broadcast":
                    return client.broadcast(x[1], src=1)
                case "all_gather":
                    return client.all_gather([np.zeros(1) for _ in world], x[1])
                case "gather_object":
                    return client.gather_object("x", dst=0)
                case _:
                    return client.reduce(x[1], dst=1)

        for one in await asyncio.gather(*(outcome(lambda c=c: call(c)) for c in world)):
            error = error_of(one, hocket.MismatchError)
            assert error.number == 3 and one.took_s < 2.0
            calls = who_called(error)
            assert calls[0].startswith("all_reduce(") and calls[1].startswith(f"{other}(") and calls[2] == calls[0]
        assert all(one[0] == 5 for one in x)
        await two_rounds(world)


@on_layouts(3)
async def test_f03_leaving_with_calls_under_way_ends_them_everywhere(layout: Layout) -> None:
    async with ranks(layout) as world:
        await two_rounds(world)
        works = [world[rank].all_gather_object(None, rank) for rank in (0, 2)]
        works += [world[0].recv(np.zeros(1), src=1), world[2].send(np.zeros(100_000), dst=1)]
        works.append(world[0].monitored_barrier())
        await world[1].close()
        for work in works:
            one = await outcome(lambda work=work: work)
            assert error_of(one, hocket.MemberLostError).rank == 1 and one.took_s < 5.0


@on_layouts(2)
async def test_f03_what_was_complete_before_a_member_left_stays_complete(layout: Layout) -> None:
    async with ranks(layout) as world:
        for _ in range(10):
            await two_rounds(world)
        x = [np.full(3, 1.0) for _ in world]
        work = world[0].all_reduce(x[0])
        await world[1].all_reduce(x[1])
        await world[1].close()
        await work
        assert (x[0] == 2).all()


@on_layouts(2)
async def test_f03_barriers_of_both_kinds_in_turn(layout: Layout) -> None:
    async with ranks(layout) as world:
        for _ in range(3):
            await values(world, lambda c: c.barrier())
            await values(world, lambda c: c.monitored_barrier())
            await values(world, lambda c: c.monitored_barrier())
