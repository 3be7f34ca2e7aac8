"""What one member does on the board for one operation: the same few steps for every collective.

    sign -> wait for all signatures -> agree -> for each block: post mine, reduce my share, read what I need

A program is a generator that yields where it has to wait. It knows no clock, no socket and no thread: `Lane` drives it,
for a rank on its data thread and for a rank elsewhere on its worker's loop. Rules that keep the memory right:

1. A slot is written again only after every reader on this host has read what it held (`may_write`), a signature only
   after every member on this host has left its operation (`may_sign`).
2. Data first, then the word that announces them; the reader looks in the opposite order.
3. Before the last block is read, and so before the outcome can be seen by the caller, the contested word is looked at:
   whoever saw all posts and no hand raised after them may complete (see `contest`).
"""

import os
import time
from collections.abc import Generator, Sequence
from typing import NamedTuple

import numpy as np

from hocket.fabric.board import Board, Bytes, stage
from hocket.fabric.core import native
from hocket.fabric.dtypes import numpy_dtype
from hocket.fabric.kernels import Array, finish, reduce_into
from hocket.fabric.native_plan import NativePlan, native_plan, shares
from hocket.fabric.operation import Operation
from hocket.fabric.plan import Plan, plan_for, shape_for
from hocket.fabric.seat import Seat
from hocket.fabric.words import fence
from hocket.protocol.dtypes import accumulator
from hocket.protocol.errors import AbortedError, HocketError, copy_of
from hocket.protocol.signature import Family, decode_signature, withdrawn_error

CUT_ELEMENTS = 64
UNREADABLE_S = 2.0
"""For so long an attempt to read another member's memory may fail before the operation is given up."""
PATIENCE_NS = 30_000
"""How long the core looks again and again before it gives the thread back, where each rank has a core."""
Steps = Generator[bool, None, None]
"""Yields where it has to wait (False), or where whoever drives it may look at other things in between (True)."""


class WithdrawnSeen(Exception):  # noqa: N818 - a signal between program and lane, not an error
    """Another member has withdrawn its call before all have arrived; the worker settles what all raise."""

    def __init__(self, error: HocketError) -> None:
        super().__init__()
        self.error = error


class Progress(NamedTuple):
    """How far an operation is that has been entered already: blocks posted, reduced and read."""

    posted: int
    reduced: int
    read: int


def play(seat: Seat, op: Operation, now_ns: int, entered: Progress | None = None) -> Steps:
    """Carries out ``op`` (its number is set) for the member at ``seat``, or what is left of it if it is ``entered``.

    Raises:
        HocketError: the error that all members raise: their calls do not match.
        WithdrawnSeen: see there.
    """
    program = _Program(seat, op, entered or Progress(0, 0, 0))
    if entered is None:
        while not may_sign(seat, op.number):
            yield False
        program.offer = seat.offer(op, program.shape.family)
        if not program.offer:
            program.post_ahead(1)
        seat.board.sign(seat.member, op.number, op.text, now_ns, program.offer)
        seat.ring()
    while not seat.board.all_signed(op.number):
        program.look_for_withdrawn()
        if program.offer or not program.post_ahead(1):
            yield False
    plan = program.agree()
    while plan is None:  # somebody has gone on without us: the worker knows how this one ended
        yield False
        plan = program.agree()
    if op.recvs is None:
        op.recvs = _room_for(plan, seat.member)
    yield from program.run(plan)


def withdraw(seat: Seat, op: Operation, now_ns: int) -> Steps:
    """Enters an operation only to say that it is not going to happen, then waits for the verdict."""
    while not may_sign(seat, op.number):
        yield False
    seat.board.sign(seat.member, op.number, op.text, now_ns)
    seat.ring()
    while True:
        yield False


