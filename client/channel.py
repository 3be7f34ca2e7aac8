"""One channel of a group, as its caller sees it: operations go in, in order, whatever carries them out.

With shared memory that is a `Lane` on the host's board, which the caller's own thread may carry for a moment; without
it, the worker stands in, and the operation's bytes go over the connection.
"""

import os
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

import numpy as np

from hocket.client.engine import CORES
from hocket.client.patience import Patience
from hocket.client.quick import Quick
from hocket.fabric.bells import WORKER_BELL
from hocket.fabric.lane import Lane
from hocket.fabric.operation import Operation
from hocket.fabric.seat import Seat
from hocket.protocol.errors import AbortedError, HocketError, WireError, copy_of, error_from_facts, error_to_facts
from hocket.protocol.frames import Buffers
from hocket.protocol.messages import Contest, Done, Submit
from hocket.protocol.signature import encode_signature, withdrawn

if TYPE_CHECKING:
    from hocket.client.membership import Membership
    from hocket.client.session import OpenedBoard

INLINE_NBYTES = 64 << 10
"""Operations up to this size are begun, and often ended, inside the call; larger ones are left to the data thread."""
SPIN_S = 1e-3
"""How long a call that goes by the board's Python program looks again for the others."""


class BoardChannel:
    """A channel on the host's shared memory. Operations called before the board is there wait for it."""

    def __init__(self, membership: "Membership", name: str) -> None:
        self._membership, self.name = membership, name
        self._engine = membership.session.engine
        self._lane: Lane | None = None
        self._early: deque[Operation] = deque()
        self._ended: HocketError | None = None
        self._lock = threading.RLock()
        self._patience = Patience(willing=False)

    def submit(self, op: Operation) -> None:
        """Takes an operation. It may end inside the call."""
        with self._lock:
            if self._lane is None:
                op.deadline_s = time.monotonic() + op.timeout_s
                if self._ended is not None:
                    op.end(copy_of(self._ended).at(self._membership.where(op.kind, 0, self.name)))
                else:
                    self._early.append(op)
                return
            lane = self._lane
            lane.submit(op)
        if sum(map(len, op.sends)) <= INLINE_NBYTES and op.recvs is not None:
            lane.poll()
            if not lane.idle:
                self._spin(lane)
        if not lane.idle:
            self._engine.wake()

    def _spin(self, lane: Lane) -> None:
        """Looks again for a moment: where the others come at the same time, that saves two thread switches."""
        until_s = time.perf_counter() + SPIN_S
        while self._patience.waits() and time.perf_counter() < until_s:
            lane.poll()
            if lane.idle:
                self._patience.came()
                return
            os.sched_yield()  # the others, or the worker that brings what they say, may need this core
        self._patience.missed()

    def cancel(self, op: Operation, cause: str) -> None:
        """Ends an operation for the group unless it completes all the same."""
        with self._lock:
            if self._lane is not None:
                self._lane.cancel(op, cause)
                self._engine.wake()
            elif not op.over:
                op.error = AbortedError(self._membership.rank, cause)
                op.text = encode_signature(withdrawn(op.kind, op.error))
                op.end(op.error.at(self._membership.where(op.kind, 0, self.name)))

    def opened(self, opened: "OpenedBoard") -> None:
        """The board has come."""
        membership = self._membership
        bells = membership.session.bells
        assert bells is not None
        locals_ = tuple(m.rank for m in membership.info.members if m.host == membership.me.host)
        wake = set(opened.bells) - {membership.session.place}
        if not opened.bridged and all(opened.bells[member] != WORKER_BELL for member in locals_):
            wake.discard(WORKER_BELL)
        info = membership.info
        pids = tuple(member.pid for member in info.members)
        with_memory = all(bell != WORKER_BELL for bell in opened.bells)
        seat = Seat(
            opened.board,
            membership.rank,
            locals_,
            opened.bridged,
            bells,
            tuple(sorted(wake)),
            by_core=True,
            crowded=opened.bridged or len(locals_) > CORES,  # the worker needs a core as well
            pids=pids if with_memory else (),
        )
        here = [info.members[rank].pid for rank in locals_]
        willing = len(set(here)) == len(here)
        self._patience = Patience(willing)
        lane = Lane(seat, info.name, info.epoch, self.name, self._ask, membership.late)
        if seat.native is not None and not self.name:
            membership.quick = Quick(membership, lane, willing)
        with self._lock:
            self._lane = lane
            while self._early:
                lane.submit(self._early.popleft())
            if self._ended is not None:
                lane.finish(self._ended)
        self._engine.add_lane(lane)
        self._engine.wake()

    def _ask(self, number: int, error: HocketError | None) -> None:
        facts = None if error is None else error_to_facts(error)
        info = self._membership.info
        self._membership.post(Contest(info.group, self.name, number, self._membership.rank, facts))

    def verdict(self, number: int, error: HocketError | None) -> None:
        """How a contested operation ended."""
        if self._lane is not None:
            self._lane.verdict(number, error)
            self._engine.wake()

    def finish(self, error: HocketError) -> None:
        """The epoch has ended."""
        with self._lock:
            self._ended = self._ended or error
            if self._lane is not None:
                self._lane.finish(error)
            self._drop_early(error)
        self._engine.wake()

    def abandon(self, error: HocketError) -> None:
        """The worker is gone, or the group was left: everything under way ends."""
        with self._lock:
            self._ended = self._ended or error
            lane = self._lane
            self._drop_early(error)
        if lane is not None:
            self._engine.remove_lane(lane)
            with lane.lock:  # nobody looks at the board after this
                lane.abandon(error)
                lane.seat.board.close()

    def _drop_early(self, error: HocketError) -> None:
        while self._early:
            op = self._early.popleft()
            op.end(copy_of(error).at(self._membership.where(op.kind, 0, self.name)))

    def room(self, _done: Done, _nbytes: int) -> Buffers | None:
        """Boards bring nothing over the connection."""
        return None

    def done(self, _done: Done) -> None:
        """Boards bring nothing over the connection."""


