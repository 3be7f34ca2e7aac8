"""all_reduce with compression between hosts: whole services, from the call to the result."""

import asyncio
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from harness.netns import network
from harness.processes import Rank, facts_of, real_service
from harness.service import Placement, Service, clients, service, world

import hocket
from hocket.protocol.compression import CODECS
from hocket.protocol.errors import MismatchError, UnsupportedError

PLACEMENTS = (Placement((0, 1)), Placement((0, 1, 0, 1)), Placement((0, 1, 2)), Placement((2, 0, 1, 0), (0, 3)))
LENGTHS = (0, 1, 700, 9500)
"""None, one, within one message, and several blocks where blocks are small."""
CASES = (
    *((np.float16, hocket.ReduceOp.SUM), (ml_dtypes.bfloat16, hocket.ReduceOp.AVG)),
    *((np.float32, hocket.ReduceOp.AVG), (np.float64, hocket.ReduceOp.SUM)),
)


def numbers(rank: int, length: int, dtype: Any) -> Any:
    """What a rank contributes: all of one magnitude, so that bounds are easy to say."""
    return np.random.default_rng([rank, length]).uniform(-1, 1, length).astype(dtype)


def bound(codec: str, hosts: int, size: int, dtype: Any) -> float:
    """By how much a sum of such contributions may be off: each host's sum is at most as large as there are ranks."""
    rounding = float(ml_dtypes.finfo(dtype).eps) * size
    return size * (2.0**-8 if codec == "bf16" else 1 / 253) * (1 if hosts == 2 else 2.1) + rounding


# --- results ---------------------------------------------------------------------------------------------------------


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("placement", PLACEMENTS, ids=str)
async def test_every_rank_gets_the_same_bits_within_the_bound(
    running: Service, small_blocks: int, placement: Placement, codec: Any, count: Any
) -> None:
    size, hosts = len(placement.hosts), len(set(placement.hosts))

    async def rank(client: hocket.Client) -> list[bytes]:
        found = []
        for length in LENGTHS:
            for kind, op in CASES:
                array = numbers(client.rank, length, kind)
                await client.all_reduce(array, op, compression=codec)
                exact = np.sum([numbers(r, length, kind).astype(np.float64) for r in range(size)], axis=0)
                shares = size if op is hocket.ReduceOp.AVG else 1
                off = np.abs(array.astype(np.float64) - exact / shares).max(initial=0.0)
                assert off <= bound(codec, hosts, size, kind) / shares
                assert length < 700 or off > 0, "nothing was compressed"
                found.append(array.tobytes())
        parts = [numbers(client.rank, length, np.float32) for length in (3, 2000, 0, 300)]
        await client.all_reduce_coalesced(parts, compression=codec)
        return [*found, *(part.tobytes() for part in parts)]

    bits = await world(running, placement.hosts, rank, remote=placement.remote, job=f"{placement}/{codec}")
    assert all(found == bits[0] for found in bits)
    count.add(len(CASES) * len(LENGTHS) + 1)


@pytest.mark.parametrize("codec", CODECS)
async def test_five_hosts_reduce_in_segments(codec: Any, small_blocks: int, count: Any) -> None:
    async def rank(client: hocket.Client) -> list[bytes]:
        found = []
        for length in LENGTHS:
            array = numbers(client.rank, length, np.float32)
            await client.all_reduce(array, compression=hocket.Compression(codec, "name"))
            exact = np.sum([numbers(r, length, np.float32).astype(np.float64) for r in range(6)], axis=0)
            assert np.abs(array - exact).max(initial=0.0) <= bound(codec, 5, 6, np.float32)
            found.append(array.tobytes())
        return found

    async with service(5) as running:
        bits = await world(running, (0, 1, 2, 3, 4, 1), rank)
    assert all(found == bits[0] for found in bits)
    count.add(len(LENGTHS))


@pytest.mark.asyncio(loop_scope="module")
async def test_error_feedback_gets_over_many_calls_what_one_call_leaves_out(
    running: Service, small_blocks: int
) -> None:
    steps = 40

    async def rank(client: hocket.Client) -> None:
        for length in (500, 5000):  # in one message, and in blocks
            mine = numbers(client.rank, length, np.float32)
            mine[::256] *= 100
            with_feedback, without, exact = (np.zeros(length) for _ in range(3))
            for _ in range(steps):
                for total, how in (
                    (with_feedback, hocket.Compression("int8", f"of {length}")),
                    (without, "int8"),
                    (exact, None),
                ):
                    array = mine.copy()
                    await client.all_reduce(array, compression=how)
                    total += array
            off, off_without = (np.abs(total - exact).max() for total in (with_feedback, without))
            assert off < 3 * 2 * 100 / 253 and off_without > 10 * off

    await world(running, (0, 1, 2), rank, job="feedback")


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("length", [100, 50_000])
async def test_members_that_disagree_are_all_told_and_the_channel_goes_on(running: Service, length: int) -> None:
    wanted: list[Any] = ["int8", None, "bf16", hocket.Compression("int8", "weights")]

    async def rank(client: hocket.Client) -> str:
        array = np.ones(length, np.float32)
        with pytest.raises(MismatchError) as caught:
            await client.all_reduce(array, compression=wanted[client.rank])
        assert (array == 1).all()
        await client.all_reduce(array, compression="int8")
        assert (array == 4).all()
        return str(caught.value)

    texts = await world(running, (0, 1, 0, 1), rank, job=f"mismatch {length}")
    assert len(set(texts)) == 1
    for words in ("compression=int8)", "compression=bf16)", "compression=int8:weights)", f"[{length}], op=SUM)"):
        assert words in texts[0]


