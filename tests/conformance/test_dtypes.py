"""Every dtype by every reduce op, and everything that moves."""

import asyncio
from typing import Any

import numpy as np
import pytest
from harness.operations import MOVES, REDUCTIONS, Case, together
from harness.service import Placement, Service, clients
from harness.values import MOVING, OPS, REDUCING

from hocket.client.client import Client
from hocket.fabric.dtypes import numpy_dtype
from hocket.protocol.dtypes import check_reduce
from hocket.protocol.errors import UnsupportedError
from hocket.protocol.reduce_ops import ReduceOp

pytestmark = pytest.mark.asyncio(loop_scope="module")
WHERE = (Placement((0, 0)), Placement((0, 0, 1)), Placement((0, 0), (1,)))
LENGTHS = (5, 1300)
"""Of which the longer one takes several of the small blocks."""


def reduces(dtype: str, op: str) -> bool:
    try:
        check_reduce(dtype, ReduceOp.from_wire(op))
    except UnsupportedError:
        return False
    return True


SUPPORTED = [(dtype, op) for dtype in REDUCING for op in OPS if reduces(dtype, op)]
REFUSED = [(dtype, op) for dtype in MOVING for op in OPS if not reduces(dtype, op)]


@pytest.mark.parametrize("kind", REDUCTIONS)
@pytest.mark.parametrize("placement", WHERE, ids=str)
async def test_every_dtype_reduces_by_every_op_that_suits_it(
    running: Service, placement: Placement, kind: str, small_blocks: int, count: Any
) -> None:
    cases = [
        Case(kind, elements, dtype, op, root=turn)
        for turn, (dtype, op) in enumerate(SUPPORTED)
        for elements in (LENGTHS if turn % 3 == 0 else LENGTHS[:1])
    ]
    async with clients(running, placement.hosts, remote=placement.remote, job=f"{placement}/{kind}") as ranks:
        count.add(await together(ranks, cases, one_host=placement.one_host))


@pytest.mark.parametrize("data", ["real", "special"])
@pytest.mark.parametrize("kind", REDUCTIONS)
@pytest.mark.parametrize("placement", WHERE, ids=str)
async def test_floats_of_any_kind_reduce_as_in_numpy_and_alike_on_all_ranks(
    running: Service, placement: Placement, kind: str, data: str, small_blocks: int, count: Any
) -> None:
    floats = [dtype for dtype in REDUCING if numpy_dtype(dtype).kind in "fcV"]
    ops = ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "PREMUL_SUM(0.5)", "LXOR")
    cases = [
        Case(kind, elements, dtype, op, data=data)
        for dtype in floats
        for op in ops
        for elements in (1, 300)
        # what a complex product of infinities is, is told differently everywhere
        if reduces(dtype, op) and not (data == "special" and numpy_dtype(dtype).kind == "c" and op != "SUM")
    ]
    async with clients(running, placement.hosts, remote=placement.remote, job=f"{placement}/{kind}") as ranks:
        count.add(await together(ranks, cases, one_host=placement.one_host))


@pytest.mark.parametrize("kind", MOVES)
@pytest.mark.parametrize("placement", WHERE, ids=str)
async def test_every_dtype_moves_bit_by_bit(
    running: Service, placement: Placement, kind: str, small_blocks: int, count: Any
) -> None:
    cases = [Case(kind, elements, dtype, root=turn) for turn, dtype in enumerate(MOVING) for elements in (1, *LENGTHS)]
    async with clients(running, placement.hosts, remote=placement.remote, job=f"{placement}/{kind}") as ranks:
        count.add(await together(ranks, cases, one_host=placement.one_host))


@pytest.mark.parametrize("placement", WHERE, ids=str)
async def test_what_does_not_reduce_is_refused_on_every_rank_and_the_channel_stays_in_step(
    running: Service, placement: Placement, count: Any
) -> None:
    async def refused(client: Client) -> None:
        for dtype, op in REFUSED:
            tensor = np.zeros((4, 2), numpy_dtype(dtype))
            with pytest.raises(UnsupportedError):
                await client.all_reduce(tensor, ReduceOp.from_wire(op))
            with pytest.raises(UnsupportedError):
                await client.reduce_scatter(tensor, [tensor.copy() for _ in range(client.size)], ReduceOp.from_wire(op))
        assert (await client.all_reduce(np.ones(1)))[0] == client.size

    async with clients(running, placement.hosts, remote=placement.remote, job=str(placement)) as ranks:
        await asyncio.gather(*(refused(client) for client in ranks))
        count.add(2 * len(REFUSED))


async def test_a_scan_s_average_is_that_of_the_ranks_so_far(running: Service, count: Any) -> None:
    async with clients(running, (0, 0, 1), job="average") as ranks:
        tensors = [np.array([6.0 * rank]) for rank in range(3)]
        await asyncio.gather(*(client.scan(t, ReduceOp.AVG) for client, t in zip(ranks, tensors, strict=True)))
        assert [float(tensor[0]) for tensor in tensors] == [0, 3, 6]
        count.add(1)


@pytest.mark.parametrize("placement", [Placement((0, 0, 0)), Placement((0, 1, 0, 2))], ids=str)
async def test_sums_of_floats_are_the_same_bits_from_run_to_run(
    running: Service, placement: Placement, small_blocks: int, count: Any
) -> None:
    found = []
    for run in range(3):
        async with clients(running, placement.hosts, job=f"{placement}/{run}") as ranks:
            random = np.random.default_rng(7)
            tensors = [random.standard_normal(30_000, np.float32) for _ in ranks]
            await asyncio.gather(*(client.all_reduce(t) for client, t in zip(ranks, tensors, strict=True)))
            found += [tensor.tobytes() for tensor in tensors]
    assert len(set(found)) == 1
    count.add(3)
