"""One outcome for all: cancellation, time limits, withdrawn calls, lost members, on one host, on two, and by proxy."""

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from harness.service import clients, service

import hocket

PLACEMENTS = {
    "one host": ([0, 0, 0], ()),
    "two hosts": ([0, 1, 1], ()),
    "three hosts": ([0, 1, 2], ()),
    "one remote": ([0, 0, 0], (1,)),
    "all remote, two hosts": ([0, 1, 0], (0, 1, 2)),
}
everywhere = pytest.mark.parametrize(("placement", "remote"), PLACEMENTS.values(), ids=PLACEMENTS)
LARGE = 3_000_000


async def outcomes(works: Sequence[Any]) -> list[Any]:
    async with asyncio.timeout(20):
        return await asyncio.gather(*works, return_exceptions=True)


async def check_in_step(found: list[hocket.Client]) -> None:
    arrays = [np.ones(1) for _ in found]
    for result in await outcomes([client.all_reduce(x) for client, x in zip(found, arrays, strict=True)]):
        assert result[0] == len(found)


async def as_task(work: Any) -> Any:
    return await work


@everywhere
@pytest.mark.parametrize("size", [1, LARGE])
async def test_cancelling_the_await_ends_the_operation_for_all(
    placement: list[int], remote: tuple[int, ...], size: int
) -> None:
    async with service(max(placement) + 1) as running, clients(running, placement, remote=remote) as found:
        arrays = [np.full(size, 5.0) for _ in found]
        tasks = [asyncio.ensure_future(as_task(found[r].all_reduce(arrays[r]))) for r in (0, 1)]
        await asyncio.sleep(0)
        tasks[0].cancel()
        first, second = await outcomes(tasks)
        assert isinstance(first, asyncio.CancelledError)
        assert isinstance(second, hocket.AbortedError) and second.rank == 0 and "cancelled" in second.cause
        with pytest.raises(hocket.AbortedError) as late:
            await found[2].all_reduce(arrays[2])
        assert late.value.rank == 0
        assert all((x == 5.0).all() and x.flags.writeable for x in arrays)
        await check_in_step(found)


@everywhere
async def test_a_time_limit_of_the_caller_ends_the_operation_for_all(
    placement: list[int], remote: tuple[int, ...]
) -> None:
    async with service(max(placement) + 1) as running, clients(running, placement, remote=remote) as found:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await found[0].barrier()
        for client in found[1:]:
            with pytest.raises(hocket.AbortedError):
                await client.barrier()
        await check_in_step(found)


@everywhere
async def test_a_deadline_names_who_is_missing_and_everybody_hears_of_it(
    placement: list[int], remote: tuple[int, ...]
) -> None:
    async with service(max(placement) + 1) as running, clients(running, placement, remote=remote) as found:
        x = [np.full(3, float(r)) for r in range(3)]
        first, second = await outcomes([found[0].all_reduce(x[0], timeout=0.4), found[1].all_reduce(x[1])])
        assert isinstance(first, hocket.DeadlineError) and (first.limit_s, first.missing) == (0.4, (2,))
        assert isinstance(second, hocket.DeadlineError) and second.missing == (2,)
        with pytest.raises(hocket.DeadlineError):
            await found[2].all_reduce(x[2])
        assert [list(a) for a in x] == [[float(r)] * 3 for r in range(3)]
        await check_in_step(found)


@everywhere
async def test_a_wrong_call_is_the_callers_error_and_aborts_the_others_at_once(
    placement: list[int], remote: tuple[int, ...]
) -> None:
    async with service(max(placement) + 1) as running, clients(running, placement, remote=remote) as found:
        waiting = found[0].all_reduce(np.ones(2))
        with pytest.raises(hocket.ArgumentError):
            found[1].all_reduce(1.0)
        (first,) = await outcomes([waiting])
        assert isinstance(first, hocket.AbortedError) and first.rank == 1 and "float" in first.cause
        with pytest.raises(hocket.AbortedError) as late:
            await found[2].all_reduce(np.ones(2))
        assert late.value.rank == 1
        await check_in_step(found)