class _Program:
    """The state of `play`: how many blocks were posted, reduced and read."""

    def __init__(self, seat: Seat, op: Operation, progress: Progress) -> None:
        self.seat, self.op, self.board = seat, op, seat.board
        self.shape = shape_for(decode_signature(op.text), seat.board.size, seat.board.block_nbytes)
        self.number = op.number
        self.posted, self.reduced, self.read = progress
        self.failing_s = 0.0
        self.offer = seat.board.offer(seat.member, op.number) if seat.board.signed(seat.member) == op.number else 0

    # --- entering ----------------------------------------------------------------------------------------------------

    def look_for_withdrawn(self) -> None:
        """Raises `WithdrawnSeen` if one of those that have arrived does not take part."""
        for member in range(self.board.size):
            if self.board.signed(member) == self.number:
                text = self.board.signature(member, self.number)
                signature = decode_signature(text) if text else None
                if signature is not None and signature.error is not None:
                    raise WithdrawnSeen(withdrawn_error(member, signature))

    def agree(self) -> Plan | None:
        """The plan, None where a signature is gone; raises what all raise."""
        texts = [self.board.signature(member, self.number) for member in range(self.board.size)]
        if None in texts:
            return None
        plan = plan_for(tuple(texts), self.board.block_nbytes)
        if isinstance(plan, HocketError):
            raise copy_of(plan)  # a copy: each raise adds a traceback to its own
        return plan

    # --- the blocks --------------------------------------------------------------------------------------------------

    def run(self, plan: Plan) -> Steps:
        """Posts, reduces and reads all blocks, each as early as it can be."""
        made = self._native_plan(plan)
        if made is not None:
            yield from self._run_native(made)
            return
        shares = plan.shapes[0].reduces and self._shares(plan)
        reduces = shares and not (self.seat.bridged and plan.eager)
        last = plan.nblocks - 1
        while self.read < plan.nblocks:
            moved = self.post_ahead(plan.nblocks)
            if reduces and self.reduced < plan.nblocks and self._can_reduce(plan):
                self._reduce_share(plan, self.reduced)
                moved = True
            if self._can_read(plan, shares) and (self.read < last or self._may_complete()):
                self._read_block(plan, self.read)
                moved = True
            if not moved:
                yield False
        if plan.nblocks == 0:
            while not self._may_complete():
                yield False
        self.seat.posted_last = plan.nblocks

    def _native_plan(self, plan: Plan) -> NativePlan | None:
        if self.seat.native is None:
            return None
        recvs = tuple(len(part) for part in self.op.recvs or ())
        found = self.seat.plans.get(self.op.text)
        if found is not None and found.of is plan and found.recvs == recvs:
            return found
        found = native_plan(plan, self.seat.member, recvs, self.seat.bridged)
        if found is not None:
            self.seat.remember(self.op.text, found)
        return found

    def _run_native(self, plan: NativePlan) -> Steps:
        """The same, by the core."""
        seat, op = self.seat, self.op
        assert native is not None
        progress = (self.posted, self.reduced, self.read)
        run = seat.native.begin(
            native.Run, plan.made, op.number, seat.posted_last, op.sends, op.recvs or [], *progress, self.offer
        )
        patience_ns = 0 if seat.crowded else PATIENCE_NS
        while True:
            outcome = run.advance(seat.sealed, patience_ns)
            op.wrote = op.wrote or run.wrote
            if outcome == native.DONE:
                break
            if run.failed:
                self._check_failure(run.failed)
            yield bool(outcome == native.MORE)
        seat.posted_last = plan.nblocks

    def post_ahead(self, limit: int) -> bool:
        """Posts the next block if its slot is free. Blocks ahead of the one being read overlap with it."""
        if self.posted >= min(self.shape.owed, limit) or not self._may_write(self.posted):
            return False
        slot = self.board.slot(self.seat.member, self.number + self.posted)
        for reader, source in enumerate(self.op.sends):
            start, nbytes = self.shape.piece(self.posted, reader)
            if nbytes:
                place = self.shape.place(reader)
                np.copyto(slot[place : place + nbytes], source[start : start + nbytes])
        self.posted += 1
        self.board.set_posted(self.seat.member, stage(self.number, self.posted))
        if (
            self.posted > 1 or self.board.signed(self.seat.member) == self.number
        ):  # the first is announced together with the signature, or wakes whoever waits for it
            self.seat.ring()
        return True

    def _may_write(self, block: int) -> bool:
        return may_write(self.board, self.seat.locals, self.seat.bridged, self.number, block, self.seat.posted_last)

    def _shares(self, plan: Plan) -> bool:
        """Whether this host's ranks reduce into the result slot, each its share, rather than each for itself."""
        return self.seat.bridged or shares(plan)

    def _all_posted(self, plan: Plan, block: int, members: Sequence[int]) -> bool:
        return all(has_posted(self.board, plan, member, self.number, block) for member in members)

    def _can_reduce(self, plan: Plan) -> bool:
        return self._all_posted(plan, self.reduced, self.seat.locals) and self._may_write(self.reduced)

    def _can_read(self, plan: Plan, shares: bool) -> bool:
        block = self.read
        if self.posted < min(block + 1, self.shape.owed):
            return False
        if not shares:
            return self._all_posted(plan, block, range(plan.size))
        at = stage(self.number, block + 1)
        if self.seat.bridged:
            return self.board.result >= at
        return all(self.board.reduced(m) >= at for m in self.seat.locals)

    def _may_complete(self) -> bool:
        fence()
        return self.board.contested < self.number or self.seat.sealed >= self.number

    def _check_failure(self, number: int) -> None:
        """Raises for a member whose memory cannot be read. If its process has ended, the worker tells us so before."""
        now_s = time.monotonic()
        self.failing_s = self.failing_s or now_s
        if now_s - self.failing_s > UNREADABLE_S:
            raise AbortedError(self.seat.member, f"another member's memory could not be read ({os.strerror(number)})")

    # --- reducing ----------------------------------------------------------------------------------------------------

    def _reduce_share(self, plan: Plan, block: int) -> None:
        """Reduces this rank's share of a block: a segment of the piece, or some of the pieces."""
        index, count = self.seat.locals.index(self.seat.member), len(self.seat.locals)
        if plan.family is Family.REDUCE:
            self._reduce_cut(plan, block, 0, index, count)
        else:
            for part in range(index, plan.size, count):
                self._reduce_cut(plan, block, part, 0, 1)
        self.reduced += 1
        self.board.set_reduced(self.seat.member, stage(self.number, self.reduced))
        self.seat.ring()

    def _reduce_cut(self, plan: Plan, block: int, part: int, index: int, count: int) -> None:
        first, dtype = plan.first, numpy_dtype(plan.first.dtype)
        nbytes = plan.shapes[0].piece(block, part)[1]
        elements = nbytes // first.itemsize
        start, stop = cut(elements, index, count), cut(elements, index + 1, count)
        if start == stop:
            return
        place = self.shape.place(part)
        inputs = [
            self.board.slot(m, self.number + block)[place : place + nbytes].view(dtype)[start:stop]
            for m in self.seat.locals
        ]
        if self.seat.bridged:
            reduce_into(result_view(self.board, plan, self.number + block, part, elements)[start:stop], inputs, plan.op)
        else:
            self._reduce_and_finish(plan, self._finished(plan, block, nbytes)[start:stop], inputs)

    def _finished(self, plan: Plan, block: int, nbytes: int) -> Array:
        """The result slot's whole piece, in the tensor's dtype: on one host whoever reduces also rounds."""
        piece: Array = self.board.result_slot(self.number + block)[:nbytes].view(numpy_dtype(plan.first.dtype))
        return piece

    @staticmethod
    def _reduce_and_finish(plan: Plan, out: Array, inputs: Sequence[Array]) -> None:
        wide = numpy_dtype(accumulator(plan.first.dtype, plan.op))
        acc = out if wide == out.dtype else np.empty(len(out), wide)
        reduce_into(acc, inputs, plan.op)
        finish(out, acc, plan.op, len(inputs))

    # --- reading -----------------------------------------------------------------------------------------------------

    def _read_block(self, plan: Plan, block: int) -> None:
        if plan.reads(self.seat.member) and self.op.recvs:
            self.op.wrote = True
            if plan.shapes[0].reduces:
                self._read_reduced(plan, block)
            elif plan.prefix:
                self._read_prefix(plan, block)
            else:
                self._read_pieces(plan, block)
        self.read += 1
        self.board.set_read(self.seat.member, stage(self.number, self.read))
        self.seat.ring()

    def _read_pieces(self, plan: Plan, block: int) -> None:
        me = self.seat.member
        assert self.op.recvs is not None
        for sender, target in enumerate(self.op.recvs):
            shape = plan.shapes[sender]
            start, nbytes = shape.piece(block, me)
            if nbytes and len(target):
                place = shape.place(me)
                slot = self.board.slot(sender, self.number + block)
                np.copyto(target[start : start + nbytes], slot[place : place + nbytes])

    def _read_prefix(self, plan: Plan, block: int) -> None:
        members = range(self.seat.member + (plan.kind == "scan"))
        if members:
            self._reduce_own(plan, block, members, 0)

    def _read_reduced(self, plan: Plan, block: int) -> None:
        part = self.seat.member if plan.family is Family.REDUCE_SCATTER else 0
        if not self._shares(plan):
            self._reduce_own(plan, block, range(plan.size), part)
            return
        out = self._output(plan, block, part)
        if not self.seat.bridged:
            np.copyto(out, self._finished(plan, block, out.nbytes))
        elif len(out):
            acc = result_view(self.board, plan, self.number + block, part, len(out))
            finish(out, acc, plan.op, plan.size)

    def _reduce_own(self, plan: Plan, block: int, members: range, part: int) -> None:
        """Reduces the members' pieces for this reader straight into its output."""
        out = self._output(plan, block, part)
        if not len(out):
            return
        nbytes, place = out.nbytes, self.shape.place(part)
        inputs = [self.board.slot(m, self.number + block)[place : place + nbytes].view(out.dtype) for m in members]
        self._reduce_and_finish(plan, out, inputs)

    def _output(self, plan: Plan, block: int, part: int) -> Array:
        assert self.op.recvs is not None
        start, nbytes = plan.shapes[0].piece(block, part)
        return self.op.recvs[0][start : start + nbytes].view(numpy_dtype(plan.first.dtype))


