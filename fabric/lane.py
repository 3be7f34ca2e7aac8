"""One member's queue of operations in one channel, carried out strictly one after the other.

A lane is polled: by a rank's data thread (or, for a moment, by the caller itself), or by the worker's loop for a rank
that has no shared memory. All time-outs, withdrawals, contests and verdicts of an operation end up here, so that it
ends exactly once.
"""

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hocket.fabric.board import stage
from hocket.fabric.native_plan import NativePlan
from hocket.fabric.operation import Operation
from hocket.fabric.program import Progress, Steps, WithdrawnSeen, all_left, play, withdraw
from hocket.fabric.seat import Seat
from hocket.protocol.errors import (
    AbortedError,
    DeadlineError,
    HocketError,
    Ranks,
    Where,
    copy_of,
)
from hocket.protocol.limits import LATE_WARNING_S
from hocket.protocol.signature import decode_signature, encode_signature, withdrawn, withdrawn_error

log = logging.getLogger("hocket.fabric")

Ask = Callable[[int, HocketError | None], None]
"""Asks the worker for a verdict on an operation, with a reason to end it or none."""
Late = Callable[[Where, float, Ranks], None]

_TOOK_ALL = "operations called before it took all the time"


@dataclass(slots=True)
class _Current:
    op: Operation
    steps: Steps
    warn_s: float
    asked: bool = False
    reason: bool = False
    """whether a reason to end it has been given"""