@everywhere
async def test_calls_that_differ_are_named_on_every_rank_and_nothing_is_written(
    placement: list[int], remote: tuple[int, ...]
) -> None:
    async with service(max(placement) + 1) as running, clients(running, placement, remote=remote) as found:
        x = [np.ones(4), np.ones(4), np.ones(5)]
        for error in await outcomes([client.all_reduce(a) for client, a in zip(found, x, strict=True)]):
            assert isinstance(error, hocket.MismatchError)
            assert [ranks for ranks, _ in error.calls] == [(0, 1), (2,)]
        assert all((a == 1.0).all() for a in x)
        await check_in_step(found)


@everywhere
async def test_a_member_that_leaves_is_named_to_those_that_wait_and_to_those_that_come_later(
    placement: list[int], remote: tuple[int, ...]
) -> None:
    async with service(max(placement) + 1) as running, clients(running, placement, remote=remote) as found:
        waiting = found[0].all_reduce(np.ones(2))
        await found[2].close()
        (first,) = await outcomes([waiting])
        assert isinstance(first, hocket.MemberLostError) and (first.rank, first.cause) == (2, "left")
        with pytest.raises(hocket.MemberLostError) as late:
            await found[1].all_reduce(np.ones(2))
        assert late.value.rank == 2


@everywhere
async def test_what_was_sealed_completes_although_a_member_leaves_right_after(
    placement: list[int], remote: tuple[int, ...]
) -> None:
    async with service(max(placement) + 1) as running, clients(running, placement, remote=remote) as found:
        x = [np.full(9, r + 1.0) for r in range(3)]
        works = [client.all_reduce(a) for client, a in zip(found, x, strict=True)]
        await works[2]
        await found[2].close()
        for result in await outcomes(works[:2]):
            assert list(result) == [6.0] * 9


async def test_an_array_in_flight_is_locked_and_free_again_afterwards() -> None:
    async with service() as running, clients(running, [0, 0]) as found:
        x = np.ones(LARGE)
        work = found[0].all_reduce(x)
        with pytest.raises(ValueError, match="read-only"):
            x[0] = 99.0
        other = np.ones(LARGE)
        await asyncio.gather(work, found[1].all_reduce(other))
        x[0] = 7.0
        assert other[0] == 2.0 and x[1] == 2.0


async def test_channels_run_side_by_side_in_different_orders() -> None:
    async with service(2) as running, clients(running, [0, 1]) as found:
        a = [np.ones(1), np.ones(1)]
        b = [np.full(1, 10.0), np.full(1, 10.0)]
        first = [found[0].all_reduce(a[0], channel="a"), found[0].all_reduce(b[0], channel="b")]
        second = [found[1].all_reduce(b[1], channel="b"), found[1].all_reduce(a[1], channel="a")]
        await outcomes([*first, *second])
        assert (a[0][0], a[1][0], b[0][0], b[1][0]) == (2.0, 2.0, 20.0, 20.0)


async def test_many_operations_in_flight_are_carried_out_in_order() -> None:
    async with service() as running, clients(running, [0, 0]) as found:
        x = [[np.full(5, float(i * (r + 1))) for i in range(64)] for r in range(2)]
        works = [[found[r].all_reduce(a, async_op=True) for a in x[r]] for r in range(2)]
        for r in range(2):
            for i in reversed(range(64)):
                assert (await works[r][i])[0] == 3.0 * i


async def test_a_queued_operation_whose_time_is_up_is_withdrawn_when_its_turn_comes() -> None:
    async with service() as running, clients(running, [0, 0]) as found:
        first = found[0].all_reduce(np.ones(1), timeout=0.3)
        second = found[0].all_reduce(np.ones(1), timeout=0.1)
        results = await outcomes([first, second])
        assert all(isinstance(error, hocket.DeadlineError) for error in results)
        for _ in range(2):
            with pytest.raises(hocket.AbortedError):
                await found[1].all_reduce(np.ones(1))
        await check_in_step(found)


async def test_a_failed_work_that_nobody_looks_at_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with service() as running, clients(running, [0, 0]) as found:
        work = found[0].all_reduce(np.ones(1), timeout=0.05)
        done = asyncio.Event()
        loop = asyncio.get_running_loop()
        work.add_done_callback(lambda _work: loop.call_soon_threadsafe(done.set))
        await done.wait()
        del work
        await asyncio.sleep(0)
    assert "nobody looked" in caplog.text
