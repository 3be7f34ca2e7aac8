"""Frames: a message, and raw bytes behind it that never pass through msgpack.

    u32 magic "HKT1" | u32 message_nbytes | u64 payload_nbytes | message | payload          (little-endian)

`FrameReader` is fed by whoever owns the socket. It says where the next bytes go, so that a payload is received straight
into the array it is for, and it checks every length before anything is allocated.
"""

import struct
from collections.abc import Callable, Sequence

from hocket.protocol.codec import decode, encode
from hocket.protocol.errors import WireError
from hocket.protocol.limits import HANDSHAKE_NBYTES, MESSAGE_NBYTES, PAYLOAD_NBYTES
from hocket.protocol.messages import Message

HEADER = struct.Struct("<4sIQ")
MAGIC = b"HKT1"
SCRATCH_NBYTES = 64 << 10

Buffers = Sequence[memoryview]
Sink = Callable[[Message, int], Buffers | None]
"""Given a message and its payload's nbytes: where the payload goes (memoryviews of bytes, that many in all), or None to
have it received and dropped."""


def encode_frame(message: Message, payload_nbytes: int = 0) -> bytes:
    """The head of a frame: all of it but the payload.

    >>> from hocket.protocol.messages import Proof
    >>> HEADER.unpack_from(encode_frame(Proof(b""), 2**32 + 1))[2]
    4294967297
    """
    body = encode(message)
    return HEADER.pack(MAGIC, len(body), payload_nbytes) + body


class FrameReader:
    """Cuts a stream of bytes into frames. Pure: it owns no socket.

    The owner alternates `buffer` (where to receive) and `took` (how much came), and then acts on each message that
    `next` gives before it asks for the one after it: the sink is asked for a payload only when all that came before it
    has been dealt with. A message counts when its payload is complete.
    """

    def __init__(self, sink: Sink, *, trusted: bool = False) -> None:
        self._sink = sink
        self.trusted = trusted
        """Before authentication messages are short and payloads refused."""
        self._scratch = memoryview(bytearray(SCRATCH_NBYTES))
        self._start = self._end = 0
        self._message: Message | None = None
        self._payload_nbytes = 0
        self._missing = 0
        self._targets: list[memoryview] = []
        self._dropping = False

    @property
    def idle(self) -> bool:
        """Whether the stream stands between two frames."""
        return self._message is None and self._start == self._end

    def buffer(self) -> memoryview:
        """Where the next bytes of the stream are to be received. Never empty."""
        if self._message is not None and self._start == self._end:
            if self._dropping:
                self._start = self._end = 0
                return self._scratch[: min(self._missing, SCRATCH_NBYTES)]
            return self._targets[0]
        if self._start == self._end:
            self._start = self._end = 0
        elif self._end == len(self._scratch):
            self._make_room()
        return self._scratch[self._end :]

    def received(self, nbytes: int) -> list[tuple[Message, int]]:
        """`took`, and all that `next` gives: for those whose sink does not depend on earlier messages.

        Raises:
            WireError: as `next`.
        """
        self.took(nbytes)
        return list(iter(self.next, None))

    def took(self, nbytes: int) -> None:
        """Takes note of ``nbytes`` received into `buffer`. To be called once `next` has given all it had."""
        if self._message is not None and self._start == self._end:
            self._advance(nbytes)
        else:
            self._end += nbytes

    def next(self) -> tuple[Message, int] | None:
        """The next message that is complete, with its payload's nbytes.

        Raises:
            WireError: the stream is not ours; the connection is to be closed.
        """
        if self._message is None and not self._next_head():
            return None
        if self._missing and not self._fill_from_scratch():
            return None
        message, self._message, self._targets, self._dropping = self._message, None, [], False
        assert message is not None
        return message, self._payload_nbytes

    def _advance(self, nbytes: int) -> None:
        self._missing -= nbytes
        if self._dropping:
            return
        rest = self._targets[0][nbytes:]
        if len(rest):
            self._targets[0] = rest
        else:
            self._targets.pop(0)

    def _fill_from_scratch(self) -> bool:
        while self._missing and self._start < self._end:
            have = self._scratch[self._start : self._end]
            take = min(len(have), self._missing if self._dropping else len(self._targets[0]))
            if not self._dropping:
                self._targets[0][:take] = have[:take]
            self._start += take
            self._advance(take)
        return not self._missing

    def _next_head(self) -> bool:
        have = self._end - self._start
        if have < HEADER.size:
            if have:
                self._check_magic(have)
            return False
        magic, message_nbytes, payload_nbytes = HEADER.unpack_from(self._scratch, self._start)
        self._check(magic, message_nbytes, payload_nbytes)
        if have < HEADER.size + message_nbytes:
            return False
        first = self._start + HEADER.size
        self._message = decode(self._scratch[first : first + message_nbytes])
        self._start = first + message_nbytes
        self._payload_nbytes = self._missing = payload_nbytes
        if payload_nbytes:
            self._aim(self._message, payload_nbytes)
        return True

    def _aim(self, message: Message, payload_nbytes: int) -> None:
        buffers = self._sink(message, payload_nbytes)
        self._dropping = buffers is None
        if buffers is not None:
            self._targets = [buffer for buffer in buffers if len(buffer)]
            room = sum(map(len, self._targets))
            if room != payload_nbytes:
                raise WireError(f"{type(message).__name__}: {payload_nbytes} bytes came, {room} were expected")

    def _check_magic(self, have: int) -> None:
        start = bytes(self._scratch[self._start : self._start + min(have, len(MAGIC))])
        if not MAGIC.startswith(start):
            raise WireError(f"not hocket's protocol: {start!r}")

    def _check(self, magic: bytes, message_nbytes: int, payload_nbytes: int) -> None:
        if magic != MAGIC:
            raise WireError(f"not hocket's protocol: {magic!r}")
        limit = MESSAGE_NBYTES if self.trusted else HANDSHAKE_NBYTES
        if message_nbytes > limit:
            raise WireError(f"message of {message_nbytes} bytes announced, allowed are {limit}")
        if payload_nbytes > (PAYLOAD_NBYTES if self.trusted else 0):
            raise WireError(f"payload of {payload_nbytes} bytes announced, allowed are {PAYLOAD_NBYTES}")

    def _make_room(self) -> None:
        rest = bytes(self._scratch[self._start : self._end])
        needed = HEADER.size
        if len(rest) >= HEADER.size:
            needed += HEADER.unpack_from(rest)[1]
        if needed > len(self._scratch):
            self._scratch = memoryview(bytearray(needed + SCRATCH_NBYTES))
        self._scratch[: len(rest)] = rest
        self._start, self._end = 0, len(rest)
