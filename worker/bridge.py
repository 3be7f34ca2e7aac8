"""The worker's part in a group that spans hosts: one task per channel, one operation after the other.

    headers (who has entered, with which signature) -> the same plan on every host -> for each block: wait for this
    host's posts or reductions, run the schedule with the other hosts, announce the outcome on the board

The bridge writes the lines of members on other hosts. It obeys the rules of `program`: slots are written only when all
local readers are done with them, and nothing is reused before what was sent from it has left.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from hocket.fabric.board import Board, Bytes, stage
from hocket.fabric.kernels import combine
from hocket.fabric.plan import Plan, plan_for
from hocket.fabric.program import has_posted, may_write
from hocket.protocol.errors import HocketError
from hocket.protocol.limits import BLOCK_WINDOW
from hocket.protocol.messages import Chunk, Credit, Header, Message, Posted
from hocket.protocol.signature import Family
from hocket.worker.compression import Feedback, phases
from hocket.worker.entry import Entry
from hocket.worker.exchange import CONVERGING, Exchange
from hocket.worker.inbox import Inbox
from hocket.worker.schedules.choose import Kind
from hocket.worker.schedules.schedule import Action, Round

PARTIAL_AFTER_S = 0.05
"""A host whose ranks do not all arrive within this time says which have, so that the others can name the rest."""

BLOCKS_IN_FLIGHT = 2
"""As many as there are result slots."""


class Gone(Exception):  # noqa: N818 - how the bridge leaves an operation that has a verdict, not an error of its own
    """The operation that the bridge is at has ended by a verdict."""


class Surroundings(Protocol):
    """What a bridge needs of its channel's host group."""

    group: int
    channel: str

    def send(self, host: int, message: Message, payload: Iterable[memoryview] = ()) -> None:
        """Sends to another host of the group; a link that is gone is noticed elsewhere."""

    async def sent(self, host: int) -> None:
        """Waits until all that was sent to the host has left."""

    def is_over(self, number: int) -> bool:
        """Whether the operation has ended with an error by a verdict."""

    def failed(self, number: int, error: HocketError) -> None:
        """The bridge cannot bring the operation to its end: its members here raise ``error``."""

    def barrier_entered(self, number: int) -> None:
        """All members on this host have entered a barrier."""

    def barrier_left(self, number: int) -> None:
        """The barrier is over here."""

    def ring(self) -> None:
        """Wakes the local members."""


@dataclass(slots=True)
class _Heard:
    """What other hosts have said about operations from the current one on."""

    posted: dict[int, set[int]] = field(default_factory=dict)
    credits: dict[tuple[int, int], int] = field(default_factory=dict)

    def forget(self, number: int) -> None:
        for old in [key for key in self.posted if key <= number]:
            del self.posted[old]
        for pair in [pair for pair in self.credits if pair[1] <= number]:
            del self.credits[pair]