def may_write(board: Board, readers: Sequence[int], bridged: bool, number: int, block: int, before: int) -> bool:
    """Whether nobody on this host needs the slot that block ``block`` of operation ``number`` goes into.

    Slots alternate by number plus block. ``before`` is how many blocks the operation before had (-1: unknown, since it
    was aborted): with at most one, the slot of block 0 was last used two operations ago, which all have left.
    """
    if block >= 2:
        needed = stage(number, block - 1)
    elif block == 0 and 0 <= before <= 1:
        needed = stage(number - 1, 0)
    else:
        needed = stage(number, 0)
    if bridged and board.bridge_read < needed:
        return False
    return all(board.read(member) >= needed for member in readers)


def may_sign(seat: Seat, number: int) -> bool:
    """Whether nobody on this host needs the signature any more that the one of operation ``number`` is written over.

    It is that of two operations ago. If the one between completed, all had entered that; if it was aborted, a member
    may still be on its way to reading what the others have completed.
    """
    return seat.posted_last >= 0 or all_left(seat.board, seat.locals, number - 2)


def all_left(board: Board, members: Sequence[int], number: int) -> bool:
    """Whether none of the members is in operation ``number`` or an earlier one."""
    return all(board.read(member) >= stage(number + 1, 0) for member in members)


