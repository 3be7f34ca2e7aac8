"""The receiving half of a mailbox: what comes is checked, matched, placed, and its sender told. Pure."""

from dataclasses import dataclass, field

from hocket.client.matching import Matching
from hocket.client.transfer import (
    NOT_TAKEN,
    Call,
    Effect,
    Incoming,
    Ledger,
    P2PMessage,
    Receiving,
    Send,
    eager_cost,
    own,
)
from hocket.protocol.dtypes import DTYPES
from hocket.protocol.errors import (
    AbortedError,
    DeadlineAbortedError,
    DeadlineError,
    HocketError,
    WireError,
    error_to_facts,
)
from hocket.protocol.limits import EAGER_NBYTES, EAGER_WINDOW_NBYTES, GRANT_NBYTES, PAYLOAD_NBYTES
from hocket.protocol.messages import P2PData, P2POffer, P2PRefuse, P2PTake, P2PWithdraw


@dataclass(slots=True)
class Inlet:
    """One rank's messages to us: the last number, what its eager ones take here, and its offers that are not over."""

    last_number: int = 0
    held_nbytes: int = 0
    offers: dict[int, Incoming] = field(default_factory=dict)
    """Those that are not eager: waiting, under way, or given up with granted bytes still to come."""

    def check(self, offer: P2POffer, payload_nbytes: int) -> None:
        """Raises `WireError` where a new offer contradicts itself, its frame, its window or what came before."""
        if offer.number != self.last_number + 1:
            raise WireError(f"rank {offer.src} sent message {offer.number} after {self.last_number}")
        if not 0 <= offer.nbytes <= PAYLOAD_NBYTES or offer.count < 0 or not _sizes_agree(offer):
            raise WireError(f"message of {offer.dtype}[{offer.count}] in {offer.nbytes} bytes")
        if payload_nbytes != (offer.nbytes if offer.eager else 0):
            kind = "an eager message" if offer.eager else "the offer of a message"
            raise WireError(f"{payload_nbytes} bytes came with {kind} of {offer.nbytes}")
        if offer.eager and offer.nbytes > EAGER_NBYTES:
            raise WireError(f"eager message of {offer.nbytes} bytes, allowed are {EAGER_NBYTES}")
        if offer.eager and self.held_nbytes + eager_cost(offer.nbytes) > EAGER_WINDOW_NBYTES:
            raise WireError(f"rank {offer.src} sent more than {EAGER_WINDOW_NBYTES} bytes ahead")

    def admit(self, incoming: Incoming) -> None:
        """Notes a new message."""
        self.last_number = incoming.offer.number
        if incoming.offer.eager:
            self.held_nbytes += eager_cost(incoming.offer.nbytes)
        else:
            self.offers[incoming.offer.number] = incoming

    def consume(self, offer: P2POffer) -> None:
        """Forgets a message that is over on our side."""
        if offer.eager:
            self.held_nbytes -= eager_cost(offer.nbytes)
        else:
            self.offers.pop(offer.number, None)

    def under_way(self, piece: P2PData, nbytes: int) -> Incoming:
        """The message that a piece belongs to. Raises `WireError` unless the piece was granted and is the next one."""
        incoming = self.offers.get(piece.number)
        if incoming is None or incoming.granted == NOT_TAKEN or incoming.offer.channel != piece.channel:
            raise WireError(f"rank {piece.src} sent bytes of message {piece.number}, which was not taken")
        if nbytes < 1 or piece.offset != incoming.received or piece.offset + nbytes > incoming.granted:
            stands = f"{incoming.received} bytes have come and {incoming.granted} are granted"
            raise WireError(f"{nbytes} bytes at {piece.offset} of message {piece.number}, of which {stands}")
        return incoming

    def withdraw(self, message: P2PWithdraw) -> Incoming | None:
        """Takes out an offer; None where it is over already. Raises `WireError` where there was no such message."""
        if not 1 <= message.number <= self.last_number:
            raise WireError(f"rank {message.src} withdraws message {message.number}, the last was {self.last_number}")
        return self.offers.pop(message.number, None)


def _sizes_agree(offer: P2POffer) -> bool:
    row = DTYPES.get(offer.dtype)
    if row is not None:
        return offer.nbytes == offer.count * row.itemsize
    return offer.nbytes % offer.count == 0 if offer.count else offer.nbytes == 0


