"""Ranks without shared memory: the worker carries their operations out, and believes nothing that they say of them."""

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from harness.service import clients, service
from raw_ranks import LIMIT_S, RawRank

import hocket
from hocket.protocol.errors import AbortedError, ArgumentError, error_from_facts, error_to_facts
from hocket.protocol.messages import Contest, Done, Submit
from hocket.protocol.signature import Signature, encode_signature, withdrawn


def four(**how: Any) -> bytes:
    """The signature of an all_reduce of float32[4], with lies."""
    return encode_signature(replace(Signature("all_reduce", "float32", 4, ((4,),), "SUM", sends=(16,)), **how))


@asynccontextmanager
async def honest_and_raw(hosts: int = 1) -> AsyncIterator[tuple[hocket.Client, RawRank, int]]:
    """A world of a client on the board (rank 0) and a rank that says what the test says (rank 1), and its number."""
    async with service(hosts) as running, asyncio.timeout(LIMIT_S):
        raw = await RawRank.connect(running.workers[-1].config.socket)
        raw.join("test", 1, 2)
        async with hocket.connect(running.socket(0), job="test", rank=0, world_size=2, timeout=LIMIT_S) as honest:
            ready = await raw.world()
            yield honest, raw, ready.info.group
            raw.close()


def submit(group: int, number: int, values: list[float], **how: Any) -> tuple[Submit, bytes]:
    data = np.array(values, np.float32).tobytes()
    made = {"signature": four(), "sends": (len(data),), "recvs": (16,), "timeout_s": LIMIT_S, **how}
    return Submit(group, "", number, made["signature"], made["sends"], made["recvs"], made["timeout_s"]), data


async def begun(work: Any) -> Any:
    return await work


async def check_in_step(honest: hocket.Client, raw: RawRank, group: int, number: int) -> None:
    """Operation ``number`` of the channel, done as it should be, has its result on both sides."""
    x = np.full(4, 1.0, np.float32)
    raw.say(*submit(group, number, [10.0, 20.0, 30.0, 40.0]))
    assert list(await honest.all_reduce(x)) == [11.0, 21.0, 31.0, 41.0]
    done = await raw.hear(Done)
    assert (done.number, done.recvs, done.error) == (number, (16,), None)
    assert list(np.frombuffer(raw.payloads[-1], np.float32)) == [11.0, 21.0, 31.0, 41.0]


@pytest.mark.parametrize("hosts", [1, 2])
async def test_what_a_remote_rank_submits_is_carried_out_in_its_order(hosts: int) -> None:
    async with honest_and_raw(hosts) as (honest, raw, group):
        for number in range(1, 6):
            await check_in_step(honest, raw, group, number)
        for number in range(6, 9):  # many at once
            raw.say(*submit(group, number, [float(number)] * 4))
        for number in range(6, 9):
            assert list(await honest.all_reduce(np.zeros(4, np.float32))) == [number] * 4
        for number in range(6, 9):
            assert (await raw.hear(Done)).number == number


LIES: dict[str, tuple[list[float], dict[str, Any]]] = {
    "fewer bytes than its signature says": ([1.0], {}),
    "more bytes than its signature says": ([1.0] * 9, {}),
    "many pieces where there is one": ([1.0] * 4, {"sends": (4, 4, 8)}),
    "no bytes": ([], {"sends": ()}),
    "bytes that are no whole elements": ([1.0], {"signature": four(sends=(4,), dtype="float64", itemsize=8)}),
    "elements of another size than their dtype's": ([1.0] * 4, {"signature": four(itemsize=2)}),
    "a dtype that is none": ([1.0] * 4, {"signature": four(dtype="float33")}),
    "a reduce op that is none": ([1.0] * 4, {"signature": four(op="sum")}),
    "one piece where each member is to get one": ([1.0] * 4, {"signature": four(kind="all_to_all", op="")}),
    "a piece too many": ([1.0] * 4, {"signature": four(sends=(4, 12)), "sends": (4, 12)}),
    "bytes in a barrier": ([1.0] * 4, {"signature": four(kind="barrier", sends=())}),
}


@pytest.mark.parametrize("hosts", [1, 2])
@pytest.mark.parametrize(("values", "how"), LIES.values(), ids=LIES)
async def test_a_call_that_no_client_makes_costs_its_sender_the_connection_and_the_others_do_not_wait(
    values: list[float], how: dict[str, Any], hosts: int
) -> None:
    async with honest_and_raw(hosts) as (honest, raw, group):
        await check_in_step(honest, raw, group, 1)
        work = honest.all_reduce(np.ones(4, np.float32))
        raw.say(*submit(group, 2, values, **how))
        await raw.hangs_up()
        with pytest.raises(hocket.MemberLostError) as lost:
            await work
        assert lost.value.rank == 1


