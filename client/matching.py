"""Which receive gets which message: arrivals and receives that wait for one another, by channel and tag. Pure."""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field

from hocket.client.transfer import Incoming, Receiving
from hocket.protocol.messages import P2POffer

Key = tuple[str, int]


@dataclass(slots=True)
class _Queue:
    """One channel and tag: arrivals by sender, receives by the sender they name, each in order."""

    arrived: dict[int, OrderedDict[int, Incoming]] = field(default_factory=dict)
    posted: dict[int | None, OrderedDict[int, Receiving]] = field(default_factory=dict)


class Matching:
    """All arrivals without a receive, and all receives without a message.

    A receive that would get an arrival, or the other way round, is never put here beside it: ask `first` or `taker`.
    """

    def __init__(self) -> None:
        self._queues: dict[Key, _Queue] = {}

    def first(self, receiving: Receiving, eager_only: bool) -> Incoming | None:
        """The message that a receive gets: its sender's earliest, or the one that arrived first.

        ``eager_only``: where a sender's earliest is an offer, nothing of that sender, for messages do not overtake.
        """
        queue = self._queues.get((receiving.call.channel, receiving.call.tag))
        if queue is None:
            return None
        senders = queue.arrived if receiving.call.peer is None else (receiving.call.peer,)
        heads = [next(iter(queue.arrived[src].values())) for src in senders if src in queue.arrived]
        return min((head for head in heads if head.offer.eager or not eager_only), key=_order, default=None)

    def taker(self, offer: P2POffer) -> Receiving | None:
        """The receive that gets a message: the earliest that names its sender, or nobody."""
        queue = self._queues.get((offer.channel, offer.tag))
        if queue is None:
            return None
        heads = [next(iter(queue.posted[src].values())) for src in (offer.src, None) if src in queue.posted]
        return min(heads, key=_order, default=None)

    def add(self, incoming: Incoming) -> None:
        """Keeps a message behind all that arrived before it."""
        queue = self._queues.setdefault((incoming.offer.channel, incoming.offer.tag), _Queue())
        queue.arrived.setdefault(incoming.offer.src, OrderedDict())[incoming.order] = incoming

    def remove(self, incoming: Incoming) -> None:
        """Takes out a message that `add` keeps."""
        key = (incoming.offer.channel, incoming.offer.tag)
        messages = self._queues[key].arrived[incoming.offer.src]
        del messages[incoming.order]
        if not messages:
            del self._queues[key].arrived[incoming.offer.src]
            self._tidy(key)

    def post(self, receiving: Receiving) -> None:
        """Keeps a receive: behind all others, or, where its order says so, before them."""
        queue = self._queues.setdefault((receiving.call.channel, receiving.call.tag), _Queue())
        receives = queue.posted.setdefault(receiving.call.peer, OrderedDict())
        comes_back = bool(receives) and receiving.order < next(iter(receives))
        receives[receiving.order] = receiving
        if comes_back:
            receives.move_to_end(receiving.order, last=False)

    def unpost(self, receiving: Receiving) -> None:
        """Takes out a receive that `post` keeps."""
        key = (receiving.call.channel, receiving.call.tag)
        receives = self._queues[key].posted[receiving.call.peer]
        del receives[receiving.order]
        if not receives:
            del self._queues[key].posted[receiving.call.peer]
            self._tidy(key)

    def unpost_all(self) -> None:
        """Takes out all receives."""
        for key, queue in list(self._queues.items()):
            queue.posted.clear()
            self._tidy(key)

    def arrivals(self) -> Iterator[Incoming]:
        """All messages that are kept, each sender's in order."""
        for queue in self._queues.values():
            for messages in queue.arrived.values():
                yield from messages.values()

    def check(self) -> None:
        """Asserts what holds between two calls."""
        for key, queue in self._queues.items():
            assert queue.arrived or queue.posted, f"nothing under {key}, yet it is kept"
            for src in queue.arrived:
                assert src not in queue.posted and None not in queue.posted, f"rank {src} waits beside a receive"
            orders = [list(items) for items in queue.arrived.values()] + [
                list(items) for items in queue.posted.values()
            ]
            assert all(order == sorted(order) for order in orders), f"out of order under {key}"

    def _tidy(self, key: Key) -> None:
        queue = self._queues[key]
        if not queue.arrived and not queue.posted:
            del self._queues[key]


def _order(item: Incoming | Receiving) -> int:
    return item.order
