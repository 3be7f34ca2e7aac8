"""F09: time limits are kept as they were given, wherever they were given."""

import asyncio
import time
from typing import Any

import numpy as np
import pytest
from harness.cases import Layout, after_check, error_of, layouts, on_unlike_layouts, outcome, ranks
from harness.processes import Rank, idle, real_service
from harness.service import service

import hocket


@on_unlike_layouts(3)
@pytest.mark.parametrize("count", [1, 500_000])
async def test_f09a_the_call_s_own_limit_names_the_absent_and_ends_it_for_all(layout: Layout, count: int) -> None:
    async with ranks(layout) as world:
        x = np.ones(count)
        one, two = await asyncio.gather(
            outcome(lambda: world[0].all_reduce(x, timeout=1.0)), outcome(lambda: world[2].all_reduce(np.ones(count)))
        )
        error = error_of(one, hocket.DeadlineError)
        assert (error.limit_s, error.missing, error.operation, error.number) == (1.0, (1,), "all_reduce", 1)
        assert 1.0 <= one.took_s < 3.0 and isinstance(error, TimeoutError) and "rank 1" in str(error)
        other = error_of(two, hocket.AbortedError)
        assert isinstance(other, hocket.DeadlineError) and (other.rank, other.missing) == (0, (1,))
        assert 0.9 <= two.took_s < 3.0
        late = await outcome(lambda: world[1].all_reduce(np.ones(count)))
        assert error_of(late, hocket.AbortedError).rank == 0 and late.took_s < 1.0
        assert (x == 1).all() and x.flags.writeable
        await after_check(world)


@on_unlike_layouts(2)
async def test_f09b_a_limit_set_later_holds_for_later_operations(layout: Layout) -> None:
    async with ranks(layout) as world:
        world[0].timeout = 0.6
        calls = (
            lambda: world[0].all_reduce(np.ones(1), channel="a"),
            lambda: world[0].barrier(channel="b"),
            lambda: world[0].monitored_barrier(channel="c"),
            lambda: world[0].recv(np.ones(1), src=1),
            lambda: world[0].send(np.ones(100_000), dst=1),
            lambda: world[0].all_gather_object(None, 1, channel="d"),
        )
        for one in await asyncio.gather(*(outcome(call) for call in calls)):
            error = error_of(one, hocket.DeadlineError)
            assert error.limit_s == 0.6 and error.missing == (1,) and 0.6 <= one.took_s < 2.6, (error, one.took_s)


@on_unlike_layouts(2)
async def test_f09c_new_groups_inherit_the_limit_or_have_their_own(layout: Layout) -> None:
    async with ranks(layout, timeout=1.2) as world:
        groups = await asyncio.gather(*(client.new_group([0, 1]) for client in world))
        own = await asyncio.gather(*(client.new_group([0, 1], timeout=0.7) for client in world))
        assert [group.timeout for group in (*groups, *own)] == [1.2, 1.2, 0.7, 0.7]
        limits_s = (1.2, 0.7, 0.5)
        found = await asyncio.gather(
            outcome(lambda: groups[0].all_reduce(np.ones(1))),
            outcome(lambda: own[0].all_reduce(np.ones(1))),
            outcome(lambda: world[0].new_group([0, 1], timeout=0.5)),
        )
        for one, limit_s in zip(found, limits_s, strict=True):
            error = error_of(one, hocket.DeadlineError)
            assert (error.limit_s, error.missing) == (limit_s, (1,)) and limit_s <= one.took_s < limit_s + 2


@on_unlike_layouts(2)
async def test_f09_a_queued_operation_has_its_own_limit(layout: Layout) -> None:
    async with ranks(layout) as world:
        first = world[0].all_reduce(np.ones(1), timeout=20)
        one = await outcome(lambda: world[0].all_reduce(np.ones(1), timeout=0.5))
        assert error_of(one, hocket.DeadlineError).limit_s == 0.5 and 0.5 <= one.took_s < 2.5
        await world[1].all_reduce(np.ones(1))
        await first
        late = await outcome(lambda: world[1].all_reduce(np.ones(1)))
        assert error_of(late, hocket.AbortedError).rank == 0
        await after_check(world)


async def test_f09f_a_world_that_never_completes_names_who_did_not_come() -> None:
    async with service() as running:
        begun_s = time.perf_counter()
        with pytest.raises(hocket.DeadlineError) as caught:
            await hocket.connect(running.socket(0), job="f", rank=0, world_size=3, timeout=1.0)
        assert caught.value.missing == (1, 2) and caught.value.limit_s == 1.0
        assert 1.0 <= time.perf_counter() - begun_s < 3.0 and "ranks 1, 2" in str(caught.value)


@pytest.mark.parametrize("wrong", [0, -1, True, "1", float("nan")])
async def test_f09_limits_that_are_none_are_refused(wrong: Any) -> None:
    async with ranks(layouts(1)[0]) as world:
        with pytest.raises(hocket.ArgumentError, match="timeout"):
            world[0].all_reduce(np.ones(1), timeout=wrong)
        with pytest.raises(hocket.ArgumentError, match="timeout"):
            world[0].timeout = wrong


async def a_slow_second_rank(rank: Rank) -> list[float]:
    async with rank.connect(timeout=120) as client:
        await client.barrier()
        out, begun_s = np.zeros(1), time.monotonic()
        work = client.irecv(out, src=1) if rank.number == 0 else None
        if rank.number == 1:
            delay_s = float(await rank.heard())
            idle(delay_s)
            await client.send(np.array([7.0]), dst=0)
        await client.barrier()
        await client.monitored_barrier()
        if work is not None:
            await work
        return [time.monotonic() - begun_s, float(out[0])]


def slow_run(delay_s: float, hosts: int) -> None:
    with real_service(hosts) as running:
        found = running.start(a_slow_second_rank, (0, hosts - 1))
        found[1].tell(str(delay_s))
        results = [rank.result(within_s=delay_s + 20) for rank in found]
        assert all(delay_s <= took_s < delay_s + 2.5 for took_s, _ in results) and results[0][1] == 7


def test_f09de_a_rank_may_be_slower_than_every_internal_limit_but_the_operation_s() -> None:
    slow_run(5.7, 2)  # beyond the liveness limit of 5 s


@pytest.mark.slow
@pytest.mark.parametrize("hosts", [1, 2])
def test_f09de_forty_seconds_as_reported(hosts: int) -> None:
    slow_run(40.0, hosts)