@pytest.mark.parametrize("recvs", [(), (4,), (64,), (8, 8)], ids=repr)
async def test_room_that_does_not_fit_the_result_is_the_ranks_own_affair(recvs: tuple[int, ...]) -> None:
    async with honest_and_raw() as (honest, raw, group):
        work = honest.all_reduce(np.ones(4, np.float32))
        raw.say(*submit(group, 1, [1.0] * 4, recvs=recvs))
        assert list(await work) == [2.0] * 4
        assert (await raw.hear(Done)).number == 1
        await check_in_step(honest, raw, group, 2)


@pytest.mark.parametrize(
    "signature",
    [b"", b"junk", b"\x90", b"\xc1" * 40, four(op=7), four(dtype=["x"]), four(root="me"), four(error=3)],
    ids=repr,
)
async def test_a_signature_that_is_none_costs_its_sender_the_connection(signature: bytes) -> None:
    async with honest_and_raw() as (honest, raw, group):
        work = honest.all_reduce(np.ones(4, np.float32))
        raw.say(Submit(group, "", 1, signature, (), (), LIMIT_S))
        await raw.hangs_up()
        with pytest.raises(hocket.MemberLostError) as lost:
            await work
        assert lost.value.rank == 1


@pytest.mark.parametrize("limit_s", [math.nan, -1.0, 0.0, -math.inf], ids=str)
async def test_a_time_limit_that_is_none_is_over_at_once(limit_s: float) -> None:
    async with honest_and_raw() as (honest, raw, group):
        raw.say(*submit(group, 1, [1.0] * 4, timeout_s=limit_s))
        done = await raw.hear(Done)
        assert done.error is not None and isinstance(error_from_facts(done.error), hocket.DeadlineError)
        with pytest.raises(hocket.AbortedError):
            await honest.all_reduce(np.ones(4, np.float32))
        await check_in_step(honest, raw, group, 2)


async def test_a_withdrawn_call_only_takes_its_number() -> None:
    async with honest_and_raw() as (honest, raw, group):
        wrong = ArgumentError("tensor", "wrong", "right")
        raw.say(Submit(group, "", 1, encode_signature(withdrawn("all_reduce", wrong)), (), (), LIMIT_S))
        done = await raw.hear(Done)
        assert done.error is not None and isinstance(error_from_facts(done.error), ArgumentError)
        with pytest.raises(hocket.AbortedError) as aborted:
            await honest.all_reduce(np.ones(4, np.float32))
        assert aborted.value.rank == 1
        await check_in_step(honest, raw, group, 2)


async def test_a_remote_rank_takes_its_call_back_and_hears_how_that_went() -> None:
    async with honest_and_raw() as (honest, raw, group):
        raw.say(*submit(group, 1, [1.0] * 4))
        raw.say(Contest(group, "", 1, 1, error_to_facts(AbortedError(1, "changed its mind"))))
        done = await raw.hear(Done)
        assert done.error is not None and isinstance(error_from_facts(done.error), AbortedError)
        with pytest.raises(hocket.AbortedError, match="changed its mind"):
            await honest.all_reduce(np.ones(4, np.float32))
        raw.say(Contest(group, "", 1, 1, error_to_facts(AbortedError(1, "too late"))))
        await check_in_step(honest, raw, group, 2)


async def test_the_first_rank_of_an_exscan_keeps_its_array_also_without_a_board() -> None:
    async with service() as running, clients(running, [0, 0, 0], remote=(0, 2)) as found:
        arrays = [np.full(3, rank + 5.0) for rank in range(3)]
        await asyncio.gather(*(begun(c.exscan(x)) for c, x in zip(found, arrays, strict=True)))
        assert [list(x) for x in arrays] == [[5.0] * 3, [5.0] * 3, [11.0] * 3]


async def test_objects_of_any_size_reach_ranks_without_a_board() -> None:
    async with service() as running, clients(running, [0, 0, 0], remote=(1, 2)) as found:
        lists: list[list[Any]] = [["x" * 70_000, {"k": (1, None)}], [None, None], [0, 0]]
        await asyncio.gather(
            *(begun(c.broadcast_object_list(found_, 0)) for c, found_ in zip(found, lists, strict=True))
        )
        assert lists[1] == lists[2] == ["x" * 70_000, {"k": (1, None)}]
        gathered = await asyncio.gather(*(begun(c.all_gather_object(None, c.rank * "ab")) for c in found))
        assert gathered == [["", "ab", "abab"]] * 3
