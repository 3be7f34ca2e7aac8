"""What the two halves of a mailbox share: effects, operations, and the ledger of those that are not over. Pure."""

import heapq
from collections.abc import Hashable
from dataclasses import dataclass

from hocket.protocol.errors import AbortedError, DeadlineError, HocketError, MismatchError, Ranks, WireError, copy_of
from hocket.protocol.limits import EAGER_OVERHEAD_NBYTES, GRANT_NBYTES, PIECE_NBYTES
from hocket.protocol.messages import P2PData, P2POffer, P2PRefuse, P2PTake, P2PWithdraw

P2PMessage = P2POffer | P2PTake | P2PData | P2PRefuse | P2PWithdraw

NOT_TAKEN = -1
"""Granted bytes of an offer that nobody has taken."""
SLACK = 64


def eager_cost(nbytes: int) -> int:
    """What an eager message counts in its sender's window: empty ones take memory, too."""
    return nbytes + EAGER_OVERHEAD_NBYTES


# --- effects ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Send:
    """A message for our worker, to be sent in the order of the effects.

    With a ticket, ``payload`` is the caller's own memory, and the shell reports the ticket as written as soon as it has
    no more use for that. Without one it is a copy, or None.
    """

    message: P2PMessage
    payload: memoryview | None = None
    ticket: int | None = None


@dataclass(frozen=True, slots=True)
class Finish:
    """An operation is over, and its memory the caller's again. ``source`` is whose message a receive got."""

    handle: Hashable
    error: HocketError | None = None
    source: int | None = None


Effect = Send | Finish


# --- operations ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Call:
    """What the caller of a send or receive said. ``memory`` holds ``count`` elements of ``dtype`` as flat bytes."""

    handle: Hashable
    memory: memoryview
    peer: int | None
    tag: int
    channel: str
    dtype: str
    count: int
    deadline_s: float
    since_s: float

    @property
    def nbytes(self) -> int:
        """Size of the message."""
        return len(self.memory)

    @property
    def limit_s(self) -> float:
        """Seconds that it had when it began, without the noise of subtracting two times."""
        return round(self.deadline_s - self.since_s, 6)


@dataclass(slots=True, eq=False)
class Sending:
    """A send that waits to be taken, or whose pieces are under way."""

    call: Call
    dst: int
    number: int
    granted: int = NOT_TAKEN
    moved: int = 0
    """Bytes that the shell has been given."""
    in_use: int = 0
    """Pieces that it has not written yet."""
    error: HocketError | None = None
    """Why it has failed, where it is not over because its memory is still in use."""

    @property
    def complete(self) -> bool:
        """Whether the receiver took it, and all of it is with the shell."""
        return self.granted != NOT_TAKEN and self.moved == self.call.nbytes

    def grant(self, granted: int) -> None:
        """Notes how much may go. Raises `WireError` unless that is more than before, and not too much."""
        if not self.granted < granted <= self.call.nbytes:
            raise WireError(f"{granted} bytes granted of {self.call.nbytes}, {self.granted} were before")
        self.granted = granted

    def next_piece(self) -> tuple[int, memoryview] | None:
        """Offset and bytes of the next piece; None where nothing may go."""
        offset, nbytes = self.moved, min(PIECE_NBYTES, self.granted - self.moved)
        if nbytes <= 0:
            return None
        self.moved += nbytes
        return offset, self.call.memory[offset : offset + nbytes]

    def late(self, others: Ranks) -> DeadlineError:
        """What it ends with at its deadline. ``others`` are all ranks but ours."""
        state = f"got no further than {self.moved} of {self.call.nbytes} bytes" if self.moved else "was not received"
        return DeadlineError(self.call.limit_s, (self.dst,), f"send to {self.dst} (tag {self.call.tag}) {state}")


@dataclass(slots=True, eq=False)
class Receiving:
    """A receive that waits for a message (``incoming`` None), or whose message is under way."""

    call: Call
    order: int
    """Its place among all receives."""
    incoming: "Incoming | None" = None
    in_use: int = 0
    """1 while the shell writes into the buffer, between `sink` and `handle_message`."""
    touched: bool = False
    """Whether the buffer no longer holds what it held."""
    error: HocketError | None = None
    """As that of `Sending`."""

    @property
    def moved(self) -> int:
        """Bytes that have come."""
        return self.incoming.received if self.incoming else 0

    def fits(self, offer: P2POffer) -> bool:
        """Whether dtype and number of elements agree."""
        return (offer.dtype, offer.count, offer.nbytes) == (self.call.dtype, self.call.count, self.call.nbytes)

    def mismatch(self, offer: P2POffer) -> MismatchError:
        """What both sides are told where they do not."""
        sent = f"send({offer.dtype}[{offer.count}], {offer.nbytes} bytes)"
        wanted = f"recv({self.call.dtype}[{self.call.count}], {self.call.nbytes} bytes)"
        return MismatchError((((offer.src,), sent), ((offer.dst,), wanted)))

    def late(self, others: Ranks) -> DeadlineError:
        """What it ends with at its deadline. ``others`` are all ranks but ours."""
        src, tag = self.call.peer, self.call.tag
        if self.incoming is not None:
            offer = self.incoming.offer
            text = f"only {self.moved} of {offer.nbytes} bytes came from rank {offer.src} (tag {tag})"
            return DeadlineError(self.call.limit_s, (offer.src,), text)
        text = f"nothing came from {'any rank' if src is None else f'rank {src}'} (tag {tag})"
        return DeadlineError(self.call.limit_s, others if src is None else (src,), text)


