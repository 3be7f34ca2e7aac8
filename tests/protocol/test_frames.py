"""Frames come out whole however the stream is cut, and nothing is allocated for a length that is not allowed."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hocket.protocol.errors import WireError
from hocket.protocol.frames import HEADER, MAGIC, FrameReader, encode_frame
from hocket.protocol.limits import HANDSHAKE_NBYTES, MESSAGE_NBYTES, PAYLOAD_NBYTES
from hocket.protocol.messages import Chunk, Goodbye, Heartbeat, Message, Proof, Submit

SMALL = Heartbeat(1.5)
LARGE = Submit(1, "c", 2, b"s" * 70_000, (1, 2), (3,), 1.0)
CHUNK = Chunk(1, "c", 2, 3, 4)


class Sinks:
    """Keeps what payloads were announced and where they went."""

    def __init__(self, keep: bool = True) -> None:
        self.keep = keep
        self.announced: list[int] = []
        self.room: list[bytearray] = []

    def __call__(self, message: Message, nbytes: int) -> list[memoryview] | None:
        self.announced.append(nbytes)
        if not self.keep:
            return None
        half = nbytes // 2
        self.room += [bytearray(half), bytearray(nbytes - half)]
        return [memoryview(part) for part in self.room[-2:]]


def feed(reader: FrameReader, data: bytes, cuts: list[int]) -> list[tuple[Message, int]]:
    """Hands the stream over in pieces that end at ``cuts``, and no more at a time than the reader has room for."""
    done = []
    for start, stop in itertools.pairwise([0, *cuts, len(data)]):
        piece = data[start:stop]
        while piece:
            room = reader.buffer()
            taken = min(len(room), len(piece))
            room[:taken] = piece[:taken]
            done += reader.received(taken)
            piece = piece[taken:]
    return done


def stream(payload: bytes) -> bytes:
    return encode_frame(SMALL) + encode_frame(CHUNK, len(payload)) + payload + encode_frame(LARGE) + encode_frame(SMALL)


def test_a_stream_cut_at_any_byte_gives_the_same_messages_and_payload() -> None:
    payload = bytes(range(250))
    short = encode_frame(SMALL) + encode_frame(CHUNK, len(payload)) + payload + encode_frame(SMALL)
    for cut in range(1, len(short)):
        sinks = Sinks()
        reader = FrameReader(sinks, trusted=True)
        assert feed(reader, short, [cut]) == [(SMALL, 0), (CHUNK, 250), (SMALL, 0)], cut
        assert b"".join(sinks.room) == payload
        assert reader.idle


def test_a_stream_that_comes_byte_by_byte_is_understood() -> None:
    data = stream(b"xyz")
    sinks = Sinks()
    found = feed(FrameReader(sinks, trusted=True), data, list(range(1, len(data))))
    assert [message for message, _ in found] == [SMALL, CHUNK, LARGE, SMALL]


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=200_000), st.lists(st.integers(1, 400_000), max_size=12), st.booleans())
def test_any_cuts_give_the_same(payload: bytes, cuts: list[int], keep: bool) -> None:
    data = stream(payload)
    sinks = Sinks(keep)
    found = feed(FrameReader(sinks, trusted=True), data, sorted(cut for cut in cuts if cut < len(data)))
    assert found == [(SMALL, 0), (CHUNK, len(payload)), (LARGE, 0), (SMALL, 0)]
    assert b"".join(sinks.room) == (payload if keep else b"")


@pytest.mark.parametrize("nbytes", [2**31 + 3, 2**32 + 1, PAYLOAD_NBYTES])
def test_lengths_beyond_32_bits_are_announced_as_they_are(nbytes: int) -> None:
    sinks = Sinks(keep=False)
    reader = FrameReader(sinks, trusted=True)
    assert feed(reader, encode_frame(CHUNK, nbytes), []) == []
    assert sinks.announced == [nbytes]
    assert not reader.idle


def test_a_payload_of_several_scratches_ends_exactly_at_its_last_byte() -> None:
    reader = FrameReader(Sinks(keep=False), trusted=True)
    left = 5 * len(reader.buffer()) + 17
    nbytes = left
    feed(reader, encode_frame(CHUNK, nbytes), [])
    while left > 1:
        taken = min(len(reader.buffer()), left - 1)
        assert reader.received(taken) == []
        left -= taken
    assert reader.received(1) == [(CHUNK, nbytes)]


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HT" + b"TP/1.1\r\n",
        HEADER.pack(b"HKT2", 10, 0),
        HEADER.pack(MAGIC, 1 << 31, 0),
        HEADER.pack(MAGIC, 10, 1 << 47),
        HEADER.pack(MAGIC, 2, 0) + b"\xff\xff",
    ],
)
def test_junk_is_refused_at_once(head: bytes) -> None:
    with pytest.raises(WireError):
        feed(FrameReader(Sinks(), trusted=True), head, [])


@pytest.mark.parametrize("start", [b"G", b"\x00", b"HKX"])
def test_a_wrong_first_byte_is_enough(start: bytes) -> None:
    with pytest.raises(WireError):
        feed(FrameReader(Sinks(), trusted=True), start, [])


def test_before_authentication_messages_are_short_and_payloads_refused() -> None:
    reader = FrameReader(Sinks())
    assert feed(reader, encode_frame(Proof(b"m" * 32)), []) == [(Proof(b"m" * 32), 0)]
    with pytest.raises(WireError, match=str(HANDSHAKE_NBYTES)):
        feed(FrameReader(Sinks()), HEADER.pack(MAGIC, HANDSHAKE_NBYTES + 1, 0), [])
    with pytest.raises(WireError):
        feed(FrameReader(Sinks()), HEADER.pack(MAGIC, 10, 1), [])


def test_an_announced_length_allocates_nothing_by_itself() -> None:
    reader = FrameReader(Sinks(), trusted=True)
    before = len(reader.buffer())
    feed(reader, HEADER.pack(MAGIC, MESSAGE_NBYTES, 0), [])
    assert len(reader.buffer()) < 2 * before


def test_a_sink_of_another_size_is_an_error_and_not_an_overrun() -> None:
    reader = FrameReader(lambda _message, nbytes: [memoryview(bytearray(nbytes - 1))], trusted=True)
    with pytest.raises(WireError, match="expected"):
        feed(reader, encode_frame(Goodbye("x"), 10) + b"0123456789", [])


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300))
def test_random_bytes_never_raise_anything_but_a_wire_error(data: bytes) -> None:
    reader = FrameReader(Sinks(), trusted=True)
    try:
        feed(reader, data, [])
        feed(FrameReader(Sinks(), trusted=True), MAGIC + data, [])
    except WireError:
        return
