"""Point-to-point messages of one client in one group: who gets what, in which order. Pure: calls in, effects out.

**Matching.** A message goes to the earliest posted receive of its channel and tag that names its sender or nobody. A
receive gets the earliest message of its sender, whatever their sizes; from any source, the one that arrived first.

**Sizes.** A message of at most `EAGER_NBYTES` travels with its announcement and its send is over at once, as long as no
more than `EAGER_WINDOW_NBYTES` are under way to that rank. Any other is announced first; its receiver, once it has a
buffer for it, grants `GRANT_NBYTES` ahead of what has arrived, and the bytes come in pieces. Its send is over when all
pieces are written.

**Ordering.** The shell serialises all calls and performs effects in order. Messages of one rank to another arrive in
the order in which they were sent; those of different pairs may interleave. `Mailbox.sink` is called when the head of a
frame with a payload is in, `Mailbox.handle_message` with the same message when the payload is; no other message of this
group comes in between, any other call may. While the shell writes into its buffer a receive does not finish: if it is
given up then, it ends with the frame. While the shell has pieces of its memory (`Mailbox.written`) a send does not
finish.

**Errors.** Where dtype or size differ, the receive ends with `MismatchError`, its buffer untouched, the message
consumed; the send ends with the same error, unless it was eager and is over. What is given up (cancelled, or late)
before its message is under way leaves no trace: the offer is withdrawn, the receive forgotten, and an eager message
that was just coming in is kept for the next receive. What is given up midway ends on both sides, on the other one
with `AbortedError`, unless all bytes are out or in: then it completes. A receive whose buffer was written in part
ends with an error that is not ``array_intact``.

**Oneself.** Messages to the own rank take the same way, except that they never leave.
"""

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass

from hocket.client.inbox import Fill, Inbox
from hocket.client.outbox import Outbox
from hocket.client.transfer import Call, Effect, Finish, Ledger, Operation, P2PMessage, Send, Sending, own
from hocket.protocol.errors import HocketError, WireError
from hocket.protocol.messages import Message, P2PData, P2POffer, P2PRefuse, P2PTake, P2PWithdraw

__all__ = ["Effect", "Finish", "Mailbox", "Pending", "Send"]


@dataclass(frozen=True, slots=True)
class Pending:
    """An operation that is not over, for people to see. ``peer`` is None for a receive from any source."""

    operation: str
    peer: int | None
    channel: str
    tag: int
    dtype: str
    count: int
    nbytes: int
    moved_nbytes: int
    since_s: float


