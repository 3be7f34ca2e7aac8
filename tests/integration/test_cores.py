"""Ranks with the native core and ranks without it, together on one host: the same bits, whatever goes by which way."""

import asyncio
import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from harness.processes import Rank, RealService, facts_of, real_service

import hocket
from hocket.fabric import core
from hocket.protocol.limits import BLOCK_NBYTES, DIRECT_NBYTES

SIZES = (1, 3, 1000, 20_000, BLOCK_NBYTES // 4 - 1, BLOCK_NBYTES // 4 + 1, 600_001, DIRECT_NBYTES // 4 + 5)
"""float32s: within a call, in one block, in several, and read from one another's memory."""
CORES = {
    "native": ("", "", ""),
    "python": ("python", "python", "python"),
    "mixed": ("", "python", ""),
}
START_S = 90.0
"""These ranks are processes that are started anew, three at a time, and move some hundred MiB."""
pytestmark = pytest.mark.skipif(core.native is None, reason="there is no native core here")


@pytest.fixture(scope="module")
def host() -> Iterator[RealService]:
    with real_service(1) as service:
        yield service


def given(rank: int, count: int, salt: int) -> Any:
    return np.random.default_rng([rank, count, salt]).random(count, np.float32)


async def everything(rank: Rank) -> Any:
    """Every kind of movement, at every size, several times over: says a digest of all results."""
    client = await rank.connect(timeout=60)
    me, size, digest = client.rank, client.size, hashlib.blake2b()
    for count in SIZES:
        for salt in range(4):
            inputs = [given(r, count, salt) for r in range(size)]
            mine, root = inputs[me], salt % size
            x = mine.copy()
            assert await client.all_reduce(x) is x
            expected = inputs[0]
            for other in inputs[1:]:
                expected = expected + other
            assert (x == expected).all(), f"all_reduce of {count}"
            digest.update(x.tobytes())
            x = mine.copy()
            await client.broadcast(x, root)
            assert (x == inputs[root]).all(), f"broadcast of {count}"
            gathered = np.empty((size, count), np.float32)
            await client.all_gather_into_tensor(gathered, mine)
            assert (gathered == inputs).all(), f"all_gather of {count}"
            table = np.stack([given(me * size + r, count, salt) for r in range(size)])
            await client.all_to_all_single(gathered, table)
            wanted = [given(r * size + me, count, salt) for r in range(size)]
            assert (gathered == wanted).all(), f"all_to_all of {count}"
            own = np.empty(count, np.float32)
            await client.reduce_scatter_tensor(own, table)
            tables = [given(r * size + me, count, salt) for r in range(size)]
            total = tables[0]
            for other in tables[1:]:
                total = total + other
            assert (own == total).all(), f"reduce_scatter of {count}"
            gathered[...] = -1
            gathered[me] = mine
            await client.all_gather_into_tensor(gathered, gathered[me])
            assert (gathered == inputs).all(), f"all_gather of {count}, in place"
            await client.reduce_scatter_tensor(table[me], table)
            assert (table[me] == total).all(), f"reduce_scatter of {count}, in place"
            lists = [np.empty(count, np.float32) for _ in range(size)]
            await client.all_gather(lists, mine)
            assert all((a == b).all() for a, b in zip(lists, inputs, strict=True))
            await client.barrier()
    rank.say("digest", of=digest.hexdigest(), core=core.describe())
    await client.close()
    return "done"


@pytest.mark.parametrize("cores", CORES.values(), ids=CORES)
def test_all_cores_give_the_same_results_side_by_side(host: RealService, cores: tuple[str, ...]) -> None:
    placement = [0] * len(cores)
    ranks = [
        host.start_one(everything, r, placement, job=f"cores-{cores}", **{core.CORE_VARIABLE: which})
        for r, which in enumerate(cores)
    ]
    said = [rank.wait_for("digest", START_S) for rank in ranks]
    assert len({one["of"] for one in said}) == 1
    assert [one["core"] == "python" for one in said] == [which == "python" for which in cores]
    assert [rank.status(START_S) for rank in ranks] == [0] * len(ranks)


async def changes_its_mind(rank: Rank) -> Any:
    """A call site that is known by now meets another call: all raise, nothing is written, the next one is right."""
    client = await rank.connect(timeout=60)
    x, y = np.ones(5, np.float32), np.ones(6, np.float32)
    for _ in range(20):
        await client.all_reduce(x.copy())
    other = y if client.rank == 1 else x
    try:
        await client.all_reduce(other)
    except hocket.MismatchError as error:
        rank.say("error", untouched=bool((other == 1).all()), **facts_of(error))
    await client.all_reduce(x)
    rank.say("sum", of=float(x.sum()))
    await client.close()


@pytest.mark.parametrize("cores", CORES.values(), ids=CORES)
def test_a_call_that_differs_from_the_ones_before_is_a_mismatch_on_all(
    host: RealService, cores: tuple[str, ...]
) -> None:
    ranks = [
        host.start_one(changes_its_mind, r, [0, 0, 0], job=f"mind-{cores}", **{core.CORE_VARIABLE: which})
        for r, which in enumerate(cores)
    ]
    for rank in ranks:
        error = rank.wait_for("error", START_S)
        assert error["untouched"] and "rank 1 called all_reduce(float32[6]" in error["text"], error["text"]
        assert rank.wait_for("sum", START_S)["of"] == 15.0


async def comes_late(rank: Rank) -> Any:
    """Rank 0's operations begin in the call and are gone on with elsewhere; its loop turns meanwhile."""
    client = await rank.connect(timeout=60)
    for count in (1, 100_000, 1_000_000):
        x = np.ones(count, np.float32)
        for _ in range(3):
            await client.all_reduce(np.ones(count, np.float32))
        await client.barrier()
        if client.rank == 0:
            work = client.all_reduce(x)
            with pytest.raises(ValueError, match="read-only"):
                x[0] = 5
            for _ in range(100):
                await asyncio.sleep(0)
            rank.say("begun", done=work.done())
            await work
            assert x.flags.writeable
        else:
            rank.hear()
            await client.all_reduce(x)
        assert (x == 2).all()
    await client.close()
    return "done"


def test_an_operation_that_the_others_are_late_for_is_handed_over(host: RealService) -> None:
    ranks = host.start(comes_late, [0, 0], job="late")
    for _ in range(3):
        assert ranks[0].wait_for("begun", START_S)["done"] is False
        ranks[1].tell("go")
    assert [rank.status(START_S) for rank in ranks] == [0, 0]
