"""The worker's part in a group that spans hosts: one task per channel, one operation after the other.

    headers (who has entered, with which signature) -> the same plan on every host -> for each block: wait for this
    host's posts or reductions, run the schedule with the other hosts, announce the outcome on the board

The bridge writes the lines of members on other hosts. It obeys the rules of `program`: slots are written only when all
local readers are done with them, and nothing is reused before what was sent from it has left.
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from hocket.fabric.board import Board, Bytes, stage
from hocket.fabric.dtypes import numpy_dtype
from hocket.fabric.kernels import combine, reduce_into
from hocket.fabric.plan import Plan, plan_for
from hocket.fabric.program import all_left, has_posted, may_write, result_view
from hocket.protocol.dtypes import accumulator
from hocket.protocol.errors import HocketError, WireError
from hocket.protocol.limits import BLOCK_WINDOW
from hocket.protocol.messages import Chunk, Credit, Header, Message, Posted
from hocket.protocol.signature import Family
from hocket.worker.compression import Feedback, pack, phases, unpack
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

    signatures: dict[int, dict[int, bytes]] = field(default_factory=dict)
    partials: dict[int, dict[int, bytes]] = field(default_factory=dict)
    posted: dict[int, set[int]] = field(default_factory=dict)
    credits: dict[tuple[int, int], int] = field(default_factory=dict)

    def forget(self, number: int) -> None:
        for table in (self.signatures, self.partials, self.posted):
            for old in [key for key in table if key <= number]:
                del table[old]
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
        self.number = 1
        self._heard = _Heard()
        self._gone: dict[int, HocketError] = {}
        self._before = 0
        self._changed = asyncio.Event()
        self._sent_header: set[int] = set()
        self._partial = 0
        self._feedback = Feedback()

    # --- what happens around -----------------------------------------------------------------------------------------

    def pulse(self) -> None:
        """Something on the board, a link or a verdict has changed: look again."""
        self._changed.set()

    def heard(self, host: int, message: Message, nbytes: int) -> None:
        """A message of another host for this channel."""
        if isinstance(message, Chunk):
            self.inbox.arrived(host, message, nbytes)
        elif isinstance(message, Header):
            table = self._heard.signatures.setdefault(message.number, {})
            allowed = self.members[self.hosts.index(host)]
            table.update((r, s) for r, s in zip(message.ranks, message.signatures, strict=False) if r in allowed)
            if message.partial:
                self._heard.partials.setdefault(message.number, {})[host] = message.partial
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
        while True:
            try:
                await self._operation()
            except Gone:
                self._before = -1
            except HocketError as error:
                self._before = -1
                if not self.around.is_over(self.number):
                    self.around.failed(self.number, error)
            self._feedback.drop()
            await self._leave()

    async def _leave(self) -> None:
        number = self.number
        await self.inbox.leave(number)
        for host in self._others():
            with contextlib.suppress(HocketError):  # a link that has ended sends nothing any more
                await self.around.sent(host)
        self._heard.forget(number)
        self._sent_header.clear()
        self.board.set_bridge_read(stage(number + 1, 0))
        self.number = number + 1
        self.around.ring()

    async def _until(self, condition: Callable[[], bool], owing: Callable[[], list[int]] = list) -> None:
        """Waits until ``condition()`` holds; ``owing()`` are the other hosts that it still waits for.

        Raises:
            Gone: a verdict has ended the operation first.
            HocketError: the link to a host that owes something has ended.
        """
        while not condition():
            if self.around.is_over(self.number):
                raise Gone
            for host in owing():
                if host in self._gone:
                    raise self._gone[host]
            self._changed.clear()
            await self._changed.wait()

    def _others(self) -> list[int]:
        return [host for index, host in enumerate(self.hosts) if index != self.me]

    # --- one operation -----------------------------------------------------------------------------------------------

    async def _operation(self) -> None:
        number, board = self.number, self.board
        await self._enter()
        texts = tuple(board.signature(member, number) for member in range(board.size))
        if None in texts:
            raise Gone
        plan = plan_for(tuple(text for text in texts if text is not None), board.block_nbytes)
        if isinstance(plan, HocketError):
            self._before = 0
            return
        if plan.kind == "barrier":
            self.around.barrier_left(number)
        if plan.eager:
            await self._combine(plan)
        else:
            await self._blocks(Exchange(board, plan, number, self.members))
        self._before = plan.nblocks
        self._feedback.keep()

    async def _enter(self) -> None:
        """Tells the others who has entered here, and hears it from them."""
        timer = asyncio.get_running_loop().call_later(PARTIAL_AFTER_S, self._arm_partial, self.number)
        self._partial = 0
        try:
            await self._until(self._all_entered, self._not_entered)
        finally:
            timer.cancel()

    def _arm_partial(self, number: int) -> None:
        self._partial = number
        self.pulse()

    def _all_entered(self) -> bool:
        self._write_remote_signatures()
        self._send_headers()
        # A member that signs right now, after we looked for headers to send, is told of in the next turn.
        return len(self._sent_header) == len(self.locals) and self.board.all_signed(self.number)

    def _not_entered(self) -> list[int]:
        """Other hosts that have members to enter yet, once one of ours has."""
        signed, number = self.board.signed, self.number
        if all(signed(rank) < number for rank in self.locals):
            return []
        return [
            host
            for host, members in zip(self.hosts, self.members, strict=True)
            if members != self.locals and any(signed(rank) < number for rank in members)
        ]

    def _write_remote_signatures(self) -> None:
        board, number = self.board, self.number
        if self._before < 0 and not all_left(board, self.locals, number - 2):
            return  # a member here may still have to read the signatures that these are written over
        table = self._heard.signatures.get(number, {})
        fresh = [rank for rank in table if board.signed(rank) < number]
        for rank in fresh:
            board.sign(rank, number, table[rank], time.monotonic_ns())
        if fresh:
            self.around.ring()

    def _send_headers(self) -> None:
        board, number = self.board, self.number
        entered = [rank for rank in self.locals if board.signed(rank) >= number]
        if len(entered) < len(self.locals) and self._partial != number:
            return
        fresh = [rank for rank in entered if rank not in self._sent_header]
        texts = [board.signature(rank, number) for rank in fresh]
        if not fresh or None in texts:
            return
        partial = self._reduce_locals() if len(entered) == len(self.locals) else b""
        if partial is None:
            return
        self._sent_header.update(fresh)
        signatures = tuple(text for text in texts if text)
        header = Header(self.around.group, self.around.channel, number, tuple(fresh), signatures, partial)
        for host in self._others():
            self.around.send(host, header)
        if len(entered) == len(self.locals):
            self.around.barrier_entered(number)

    # --- small reductions --------------------------------------------------------------------------------------------

    def _reduce_locals(self) -> bytes | None:
        """What the members here have reduced of a small operation; None until all have posted.

        Nothing for another operation, or where they do not agree among themselves: everybody finds that out.
        """
        board, number = self.board, self.number
        texts = tuple(board.signature(rank, number) for rank in self.locals)
        plan = plan_for(tuple(text for text in texts if text is not None), board.block_nbytes)
        if None in texts or isinstance(plan, HocketError) or not plan.eager:
            return b""
        if any(board.posted(rank) < stage(number, 1) for rank in self.locals):
            return None
        nbytes, dtype = plan.shapes[0].piece(0)[1], numpy_dtype(plan.first.dtype)
        acc = np.empty(nbytes // dtype.itemsize, numpy_dtype(accumulator(plan.first.dtype, plan.op)))
        reduce_into(acc, [board.slot(rank, number)[:nbytes].view(dtype) for rank in self.locals], plan.op)
        partial = pack(plan.first, acc, self._feedback) if plan.first.compression else acc.tobytes()
        self._heard.partials.setdefault(number, {})[self.hosts[self.me]] = partial
        return partial

    async def _combine(self, plan: Plan) -> None:
        """Puts the hosts' partial results together, in the order of hosts, which is the same everywhere."""
        board, number = self.board, self.number
        await self._until(lambda: may_write(board, self.locals, False, number, 0, self._before))
        elements = plan.shapes[0].piece(0)[1] // plan.first.itemsize
        acc = result_view(board, plan, number, 0, elements)
        partials = self._heard.partials.get(number, {})
        if plan.first.compression:
            unpack(plan.first, [partials.get(host, b"") for host in self.hosts], acc)
            self._publish(plan, 0)
            return
        for index, host in enumerate(self.hosts):
            partial = np.frombuffer(partials.get(host, b""), np.uint8)
            if len(partial) != acc.nbytes:
                raise WireError(f"host {host} sent {len(partial)} bytes of a result of {acc.nbytes}")
            if index == 0:
                np.copyto(acc.view(np.uint8), partial)
            else:
                combine(acc, partial.view(acc.dtype), plan.op)
        self._publish(plan, 0)

    def _publish(self, plan: Plan, block: int) -> None:
        """What other hosts have to do with a block is done."""
        board, at = self.board, stage(self.number, block + 1)
        for index, members in enumerate(self.members):
            if index != self.me:
                for member in members:
                    board.set_posted(member, at)
        if plan.shapes[0].reduces:
            board.set_result(at)
        board.set_bridge_read(at)
        self.around.ring()

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
        self._publish(plan, block)
        self._give_credit(plan, block)

    async def _block(self, exchange: Exchange, block: int) -> None:
        plan, number, board = exchange.plan, self.number, self.board
        await self._until(lambda: self._ready_to_send(plan, block))
        if not plan.shapes[0].reduces:
            await self._until(lambda: may_write(board, self.locals, False, number, block, self._before))
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
        for choice, views_of in phases(exchange, block, self._feedback, self.me):
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
