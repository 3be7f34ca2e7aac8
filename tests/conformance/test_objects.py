"""Collectives of Python objects, of any size, and messages from rank to rank."""

import asyncio
import datetime
from typing import Any

import numpy as np
import pytest
from harness.service import Placement, Service, clients

from hocket.client.client import Client

pytestmark = pytest.mark.asyncio(loop_scope="module")
WHERE = (
    Placement((0,)),
    Placement((0, 0, 0)),
    Placement((0, 0, 0, 1)),
    Placement((0, 1, 2)),
    Placement((0, 0), (1,)),
    Placement((0, 1, 1), (0, 1)),
)


def thing(rank: int, turn: int) -> Any:
    """An object of its own for each rank, small and large ones in turn."""
    bulk = "x" * [0, 3, 5000, 20_000][(rank + turn) % 4]
    when = datetime.datetime(2020, 1, 1 + rank, tzinfo=datetime.UTC)
    return {"rank": rank, ("turn", turn): [None, True, -(2**80) - rank, 0.1], "bulk": bulk, "set": {rank, "a"}, 7: when}


def array_of(rank: int, turn: int) -> Any:
    return np.arange(rank + 1000 * turn, dtype=np.int16)


@pytest.mark.parametrize("placement", WHERE, ids=str)
async def test_objects_reach_those_they_are_for(
    running: Service, placement: Placement, small_blocks: int, count: Any
) -> None:
    size = len(placement.hosts)

    async def rank(client: Client) -> None:
        me = client.rank
        for turn in range(4):
            root = turn % size
            everybody = [thing(other, turn) for other in range(size)]
            shared = everybody[:2] if me == root else [None] * len(everybody[:2])
            assert await client.broadcast_object_list(shared, src=root) is shared
            assert shared == everybody[:2]
            gathered: list[Any] = [None] * size
            await client.all_gather_object(gathered, thing(me, turn))
            assert gathered == everybody
            collected: Any = await client.gather_object(thing(me, turn), [None] * size if me == root else None, root)
            assert collected == (everybody if me == root else None)
            mine: list[Any] = [None]
            await client.scatter_object_list(mine, everybody if me == root else None, src=root)
            assert mine == [everybody[me]]

    async with clients(running, placement.hosts, remote=placement.remote, job=str(placement)) as ranks:
        await asyncio.gather(*(rank(client) for client in ranks))
        count.add(4 * 4)


@pytest.mark.parametrize("placement", WHERE[1:4], ids=str)
async def test_arrays_in_objects_keep_their_dtype_and_their_bits(
    running: Service, placement: Placement, small_blocks: int, count: Any
) -> None:
    async def rank(client: Client) -> None:
        found = await client.all_gather_object(None, [array_of(client.rank, 1), array_of(client.rank, 40)])
        for other, (small, large) in enumerate(found):
            assert small.dtype == np.int16
            assert (small == array_of(other, 1)).all() and (large == array_of(other, 40)).all()

    async with clients(running, placement.hosts, remote=placement.remote, job=f"arrays {placement}") as ranks:
        await asyncio.gather(*(rank(client) for client in ranks))
        count.add(1)


@pytest.mark.parametrize("nbytes", [0, 1, 64 << 10, (64 << 10) + 1, (1 << 20) + 1, 9 << 20], ids=str)
@pytest.mark.parametrize("placement", WHERE[1:], ids=str)
async def test_a_message_of_any_size_reaches_its_receiver_and_no_other(
    running: Service, placement: Placement, nbytes: int, count: Any
) -> None:
    size = len(placement.hosts)

    async def rank(client: Client) -> None:
        """Everybody to everybody, receives of one half posted first."""
        me = client.rank
        sent = {other: np.full(nbytes, 16 * me + other, np.uint8) for other in range(size)}
        got = {other: np.zeros(nbytes, np.uint8) for other in range(size)}
        kept = {other: array.tobytes() for other, array in sent.items()}
        works = []
        for other in range(size):
            pair = [lambda o=other: client.isend(sent[o], o), lambda o=other: client.irecv(got[o], o)]
            works += [call() for call in (pair if (me + other) % 2 else reversed(pair))]
        for work in works:
            await work
        for other in range(size):
            assert (got[other] == 16 * other + me).all()
            assert sent[other].tobytes() == kept[other]

    async with clients(running, placement.hosts, remote=placement.remote, job=f"{placement}/{nbytes}") as ranks:
        await asyncio.gather(*(rank(client) for client in ranks))
        count.add(size * size)


@pytest.mark.parametrize("placement", WHERE[1:], ids=str)
async def test_receives_from_anybody_tell_the_sender_and_tags_pick_the_message(
    running: Service, placement: Placement, count: Any
) -> None:
    size = len(placement.hosts)

    async def rank(client: Client) -> None:
        if client.rank:
            await client.send(np.full(4, client.rank), 0, tag=5)
            await client.send(np.full(4, -client.rank), 0, tag=6)
            return
        senders = set()
        for _ in range(size - 1):
            tensor = np.zeros(4, int)
            work = client.irecv(tensor, tag=6)
            await work
            assert work.source is not None and (tensor == -work.source).all()
            senders.add(work.source)
        assert senders == set(range(1, size))
        for other in range(1, size):
            assert (await client.recv(np.zeros(4, int), other, tag=5) == other).all()

    async with clients(running, placement.hosts, remote=placement.remote, job=f"tags {placement}") as ranks:
        await asyncio.gather(*(rank(client) for client in ranks))
        count.add(2 * (size - 1))


@pytest.mark.parametrize("placement", WHERE[1:], ids=str)
async def test_lists_of_objects_travel_from_rank_to_rank(running: Service, placement: Placement, count: Any) -> None:
    size = len(placement.hosts)

    async def rank(client: Client) -> None:
        me, right, left = client.rank, (client.rank + 1) % size, (client.rank - 1) % size
        for turn in range(4):
            sending = client.send_object_list([thing(me, turn), "end"], right)
            got = [None, None]
            await client.recv_object_list(got, left)
            await sending
            assert got == [thing(left, turn), "end"]

    async with clients(running, placement.hosts, remote=placement.remote, job=f"objects {placement}") as ranks:
        await asyncio.gather(*(rank(client) for client in ranks))
        count.add(4 * size)


@pytest.mark.parametrize("placement", WHERE, ids=str)
async def test_barriers_hold_everybody_until_the_last_has_come(
    running: Service, placement: Placement, count: Any
) -> None:
    size = len(placement.hosts)
    entered: list[int] = []

    async def rank(client: Client) -> None:
        for turn in range(size):
            if client.rank == turn:  # the last: the others are on their way in
                for _ in range(20):
                    await asyncio.sleep(0)
            entered.append(turn)
            await (client.monitored_barrier() if turn % 2 else client.barrier())
            assert entered.count(turn) == size

    async with clients(running, placement.hosts, remote=placement.remote, job=f"barriers {placement}") as ranks:
        await asyncio.gather(*(rank(client) for client in ranks))
        count.add(size)