class RemoteChannel:
    """A channel whose operations the worker carries out for us."""

    def __init__(self, membership: "Membership", name: str) -> None:
        self._membership, self.name = membership, name
        self._submitted = 0
        self._open: dict[int, Operation] = {}
        self._ended: HocketError | None = None
        self._lock = threading.Lock()

    def submit(self, op: Operation) -> None:
        """Sends an operation to the worker; the order of calls is the order in which they are sent."""
        with self._lock:
            self._submitted += 1
            op.number = self._submitted
            if self._ended is None:
                self._open[op.number] = op
                recvs = tuple(len(part) for part in op.recvs) if op.recvs is not None else ()
                submit = Submit(
                    self._membership.info.group,
                    self.name,
                    op.number,
                    op.text,
                    tuple(len(part) for part in op.sends),
                    recvs,
                    op.timeout_s,
                )
                self._membership.post(submit, tuple(part.data for part in op.sends))
                if op.error is None:
                    return
        self._end(op, op.error or self._ended)

    def cancel(self, op: Operation, cause: str) -> None:
        """Asks the worker to end the operation for the group."""
        facts = error_to_facts(AbortedError(self._membership.rank, cause))
        info = self._membership.info
        self._membership.post(Contest(info.group, self.name, op.number, self._membership.rank, facts))

    def opened(self, _opened: "OpenedBoard") -> None:
        """There is no board."""

    def verdict(self, _number: int, _error: HocketError | None) -> None:
        """Verdicts reach us as outcomes."""

    def room(self, done: Done, nbytes: int) -> Buffers | None:
        """Where an outcome's bytes go: straight into the outputs."""
        op = self._open.get(done.number)
        if op is None or op.over:
            return None
        if op.recvs is None:
            if sum(done.recvs) != nbytes or min(done.recvs, default=0) < 0:
                raise WireError(f"{op.kind}: pieces of {done.recvs} bytes announced, {nbytes} come")
            op.recvs = [np.empty(size, np.uint8) for size in done.recvs]
        return [part.data for part in op.recvs if len(part)]

    def done(self, done: Done) -> None:
        """An operation has ended."""
        op = self._open.get(done.number)
        if op is not None:
            if op.recvs is None:
                op.recvs = [np.empty(size, np.uint8) for size in done.recvs]
            self._end(op, None if done.error is None else error_from_facts(done.error))

    def _end(self, op: Operation, error: HocketError | None) -> None:
        self._open.pop(op.number, None)
        where = self._membership.where(op.kind, op.number, self.name)
        op.end(None if error is None else copy_of(error).at(where))

    def finish(self, error: HocketError) -> None:
        """The epoch has ended; the worker settles what is under way."""
        with self._lock:
            self._ended = self._ended or error

    def abandon(self, error: HocketError) -> None:
        """The worker is gone, or the group was left."""
        self.finish(error)
        for op in list(self._open.values()):
            self._end(op, error)


Channel = BoardChannel | RemoteChannel
