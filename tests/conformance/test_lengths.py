"""Every operation, at every length that could matter, wherever its ranks are."""

from collections.abc import Iterator
from typing import Any

import pytest
from harness.operations import KINDS, REDUCTIONS, UNEVEN, Case, together
from harness.service import PLACEMENTS, Placement, Service, clients

pytestmark = pytest.mark.asyncio(loop_scope="module")
ITEM_NBYTES = 4


PERSONAL = frozenset({"scatter", "all_to_all", "all_to_all_single", "reduce_scatter", "reduce_scatter_tensor"})
"""Kinds whose blocks hold a part for each rank."""


def lengths_around(nbytes: int, parts: int) -> list[int]:
    """Elements of 4 bytes: none, few, and one less, as many and one more than one of ``parts`` of a block holds."""
    whole = nbytes // parts // ITEM_NBYTES
    aligned = whole - whole % 16
    around = {edge + step for edge in (whole, aligned) for step in (-1, 0, 1)}
    return sorted({0, 1, 7, 2 * aligned, 5 * whole + 3} | around)


def cases(kind: str, size: int, block_nbytes: int) -> Iterator[Case]:
    """The operation at these lengths, by turns with each root; uneven, too, where it may be."""
    op = "SUM" if kind in REDUCTIONS else ""
    lengths = lengths_around(block_nbytes, size if kind in PERSONAL else 1)
    for turn, elements in enumerate(lengths if kind != "barrier" else [0]):
        yield Case(kind, elements, op=op, root=turn)
        if kind in UNEVEN:
            yield Case(kind, elements // 2, op=op, root=turn + 1, uneven=True)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("placement", PLACEMENTS, ids=str)
async def test_an_operation_of_any_length_gives_what_numpy_gives(
    running: Service, placement: Placement, kind: str, small_blocks: int, count: Any
) -> None:
    size = len(placement.hosts)
    found = list(cases(kind, size, small_blocks))
    async with clients(running, placement.hosts, remote=placement.remote, job=f"{placement}/{kind}") as ranks:
        count.add(await together(ranks, found, one_host=placement.one_host))
