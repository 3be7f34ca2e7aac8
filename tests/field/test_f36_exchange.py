"""F36: both send first, sends and receives interleaved, messages to oneself, tags out of order."""

import asyncio
from typing import Any

import numpy as np
import pytest
from harness.cases import Layout, after_check, on_layouts, on_unlike_layouts, ranks, values

import hocket


@on_unlike_layouts(2)
@pytest.mark.parametrize("count", [1, 2_000_000])
@pytest.mark.parametrize("receive_first", [False, True])
async def test_f36a_both_send_and_receive_at_once(layout: Layout, count: int, receive_first: bool) -> None:
    async with ranks(layout) as world:

        async def call(client: hocket.Client) -> None:
            x, y = np.full(count, client.rank + 1.0, "f4"), np.zeros(count, "f4")
            peer = 1 - client.rank
            if receive_first:
                works = [client.irecv(y, src=peer), client.isend(x, dst=peer)]
            else:
                works = [client.isend(x, dst=peer), client.irecv(y, src=peer)]
            for work in works:
                await work
            assert (y == 2 - client.rank).all()

        await values(world, call)
        await after_check(world)


@on_layouts(2)
async def test_f36b_interleaved_in_both_directions_keeps_the_order(layout: Layout) -> None:
    async with ranks(layout) as world:

        def of(value: float) -> Any:
            return np.full(30_000, value)

        async def call(client: hocket.Client) -> list[float]:
            outs = [of(0) for _ in range(2)]
            if client.rank == 0:
                works = [client.isend(of(1), dst=1), client.irecv(outs[0], src=1)]
                works += [client.isend(of(2), dst=1), client.irecv(outs[1], src=1)]
            else:
                await client.recv(outs[0], src=0)
                works = [client.irecv(outs[1], src=0), client.isend(of(3), dst=0), client.isend(of(4), dst=0)]
            for work in works:
                await work
            return [float(out[0]) for out in outs]

        assert await values(world, call) == [[3, 4], [1, 2]]


@on_layouts(2)
async def test_f36c_small_sends_first_complete_on_both(layout: Layout) -> None:
    async with ranks(layout) as world:

        async def call(client: hocket.Client) -> float:
            out = np.zeros(1)
            await client.send(np.array([client.rank + 1.0]), dst=1 - client.rank)
            await client.recv(out, src=1 - client.rank)
            return float(out[0])

        assert await values(world, call) == [2, 1]


@on_unlike_layouts(2)
async def test_f36c_large_sends_that_nobody_takes_meet_their_deadline(layout: Layout) -> None:
    async with ranks(layout) as world:

        async def call(client: hocket.Client) -> str:
            big = np.ones(8 << 20, "f8")
            with pytest.raises(hocket.DeadlineError) as caught:
                await client.send(big, dst=1 - client.rank, timeout=0.5)
            assert caught.value.limit_s == 0.5 and caught.value.missing == (1 - client.rank,)
            assert big.flags.writeable
            return str(caught.value)

        texts = await values(world, call)
        assert all("send" in text and f"rank {1 - rank}" in text for rank, text in enumerate(texts)), texts
        await after_check(world)


@on_unlike_layouts(2)
@pytest.mark.parametrize("count", [2, 300_000])
async def test_f36d_messages_to_oneself(layout: Layout, count: int) -> None:
    async with ranks(layout) as world:

        async def call(client: hocket.Client) -> None:
            x, y, z = np.arange(count), np.zeros(count, int), np.zeros(count, int)
            works = [client.isend(x, dst=client.rank), client.irecv(y, src=client.rank)]
            works += [client.irecv(z, src=client.rank, tag=3), client.isend(x, dst=client.rank, tag=3)]
            for work in works:
                await work
            assert (y == x).all() and (z == x).all() and works[1].source == client.rank

        await values(world, call)


@on_layouts(4)
async def test_f36e_all_to_all_made_of_messages_with_oneself(layout: Layout) -> None:
    async with ranks(layout) as world:

        async def call(client: hocket.Client) -> list[int]:
            outs = [np.array([-1]) for _ in world]
            ops = [hocket.P2POp("isend", np.array([10 * client.rank + j]), j) for j in range(4)]
            ops += [hocket.P2POp("irecv", outs[j], j) for j in range(4)]
            for work in client.batch_isend_irecv(ops):
                await work
            return [int(out[0]) for out in outs]

        assert await values(world, call) == [[10 * j + r for j in range(4)] for r in range(4)]


@on_unlike_layouts(2)
@pytest.mark.parametrize("count", [1, 50_000])
async def test_f36f_tags_are_received_in_any_order(layout: Layout, count: int) -> None:
    async with ranks(layout) as world:

        async def call(client: hocket.Client) -> list[float]:
            outs = [np.zeros(count) for _ in range(4)]
            if client.rank == 0:
                works = [client.isend(np.full(count, float(tag)), dst=1, tag=tag) for tag in range(4)]
            else:
                works = [client.irecv(outs[tag], src=0, tag=tag) for tag in (3, 1, 2, 0)]
            for work in works:
                await work
            return [float(out[0]) for out in outs]

        assert (await values(world, call))[1] == [0, 1, 2, 3]


@on_layouts(4)
async def test_f36_from_anybody_tells_the_source(layout: Layout) -> None:
    async with ranks(layout) as world:

        async def call(client: hocket.Client) -> Any:
            if client.rank:
                await client.send(np.array([client.rank * 2]), dst=0)
                return None
            found = {}
            for _ in range(3):
                out = np.array([0])
                work = client.recv(out)
                await work
                found[work.source] = int(out[0])
            return found

        assert (await values(world, call))[0] == {1: 2, 2: 4, 3: 6}


@on_layouts(2)
async def test_f36_a_thousand_messages_keep_their_order(layout: Layout) -> None:
    async with ranks(layout) as world:

        async def call(client: hocket.Client) -> list[int]:
            outs = [np.array([-1]) for _ in range(1000)]
            if client.rank == 0:
                works = [client.isend(np.array([i]), dst=1) for i in range(1000)]
            else:
                works = [client.irecv(out, src=0) for out in outs]
            await asyncio.gather(*(_wait(work) for work in works))
            return [int(out[0]) for out in outs]

        async def _wait(work: Any) -> None:
            await work

        assert (await values(world, call, within_s=20))[1] == list(range(1000))


@on_layouts(3)
async def test_f36_objects_from_point_to_point(layout: Layout) -> None:
    async with ranks(layout) as world:

        async def call(client: hocket.Client) -> Any:
            if client.rank == 0:
                await client.send_object_list([{"a": np.arange(3)}, "x" * 200_000], dst=2)
                return None
            if client.rank == 1:
                await client.send_object_list(["from 1"], dst=2, tag=5)
                return None
            second, first = [None], [None, None]
            await client.recv_object_list(second, src=1, tag=5)
            await client.recv_object_list(first, src=0)
            return first[0]["a"].tolist(), len(first[1]), second

        assert (await values(world, call))[2] == ([0, 1, 2], 200_000, ["from 1"])
