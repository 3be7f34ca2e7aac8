"""A member's place at a board: who sits on the same host, whom to wake, and what the native core knows of it."""

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from hocket.fabric.bells import Bells
from hocket.fabric.board import Board, Bytes
from hocket.fabric.core import native
from hocket.fabric.native_plan import NativePlan
from hocket.fabric.operation import Operation
from hocket.protocol.limits import DIRECT_NBYTES, SIGNATURE_NBYTES
from hocket.protocol.signature import PREFIX, Family

PLANS = 512
"""Agreed plans that a seat remembers."""


@dataclass(slots=True)
class Seat:
    """See the module."""

    board: Board
    member: int
    locals: tuple[int, ...]
    bridged: bool
    """whether other hosts take part"""
    bells: Bells
    wake: tuple[int, ...]
    """bells of whoever waits for this member's posts"""
    by_core: bool = False
    """whether the native core carries operations out here, where there is one"""
    crowded: bool = False
    """whether there are more ranks than cores, so that a rank which waits keeps another one from working"""
    pids: tuple[int, ...] = ()
    """of all members, where they may try to read one another's memory"""
    sealed: int = 0
    """operations up to this number have the worker's word that they complete"""
    posted_last: int = 0
    """blocks of the operation before, so that its slots are known to be in use or not"""
    native: Any = None
    """the core's view of the seat, where it has one"""
    plans: dict[bytes, NativePlan] = field(default_factory=dict)
    """the core's plans for this member's calls, by signature, as last agreed on"""

    def __post_init__(self) -> None:
        known = all(place in self.bells.fds for place in self.wake)
        if native is not None and self.by_core and known:
            layout, wake = self.board.layout, [(place, self.bells.fds[place]) for place in self.wake]
            self.native = native.Seat(
                self.board.arena.buffer,
                self.bells.page.buffer,
                self.board.size,
                self.member,
                layout.texts,
                SIGNATURE_NBYTES,
                layout.slots,
                layout.results,
                layout.room,
                wake,
                self.crowded,
                [] if self.bridged else list(self.pids),
                self.bridged,
                list(self.locals),
            )

    def remember(self, text: bytes, plan: NativePlan) -> None:
        """Keeps what the members have agreed on, for the next call like it."""
        if len(self.plans) >= PLANS:
            self.plans.clear()
        self.plans[text] = plan

    def ring(self) -> None:
        """Wakes the others."""
        self.bells.ring(self.wake)

    def offer(self, op: Operation, family: Family) -> int:
        """Where the other members may read the operation's input instead of having it posted; 0: nowhere.

        Members read one another's memory where all of them offer theirs, which each decides by itself: for large
        operations whose input lies in one piece, if it can read everybody else's.
        """
        if self.native is None or self.bridged or op.recvs is None or self.board.size > native.MEMBERS:
            return 0
        moves = family in (Family.SHARED, Family.PERSONAL) and op.kind not in PREFIX
        in_place = family is Family.REDUCE and len(op.recvs) == len(op.sends) == 1 and op.recvs[0] is op.sends[0]
        if not (moves or (in_place and op.kind != "reduce")):
            return 0
        if max(sum(map(len, op.sends)), sum(map(len, op.recvs))) < DIRECT_NBYTES or not self.native.can_read():
            return 0
        return int(native.NOTHING) if not op.sends else _in_one_piece(op.sends)


def _in_one_piece(parts: list[Bytes]) -> int:
    """The address of memory in which the parts follow one another; 0 where they do not."""
    starts = [part.__array_interface__["data"][0] for part in parts]
    filled = [(start, start + len(part)) for start, part in zip(starts, parts, strict=True) if len(part)]
    if not filled or any(before[1] != after[0] for before, after in pairwise(filled)):
        return 0
    return int(filled[0][0])
