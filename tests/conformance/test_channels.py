"""Channels side by side, works awaited in any order, clients of several ranks in one process."""

import asyncio
import random
from typing import Any

import numpy as np
import pytest
from harness.operations import KINDS, REDUCTIONS, Case, carry_out, together
from harness.service import Placement, Service, clients

from hocket.client.client import Client

pytestmark = pytest.mark.asyncio(loop_scope="module")
WHERE = (Placement((0, 0, 0)), Placement((0, 0, 1)), Placement((0, 1, 2, 0), (0, 2)))
CHANNELS = ("", "a", "b", "loss")
ROUNDS = 4
EVERY_KIND = [Case(kind, 300, op="SUM" if kind in REDUCTIONS else "", root=2) for kind in KINDS]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("placement", WHERE, ids=str)
async def test_each_rank_may_take_its_channels_in_an_order_of_its_own(
    running: Service, placement: Placement, seed: int, small_blocks: int, count: Any
) -> None:
    async def rank(client: Client) -> None:
        """All cases of each channel in order, but channels interleaved as this rank's dice say."""
        dice = random.Random(seed * 100 + client.rank)
        waiting = [(channel, iter(EVERY_KIND)) for channel in CHANNELS]
        under_way = []
        while waiting:
            channel, cases = dice.choice(waiting)
            case = next(cases, None)
            if case is None:
                waiting.remove((channel, cases))
                continue
            checked = carry_out(client, case, one_host=placement.one_host, channel=channel)
            under_way.append(asyncio.ensure_future(checked))
            await asyncio.sleep(0)  # so that it has been called before the next one
        await asyncio.gather(*under_way)

    async with clients(running, placement.hosts, remote=placement.remote, job=f"{placement}/{seed}") as ranks:
        await asyncio.gather(*(rank(client) for client in ranks))
        count.add(len(CHANNELS) * len(EVERY_KIND))


async def test_a_channel_that_waits_holds_up_no_other_one(running: Service, count: Any) -> None:
    async with clients(running, (0, 1), job="waits") as (first, second):
        late = first.all_reduce(np.ones(10), channel="slow")
        for _ in range(20):
            await asyncio.gather(first.all_reduce(np.ones(10)), second.all_reduce(np.ones(10)))
        assert not late.done()
        await second.all_reduce(np.ones(10), channel="slow")
        assert (await late == 2).all()
        count.add(21)


@pytest.mark.parametrize("placement", WHERE, ids=str)
async def test_works_may_be_awaited_in_reverse(
    running: Service, placement: Placement, small_blocks: int, count: Any
) -> None:
    async def rank(client: Client) -> list[float]:
        tensors = [np.full(50 * (turn + 1), float(turn)) for turn in range(30)]
        works = [client.all_reduce(tensor, async_op=True) for tensor in tensors]
        for work, tensor in zip(reversed(works), reversed(tensors), strict=True):
            assert await work is tensor
            assert work.done() and work.is_completed() and work.exception() is None
        return [float(tensor[-1]) for tensor in tensors]

    async with clients(running, placement.hosts, remote=placement.remote, job=str(placement)) as ranks:
        for found in await asyncio.gather(*(rank(client) for client in ranks)):
            assert found == [float(turn * len(ranks)) for turn in range(30)]
        count.add(30)


async def test_a_work_tells_its_end_to_callbacks_and_to_more_than_one_awaiter(running: Service, count: Any) -> None:
    async with clients(running, (0, 1), job="callbacks") as (first, second):
        tensor, told = np.ones(5), asyncio.Event()
        loop = asyncio.get_running_loop()
        work = first.all_reduce(tensor)
        work.add_done_callback(lambda ended: loop.call_soon_threadsafe(told.set))

        async def wait() -> Any:
            return await work

        waiters = [asyncio.create_task(wait()) for _ in range(3)]
        await asyncio.sleep(0)
        await second.all_reduce(np.ones(5))
        assert all(found is tensor for found in await asyncio.gather(*waiters))
        await asyncio.wait_for(told.wait(), 5)
        count.add(1)


async def test_many_jobs_of_one_process_share_a_worker_without_meeting(
    running: Service, small_blocks: int, count: Any
) -> None:
    async def job(number: int) -> int:
        placement = WHERE[number % len(WHERE)]
        async with clients(running, placement.hosts, remote=placement.remote, job=f"many {number}") as ranks:
            cases = [Case(case.kind, case.elements + number, op=case.op, root=case.root) for case in EVERY_KIND]
            return await together(ranks, cases, one_host=placement.one_host)

    count.add(sum(await asyncio.gather(*(job(number) for number in range(6)))))


async def test_arrays_are_locked_while_an_operation_has_them_and_free_again_after(running: Service) -> None:
    async with clients(running, (0, 1), job="locks") as (first, second):
        tensor, output = np.ones(5), np.zeros((2, 5))
        work = first.all_gather_into_tensor(output, tensor)
        for array in (tensor, output):
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 3
        await second.all_gather_into_tensor(np.zeros((2, 5)), np.ones(5))
        await work
        tensor[0] = output[0, 0] = 3
