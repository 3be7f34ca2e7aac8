"""Every collective as a *case* that each rank can carry out and check by itself, in this process or in another one.

All ranks derive everybody's inputs from the case alone, so each knows what it must get: see `reference`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np
from harness import reference
from harness.reference import Array
from harness.values import laid, moved_values, reduced_values, same_bits, same_values

from hocket.client.collectives import Collectives
from hocket.protocol.reduce_ops import ReduceOp

UNTOUCHED = 0xA5
"""What outputs hold before."""
LIMIT_S = 90.0
"""For what `together` is given: beyond, something is stuck."""


@dataclass(frozen=True, slots=True)
class Case:
    """One operation of a whole group.

    ``elements`` are those of one piece (pairs, for MINLOC and MAXLOC). ``root`` counts around the group. ``uneven``:
    pieces differ in length, where the operation allows it. ``layout`` is how tensors lie in memory, ``data`` what they
    hold: see `harness.values`.
    """

    kind: str
    elements: int = 7
    dtype: str = "float32"
    op: str = ""
    root: int = 0
    uneven: bool = False
    data: str = "exact"
    layout: str = "flat"

    @property
    def reduce_op(self) -> ReduceOp:
        """The reduce op."""
        return ReduceOp.from_wire(self.op)


@dataclass(slots=True)
class Call:
    """One rank's part: what it calls, what it may not change, what it must get in which of its arrays."""

    start: Callable[[Collectives, dict[str, Any]], Awaitable[Any]]
    outputs: list[Array] = field(default_factory=list)
    expected: list[Array] = field(default_factory=list)
    inputs: list[Array] = field(default_factory=list)
    result: Any = None
    """what the await gives: this very object"""


Maker = Callable[[Case, int, int], Call]


# --- data ------------------------------------------------------------------------------------------------------------


def lengths(case: Case, sender: int, reader: int = 0) -> int:
    """Elements of the piece that ``sender`` has for ``reader``."""
    return case.elements * ((sender + 2 * reader) % 3) if case.uneven else case.elements


def _root(case: Case, size: int) -> int:
    return case.root % size


@lru_cache(256)
def _tensors(case: Case, size: int) -> tuple[Array, ...]:
    """Everybody's tensor."""
    if case.op:
        return tuple(reduced_values(case.dtype, case.op, case.elements, case.data, rank) for rank in range(size))
    return tuple(moved_values(case.dtype, lengths(case, rank), rank) for rank in range(size))


@lru_cache(256)
def _lists(case: Case, size: int) -> tuple[tuple[Array, ...], ...]:
    """Everybody's list of tensors, one for each rank."""
    every = range(size)
    if case.op:
        return tuple(
            tuple(
                reduced_values(case.dtype, case.op, lengths(case, 1, reader), case.data, sender * 31 + reader)
                for reader in every
            )
            for sender in every
        )
    return tuple(
        tuple(moved_values(case.dtype, lengths(case, sender, reader), sender * 31 + reader) for reader in every)
        for sender in every
    )


@lru_cache(256)
def _reduction(case: Case, size: int) -> list[Array]:
    """What everybody gets of a reduction."""
    op = case.reduce_op
    if case.kind.startswith("reduce_scatter"):
        return reference.reduce_scatter(_lists(case, size), op.name, op.factor)
    tensors = _tensors(case, size)
    if case.kind == "reduce":
        return reference.reduce(tensors, _root(case, size), op.name, op.factor)
    return {"all_reduce": reference.all_reduce, "scan": reference.scan, "exscan": reference.exscan}[
        case.kind.removesuffix("_coalesced")
    ](tensors, op.name, op.factor)


def _given(case: Case, array: Array) -> Array:
    return laid(array.copy(), case.layout)


def _room(case: Case, like: Array) -> Array:
    blank = np.empty_like(like, order="C")
    blank.reshape(-1).view(np.uint8)[...] = 0 if blank.dtype == np.bool_ else UNTOUCHED
    return laid(blank, case.layout)


def _rooted(on: Collectives, argument: str, root: int) -> dict[str, int]:
    """``dst=`` or ``src=`` for ranks with a world, ``group_dst=`` or ``group_src=`` for others."""
    ranks: Sequence[int] = on.ranks  # type: ignore[attr-defined]
    return {argument: ranks[root]} if ranks[root] >= 0 else {f"group_{argument}": root}


# --- reductions ------------------------------------------------------------------------------------------------------


def _in_place(case: Case, size: int, rank: int) -> Call:
    tensor = _given(case, _tensors(case, size)[rank])

    def start(on: Collectives, how: dict[str, Any]) -> Awaitable[Any]:
        return getattr(on, case.kind)(tensor, case.reduce_op, **how)  # type: ignore[no-any-return]

    return Call(start, [tensor], [_reduction(case, size)[rank]], result=tensor)