@dataclass(slots=True)
class Fill:
    """A payload on its way in: where to (None: nowhere), for which receive, of which message under way."""

    message: P2PMessage
    nbytes: int
    target: memoryview | None
    receiving: Receiving | None = None
    incoming: Incoming | None = None


class Inbox:
    """All receives of one rank in one group, and all messages to it."""

    def __init__(self, group: int, rank: int, ledger: Ledger) -> None:
        self._group, self._rank, self._ledger = group, rank, ledger
        self._inlets: dict[int, Inlet] = {}
        self._matching = Matching()
        self._latest_match = 0

    # --- receives ----------------------------------------------------------------------------------------------------

    def recv(self, call: Call) -> list[Effect]:
        """Begins a receive, which gets what is there already, or waits."""
        receiving = Receiving(call, self._ledger.next_serial())
        self._ledger.open(receiving)
        effects = self._place(receiving)
        self._ledger.watch(receiving)
        return effects

    def give_up(self, receiving: Receiving, error: HocketError) -> list[Effect]:
        """Ends a receive; one whose buffer is being written when its frame is in."""
        if receiving.error is not None:
            return []
        if receiving.in_use:
            receiving.error = error
            return []
        if receiving.incoming is not None:
            return self._abandon(receiving, receiving.incoming, error)
        self._matching.unpost(receiving)
        return self._ledger.finish(receiving, error)

    def end(self) -> None:
        """The epoch is over: no message is taken any more."""
        self._matching.unpost_all()
        for inlet in self._inlets.values():
            inlet.offers.clear()

    def _place(self, receiving: Receiving) -> list[Effect]:
        ended = self._ledger.ended
        incoming = self._matching.first(receiving, eager_only=ended is not None)
        if incoming is not None:
            self._matching.remove(incoming)
            return self._match(receiving, incoming)
        if ended is not None:
            return self._ledger.finish(receiving, own(ended))
        self._matching.post(receiving)
        return []

    def _abandon(self, receiving: Receiving, incoming: Incoming, error: HocketError) -> list[Effect]:
        """Gives up a receive midway. What has been granted comes all the same, and is dropped."""
        incoming.receiving = receiving.incoming = None
        if incoming.received == incoming.granted:
            self._inlet(incoming.offer.src).consume(incoming.offer)
        return [*self._ledger.finish(receiving, error), *self._refuse(incoming.offer, self._for_the_sender(error))]

    def _for_the_sender(self, error: HocketError) -> HocketError:
        if isinstance(error, AbortedError):
            return error
        if isinstance(error, DeadlineError):
            return DeadlineAbortedError(self._rank, error.limit_s, error.missing)
        return AbortedError(self._rank, str(error))

    # --- messages ----------------------------------------------------------------------------------------------------

    def aim(self, message: P2PMessage, nbytes: int) -> Fill:
        """Decides where a payload goes. Raises `WireError` where it is not to be had."""
        if isinstance(message, P2POffer):
            self._inlet(message.src).check(message, nbytes)
            taker = self._matching.taker(message)
            if taker is None or not taker.fits(message):
                return Fill(message, nbytes, memoryview(bytearray(nbytes)))
            self._matching.unpost(taker)  # reserved: nothing else may come into it, or be taken by it
            taker.in_use, taker.touched = 1, True
            return Fill(message, nbytes, taker.call.memory, taker)
        if not isinstance(message, P2PData):
            raise WireError(f"{nbytes} bytes came with a {type(message).__name__}")
        incoming = self._inlet(message.src).under_way(message, nbytes)
        receiving = incoming.receiving
        if receiving is None:
            return Fill(message, nbytes, None, None, incoming)
        receiving.in_use, receiving.touched = 1, True
        target = receiving.call.memory[message.offset : message.offset + nbytes]
        return Fill(message, nbytes, target, receiving, incoming)

    def offered(self, offer: P2POffer, fill: Fill | None) -> list[Effect]:
        """A message is announced, and all here if it is eager."""
        inlet = self._inlet(offer.src)
        if fill is None:
            inlet.check(offer, 0)
        incoming = Incoming(offer, self._ledger.next_serial(), fill.target if fill else None)
        inlet.admit(incoming)
        receiving = fill.receiving if fill else None
        if receiving is None:
            return self._enter(incoming)
        receiving.in_use = 0
        if receiving.error is None:
            incoming.body = None
            return self._match(receiving, incoming)
        incoming.body = memoryview(bytes(receiving.call.memory))  # given up meanwhile: kept for the next receive
        return [*self._ledger.finish(receiving, receiving.error), *self._enter(incoming)]

    def arrived(self, message: P2PData, fill: Fill | None) -> list[Effect]:
        """A piece is in its place, or dropped."""
        if fill is None or fill.incoming is None:
            raise WireError(f"no bytes came with a piece of message {message.number}")
        incoming, receiving = fill.incoming, fill.receiving
        incoming.received += fill.nbytes
        if receiving is None:
            if incoming.received == incoming.granted:
                self._inlet(message.src).consume(incoming.offer)
            return []
        receiving.in_use = 0
        if receiving.error is not None and not incoming.complete:
            return self._abandon(receiving, incoming, receiving.error)
        return self._advance(receiving, incoming)

    def withdrawn(self, message: P2PWithdraw) -> list[Effect]:
        """The sender has given up: nothing more comes of this message."""
        incoming = self._inlet(message.src).withdraw(message)
        if incoming is None:
            return []
        if incoming.granted == NOT_TAKEN:
            self._matching.remove(incoming)
        receiving = incoming.receiving
        if receiving is None:
            return []
        receiving.incoming = None
        if not incoming.received and incoming.match == self._latest_match:
            # Our take and the withdrawal crossed. As nothing was matched since, the receive can wait on as before.
            return self._place(receiving)
        return self._ledger.finish(receiving, incoming.given_up())

    def check(self) -> None:
        """Asserts what holds between two calls."""
        self._matching.check()
        held = dict.fromkeys(self._inlets, 0)
        for kept in self._matching.arrivals():
            held[kept.offer.src] += eager_cost(kept.offer.nbytes) if kept.offer.eager else 0
        for src, inlet in self._inlets.items():
            assert inlet.held_nbytes == held[src] <= EAGER_WINDOW_NBYTES, f"held for {src}: {inlet}"
            for incoming in inlet.offers.values():
                ahead = incoming.granted - incoming.received
                assert incoming.granted == NOT_TAKEN or 0 < ahead <= GRANT_NBYTES, f"granted to {src}: {incoming}"

    # --- matching ----------------------------------------------------------------------------------------------------

    def _enter(self, incoming: Incoming) -> list[Effect]:
        receiving = self._matching.taker(incoming.offer)
        if receiving is None:
            self._matching.add(incoming)
            return []
        self._matching.unpost(receiving)
        return self._match(receiving, incoming)

    def _match(self, receiving: Receiving, incoming: Incoming) -> list[Effect]:
        offer = incoming.offer
        incoming.match = self._latest_match = self._ledger.next_serial()
        if not receiving.fits(offer):
            self._inlet(offer.src).consume(offer)
            error = receiving.mismatch(offer)
            return [*self._ledger.finish(receiving, error), *self._refuse(offer, error)]
        if not offer.eager:
            incoming.receiving, receiving.incoming = receiving, incoming
            return self._advance(receiving, incoming)
        if incoming.body is not None:
            receiving.call.memory[:] = incoming.body
        self._inlet(offer.src).consume(offer)
        return [*self._ledger.finish(receiving, source=offer.src), *self._take(offer, offer.nbytes)]

    def _advance(self, receiving: Receiving, incoming: Incoming) -> list[Effect]:
        offer = incoming.offer
        effects = self._take(offer, incoming.granted) if incoming.extend() else []
        if incoming.complete:
            self._inlet(offer.src).consume(offer)
            effects += self._ledger.finish(receiving, source=offer.src)
        return effects

    def _take(self, offer: P2POffer, granted: int) -> list[Effect]:
        if self._ledger.ended is not None:
            return []
        return [Send(P2PTake(self._group, offer.channel, offer.src, offer.dst, offer.number, granted))]

    def _refuse(self, offer: P2POffer, error: HocketError) -> list[Effect]:
        if self._ledger.ended is not None:
            return []
        facts = {**error_to_facts(error), "where": None}  # the sender's place is another one
        return [Send(P2PRefuse(self._group, offer.channel, offer.src, offer.dst, offer.number, facts))]

    def _inlet(self, src: int) -> Inlet:
        return self._inlets.setdefault(src, Inlet())