class Mailbox:
    """The sends and receives of rank ``rank`` in group number ``group``, which has ``size`` members.

    A ``handle`` is whatever the caller wants back in `Finish`: hashable, and unlike those of other open operations.
    ``deadline_s`` is a point on the clock of ``now`` (infinity: never).
    """

    def __init__(self, group: int, rank: int, size: int) -> None:
        self.group, self.rank, self.size = group, rank, size
        self._ledger = Ledger()
        self._outbox = Outbox(group, rank, self._ledger)
        self._inbox = Inbox(group, rank, self._ledger)
        self._fill: Fill | None = None

    # --- operations --------------------------------------------------------------------------------------------------

    def send(
        self,
        handle: Hashable,
        data: memoryview,
        dst: int,
        tag: int,
        channel: str,
        dtype: str,
        count: int,
        deadline_s: float,
        now: float,
    ) -> list[Effect]:
        """Sends ``data``, the flat bytes (``uint8[nbytes]``) of ``count`` elements of ``dtype``.

        They must stay as they are until the `Finish`. ``deadline_s - now`` is the limit that a `DeadlineError` names.
        """
        assert 0 <= dst < self.size, f"rank {dst} in a group of {self.size}"
        assert data.nbytes == len(data), "bytes are sent"
        call = Call(handle, data, dst, tag, channel, dtype, count, deadline_s, now)
        return self._settle(self._outbox.send(call, dst))

    def recv(
        self,
        handle: Hashable,
        buffer: memoryview,
        src: int | None,
        tag: int,
        channel: str,
        dtype: str,
        count: int,
        deadline_s: float,
        now: float,
    ) -> list[Effect]:
        """Receives into ``buffer``, the flat bytes (``uint8[nbytes]``) of ``count`` elements of ``dtype``.

        ``src`` None is any source. The buffer belongs to the mailbox until the `Finish`.
        """
        assert src is None or 0 <= src < self.size, f"rank {src} in a group of {self.size}"
        assert buffer.nbytes == len(buffer) and not buffer.readonly, "bytes are received"
        return self._settle(self._inbox.recv(Call(handle, buffer, src, tag, channel, dtype, count, deadline_s, now)))

    def cancel(self, handle: Hashable, error: HocketError) -> list[Effect]:
        """Gives up an operation, which ends with ``error``, now or soon, unless it completes or is over already."""
        operation = self._ledger.find(handle)
        return [] if operation is None else self._settle(self._give_up(operation, error))

    def tick(self, now: float) -> list[Effect]:
        """Gives up what is late, with `DeadlineError`."""
        effects: list[Effect] = []
        while (operation := self._ledger.pop_due(now)) is not None:
            others = tuple(rank for rank in range(self.size) if rank != self.rank)
            effects += self._give_up(operation, operation.late(others))
        return self._settle(effects)

    @property
    def deadline(self) -> float | None:
        """When `tick` is next to be called."""
        return self._ledger.deadline

    def _give_up(self, operation: Operation, error: HocketError) -> list[Effect]:
        if isinstance(operation, Sending):
            return self._outbox.give_up(operation, error)
        return self._inbox.give_up(operation, error)

    # --- the wire ----------------------------------------------------------------------------------------------------

    def sink(self, message: Message, nbytes: int) -> list[memoryview] | None:
        """Where the payload of a message goes; None: it is dropped.

        Raises:
            WireError: it contradicts what was said before, or what the message itself says; the connection is to be
                closed. Nothing has changed.
        """
        assert self._fill is None, "a frame began within another one"
        if self._ledger.ended is not None:
            return None
        self._fill = self._inbox.aim(self._checked(message), nbytes)
        return None if self._fill.target is None else [self._fill.target]

    def handle_message(self, message: Message) -> list[Effect]:
        """Acts on a message, whose payload, if it has one, is where `sink` said.

        Raises:
            WireError: as `sink`.
        """
        fill, self._fill = self._fill, None
        if fill is not None:
            assert fill.message is message, "a frame ended within another one"
            return self._settle(self._land(fill.message, fill))
        if self._ledger.ended is not None:
            return []
        return self._settle(self._land(self._checked(message), None))

    def written(self, ticket: int) -> list[Effect]:
        """The shell has no more use for the memory of a `Send`."""
        return self._settle(self._outbox.written(ticket))

    def end(self, error: HocketError, disconnected: bool = False) -> list[Effect]:
        """The epoch has ended: all that is pending, or called later, ends with a copy of the first ``error`` given.

        Nothing is sent any more. Eager messages that are here already can still be received. What has memory that the
        shell reads or writes ends when that is over, or, where it never will be because the connection to our worker is
        gone (``disconnected``), at once.
        """
        if self._ledger.ended is None:
            self._ledger.ended = error
        ended = self._ledger.ended
        self._outbox.end(disconnected)
        self._inbox.end()
        if disconnected:
            self._fill = None
        effects: list[Effect] = []
        for operation in self._ledger.operations():
            operation.error = operation.error or own(ended)
            if disconnected or not operation.in_use:
                effects += self._ledger.finish(operation, operation.error)
        return effects

    def _checked(self, message: Message) -> P2PMessage:
        if not isinstance(message, P2PMessage):
            raise WireError(f"{type(message).__name__} is no message from point to point")
        answers = isinstance(message, P2PTake | P2PRefuse)
        ours, other = (message.src, message.dst) if answers else (message.dst, message.src)
        if message.group != self.group or ours != self.rank or other == ours or not 0 <= other < self.size:
            route = f"group {message.group}, {message.src} to {message.dst}"
            raise WireError(f"{type(message).__name__} ({route}) is not for rank {self.rank} of group {self.group}")
        return message

    def _land(self, message: P2PMessage, fill: Fill | None) -> list[Effect]:
        match message:
            case P2POffer():
                return self._inbox.offered(message, fill)
            case P2PTake():
                return self._outbox.taken(message)
            case P2PData():
                return self._inbox.arrived(message, fill)
            case P2PRefuse():
                return self._outbox.refused(message)
            case P2PWithdraw():
                return self._inbox.withdrawn(message)

    # --- oneself -----------------------------------------------------------------------------------------------------

    def _settle(self, effects: list[Effect]) -> list[Effect]:
        """Delivers what is for ourselves; the rest is for the shell."""
        rest: list[Effect] = []
        waiting = deque(effects)
        while waiting:
            effect = waiting.popleft()
            if isinstance(effect, Send) and effect.message.src == effect.message.dst:
                waiting += self._loop_back(effect)
            else:
                rest.append(effect)
        return rest

    def _loop_back(self, sent: Send) -> list[Effect]:
        fill = None
        if sent.payload is not None:
            fill = self._inbox.aim(sent.message, len(sent.payload))
            if fill.target is not None:
                fill.target[:] = sent.payload
        effects = self._land(sent.message, fill)
        return effects if sent.ticket is None else [*effects, *self._outbox.written(sent.ticket)]

    # --- seeing ------------------------------------------------------------------------------------------------------

    def pending(self) -> tuple[Pending, ...]:
        """What is not over, oldest first."""
        return tuple(_view(operation) for operation in self._ledger.operations())

    def check(self) -> None:
        """Asserts what holds between two calls."""
        self._outbox.check()
        self._inbox.check()


def _view(operation: Operation) -> Pending:
    call, name = operation.call, "send" if isinstance(operation, Sending) else "recv"
    what = call.peer, call.channel, call.tag, call.dtype, call.count, call.nbytes
    return Pending(name, *what, operation.moved, call.since_s)
