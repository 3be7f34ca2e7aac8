"""The sending half of a mailbox: numbers, the window for eager messages, pieces as they are granted. Pure."""

from dataclasses import dataclass, field

from hocket.client.transfer import Call, Effect, Finish, Ledger, Send, Sending, eager_cost, own
from hocket.protocol.errors import HocketError, WireError, error_from_facts
from hocket.protocol.limits import EAGER_NBYTES, EAGER_WINDOW_NBYTES
from hocket.protocol.messages import P2PData, P2POffer, P2PRefuse, P2PTake, P2PWithdraw


@dataclass(slots=True)
class Outlet:
    """Our messages to one rank: their numbers, the window for eager ones, and the sends that are not over."""

    last_number: int = 0
    window_nbytes: int = 0
    """What the eager messages count that the other side has not consumed, as far as we know."""
    eager: dict[int, P2POffer] = field(default_factory=dict)
    sendings: dict[int, Sending] = field(default_factory=dict)

    def admits(self, nbytes: int) -> bool:
        """Whether a message can go at once."""
        return nbytes <= EAGER_NBYTES and self.window_nbytes + eager_cost(nbytes) <= EAGER_WINDOW_NBYTES

    def announce(self, offer: P2POffer) -> None:
        """Notes an offer, which has the next number."""
        self.last_number = offer.number
        if offer.eager:
            self.eager[offer.number] = offer
            self.window_nbytes += eager_cost(offer.nbytes)

    def answered(self, message: P2PTake | P2PRefuse) -> Sending | None:
        """The send that an answer is about; None where it is eager, or over already (answers cross with withdrawals).

        An eager message counts as consumed by any answer. Raises `WireError` where no such message was announced.
        """
        number = message.number
        if not 1 <= number <= self.last_number:
            raise WireError(f"rank {message.dst} answers message {number}, the last was {self.last_number}")
        sending, offer = self.sendings.get(number), self.eager.get(number)
        channel = sending.call.channel if sending else offer.channel if offer else message.channel
        if channel != message.channel:
            raise WireError(f"message {number} is of channel {channel!r}, not {message.channel!r}")
        if offer is not None:
            if isinstance(message, P2PTake) and message.granted != offer.nbytes:
                raise WireError(f"{message.granted} bytes taken of an eager message of {offer.nbytes}")
            del self.eager[number]
            self.window_nbytes -= eager_cost(offer.nbytes)
        return sending


class Outbox:
    """All sends of one rank in one group."""

    def __init__(self, group: int, rank: int, ledger: Ledger) -> None:
        self._group, self._rank, self._ledger = group, rank, ledger
        self._outlets: dict[int, Outlet] = {}
        self._tickets: dict[int, Sending] = {}

    def send(self, call: Call, dst: int) -> list[Effect]:
        """Begins a send: an eager one is over at once."""
        if self._ledger.ended is not None:
            return [Finish(call.handle, own(self._ledger.ended))]
        outlet = self._outlet(dst)
        number, eager = outlet.last_number + 1, outlet.admits(call.nbytes)
        head = self._group, call.channel, self._rank, dst
        offer = P2POffer(*head, call.tag, number, call.dtype, call.count, call.nbytes, eager)
        if eager:
            outlet.announce(offer)
            return [Send(offer, _snapshot(call.memory)), Finish(call.handle)]
        sending = Sending(call, dst, number)
        self._ledger.open(sending)
        self._ledger.watch(sending)
        outlet.announce(offer)
        outlet.sendings[number] = sending
        return [Send(offer)]

    def taken(self, message: P2PTake) -> list[Effect]:
        """The receiver has consumed an eager message, or lets more bytes come."""
        sending = self._outlet(message.dst).answered(message)
        if sending is None:
            return []
        sending.grant(message.granted)
        effects: list[Effect] = []
        while (piece := sending.next_piece()) is not None:
            offset, data = piece
            ticket = self._ledger.next_serial()
            self._tickets[ticket] = sending
            sending.in_use += 1
            head = self._group, message.channel, self._rank, message.dst, message.number
            effects.append(Send(P2PData(*head, offset), data, ticket))
        return [*effects, *self._settle(sending)]

    def refused(self, message: P2PRefuse) -> list[Effect]:
        """The receiver's buffer does not fit, or the receive was given up midway."""
        error = error_from_facts(message.error)
        sending = self._outlet(message.dst).answered(message)
        return [] if sending is None else self._fail(sending, error)

    def written(self, ticket: int) -> list[Effect]:
        """The shell has no more use for a piece."""
        sending = self._tickets.pop(ticket, None)
        if sending is None:  # the connection went, and with it all tickets
            return []
        sending.in_use -= 1
        return self._settle(sending)

    def give_up(self, sending: Sending, error: HocketError) -> list[Effect]:
        """Ends a send that waits to be taken, or for more to be granted. One that is all out completes."""
        if sending.error is not None or sending.complete:
            return []
        head = self._group, sending.call.channel, self._rank, sending.dst
        return [Send(P2PWithdraw(*head, sending.number)), *self._fail(sending, error)]

    def end(self, disconnected: bool) -> None:
        """The epoch is over: nothing is sent any more."""
        self._outlets.clear()
        if disconnected:
            self._tickets.clear()

    def check(self) -> None:
        """Asserts what holds between two calls."""
        for dst, outlet in self._outlets.items():
            window_nbytes = sum(eager_cost(offer.nbytes) for offer in outlet.eager.values())
            assert outlet.window_nbytes == window_nbytes <= EAGER_WINDOW_NBYTES, f"window to {dst}: {outlet}"
            assert all(map(self._ledger.is_open, outlet.sendings.values())), f"a send to {dst} is over, yet kept"
        for sending in self._tickets.values():
            assert self._ledger.is_open(sending), "a send is over before its memory was written"

    def _fail(self, sending: Sending, error: HocketError) -> list[Effect]:
        sending.error = error
        self._outlet(sending.dst).sendings.pop(sending.number, None)
        return self._settle(sending)

    def _settle(self, sending: Sending) -> list[Effect]:
        if sending.in_use or not (sending.error or sending.complete):
            return []
        self._outlet(sending.dst).sendings.pop(sending.number, None)
        return self._ledger.finish(sending, sending.error)

    def _outlet(self, dst: int) -> Outlet:
        return self._outlets.setdefault(dst, Outlet())


def _snapshot(memory: memoryview) -> memoryview | None:
    """The bytes as they are now, whatever becomes of ``memory``."""
    if not len(memory):
        return None
    return memory if isinstance(memory.obj, bytes) else memoryview(bytes(memory))
