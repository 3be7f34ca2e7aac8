"""Which bytes of the board a chunk of a schedule stands for: the one place where schedules and memory meet."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hocket.fabric.board import Board, Bytes
from hocket.fabric.plan import Plan
from hocket.fabric.program import cut, result_view
from hocket.protocol.signature import Family
from hocket.worker.schedules.choose import Choice, Kind, choose

log = logging.getLogger("hocket.worker")

KINDS: dict[str, Kind] = {
    "broadcast": Kind.BROADCAST,
    "broadcast_object_list": Kind.BROADCAST,
    "gather": Kind.GATHER,
    "gather_object": Kind.GATHER,
    "scatter": Kind.SCATTER,
    "scatter_object_list": Kind.SCATTER,
    "all_to_all": Kind.ALL_TO_ALL,
    "all_to_all_single": Kind.ALL_TO_ALL,
    "reduce": Kind.REDUCE,
    "all_reduce": Kind.ALL_REDUCE,
    "all_reduce_coalesced": Kind.ALL_REDUCE,
    "reduce_scatter": Kind.REDUCE_SCATTER,
    "reduce_scatter_tensor": Kind.REDUCE_SCATTER,
}
"""What hosts do between them for an operation; all other kinds gather everywhere."""
CONVERGING = frozenset({Kind.GATHER, Kind.REDUCE})
"""Hosts other than the root's cannot tell by what arrives whether all have posted: they are told."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """One block of an operation between hosts.

    ``members`` are the ranks on each host, in the order of hosts that the schedule's indices mean.
    """

    board: Board
    plan: Plan
    number: int
    members: tuple[tuple[int, ...], ...]

    @property
    def kind(self) -> Kind:
        """What the hosts do between them."""
        return KINDS.get(self.plan.kind, Kind.ALL_GATHER)

    @property
    def root_host(self) -> int:
        """Index of the root's host, 0 without a root."""
        if self.plan.root < 0:
            return 0
        return next(index for index, ranks in enumerate(self.members) if self.plan.root in ranks)

    def choose(self, block: int) -> Choice:
        """The schedule for a block; the same on all hosts, which know the same plan."""
        plan, size = self.plan, len(self.members)
        nbytes = max(sum(shape.piece(block, reader)[1] for reader in range(plan.size)) for shape in plan.shapes)
        if plan.family in (Family.SHARED, Family.REDUCE):
            nbytes //= plan.size
        if self.kind is Kind.ALL_GATHER or self.kind is Kind.GATHER:
            nbytes = sum(shape.piece(block)[1] for shape in plan.shapes)
        choice = choose(self.kind, nbytes, size, self.root_host)
        if block == 0:
            log.debug(
                "%s #%d: %s among %d hosts, %d blocks, the first of %d bytes",
                plan.kind,
                self.number,
                choice.name,
                size,
                plan.nblocks,
                nbytes,
            )
        return choice

    def views(self, block: int, choice: Choice) -> Callable[[int], list[Bytes]]:
        """Maps a chunk's id to the memory it stands for, in the order in which it travels."""
        makers: dict[Kind, Callable[[int], list[Bytes]]] = {
            Kind.ALL_GATHER: lambda host: self._pieces(block, self.members[host]),
            Kind.GATHER: lambda host: self._pieces(block, self.members[host]),
            Kind.BROADCAST: lambda index: self._root_cut(block, index, choice.chunks),
            Kind.SCATTER: lambda host: self._parts(block, (self.plan.root,), self.members[host]),
            Kind.ALL_TO_ALL: lambda pair: self._parts(
                block, self.members[pair // len(self.members)], self.members[pair % len(self.members)]
            ),
            Kind.ALL_REDUCE: lambda index: self._result_cut(block, index, choice.chunks),
            Kind.REDUCE: lambda index: self._result_cut(block, index, choice.chunks),
            Kind.REDUCE_SCATTER: lambda host: self._result_parts(block, self.members[host]),
        }
        return makers[self.kind]

    def accumulator(self, block: int) -> "tuple[int, np.ndarray[tuple[int], np.dtype[np.floating[Any]]]]":
        """Of a reduction, the block's part of the result in the accumulator's dtype, and its first element's index."""
        start, nbytes = self.plan.shapes[0].piece(block)
        return start // self.plan.first.itemsize, result_view(
            self.board, self.plan, self.number + block, 0, nbytes // self.plan.first.itemsize
        )

    def typed(self, view: Bytes) -> "np.ndarray[tuple[int], np.dtype[np.generic]]":
        """Bytes of the result slot in the accumulator's dtype."""
        return view.view(result_view(self.board, self.plan, 0, 0, 0).dtype)

    def _slot(self, member: int, block: int) -> Bytes:
        return self.board.slot(member, self.number + block)

    def _pieces(self, block: int, members: tuple[int, ...]) -> list[Bytes]:
        return [self._slot(m, block)[: self.plan.shapes[m].piece(block)[1]] for m in members]

    def _root_cut(self, block: int, index: int, chunks: int) -> list[Bytes]:
        nbytes = self.plan.shapes[self.plan.root].piece(block)[1]
        return [self._slot(self.plan.root, block)[cut(nbytes, index, chunks) : cut(nbytes, index + 1, chunks)]]

    def _parts(self, block: int, senders: tuple[int, ...], readers: tuple[int, ...]) -> list[Bytes]:
        found = []
        for sender in senders:
            shape = self.plan.shapes[sender]
            for reader in readers:
                place, nbytes = shape.place(reader), shape.piece(block, reader)[1]
                found.append(self._slot(sender, block)[place : place + nbytes])
        return found

    def _result(self, block: int, part: int) -> Bytes:
        shape = self.plan.shapes[0]
        elements = shape.piece(block, part)[1] // shape.signature.itemsize
        return result_view(self.board, self.plan, self.number + block, part, elements).view(np.uint8)

    def _result_cut(self, block: int, index: int, chunks: int) -> list[Bytes]:
        whole, wide = self._result(block, 0), self.plan.shapes[0].wide
        elements = len(whole) // wide
        return [whole[cut(elements, index, chunks) * wide : cut(elements, index + 1, chunks) * wide]]

    def _result_parts(self, block: int, members: tuple[int, ...]) -> list[Bytes]:
        return [self._result(block, member) for member in members]
