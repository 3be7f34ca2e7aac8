"""One outcome for all, when the end of an operation is contested at the very moment at which it completes.

Every trial is a race between the last member's call and something that ends the operation: a time limit on another
host, a cancellation, a member that leaves. Who wins is left to the machine, how the two meet is drawn from a seed; what
must hold either way is that all members have the result or all have an error, and that the channel goes on in step.
"""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from random import Random
from typing import Any

import numpy as np
import pytest
from harness.service import Service, clients, service

import hocket
from hocket.client.work import Work

PLACEMENTS: dict[str, tuple[list[int], tuple[int, ...]]] = {
    "one host": ([0, 0, 0], ()),
    "two hosts": ([0, 1, 1], ()),
    "three hosts": ([0, 1, 2], ()),
    "one host, one remote": ([0, 0, 0], (1,)),
    "two hosts, two remote": ([0, 1, 0], (0, 1)),
    "three hosts, one remote": ([2, 1, 0], (2,)),
}
everywhere = pytest.mark.parametrize(("placement", "remote"), PLACEMENTS.values(), ids=PLACEMENTS)
TRIALS = 100
LEAVERS = 25
"""Trials with groups made for each: fewer, on each placement."""
LIMIT_S = 50.0
SIZES = (0, 1, 300, 6_000)
"""Elements: none, one, one block, several blocks (see `small_blocks`)."""


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Boards whose blocks are small, so that an operation of several is quick."""
    monkeypatch.setattr("hocket.worker.group.BLOCK_NBYTES", 16 << 10)


class Call:
    """One operation of all members, of a kind and size drawn by chance: what each calls, and what each must get."""

    def __init__(self, chance: Random, size: int) -> None:
        self.size, self.elements = size, chance.choice(SIZES)
        self.kind = chance.choice(("all_reduce", "broadcast", "all_gather", "reduce_scatter", "gather", "barrier"))
        self.root = chance.randrange(size)
        n = self.elements
        outs = {"all_gather": n * size, "reduce_scatter": n, "gather": n * size}.get(self.kind, 0)
        self.outs = [np.full(outs, -1.0) for _ in range(size)]
        self.ins = [np.full(n * (size if self.kind == "reduce_scatter" else 1), rank + 1.0) for rank in range(size)]

    def __str__(self) -> str:
        return f"{self.kind} of {self.elements} from {self.root}"

    def begin(self, on: Any, rank: int, **how: Any) -> Work:
        """The call of one rank."""
        array, out = self.ins[rank], self.outs[rank]
        if self.kind == "all_reduce":
            work = on.all_reduce(array, **how)
        elif self.kind == "broadcast":
            work = on.broadcast(array, group_src=self.root, **how)
        elif self.kind == "all_gather":
            work = on.all_gather_into_tensor(out, array, **how)
        elif self.kind == "reduce_scatter":
            work = on.reduce_scatter_tensor(out, array, **how)
        elif self.kind == "gather":
            parts = np.split(out, self.size) if rank == self.root else None
            work = on.gather(array, parts, group_dst=self.root, **how)
        else:
            work = on.barrier(**how)
        assert isinstance(work, Work)
        return work

    def check(self, rank: int) -> None:
        """A rank that has the result has the right one."""
        total, n = self.size * (self.size + 1) / 2, self.elements
        everybody = np.repeat(np.arange(1.0, self.size + 1), n)
        if self.kind == "all_reduce":
            assert (self.ins[rank] == total).all(), f"{self}: rank {rank}"
        elif self.kind == "broadcast":
            assert (self.ins[rank] == self.root + 1.0).all(), f"{self}: rank {rank}"
        elif self.kind == "reduce_scatter":
            assert (self.outs[rank] == total).all(), f"{self}: rank {rank}"
        elif self.kind == "all_gather" or (self.kind == "gather" and rank == self.root):
            assert (self.outs[rank] == everybody).all(), f"{self}: rank {rank}"


async def turns(number: int) -> None:
    """Lets the loop, on which the workers run, go around so many times."""
    for _ in range(number):
        await asyncio.sleep(0)


async def turns_until(moment_s: float) -> None:
    """Lets the loop go around until a moment has come."""
    while asyncio.get_running_loop().time() < moment_s:  # noqa: ASYNC110 - the loop is to go around
        await asyncio.sleep(0)


def settle(call: Call, results: list[Any], expected: tuple[type[Exception], ...], trial: str) -> bool:
    """Asserts that all members had one outcome. Returns whether it was the result."""
    failed = [isinstance(result, BaseException) for result in results]
    assert all(failed) or not any(failed), f"{trial}, {call}: {results}"
    for rank, result in enumerate(results):
        if failed[rank]:
            assert isinstance(result, expected), f"{trial}, {call}, rank {rank}: {result!r}"
        else:
            call.check(rank)
    return not failed[0]


async def outcomes(works: list[Work]) -> list[Any]:
    async def one(work: Work) -> Any:
        return await work

    return await asyncio.gather(*(one(work) for work in works), return_exceptions=True)


async def check_in_step(found: list[Any]) -> None:
    arrays = [np.full(2, float(rank)) for rank in range(len(found))]
    works = [on.all_reduce(x) for on, x in zip(found, arrays, strict=True)]
    for result in await outcomes(works):
        assert list(result) == [sum(range(len(found)))] * 2


async def against_a_deadline(chance: Random, found: list[Any], call: Call) -> list[Any]:
    """All but one call, one of them with a time limit; the last one calls when that is just about over."""
    late = chance.randrange(len(found))
    hasty = chance.choice([rank for rank in range(len(found)) if rank != late])
    limit_s = chance.uniform(0.001, 0.004)
    works: dict[int, Work] = {}
    began_s = asyncio.get_running_loop().time()
    for rank in chance.sample(range(len(found)), len(found)):
        if rank == hasty:
            began_s = asyncio.get_running_loop().time()
        if rank != late:
            works[rank] = call.begin(found[rank], rank, **({"timeout": limit_s} if rank == hasty else {}))
    await turns_until(began_s + limit_s * chance.uniform(0.6, 1.1))
    works[late] = call.begin(found[late], late)
    return await outcomes([works[rank] for rank in range(len(found))])


async def against_a_cancellation(chance: Random, found: list[Any], call: Call) -> list[Any]:
    """The last one calls while one of the others takes its call back, in either order, a few turns apart."""
    ranks = chance.sample(range(len(found)), len(found))
    works: dict[int, Work] = {}
    for rank in ranks[:-1]:
        works[rank] = call.begin(found[rank], rank)
    await turns(chance.randrange(6))
    fickle = chance.choice(ranks)
    if fickle == ranks[-1] or chance.random() < 0.6:
        works[ranks[-1]] = call.begin(found[ranks[-1]], ranks[-1])
        await turns(chance.randrange(8))
        works[fickle].cancel()
    else:
        works[fickle].cancel()
        await turns(chance.randrange(4))
        works[ranks[-1]] = call.begin(found[ranks[-1]], ranks[-1])
    return await outcomes([works[rank] for rank in range(len(found))])


async def against_both(chance: Random, found: list[Any], call: Call) -> list[Any]:
    """Several members want to end it at once, for different reasons, some before they can know that all are there."""
    works: list[Work] = []
    for rank in range(len(found)):
        hasty = {"timeout": chance.uniform(0.0005, 0.003)} if chance.random() < 0.5 else {}
        works.append(call.begin(found[rank], rank, **hasty))
        await turns(chance.randrange(3))
        if chance.random() < 0.4:
            chance.choice(works).cancel()
    return await outcomes(works)


RACES = (against_a_deadline, against_a_cancellation, against_both)
LOST_RACE = (hocket.DeadlineError, hocket.AbortedError)


@everywhere
async def test_an_operation_that_is_contested_as_it_completes_ends_in_one_way_for_all(
    placement: list[int], remote: tuple[int, ...]
) -> None:
    won: Counter[bool] = Counter()
    async with service(max(placement) + 1) as running, clients(running, placement, remote=remote) as found:
        async with asyncio.timeout(LIMIT_S):
            for trial in range(TRIALS):
                chance = Random(f"{placement} {remote} {trial}")
                call = Call(chance, len(found))
                results = await RACES[trial % len(RACES)](chance, list(found), call)
                won[settle(call, results, LOST_RACE, f"trial {trial}")] += 1
            await check_in_step(list(found))
    assert won[True] and won[False], f"there was no race: {won}"


async def strangers(
    running: Service, placement: list[int], remote: tuple[int, ...], stack: AsyncExitStack
) -> list[Any]:
    """Clients of one job without a world, which meet in named groups."""
    joining = [
        hocket.connect(running.socket(host), job="test", shared=rank not in remote, timeout=30)
        for rank, host in enumerate(placement)
    ]
    return list(await asyncio.gather(*(stack.enter_async_context(each) for each in joining)))


@everywhere
async def test_an_operation_that_completes_as_a_member_leaves_ends_in_one_way_for_those_who_stay(
    placement: list[int], remote: tuple[int, ...]
) -> None:
    won: Counter[bool] = Counter()
    async with service(max(placement) + 1) as running, AsyncExitStack() as stack, asyncio.timeout(LIMIT_S):
        found = await strangers(running, placement, remote, stack)
        for trial in range(LEAVERS):
            chance = Random(trial)
            groups = await asyncio.gather(
                *(client.join(f"g{trial}", len(found), rank=rank) for rank, client in enumerate(found))
            )
            if chance.random() < 0.5:  # with boards that are there, the race is a closer one
                await check_in_step(list(groups))
            call, leaver = Call(chance, len(found)), chance.randrange(len(found))
            works = [call.begin(group, rank) for rank, group in enumerate(groups)]
            await turns(chance.randrange(12))
            await groups[leaver].leave()
            results = await outcomes(works)
            left = results.pop(leaver)
            assert not isinstance(left, BaseException) or isinstance(left, hocket.ClosedError), f"{left!r}"
            failed = [isinstance(result, hocket.MemberLostError) for result in results]
            assert all(failed) or not any(isinstance(r, BaseException) for r in results), f"{trial}, {call}: {results}"
            won[not failed[0]] += 1
    assert won[True] + won[False] == LEAVERS


@everywhere
async def test_an_operation_that_completes_as_a_client_closes_ends_in_one_way_for_those_who_stay(
    placement: list[int], remote: tuple[int, ...]
) -> None:
    async with service(max(placement) + 1) as running, asyncio.timeout(LIMIT_S):
        for trial in range(LEAVERS // 3):
            chance = Random(100 + trial)
            async with clients(running, placement, remote=remote, job=f"j{trial}") as found:
                await check_in_step(list(found))
                call, leaver = Call(chance, len(found)), chance.randrange(len(found))
                works = [call.begin(client, rank) for rank, client in enumerate(found)]
                await turns(chance.randrange(8))
                await found[leaver].close()
                results = await outcomes(works)
                left = results.pop(leaver)
                assert not isinstance(left, BaseException) or isinstance(left, hocket.ClosedError), f"{left!r}"
                failed = [isinstance(result, hocket.MemberLostError) for result in results]
                assert all(failed) or not any(isinstance(r, BaseException) for r in results), f"{call}: {results}"