class Lane:
    """See the module. Thread-safe: `submit`, `poll`, `verdict`, `cancel` and `finish` may come from any thread."""

    def __init__(self, seat: Seat, group: str, epoch: int, channel: str, ask: Ask, late: Late) -> None:
        self.seat = seat
        self.group, self.epoch, self.channel = group, epoch, channel
        self._ask, self._late = ask, late
        self._queue: deque[Operation] = deque()
        self._current: _Current | None = None
        self._number = 0
        self._submitted = 0
        self._verdicts: dict[int, HocketError | None] = {}
        self._ended: HocketError | None = None
        self.lock = threading.RLock()

    @property
    def idle(self) -> bool:
        """Whether there is nothing to carry out."""
        return self._current is None and not self._queue

    @property
    def deadline_s(self) -> float:
        """When the lane must be polled again at the latest (monotonic clock)."""
        current, queue = self._current, self._queue
        soonest = []
        if current is not None:
            soonest = [current.warn_s] if current.reason else [current.warn_s, current.op.deadline_s]
        return min([math.inf, *soonest, *(op.deadline_s for op in list(queue) if op.error is None)])

    def where(self, op: Operation) -> Where:
        """The operation's place, for an error."""
        return Where(op.kind, op.number, self.group, self.epoch, self.channel)

    def submit(self, op: Operation) -> None:
        """Takes an operation; its number is its place in the order of calls."""
        with self.lock:
            self._submitted += 1
            op.number = self._submitted
            if not op.deadline_s:
                op.deadline_s = time.monotonic() + op.timeout_s
            if self._ended is not None:
                self._finish(op, copy_of(self._ended))
            else:
                self._queue.append(op)

    def attempt(
        self,
        plan: NativePlan,
        source: Any,
        target: Any,
        patience_ns: int,
        hand_over: Callable[[], Operation],
    ) -> bool | None:
        """Carries out an operation inside the call, by the core, if nothing else is under way.

        Args:
            plan: what the members have agreed on for calls like this one.
            source: the caller's array to read from; one, in which pieces for several members follow one another.
            target: likewise, to write to.
            patience_ns: how long it may wait for the others.
            hand_over: makes the operation of the same call, where it takes longer; it is gone on with by `poll`.

        Returns:
            True: done. False: begun, and handed over. None: not begun, nothing has happened.
        """
        if not self.lock.acquire(blocking=False):
            return None
        try:
            if self._current is not None or self._queue or self._ended is not None:
                return None  # also where the seat has been given up
            number = self._submitted + 1
            outcome = self.seat.native.attempt(plan.made, number, self.seat.posted_last, source, target, patience_ns)
            if outcome is None:
                return None
            self._submitted = self._number = number
            if outcome is True:
                self.seat.posted_last = plan.nblocks
                return True
            self._take_over(number, outcome, hand_over)
            return False
        finally:
            self.lock.release()

    def _take_over(self, number: int, state: tuple[int, int, int, bool, bool], make: Callable[[], Operation]) -> None:
        """Makes an operation that the core has entered the current one."""
        posted, reduced, read, wrote, differs = state
        op = make()
        op.number, op.wrote = number, wrote
        now_s = time.monotonic()
        op.deadline_s = now_s + op.timeout_s
        if differs:
            self.seat.plans.pop(op.text, None)
        steps = play(self.seat, op, 0, Progress(posted, reduced, read))
        self._current = _Current(op, steps, now_s + LATE_WARNING_S)

    def poll(self) -> bool:
        """Goes on as far as possible without waiting. Returns whether anything moved."""
        with self.lock:
            moved = False
            while self._step():
                moved = True
            return moved

    def cancel(self, op: Operation, cause: str) -> None:
        """Ends the operation for the group unless it completes all the same; ``op.ended`` tells which."""
        with self.lock:
            if op.over:
                return
            error = AbortedError(self.seat.member, cause)
            if self._current is not None and self._current.op is op:
                self._contest(self._current, error)
            else:
                self._give_up(op, error)

    def verdict(self, number: int, error: HocketError | None) -> None:
        """The worker's word on operation ``number``."""
        with self.lock:
            if self._current is not None and self._current.op.number == number:
                self._verdicts[number] = error
                if error is None:
                    self.seat.sealed = max(self.seat.sealed, number)

    def finish(self, error: HocketError) -> None:
        """The epoch has ended: nothing new starts. What is under way is settled by verdict, so that all agree."""
        with self.lock:
            self._ended = self._ended or error
            while self._queue:
                self._finish(self._queue.popleft(), copy_of(error))

    def abandon(self, error: HocketError) -> None:
        """The worker is gone, and with it all verdicts: everything ends with ``error``."""
        with self.lock:
            self.finish(error)
            if self._current is not None:
                self._leave(self._current, copy_of(error))
            self.seat.native = None  # its descriptors are not to wait for the collector

    # --- one step ----------------------------------------------------------------------------------------------------

    def _step(self) -> bool:
        if self._current is None:
            return self._start_next()
        current = self._current
        if self._settle(current):
            return True
        moved = False
        try:
            moved = next(current.steps)
        except StopIteration:
            self._leave(current, None)
            return True
        except WithdrawnSeen as seen:
            current.steps = _wait_for_verdict()
            self._contest(current, seen.error)
        except HocketError as error:
            self._leave(current, error)
            return True
        except BaseException as broken:  # Ctrl-C in a caller's thread, or no memory: the program cannot be gone on with
            cut = AbortedError(self.seat.member, f"it was interrupted ({broken!r})")
            current.steps = _until_sealed(self.seat, current.op.number, cut)
            self._contest(current, cut)
            if not isinstance(broken, Exception):
                raise
            log.exception("%s failed", self.where(current.op))
        now_s = time.monotonic()
        self._watch(current, now_s)
        self._expire_queue(now_s)
        return moved

    def _expire_queue(self, now_s: float) -> None:
        """Operations that wait for their turn have a deadline, too; what holds them up is what the first waits for."""
        for op in self._queue:
            if op.error is None and now_s >= op.deadline_s:
                self._give_up(op, DeadlineError(op.timeout_s, self.missing(), _TOOK_ALL))

    def _start_next(self) -> bool:
        if not self._queue:
            return False
        op = self._queue.popleft()
        self._number = op.number
        now_s = time.monotonic()
        if op.error is None and now_s >= op.deadline_s:
            self._give_up(op, DeadlineError(op.timeout_s, (), _TOOK_ALL))
        if op.error is not None:
            # By verdict, as an abort: the next signatures may be written over this one before all others have seen it.
            self._current = _Current(op, withdraw(self.seat, op, time.monotonic_ns()), float("inf"))
            next(self._current.steps)
            self._contest(self._current, withdrawn_error(self.seat.member, decode_signature(op.text)))
            self._finish(op, op.error)
            return True
        self._current = _Current(op, play(self.seat, op, time.monotonic_ns()), now_s + LATE_WARNING_S)
        return True

    def _settle(self, current: _Current) -> bool:
        """Acts on a verdict, asks for one where the worker's hand is on the operation."""
        number = current.op.number
        if number in self._verdicts:
            error = self._verdicts.pop(number)
            if error is not None:
                self._leave(current, error)
                return True
        elif self.seat.board.contested >= number and not current.asked and self.seat.sealed < number:
            current.asked = True
            self._ask(number, None)
        return False

    def _watch(self, current: _Current, now_s: float) -> None:
        """Deadline and warning of an operation that waits."""
        if now_s >= current.op.deadline_s and not current.reason:
            self._contest(current, DeadlineError(current.op.timeout_s, self.missing(current.op.number)))
        elif now_s >= current.warn_s:
            current.warn_s = now_s + LATE_WARNING_S
            self._late(self.where(current.op), now_s - (current.op.deadline_s - current.op.timeout_s), self.missing())

    def missing(self, number: int | None = None) -> Ranks:
        """Members that have not entered the current operation; while we cannot enter it, those that hold us up."""
        number = self._number if number is None else number
        board = self.seat.board
        if board.signed(self.seat.member) < number:
            return tuple(member for member in self.seat.locals if not all_left(board, (member,), number - 2))
        return tuple(member for member in range(board.size) if board.signed(member) < number)

    def _contest(self, current: _Current, error: HocketError) -> None:
        if not current.reason:
            current.reason = current.asked = True
            self._ask(current.op.number, error)

    # --- endings -----------------------------------------------------------------------------------------------------

    def _give_up(self, op: Operation, error: HocketError) -> None:
        """Ends an operation that has not started; its place in the order is kept and says so to the others."""
        op.error = error
        op.text = encode_signature(withdrawn(op.kind, error))
        op.sends = []
        self._finish(op, error)

    def _leave(self, current: _Current, error: HocketError | None) -> None:
        current.steps.close()
        op = current.op
        if error is not None:
            error = copy_of(error)
            error.array_intact = not op.wrote
        self._current = None
        self._verdicts.pop(op.number, None)
        self._pass(op.number, self.seat.posted_last if error is None else -1)
        self._finish(op, error)

    def _pass(self, number: int, blocks: int) -> None:
        """Operation ``number`` is behind us: nothing of it is needed any more."""
        self.seat.posted_last = blocks
        self.seat.board.set_read(self.seat.member, stage(number + 1, 0))
        self.seat.ring()

    def _finish(self, op: Operation, error: HocketError | None) -> None:
        op.end(error.at(self.where(op)) if error is not None else None)


def _until_sealed(seat: Seat, number: int, error: HocketError) -> Steps:
    """Waits for the verdict on an operation that broke off here: one that is to complete fails on this member alone."""
    while seat.sealed < number:
        yield False
    raise error


def _wait_for_verdict() -> Steps:
    while True:
        yield False
