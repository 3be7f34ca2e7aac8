"""Mailboxes over a wire in memory, which delivers in any order that a real one could."""

import contextlib
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from random import Random

import numpy as np
import pytest

from hocket.client import inbox, outbox, transfer
from hocket.client.mailbox import Effect, Finish, Mailbox, Send
from hocket.protocol.codec import decode, encode
from hocket.protocol.errors import AbortedError, HocketError
from hocket.protocol.messages import Message, P2POffer, P2PRefuse, P2PTake

GROUP = 7
NEVER = float("inf")
LENGTHS = {"eager": 6, "one grant": 40, "many grants": 200}
"""Messages that move in different ways under `small_limits`."""
Move = tuple[str, int, int]
Pick = Callable[[list[Move]], Move]

every_length = pytest.mark.parametrize("nbytes", LENGTHS.values(), ids=LENGTHS.keys())


@contextlib.contextmanager
def small_limits() -> Iterator[None]:
    """Bounds of a few bytes, so that every path is a few moves long."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (outbox, inbox):
            patch.setattr(module, "EAGER_NBYTES", 8)
            patch.setattr(module, "EAGER_WINDOW_NBYTES", 24)
        patch.setattr(transfer, "EAGER_OVERHEAD_NBYTES", 4)
        patch.setattr(transfer, "PIECE_NBYTES", 16)
        for module in (transfer, inbox):
            patch.setattr(module, "GRANT_NBYTES", 64)
        yield


# --- orders in which things move -------------------------------------------------------------------------------------


def earliest(moves: list[Move]) -> Move:
    """What is in comes first, writes come last."""
    return moves[0]


def latest(moves: list[Move]) -> Move:
    """Writes come first."""
    return moves[-1]


def shuffled(seed: int) -> Pick:
    """Any order, the same for the same seed."""
    return lambda moves: Random(f"{seed} {moves}").choice(moves)


ORDERS: dict[str, Pick] = {"earliest": earliest, "latest": latest} | {f"seed {i}": shuffled(i) for i in range(3)}
every_order = pytest.mark.parametrize("pick", ORDERS.values(), ids=ORDERS.keys())


# --- the wire --------------------------------------------------------------------------------------------------------


class Wire:
    """Mailboxes joined by a FIFO for each pair of ranks, and the shells around them.

    A frame takes three moves: it is written, which is when its memory is read; half of it comes in; the rest does. What
    no user may see is asserted here: an operation that ends twice, or memory used after its operation's end.
    """

    def __init__(self, size: int) -> None:
        self.boxes = [Mailbox(GROUP, rank, size) for rank in range(size)]
        self.unwritten: list[deque[Send]] = [deque() for _ in range(size)]
        pairs = [(a, b) for a in range(size) for b in range(size) if a != b]
        self.links: dict[tuple[int, int], deque[tuple[Message, bytes]]] = {pair: deque() for pair in pairs}
        self.coming: list[tuple[Message, bytes, list[memoryview] | None] | None] = [None] * size
        self.finished: dict[Hashable, Finish] = {}
        self.arrays: dict[Hashable, np.ndarray] = {}
        self.sends: set[Hashable] = set()
        self.copies: dict[Hashable, bytes] = {}
        self.now = 0.0
        self.log: list[Message] = []

    # --- calls -------------------------------------------------------------------------------------------------------

    def send(self, rank: int, handle: Hashable, array: np.ndarray, dst: int, tag: int = 0, **more: object) -> None:
        """Sends a copy, which is overwritten as soon as the operation is over."""
        self.sends.add(handle)
        self.arrays[handle] = own = array.copy()
        self.perform(rank, self.boxes[rank].send(handle, flat(own), dst, tag, *self.rest(own, **more)))

    def recv(
        self, rank: int, handle: Hashable, array: np.ndarray, src: int | None, tag: int = 0, **more: object
    ) -> None:
        """Receives into ``array``."""
        self.arrays[handle] = array
        self.perform(rank, self.boxes[rank].recv(handle, flat(array), src, tag, *self.rest(array, **more)))

    def rest(self, array: np.ndarray, channel: str = "", limit_s: float = NEVER) -> tuple[str, str, int, float, float]:
        return channel, array.dtype.name, array.size, self.now + limit_s, self.now

    def cancel(self, rank: int, handle: Hashable, error: HocketError | None = None) -> None:
        self.perform(rank, self.boxes[rank].cancel(handle, error or AbortedError(rank, "cancelled")))

    def tick(self, now: float) -> None:
        self.now = now
        for rank, box in enumerate(self.boxes):
            self.perform(rank, box.tick(now))

    def end(self, rank: int, error: HocketError, disconnected: bool = False) -> None:
        """Ends the epoch for one rank, and with ``disconnected`` its connection."""
        if disconnected:
            self.unwritten[rank].clear()
            self.coming[rank] = None
            for pair, link in self.links.items():
                if rank in pair:
                    link.clear()
        self.perform(rank, self.boxes[rank].end(error, disconnected))

    # --- what moves --------------------------------------------------------------------------------------------------

    def perform(self, rank: int, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                self.unwritten[rank].append(effect)
                continue
            assert effect.handle not in self.finished, f"{effect.handle!r} ended twice"
            self.finished[effect.handle] = effect
            array = self.arrays[effect.handle]
            if effect.handle in self.sends:
                flat(array)[:] = b"\xee" * array.nbytes
            else:
                self.copies[effect.handle] = array.tobytes()
        self.boxes[rank].check()

    def moves(self) -> list[Move]:
        """All that can happen next."""
        ranks = range(len(self.boxes))
        found = [("finish", rank, rank) for rank in ranks if self.coming[rank]]
        found += [("begin", a, b) for (a, b), link in self.links.items() if link and not self.coming[b]]
        return found + [("write", rank, rank) for rank in ranks if self.unwritten[rank]]

    def move(self, pick: Pick = earliest) -> bool:
        """Has one thing happen. Returns whether there was any."""
        moves = self.moves()
        if moves:
            kind, a, b = pick(moves)
            {"write": self.write, "begin": self.begin, "finish": self.finish}[kind](a, b)
        return bool(moves)

    def write(self, rank: int, _: int) -> None:
        sent = self.unwritten[rank].popleft()
        message = sent.message
        assert decode(encode(message)) == message
        self.log.append(message)
        other = message.src if isinstance(message, P2PTake | P2PRefuse) else message.dst
        self.links[rank, other].append((message, bytes(sent.payload or b"")))
        if sent.ticket is not None:
            self.perform(rank, self.boxes[rank].written(sent.ticket))

    def begin(self, src: int, dst: int) -> None:
        message, data = self.links[src, dst].popleft()
        if not data:
            self.perform(dst, self.boxes[dst].handle_message(message))
            return
        targets = self.boxes[dst].sink(message, len(data))
        assert targets is None or sum(map(len, targets)) == len(data)
        if targets:
            targets[0][: len(data) // 2] = data[: len(data) // 2]
        self.coming[dst] = message, data, targets

    def finish(self, rank: int, _: int) -> None:
        coming, self.coming[rank] = self.coming[rank], None
        assert coming is not None
        message, data, targets = coming
        if targets:
            targets[0][len(data) // 2 :] = data[len(data) // 2 :]
        self.perform(rank, self.boxes[rank].handle_message(message))

    def run(self, pick: Pick = earliest) -> None:
        """Has everything happen that can."""
        while self.move(pick):
            pass
        for handle, copy in self.copies.items():
            assert self.arrays[handle].tobytes() == copy, f"{handle!r} was written after its end"

    # --- asking ------------------------------------------------------------------------------------------------------

    def error(self, handle: Hashable) -> HocketError:
        """What an operation failed with."""
        error = self.finished[handle].error
        assert error is not None, f"{handle!r} did not fail"
        return error

    def source(self, handle: Hashable) -> int | None:
        """Whose message an operation, which did not fail, got."""
        finish = self.finished[handle]
        assert finish.error is None, finish.error
        return finish.source

    def count(self, kind: type) -> int:
        """How many messages of a kind were written."""
        return sum(isinstance(message, kind) for message in self.log)


def flat(array: np.ndarray) -> memoryview:
    """The bytes of an array."""
    return memoryview(array.reshape(-1).view(np.uint8))


def pattern(nbytes: int, seed: int = 1) -> np.ndarray:
    """Bytes that show where they belong."""
    return ((np.arange(nbytes) * 7 + seed * 13) % 251).astype(np.uint8)


def moves_of_a_transfer(nbytes: int) -> int:
    """How many moves it takes to bring a message to a receive that waits for it."""
    wire = Wire(2)
    wire.recv(1, "recv", np.zeros(nbytes, np.uint8), 0)
    wire.send(0, "send", pattern(nbytes), 1)
    count = 0
    while wire.move():
        count += 1
    return count


def exchange(wire: Wire, pick: Pick, nbytes: int = 40) -> None:
    """A proper message in each direction, under a tag of its own."""
    for rank in range(2):
        got = np.zeros(nbytes, np.uint8)
        wire.recv(rank, ("last", rank), got, 1 - rank, tag=99)
        wire.send(1 - rank, ("send last", rank), pattern(nbytes, 50 + rank), rank, tag=99)
        wire.run(pick)
        assert got.tobytes() == pattern(nbytes, 50 + rank).tobytes()


# --- a single mailbox ------------------------------------------------------------------------------------------------


def offer(number: int, nbytes: int, eager: bool) -> P2POffer:
    """An offer of rank 0 to rank 1."""
    return P2POffer(GROUP, "c", 0, 1, 3, number, "uint8", nbytes, nbytes, eager)


def begin_send(
    box: Mailbox, handle: Hashable, nbytes: int, dst: int = 1, deadline_s: float = NEVER, now: float = 0.0
) -> list[Effect]:
    """Has a mailbox send `pattern` under the tag and channel of `offer`."""
    return box.send(handle, memoryview(pattern(nbytes)), dst, 3, "c", "uint8", nbytes, deadline_s, now)


def begin_recv(
    box: Mailbox, handle: Hashable, nbytes: int, src: int | None = 0, deadline_s: float = NEVER, now: float = 0.0
) -> list[Effect]:
    """Has a mailbox receive under the tag and channel of `offer`."""
    return box.recv(handle, memoryview(bytearray(nbytes)), src, 3, "c", "uint8", nbytes, deadline_s, now)


def deliver(box: Mailbox, message: Message, data: bytes = b"") -> list[Effect]:
    """Brings a whole frame to a mailbox."""
    if data:
        for target in box.sink(message, len(data)) or []:
            target[:] = data
    return box.handle_message(message)