def has_posted(board: Board, plan: Plan, member: int, number: int, block: int) -> bool:
    """Whether a member has posted what it owes to ``block`` of operation ``number``."""
    due = min(block + 1, plan.shapes[member].owed)
    return due == 0 or board.posted(member) >= stage(number, due)


def cut(elements: int, index: int, count: int) -> int:
    """Where share ``index`` of ``count`` begins in ``elements`` elements: even shares, cut at whole cache lines."""
    if index >= count:
        return elements
    at = elements * index // count
    return at - at % CUT_ELEMENTS if elements >= CUT_ELEMENTS * count else at - at % 2


def result_view(board: Board, plan: Plan, block: int, part: int, elements: int) -> Array:
    """The reduced piece of ``part`` in the result slot, in the accumulator's dtype."""
    wide = numpy_dtype(accumulator(plan.first.dtype, plan.op))
    place = plan.shapes[0].result_place(part)
    view: Array = board.result_slot(block)[place : place + elements * wide.itemsize].view(wide)
    return view


def _room_for(plan: Plan, member: int) -> list[Bytes]:
    """Fresh memory for what an object collective brings this member."""
    if not plan.reads(member):
        return []
    personal = plan.family is Family.PERSONAL
    return [
        np.empty(shape.signature.sends[member if personal else 0] if shape.signature.sends else 0, np.uint8)
        for shape in plan.shapes
    ]