def _reduce(case: Case, size: int, rank: int) -> Call:
    tensor, root = _given(case, _tensors(case, size)[rank]), _root(case, size)

    def start(on: Collectives, how: dict[str, Any]) -> Awaitable[Any]:
        return on.reduce(tensor, op=case.reduce_op, **_rooted(on, "dst", root), **how)

    if rank != root:
        return Call(start, inputs=[tensor])
    return Call(start, [tensor], [_reduction(case, size)[root]], result=tensor)


def _all_reduce_coalesced(case: Case, size: int, rank: int) -> Call:
    """The tensor in three parts, of which the middle one has two dimensions."""
    parts = [_given(case, part) for part in _in_three(_tensors(case, size)[rank])]

    def start(on: Collectives, how: dict[str, Any]) -> Awaitable[Any]:
        return on.all_reduce_coalesced(parts, case.reduce_op, **how)

    return Call(start, parts, _in_three(_reduction(case, size)[rank]), result=parts)


def _in_three(array: Array) -> list[Array]:
    third = len(array) // 3
    middle = array[third : 2 * third]
    return [array[:third], middle.reshape(third, 1, *array.shape[1:]), array[2 * third :]]


def _reduce_scatter(case: Case, size: int, rank: int) -> Call:
    given = [_given(case, array) for array in _lists(case, size)[rank]]
    output = _room(case, given[rank])

    def start(on: Collectives, how: dict[str, Any]) -> Awaitable[Any]:
        return on.reduce_scatter(output, given, case.reduce_op, **how)

    return Call(start, [output], [_reduction(case, size)[rank]], given, output)


def _reduce_scatter_tensor(case: Case, size: int, rank: int) -> Call:
    lists = _lists(case, size)[rank]
    given = _given(case, np.stack(lists) if case.root % 2 else np.concatenate(lists))
    output = _room(case, lists[rank])

    def start(on: Collectives, how: dict[str, Any]) -> Awaitable[Any]:
        return on.reduce_scatter_tensor(output, given, case.reduce_op, **how)

    return Call(start, [output], [_reduction(case, size)[rank]], [given], output)


# --- moving ----------------------------------------------------------------------------------------------------------


def _broadcast(case: Case, size: int, rank: int) -> Call:
    root = _root(case, size)
    source = _tensors(case, size)[root]
    tensor = _given(case, source) if rank == root else _room(case, source)

    def start(on: Collectives, how: dict[str, Any]) -> Awaitable[Any]:
        return on.broadcast(tensor, **_rooted(on, "src", root), **how)

    expected = reference.broadcast([source] * size, root)[rank]
    return Call(start, [tensor], [expected], [tensor] if rank == root else [], tensor)


def _all_gather(case: Case, size: int, rank: int) -> Call:
    tensors = _tensors(case, size)
    given, outputs = _given(case, tensors[rank]), [_room(case, tensor) for tensor in tensors]

    def start(on: Collectives, how: dict[str, Any]) -> Awaitable[Any]:
        return on.all_gather(outputs, given, **how)

    return Call(start, outputs, reference.all_gather(tensors)[rank], [given], outputs)


def _all_gather_into_tensor(case: Case, size: int, rank: int) -> Call:
    tensors = reference.all_gather(_tensors(case, size))[rank]
    expected = np.stack(tensors) if case.root % 2 else np.concatenate(tensors)
    given, output = _given(case, tensors[rank]), _room(case, expected)

    def start(on: Collectives, how: dict[str, Any]) -> Awaitable[Any]:
        return on.all_gather_into_tensor(output, given, **how)

    return Call(start, [output], [expected], [given], output)


def _all_gather_coalesced(case: Case, size: int, rank: int) -> Call:
    tensors = reference.all_gather(_tensors(case, size))[rank]
    given = [_given(case, part) for part in _in_three(tensors[rank])]
    expected = [[_in_three(tensor)[part] for tensor in tensors] for part in range(3)]
    outputs = [[_room(case, array) for array in row] for row in expected]

    def start(on: Collectives, how: dict[str, Any]) -> Awaitable[Any]:
        return on.all_gather_coalesced(outputs, given, **how)

    return Call(start, list(chain(*outputs)), list(chain(*expected)), given, outputs)


def _gather(case: Case, size: int, rank: int) -> Call:
    tensors, root = _tensors(case, size), _root(case, size)
    given, expected = _given(case, tensors[rank]), reference.gather(tensors, root)[rank]
    outputs = [_room(case, array) for array in expected]

    def start(on: Collectives, how: dict[str, Any]) -> Awaitable[Any]:
        return on.gather(given, outputs or None, **_rooted(on, "dst", root), **how)

    return Call(start, outputs, expected, [given], outputs or None)


def _scatter(case: Case, size: int, rank: int) -> Call:
    root = _root(case, size)
    parts = _lists(case, size)[root]
    given = [_given(case, part) for part in parts] if rank == root else []
    expected = reference.scatter(parts)[rank]
    output = _room(case, expected)

    def start(on: Collectives, how: dict[str, Any]) -> Awaitable[Any]:
        return on.scatter(output, given or None, **_rooted(on, "src", root), **how)

    return Call(start, [output], [expected], given, output)