Operation = Sending | Receiving


@dataclass(slots=True, eq=False)
class Incoming:
    """A message that was announced to us and is not consumed."""

    offer: P2POffer
    order: int
    """Its place among all that arrived."""
    body: memoryview | None = None
    """The bytes of an eager one, where they are not in the receive's buffer already."""
    receiving: Receiving | None = None
    """Who takes it. None before it is taken, and after the receive was given up."""
    match: int = 0
    """Its place among all that were matched with a receive."""
    granted: int = NOT_TAKEN
    received: int = 0

    @property
    def complete(self) -> bool:
        """Whether all of it is here."""
        return self.received == self.offer.nbytes

    def extend(self) -> bool:
        """Grants more, in steps of half the window. Returns whether it did."""
        if self.granted == self.offer.nbytes or self.granted - self.received > GRANT_NBYTES // 2:
            return False
        self.granted = min(self.offer.nbytes, self.received + GRANT_NBYTES)
        return True

    def given_up(self) -> AbortedError:
        """What its receive ends with where the sender does not go on."""
        offer, after = self.offer, f" after {self.received} of {self.offer.nbytes} bytes" if self.received else ""
        return AbortedError(offer.src, f"it gave up its send to {offer.dst} (tag {offer.tag}){after}")


# --- ledger ----------------------------------------------------------------------------------------------------------


class Ledger:
    """The operations that are not over, by handle and by deadline, and how the epoch ended, if it has."""

    def __init__(self) -> None:
        self.ended: HocketError | None = None
        self._open: dict[Hashable, Operation] = {}
        self._due: list[tuple[float, int, Operation]] = []
        self._serial = 0

    def next_serial(self) -> int:
        """A number above all before."""
        self._serial += 1
        return self._serial

    def open(self, operation: Operation) -> None:
        """Notes a new operation."""
        assert operation.call.handle not in self._open, f"handle {operation.call.handle!r} is in use"
        self._open[operation.call.handle] = operation

    def find(self, handle: Hashable) -> Operation | None:
        """The operation with this handle, if it is not over."""
        return self._open.get(handle)

    def operations(self) -> tuple[Operation, ...]:
        """All that are not over, oldest first."""
        return tuple(self._open.values())

    def finish(self, operation: Operation, error: HocketError | None = None, source: int | None = None) -> list[Effect]:
        """Ends an operation."""
        del self._open[operation.call.handle]
        if error is not None and isinstance(operation, Receiving) and operation.touched:
            error = own(error, intact=False)
        return [Finish(operation.call.handle, error, source)]

    def watch(self, operation: Operation) -> None:
        """Notes the deadline of an operation, unless it is over already."""
        if self.is_open(operation) and operation.call.deadline_s != float("inf"):
            heapq.heappush(self._due, (operation.call.deadline_s, self.next_serial(), operation))
        if len(self._due) > 2 * len(self._open) + SLACK:  # what ends in time would stay until its deadline
            self._due = [entry for entry in self._due if self.is_open(entry[2])]
            heapq.heapify(self._due)

    @property
    def deadline(self) -> float | None:
        """When the next operation is due; None where none ever is."""
        while self._due and not self.is_open(self._due[0][2]):
            heapq.heappop(self._due)
        return self._due[0][0] if self._due else None

    def pop_due(self, now: float) -> Operation | None:
        """Takes out the deadline of one operation that is due, the earliest first; the operation stays open."""
        due = self.deadline
        return heapq.heappop(self._due)[2] if due is not None and due <= now else None

    def is_open(self, operation: Operation) -> bool:
        """Whether an operation is not over."""
        return self._open.get(operation.call.handle) is operation


def own(error: HocketError, intact: bool = True) -> HocketError:
    """A copy of an error for one operation, so that its place does not show on another one's."""
    mine = copy_of(error)
    mine.__cause__ = error.__cause__
    mine.array_intact = error.array_intact and intact
    return mine
