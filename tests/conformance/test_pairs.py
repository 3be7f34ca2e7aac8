"""Operation, dtype, reduce op, length, placement, root, layout: every pair of their values in at least one case."""

from typing import Any

import pytest
from harness.operations import KINDS, REDUCTIONS, UNEVEN, Case, together
from harness.pairs import pairwise
from harness.service import PLACEMENTS, Placement, Service, clients
from harness.values import LAYOUTS, MOVING, OPS, REDUCING

from hocket.protocol.dtypes import check_reduce
from hocket.protocol.errors import UnsupportedError
from hocket.protocol.reduce_ops import ReduceOp

LENGTHS = (0, 1, 3, 130, 1025, 4100)


def case(kind: str, dtype: str, op: str, elements: int, root: int, uneven: bool, layout: str) -> Case:
    """The case of a row; where the row makes no sense, the nearest one that does."""
    if kind not in REDUCTIONS:
        return Case(kind, elements, dtype, "", root, uneven and kind in UNEVEN, layout=layout)
    dtype = dtype if dtype in REDUCING else "float32"
    try:
        check_reduce(dtype, ReduceOp.from_wire(op))
    except UnsupportedError:
        op = "SUM"
    return Case(kind, elements, dtype, op, root, uneven and kind in UNEVEN, layout=layout)


def rows() -> dict[Placement, list[Case]]:
    found: dict[Placement, list[Case]] = {}
    parameters: list[Any] = [PLACEMENTS, list(KINDS), MOVING, OPS, LENGTHS, range(3), (False, True), LAYOUTS]
    for placement, *values in pairwise(parameters):
        found.setdefault(placement, []).append(case(*values))  # type: ignore[arg-type]
    return found


ROWS = rows()


def test_each_two_values_meet() -> None:
    parameters: list[Any] = ["abc", "de", "fghi", "jk"]
    found = list(pairwise(parameters))
    for a in range(4):
        for b in range(a):
            assert {(row[a], row[b]) for row in found} == {(x, y) for x in parameters[a] for y in parameters[b]}
    assert len(found) < 3 * 2 * 4


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("placement", PLACEMENTS, ids=str)
async def test_a_case_is_right_whatever_it_is_combined_of(
    running: Service, placement: Placement, small_blocks: int, count: Any
) -> None:
    cases = ROWS[placement]
    async with clients(running, placement.hosts, remote=placement.remote, job=str(placement)) as ranks:
        count.add(await together(ranks, cases, one_host=placement.one_host))
