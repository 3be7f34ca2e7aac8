"""Every operation with blocks as large as in production, and operations of many of them."""

from typing import Any

import pytest
from harness.operations import KINDS, REDUCTIONS, UNEVEN, Case, together
from harness.service import Placement, Service, clients

from hocket.protocol.limits import BLOCK_NBYTES, SMALL_NBYTES

pytestmark = pytest.mark.asyncio(loop_scope="module")
WHERE = (Placement((0, 0, 0)), Placement((0, 0, 1)), Placement((0, 0), (1,)))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "barrier"])
@pytest.mark.parametrize("placement", WHERE, ids=str)
async def test_an_operation_is_right_around_the_limits_of_small_ones_and_of_blocks(
    running: Service, placement: Placement, kind: str, count: Any
) -> None:
    op = "SUM" if kind in REDUCTIONS else ""
    edges = [nbytes // 4 for nbytes in (SMALL_NBYTES, BLOCK_NBYTES)]
    cases = [Case(kind, edge + step, op=op, root=step + 1) for edge in edges for step in (-1, 0, 1)]
    cases += [Case(kind, 2 * BLOCK_NBYTES // 4 + 3, op=op, root=1)]
    if kind in UNEVEN:
        cases += [Case(kind, BLOCK_NBYTES // 4 + 5, op=op, root=2, uneven=True)]
    async with clients(running, placement.hosts, remote=placement.remote, job=f"{placement}/{kind}") as ranks:
        count.add(await together(ranks, cases, one_host=placement.one_host, at_once=4))


@pytest.mark.parametrize("kind", ["all_reduce", "all_to_all", "broadcast", "gather", "reduce"])
@pytest.mark.parametrize("placement", [Placement((0, 0)), Placement((0, 1, 2))], ids=str)
async def test_hundreds_of_blocks_pass_one_after_the_other(
    running: Service, placement: Placement, kind: str, small_blocks: int, count: Any
) -> None:
    op = "SUM" if kind in REDUCTIONS else ""
    cases = [Case(kind, 200 * small_blocks // 4 // (3 if kind == "all_to_all" else 1) + 1, op=op, root=1)]
    async with clients(running, placement.hosts, job=f"{placement}/{kind}") as ranks:
        count.add(await together(ranks, cases, one_host=placement.one_host))