class Bridge:
    """See the module. Messages come in by `heard`, the board's changes by `pulse`; `run` is the task."""

    def __init__(
        self, board: Board, around: Surroundings, hosts: tuple[int, ...], members: tuple[tuple[int, ...], ...], me: int
    ) -> None:
        self.board, self.around = board, around
        self.hosts, self.members, self.me = hosts, members, me
        self.locals = members[me]
        self.inbox = Inbox(board.size * board.block_nbytes)  # one chunk may hold the blocks of all members
        self.feedback = Feedback()
        self._entry = Entry(board, around.group, around.channel, hosts, members, me, self.feedback)
        self._heard = _Heard()
        self._gone: dict[int, HocketError] = {}
        self._changed = asyncio.Event()
        self._enters = self._looks = self._must_ring = False
        self._timer: asyncio.TimerHandle | None = None

    @property
    def number(self) -> int:
        """The operation that the bridge is at."""
        return self._entry.number

    # --- what happens around -----------------------------------------------------------------------------------------

    def pulse(self) -> None:
        """Something on the board, a link or a verdict has changed: look again.

        Operations that are entered, and small ones to their end, are carried on right here: the task is woken, which
        takes a turn of the loop, only for what has to wait in the midst of its data.
        """
        if not self._enters:
            self._changed.set()
        elif not self._looks:
            try:
                if self._look():
                    self._changed.set()
            except Exception:
                self._changed.set()  # the task meets it as well, and knows what to do; who pulses has no part in it

    def heard(self, host: int, message: Message, nbytes: int) -> None:
        """A message of another host for this channel."""
        if isinstance(message, Chunk):
            self.inbox.arrived(host, message, nbytes)
        elif isinstance(message, Header):
            self._entry.heard(host, message)
        elif isinstance(message, Posted):
            self._heard.posted.setdefault(message.number, set()).add(host)
        elif isinstance(message, Credit):
            pair = host, message.number
            self._heard.credits[pair] = max(self._heard.credits.get(pair, 0), message.block + 1)
        self.pulse()

    def verdict(self, number: int, error: HocketError | None) -> None:
        """The current operation, if it is that one, has ended with an error."""
        if number == self.number and error is not None:
            self.inbox.fail(error)
        self.pulse()

    def host_gone(self, host: int, error: HocketError) -> None:
        """The link to a host has ended: what it still owes will not come."""
        self.inbox.host_gone(host, error)
        self._gone[host] = error
        self.pulse()

    async def run(self) -> None:
        """Carries the channel's operations, for ever."""
        try:
            while True:
                before = -1
                try:
                    await self._entered()
                    before = await self._operation()
                    self.feedback.keep()
                except Gone:
                    pass
                except HocketError as error:
                    if not self.around.is_over(self.number):
                        self.around.failed(self.number, error)
                self.feedback.drop()
                await self._leave(before)
        finally:
            if self._timer is not None:
                self._timer.cancel()

    async def _leave(self, before: int) -> None:
        number = self.number
        await self.inbox.leave(number)
        for host in self._others():
            with contextlib.suppress(HocketError):  # a link that has ended sends nothing any more
                await self.around.sent(host)
        self._heard.forget(number)
        self._pass_on(before)

    def _pass_on(self, before: int) -> None:
        self.board.set_bridge_read(stage(self.number + 1, 0))
        self._entry.following(before)
        self._ring()

    def _ring(self) -> None:
        self._must_ring = False
        self.around.ring()

    async def _until(self, condition: Callable[[], bool], owing: Callable[[], list[int]] = list) -> None:
        """Waits until ``condition()`` holds; ``owing()`` are the other hosts that it still waits for.

        Raises:
            Gone: a verdict has ended the operation first.
            HocketError: the link to a host that owes something has ended.
        """
        while not condition():
            self._check(owing)
            self._changed.clear()
            await self._changed.wait()

    def _check(self, owing: Callable[[], list[int]]) -> None:
        if self.around.is_over(self.number):
            raise Gone
        if self._gone:
            for host in owing():
                if host in self._gone:
                    raise self._gone[host]

    def _others(self) -> list[int]:
        return [host for index, host in enumerate(self.hosts) if index != self.me]

    # --- entering, and small operations ------------------------------------------------------------------------------

    async def _entered(self) -> None:
        """Waits for an operation that all have entered, and that takes more than what comes along with signatures."""
        self._enters = True
        try:
            while not self._look():
                self._changed.clear()
                await self._changed.wait()
        finally:
            self._enters = False

    def _look(self) -> bool:
        """Goes on as far as possible without waiting. Returns whether the task is needed.

        Raises:
            Gone, HocketError: as `_until`.
        """
        self._looks = True
        try:
            while True:
                if not self._all_entered():
                    self._check(self._entry.missing)
                    return False
                texts = self._entry.texts()
                if texts is None:
                    raise Gone
                plan = plan_for(texts, self.board.block_nbytes)
                if isinstance(plan, HocketError) or not self._entry.is_small(texts):
                    return True
                if not self._finish_small(plan):
                    self._check(self._entry.not_carried)
                    return False
        finally:
            self._looks = False
            if self._must_ring:  # whoever waits for signatures; at the end of a small operation all have been woken
                self._ring()

    def _all_entered(self) -> bool:
        entry, number = self._entry, self.number
        if entry.sign_for_others():
            self._must_ring = True
        if not entry.has_told():
            for host, header in entry.headers():
                self.around.send(host, header)
            # A member that signs right now, after we looked for headers to send, is told of in the next turn.
            if entry.has_told():
                self.around.barrier_entered(number)
            elif self._timer is None and entry.begun:
                self._timer = asyncio.get_running_loop().call_later(PARTIAL_AFTER_S, self._lose_patience, number)
        return entry.has_told() and self.board.all_signed(number)

    def _lose_patience(self, number: int) -> None:
        self._timer = None
        self._entry.impatient = number == self.number
        self.pulse()

    def _finish_small(self, plan: Plan) -> bool:
        """Ends an operation whose data came along with the signatures; False where it has to wait for more."""
        number, before = self.number, self._entry.before
        shares = self._entry.shares()
        if shares is None or not may_write(self.board, self.locals, False, number, 0, before):
            return False
        if self.around.is_over(number):
            raise Gone
        if plan.nblocks:
            self._entry.carrier.finish(plan, number, shares)
            self._announce(plan, 0)
        elif plan.kind == "barrier":
            self.around.barrier_left(number)
        self.feedback.keep()
        self.inbox.pass_by(number)
        self._pass_on(plan.nblocks)
        return True

    def _announce(self, plan: Plan, block: int) -> None:
        """What other hosts have to do with a block is done."""
        board, at = self.board, stage(self.number, block + 1)
        for index, members in enumerate(self.members):
            if index != self.me:
                for member in members:
                    board.set_posted(member, at)
        if plan.shapes[0].reduces:
            board.set_result(at)
        board.set_bridge_read(at)

    # --- operations in blocks ----------------------------------------------------------------------------------------

    async def _operation(self) -> int:
        """Carries out an operation that all have entered. Returns how many blocks it had."""
        texts = self._entry.texts()
        if texts is None:
            raise Gone
        plan = plan_for(texts, self.board.block_nbytes)
        if isinstance(plan, HocketError):
            self.feedback.drop()
            return 0
        await self._blocks(Exchange(self.board, plan, self.number, self.members))
        return plan.nblocks

    # --- one block ---------------------------------------------------------------------------------------------------

    async def _blocks(self, exchange: Exchange) -> None:
        """All blocks, `BLOCKS_IN_FLIGHT` at a time: while one is on the wire, the next is reduced or posted."""
        plan, under_way = exchange.plan, deque[asyncio.Task[None]]()
        loop = asyncio.get_running_loop()
        try:
            for block in range(plan.nblocks):
                if len(under_way) == BLOCKS_IN_FLIGHT:
                    await self._finish_block(plan, block - BLOCKS_IN_FLIGHT, under_way)
                under_way.append(loop.create_task(self._block(exchange, block)))
            for block in range(plan.nblocks - len(under_way), plan.nblocks):
                await self._finish_block(plan, block, under_way)
        finally:
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)

    async def _finish_block(self, plan: Plan, block: int, under_way: "deque[asyncio.Task[None]]") -> None:
        await under_way[0]
        under_way.popleft()
        self._announce(plan, block)
        self.around.ring()
        self._give_credit(plan, block)

    async def _block(self, exchange: Exchange, block: int) -> None:
        plan, number, board, before = exchange.plan, self.number, self.board, self._entry.before
        await self._until(lambda: self._ready_to_send(plan, block))
        if not plan.shapes[0].reduces:
            await self._until(lambda: may_write(board, self.locals, False, number, block, before))
        await self._await_credit(block)
        if exchange.kind in CONVERGING and block == plan.nblocks - 1:
            for host in self._others():
                self.around.send(host, Posted(self.around.group, self.around.channel, number))
        await self._run_schedule(exchange, block)
        if exchange.kind in CONVERGING and block == plan.nblocks - 1:
            await self._until(lambda: not self._not_posted(), self._not_posted)

    def _not_posted(self) -> list[int]:
        return [host for host in self._others() if host not in self._heard.posted.get(self.number, ())]

    def _ready_to_send(self, plan: Plan, block: int) -> bool:
        board, number = self.board, self.number
        if plan.family in (Family.REDUCE, Family.REDUCE_SCATTER):
            return all(board.reduced(m) >= stage(number, block + 1) for m in self.locals)
        return all(has_posted(board, plan, member, number, block) for member in self.locals)

    async def _await_credit(self, block: int) -> None:
        """A host may be `BLOCK_WINDOW` blocks ahead of the others: what comes early must be kept there."""
        if block >= BLOCK_WINDOW:
            needed, number = block - BLOCK_WINDOW + 1, self.number

            def slow() -> list[int]:
                return [host for host in self._others() if self._heard.credits.get((host, number), 0) < needed]

            await self._until(lambda: not slow(), slow)

    def _give_credit(self, plan: Plan, block: int) -> None:
        if plan.nblocks > BLOCK_WINDOW:
            for host in self._others():
                self.around.send(host, Credit(self.around.group, self.around.channel, self.number, block))

    async def _run_schedule(self, exchange: Exchange, block: int) -> None:
        sends: dict[int, int] = {}
        recvs: dict[int, int] = {}
        for choice, views_of in phases(exchange, block, self.feedback, self.me):
            await self._run_rounds(exchange, block, choice.rounds(self.me), views_of, sends, recvs)

    async def _run_rounds(
        self,
        exchange: Exchange,
        block: int,
        rounds: Iterable[Round],
        views_of: Callable[[int], list[Bytes]],
        sends: dict[int, int],
        recvs: dict[int, int],
    ) -> None:
        for step in rounds:
            outgoing = _views(views_of(chunk) for chunk in step.send)
            if step.to is not None and outgoing:
                at = sends[step.to] = sends.get(step.to, 0) + 1
                chunk = Chunk(self.around.group, self.around.channel, self.number, block, at)
                self.around.send(self.hosts[step.to], chunk, [view.data for view in outgoing])
            incoming = _views(views_of(chunk) for chunk in step.recv)
            if step.source is not None and incoming:
                at = recvs[step.source] = recvs.get(step.source, 0) + 1
                await self._receive(exchange, step, (self.hosts[step.source], self.number, block, at), incoming)
            elif step.to is not None and outgoing:
                await self.around.sent(self.hosts[step.to])

    async def _receive(
        self, exchange: Exchange, step: Round, key: tuple[int, int, int, int], incoming: list[Bytes]
    ) -> None:
        if self.around.is_over(self.number):
            raise Gone
        if step.action is Action.STORE or exchange.kind is Kind.ALL_GATHER:
            await self.inbox.take(key, [view.data for view in incoming])
            if step.to is not None:
                await self.around.sent(self.hosts[step.to])
            return
        chunk, buffer = await self.inbox.receive(key, sum(map(len, incoming)))
        if step.to is not None:  # what is sent in this round may be what is reduced into
            await self.around.sent(self.hosts[step.to])
        start = 0
        for view in incoming:
            partial = np.frombuffer(chunk[start : start + len(view)], np.uint8)
            combine(exchange.typed(view), exchange.typed(partial), exchange.plan.op)
            start += len(view)
        self.inbox.give_back(buffer)


def _views(found: Iterable[list[Bytes]]) -> list[Bytes]:
    return [view for views in found for view in views if len(view)]
