"""Operations in groups other than the world: made of ranks, split, nested, and named by clients without a world."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

import numpy as np
import pytest
from harness.operations import KINDS, REDUCTIONS, Case, together
from harness.service import Placement, Service, clients

import hocket
from hocket.client.group import Group
from hocket.protocol.errors import ArgumentError

pytestmark = pytest.mark.asyncio(loop_scope="module")
WHERE = (Placement((0, 0, 0, 0)), Placement((0, 1, 0, 2)), Placement((0, 0, 1, 1), (1, 2)))
EVERY_KIND = [Case(kind, 700, op="SUM" if kind in REDUCTIONS else "", root=1) for kind in KINDS]


@pytest.mark.parametrize("chosen", [(0,), (0, 2), (3, 1), (1, 2, 3), (0, 1, 2, 3)], ids=str)
@pytest.mark.parametrize("placement", WHERE, ids=str)
async def test_every_operation_works_in_a_group_of_some_ranks(
    running: Service, placement: Placement, chosen: tuple[int, ...], small_blocks: int, count: Any
) -> None:
    async with clients(running, placement.hosts, remote=placement.remote, job=f"{placement}/{chosen}") as ranks:
        groups = await asyncio.gather(*(ranks[rank].new_group(chosen) for rank in chosen))
        members = sorted(groups, key=lambda group: group.rank)
        assert [group.rank for group in members] == list(range(len(chosen)))
        assert {group.ranks for group in groups} == {tuple(sorted(chosen))}
        count.add(await together(members, EVERY_KIND, one_host=_one_host(placement, chosen)))


def _one_host(placement: Placement, chosen: Sequence[int]) -> bool:
    return len({placement.hosts[rank] for rank in chosen}) == 1


@pytest.mark.parametrize("placement", WHERE, ids=str)
async def test_a_client_s_operation_takes_the_group_and_roots_by_world_or_group_rank(
    running: Service, placement: Placement, count: Any
) -> None:
    async with clients(running, placement.hosts, remote=placement.remote, job=str(placement)) as ranks:
        chosen = (1, 3)
        groups = dict(zip(chosen, await asyncio.gather(*(ranks[r].new_group(chosen) for r in chosen)), strict=True))

        async def member(rank: int) -> tuple[float, float, list[Any] | None]:
            client, group = ranks[rank], groups[rank]
            by_world = await client.broadcast(np.full(3, float(rank)), src=3, group=group)
            by_group = await client.broadcast(np.full(3, float(rank)), group_src=0, group=group)
            gathered = await client.gather(np.full(1, float(rank)), dst=3, group=group)
            with pytest.raises(ArgumentError):
                await client.broadcast(np.zeros(1), src=0, group=group)
            return float(by_world[0]), float(by_group[0]), gathered

        low, high = await asyncio.gather(*(member(rank) for rank in chosen))
        assert low == (3.0, 1.0, None)
        assert high[:2] == (3.0, 1.0)
        assert [float(array[0]) for array in high[2] or []] == [1.0, 3.0]
        count.add(3)


@pytest.mark.parametrize("placement", WHERE, ids=str)
async def test_split_orders_each_colour_by_key_and_leaves_out_who_gives_none(
    running: Service, placement: Placement, small_blocks: int, count: Any
) -> None:
    async with clients(running, placement.hosts, remote=placement.remote, job=str(placement)) as ranks:
        colours, keys = [1, 0, 1, None], [9, 0, -2, 0]
        found = await asyncio.gather(*(c.split(colours[c.rank], keys[c.rank]) for c in ranks))
        assert found[3] is None
        groups = [group for group in found[:3] if group is not None]
        assert [(group.rank, group.ranks) for group in groups] == [(1, (2, 0)), (0, (1,)), (0, (2, 0))]
        one_host = _one_host(placement, (0, 2))
        count.add(await together([groups[2], groups[0]], EVERY_KIND, one_host=one_host))
        count.add(await together([groups[1]], EVERY_KIND))


async def test_groups_of_groups_and_groups_that_overlap_do_not_disturb_each_other(
    running: Service, small_blocks: int, count: Any
) -> None:
    placement = Placement((0, 1, 0, 2, 1))
    async with clients(running, placement.hosts, job="overlap") as ranks:
        sets = [(0, 1, 2), (2, 3, 4), (0, 4), (1, 2, 3)]
        made: list[list[Group]] = []
        for chosen in sets:
            made.append(list(await asyncio.gather(*(ranks[rank].new_group(chosen) for rank in chosen))))
        inner = await asyncio.gather(*(made[0][at].new_group((0, 2)) for at in (0, 2)))
        made.append(list(inner))
        done = await asyncio.gather(
            together(ranks, EVERY_KIND, one_host=False),
            *(together(groups, EVERY_KIND, one_host=False) for groups in made),
        )
        count.add(sum(done))


@pytest.mark.parametrize("placement", WHERE, ids=str)
async def test_clients_without_a_world_meet_in_named_groups(
    running: Service, placement: Placement, small_blocks: int, count: Any
) -> None:
    async with AsyncExitStack() as stack:
        every = []
        for number, host in enumerate(placement.hosts):
            shared = number not in placement.remote
            connecting = hocket.connect(running.socket(host), job=f"named {placement}", shared=shared, timeout=20)
            every.append(await stack.enter_async_context(connecting))
        places = (2, 0, 3, 1)
        groups = await asyncio.gather(
            *(client.join("serving", 4, rank=place) for client, place in zip(every, places, strict=True))
        )
        assert [group.rank for group in groups] == list(places)
        members = sorted(groups, key=lambda group: group.rank)
        count.add(await together(members, EVERY_KIND, one_host=placement.one_host))
        pair = await asyncio.gather(*(client.join("pair", 2) for client in every[:2]))
        pair.sort(key=lambda group: group.rank)
        count.add(await together(pair, EVERY_KIND, one_host=_one_host(placement, (0, 1))))


async def test_who_is_no_member_has_a_handle_that_refuses_operations(running: Service) -> None:
    async with clients(running, (0, 0), job="outside") as ranks:
        group = await ranks[1].new_group((0,))
        assert group.rank == -1
        with pytest.raises(ArgumentError):
            await group.all_reduce(np.zeros(1))
        await asyncio.gather(ranks[0].new_group((0,)))