def _all_to_all(case: Case, size: int, rank: int) -> Call:
    lists = _lists(case, size)
    given, expected = [_given(case, array) for array in lists[rank]], reference.all_to_all(lists)[rank]
    outputs = [_room(case, array) for array in expected]

    def start(on: Collectives, how: dict[str, Any]) -> Awaitable[Any]:
        return on.all_to_all(outputs, given, **how)

    return Call(start, outputs, expected, given, outputs)


def _all_to_all_single(case: Case, size: int, rank: int) -> Call:
    lists = _lists(case, size)
    expected = reference.all_to_all(lists)[rank]
    given, output = _given(case, np.concatenate(lists[rank])), _room(case, np.concatenate(expected))
    splits: dict[str, Any] = {}
    if case.uneven:
        splits = {
            "input_split_sizes": [len(array) for array in lists[rank]],
            "output_split_sizes": [len(array) for array in expected],
        }

    def start(on: Collectives, how: dict[str, Any]) -> Awaitable[Any]:
        return on.all_to_all_single(output, given, **splits, **how)

    return Call(start, [output], [np.concatenate(expected)], [given], output)


def _barrier(case: Case, size: int, rank: int) -> Call:
    return Call(lambda on, how: on.barrier(**how))


REDUCTIONS: dict[str, Maker] = {
    "all_reduce": _in_place,
    "reduce": _reduce,
    "scan": _in_place,
    "exscan": _in_place,
    "reduce_scatter": _reduce_scatter,
    "reduce_scatter_tensor": _reduce_scatter_tensor,
    "all_reduce_coalesced": _all_reduce_coalesced,
}
MOVES: dict[str, Maker] = {
    "broadcast": _broadcast,
    "all_gather": _all_gather,
    "all_gather_into_tensor": _all_gather_into_tensor,
    "all_gather_coalesced": _all_gather_coalesced,
    "gather": _gather,
    "scatter": _scatter,
    "all_to_all": _all_to_all,
    "all_to_all_single": _all_to_all_single,
}
KINDS: dict[str, Maker] = {**REDUCTIONS, **MOVES, "barrier": _barrier}
UNEVEN = frozenset({"all_gather", "gather", "scatter", "reduce_scatter", "all_to_all", "all_to_all_single"})
"""Kinds whose pieces may differ in length."""
COMMON = frozenset({"all_reduce", "all_reduce_coalesced", "broadcast", "all_gather", "all_gather_into_tensor"})
"""Kinds that give every rank the same: bit for bit."""


# --- one rank's side -------------------------------------------------------------------------------------------------


async def carry_out(on: Collectives, case: Case, *, one_host: bool = True, **how: Any) -> bytes:
    """This rank's call of ``case`` in the group (or world) ``on``, and everything that it can check alone.

    Returns:
        The bits of the outputs.
    """
    size, rank = on.size, on.rank  # type: ignore[attr-defined]
    call = KINDS[case.kind](case, size, rank)
    before = [array.tobytes() for array in call.inputs]
    result = await call.start(on, how)
    assert result is call.result, f"{case}: the await gave {result!r:.80}"
    assert [array.tobytes() for array in call.inputs] == before, f"{case}: inputs have changed"
    for output, expected in zip(call.outputs, call.expected, strict=True):
        if case.op:
            right = same_values(output, expected, size if case.data != "exact" and not one_host else 0)
        else:
            right = same_bits(output, expected)
        assert right, f"{case}: rank {rank} got {output}, not {expected}"
        assert output.flags.writeable, f"{case}: rank {rank}'s output is still locked"
    return b"".join(output.tobytes() for output in call.outputs)


async def carry_out_all(on: Collectives, cases: Sequence[Case], *, at_once: int = 12, **how: Any) -> list[bytes]:
    """This rank's calls of many cases, several of them under way at any time."""
    found: list[bytes] = []
    for start in range(0, len(cases), at_once):
        batch = [carry_out(on, case, **how) for case in cases[start : start + at_once]]
        found += await asyncio.gather(*batch)
    return found


async def together(
    ranks: Sequence[Collectives], cases: Sequence[Case], *, one_host: bool = True, at_once: int = 12, **how: Any
) -> int:
    """All ranks' sides of many cases, in this process. Returns how many cases they were.

    Raises:
        AssertionError: one rank's check failed, or ranks got different bits where all must get the same.
    """
    sides = [carry_out_all(on, cases, at_once=at_once, one_host=one_host, **how) for on in ranks]
    async with asyncio.timeout(LIMIT_S):
        outcomes = await asyncio.gather(*sides, return_exceptions=True)
    failed = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    if failed:
        raise next((each for each in failed if isinstance(each, AssertionError)), failed[0])
    for case, *bits in zip(cases, *outcomes, strict=True):  # type: ignore[arg-type]
        if case.kind in COMMON:
            assert len(set(bits)) == 1, f"{case}: ranks differ"
    return len(cases)