@pytest.mark.asyncio(loop_scope="module")
async def test_what_cannot_be_compressed_is_unsupported_on_every_rank_before_anything_moves(running: Service) -> None:
    async def rank(client: hocket.Client) -> None:
        for array, op in ((np.ones(9, np.int32), hocket.ReduceOp.SUM), (np.ones(9), hocket.ReduceOp.MAX)):
            with pytest.raises(UnsupportedError, match="compression int8"):
                await client.all_reduce(array, op, compression="int8")
            assert (array == 1).all()
        await client.barrier()

    await world(running, (0, 1), rank, job="unsupported")


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("length", [500, 50_000])
async def test_more_feedback_than_a_channel_keeps_is_refused_on_every_rank_and_the_channel_goes_on(
    running: Service, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    limit = 4 * length + 1000
    monkeypatch.setattr("hocket.worker.bridge.Feedback", lambda: hocket.worker.compression.Feedback(limit))

    async def rank(client: hocket.Client) -> None:
        array = np.ones(length, np.float32)
        await client.all_reduce(array, compression=hocket.Compression("int8", "first"))
        with pytest.raises(UnsupportedError, match=f"error feedback 'second' .*; {limit} is what a channel remembers"):
            await client.all_reduce(array, compression=hocket.Compression("int8", "second"))
        array[:] = 1
        await client.all_reduce(array, compression=hocket.Compression("int8", "first"))
        assert (array == 2).all()
        await client.all_reduce(array, compression=hocket.Compression("int8", "second"), channel="another")
        assert (array == 4).all()

    await world(running, (0, 1), rank, job=f"limit {length}")


def remembered(running: Service) -> list[int]:
    """What the hosts remember, by group and channel that has anything."""
    bridges = [
        channel.bridge
        for worker in running.workers
        for group in worker._groups.values()
        for channel in group.channels.values()
    ]
    return [bridge.feedback.nbytes for bridge in bridges if bridge is not None and bridge.feedback.nbytes]


async def test_a_group_s_feedback_goes_with_it() -> None:
    how = hocket.Compression("int8", "name")
    async with service(2) as running:
        async with clients(running, (0, 1), job="first") as ranks:
            await asyncio.gather(*(each.all_reduce(np.ones(9000, np.float32), compression=how) for each in ranks))
            assert remembered(running) == [36_256, 36_256]
        async with clients(running, (0, 1), job="second"):  # by now all have heard that the first has ended
            assert remembered(running) == []


async def test_what_a_refused_call_had_sent_is_not_taken_as_sent() -> None:
    async with service(2) as running, clients(running, (0, 1), job="refused") as ranks:
        for names in (("a", "a"), ("a", "b")):
            calls = [
                each.all_reduce(np.ones(500, np.float32), compression=hocket.Compression("int8", name))
                for each, name in zip(ranks, names, strict=True)
            ]
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
            assert [isinstance(outcome, MismatchError) for outcome in outcomes] == [names == ("a", "b")] * 2
        assert remembered(running) == [2256]  # "a", on the host that has not used it since


# --- on a wire -------------------------------------------------------------------------------------------------------

WIRE_LENGTHS = (2000, 1_000_000)


async def carries(rank: Rank) -> dict[str, list[float]]:
    """Bytes that this host has sent for an all_reduce, by compression, as the kernel counts them."""
    found: dict[str, list[float]] = {}
    async with rank.connect(timeout=60) as client:
        for how in (None, "bf16", "int8"):
            for length in WIRE_LENGTHS:
                array = np.random.default_rng(rank.number).standard_normal(length).astype(np.float32)
                await client.barrier()
                before = sent_nbytes()
                for _ in range(4):
                    await client.all_reduce(array, hocket.ReduceOp.AVG, compression=how)
                await client.barrier()
                found.setdefault(str(how), []).append((sent_nbytes() - before) / 4 / array.nbytes)
    return found


def sent_nbytes() -> int:
    """What has left by this host's cable."""
    return int(Path("/sys/class/net/e0/statistics/tx_bytes").read_text())


async def disagrees(rank: Rank) -> dict[str, Any]:
    async with rank.connect(timeout=30) as client:
        try:
            await client.all_reduce(np.ones(5, np.float32), compression="int8" if rank.number else "bf16")
        except hocket.HocketError as error:
            return facts_of(error)
    return {}


@pytest.mark.hosts
def test_what_goes_over_the_wire_shrinks_as_promised() -> None:
    with (
        network(2) as net,
        real_service([net.host(host) for host in range(2)], net.coordinator_options()) as running,
    ):
        ranks = running.start(carries, (0, 0, 1))
        shares = [rank.result(60.0) for rank in ranks][2]
        plain, bf16, int8 = shares["None"], shares["bf16"], shares["int8"]
        assert plain[1] == pytest.approx(1.0, rel=0.1)
        assert bf16[1] == pytest.approx(1 / 2, rel=0.1)
        assert int8[1] == pytest.approx(1 / 4 * (1 + 4 / 256), rel=0.1)
        assert bf16[0] < 0.7 * plain[0] and int8[0] < 0.5 * plain[0]
        errors = [rank.result() for rank in running.start(disagrees, (0, 1), job="disagreeing")]
        assert all("MismatchError" in error["kinds"] and "compression=bf16" in error["text"] for error in errors)
