"""Which frame descriptors belong to, however the kernel cuts the stream into reads."""

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from hocket.protocol.connection import Connection
from hocket.protocol.messages import Goodbye, Heartbeat, Message

LIMIT_S = 10.0


@contextmanager
def descriptor() -> Iterator[int]:
    """A descriptor that is a file of its own."""
    fd = os.memfd_create("test")
    try:
        yield fd
    finally:
        os.close(fd)


def file_of(fd: int) -> int:
    """What file a descriptor stands for."""
    return os.fstat(fd).st_ino


async def through(sent: list[tuple[Message, list[int]]]) -> list[tuple[Message, list[int]]]:
    """Sends all frames before the other side reads the first one; descriptors are told as the files they stand for."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    sender = Connection(ours, trusted=True)
    for message, fds in sent:
        sender.send(message, fds=fds)
    got: list[tuple[Message, list[int]]] = []
    ended = asyncio.Event()

    def take(message: Message, _nbytes: int, fds: list[int]) -> None:
        got.append((message, [file_of(fd) for fd in fds]))
        for fd in fds:
            os.close(fd)
        if len(got) == len(sent):
            ended.set()

    receiver = Connection(theirs, trusted=True)
    receiver.carriers = (Goodbye,)
    receiver.start(take, lambda _error: ended.set())
    async with asyncio.timeout(LIMIT_S):
        await ended.wait()
    sender.close()
    receiver.close()
    return got


async def test_descriptors_reach_their_own_frame_and_not_one_before_it_in_the_same_read() -> None:
    with descriptor() as fd:
        got = await through([(Heartbeat(1.0), []), (Heartbeat(2.0), []), (Goodbye("with"), [fd]), (Heartbeat(3.0), [])])
        assert [fds for _, fds in got] == [[], [], [file_of(fd)], []]


async def test_descriptors_of_frames_in_a_row_stay_apart() -> None:
    with descriptor() as one, descriptor() as other:
        got = await through([(Goodbye("a"), [one, other]), (Goodbye("b"), [other]), (Goodbye("c"), [])])
        assert [fds for _, fds in got] == [[file_of(one), file_of(other)], [file_of(other)], []]


async def test_descriptors_reach_a_frame_that_takes_several_reads() -> None:
    long = Goodbye("x" * 300_000)
    with descriptor() as one, descriptor() as other:
        got = await through([(Heartbeat(1.0), []), (long, [one]), (Heartbeat(2.0), []), (Goodbye("b"), [other])])
        assert [message for message, _ in got] == [Heartbeat(1.0), long, Heartbeat(2.0), Goodbye("b")]
        assert [fds for _, fds in got] == [[], [file_of(one)], [], [file_of(other)]]
