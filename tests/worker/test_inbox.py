"""Chunks that come before, while and after they are wanted."""

import asyncio

import pytest

from hocket.protocol.errors import HocketError, MemberLostError, WireError
from hocket.protocol.messages import Chunk
from hocket.worker.inbox import Inbox

HOST = 4
LOST = MemberLostError((), "unreachable", "cut")


def chunk(number: int = 1, block: int = 0, step: int = 1) -> Chunk:
    return Chunk(9, "", number, block, step)


def key(one: Chunk, host: int = HOST) -> tuple[int, int, int, int]:
    return host, one.number, one.block, one.step


def begin(inbox: Inbox, one: Chunk, data: bytes, host: int = HOST) -> None:
    """The link puts a chunk's bytes where the inbox says."""
    views = inbox.sink(host, one, len(data))
    assert views is not None
    for view in views:
        view[:], data = data[: len(view)], data[len(view) :]
    assert data == b""


def deliver(inbox: Inbox, one: Chunk, data: bytes, host: int = HOST) -> None:
    begin(inbox, one, data, host)
    inbox.arrived(host, one, len(data))


async def started(inbox: Inbox, one: Chunk, *rooms: bytearray) -> "asyncio.Task[None]":
    """A bridge that waits for a chunk."""
    task = asyncio.create_task(inbox.take(key(one), [memoryview(room) for room in rooms]))
    await asyncio.sleep(0)
    return task


async def test_a_chunk_that_is_waited_for_arrives_in_place() -> None:
    inbox, first, second = Inbox(100), bytearray(3), bytearray(2)
    taking = await started(inbox, chunk(), first, second)
    begin(inbox, chunk(), b"abcde")
    assert (first, second) == (b"abc", b"de")
    assert not taking.done()
    inbox.arrived(HOST, chunk(), 5)
    await taking


async def test_a_chunk_that_comes_early_is_kept_until_it_is_wanted() -> None:
    inbox, first, second = Inbox(100), bytearray(3), bytearray(2)
    deliver(inbox, chunk(), b"abcde")
    await inbox.take(key(chunk()), [memoryview(first), memoryview(second)])
    assert (first, second) == (b"abc", b"de")


async def test_a_chunk_that_is_wanted_while_it_arrives_is_waited_for() -> None:
    inbox, room = Inbox(100), bytearray(4)
    begin(inbox, chunk(), b"abcd")
    taking = await started(inbox, chunk(), room)
    assert not taking.done()
    inbox.arrived(HOST, chunk(), 4)
    await taking
    assert room == b"abcd"


async def test_chunks_are_told_apart_by_host_operation_block_and_step() -> None:
    inbox = Inbox(100)
    several = [(HOST, chunk(1)), (HOST, chunk(2)), (HOST, chunk(1, 1)), (HOST, chunk(1, 0, 2)), (HOST + 1, chunk(1))]
    for at, (host, one) in enumerate(several):
        deliver(inbox, one, bytes([at]), host)
    for at, (host, one) in reversed(list(enumerate(several))):
        room = bytearray(1)
        await inbox.take(key(one, host), [memoryview(room)])
        assert room == bytes([at])


async def test_a_chunk_of_an_operation_that_is_over_goes_nowhere() -> None:
    inbox = Inbox(100)
    deliver(inbox, chunk(1, 1), b"not wanted any more")
    await inbox.leave(1)
    assert inbox.sink(HOST, chunk(1), 5) is None
    inbox.arrived(HOST, chunk(1), 5)
    deliver(inbox, chunk(2), b"x")
    room = bytearray(1)
    await inbox.take(key(chunk(2)), [memoryview(room)])
    assert room == b"x"


async def test_an_operation_is_not_left_while_its_memory_is_written() -> None:
    inbox, room = Inbox(100), bytearray(4)
    taking = await started(inbox, chunk(), room)
    begin(inbox, chunk(), b"abcd")
    inbox.fail(HocketError("aborted"))
    with pytest.raises(HocketError):
        await taking
    leaving = asyncio.create_task(inbox.leave(1))
    for _ in range(3):
        await asyncio.sleep(0)
    assert not leaving.done()
    inbox.arrived(HOST, chunk(), 4)
    await leaving


async def test_an_operation_is_left_once_who_writes_its_memory_is_gone() -> None:
    inbox = Inbox(100)
    begin(inbox, chunk(), b"abcd")
    leaving = asyncio.create_task(inbox.leave(1))
    await asyncio.sleep(0)
    inbox.host_gone(HOST, LOST)
    await leaving


async def test_who_waits_for_a_host_that_goes_gets_the_error_and_others_do_not() -> None:
    inbox, room = Inbox(100), bytearray(1)
    waiting = await started(inbox, chunk(), bytearray(1))
    other = asyncio.create_task(inbox.take(key(chunk(), HOST + 1), [memoryview(room)]))
    await asyncio.sleep(0)
    inbox.host_gone(HOST, LOST)
    with pytest.raises(MemberLostError):
        await waiting
    with pytest.raises(MemberLostError):
        await inbox.take(key(chunk(2)), [memoryview(bytearray(1))])
    deliver(inbox, chunk(), b"x", HOST + 1)
    await other
    assert room == b"x"


async def test_what_a_host_has_sent_before_it_went_still_counts() -> None:
    inbox, room = Inbox(100), bytearray(1)
    deliver(inbox, chunk(), b"x")
    inbox.host_gone(HOST, LOST)
    await inbox.take(key(chunk()), [memoryview(room)])
    assert room == b"x"


async def test_a_verdict_wakes_who_waits() -> None:
    inbox = Inbox(100)
    waiting = await started(inbox, chunk(), bytearray(1))
    inbox.fail(HocketError("aborted"))
    with pytest.raises(HocketError):
        await waiting


async def test_a_chunk_may_not_come_twice() -> None:
    inbox = Inbox(100)
    begin(inbox, chunk(), b"ab")
    with pytest.raises(WireError, match="twice"):
        inbox.sink(HOST, chunk(), 2)
    inbox.arrived(HOST, chunk(), 2)
    with pytest.raises(WireError, match="twice"):
        inbox.sink(HOST, chunk(), 2)


async def test_memory_is_made_for_no_chunk_beyond_the_largest_and_for_a_bounded_number() -> None:
    inbox = Inbox(100)
    with pytest.raises(WireError):
        inbox.sink(HOST, chunk(), 101)
    with pytest.raises(WireError):
        for step in range(10_000):
            deliver(inbox, chunk(1, 0, step), b"x")


async def test_a_chunk_of_another_length_than_is_wanted_is_an_error() -> None:
    inbox = Inbox(100)
    deliver(inbox, chunk(), b"abc")
    with pytest.raises(WireError):
        await inbox.take(key(chunk()), [memoryview(bytearray(4))])
