"""Connections over real sockets: frames, payloads in place, descriptors, and ends that are told once."""

import asyncio
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from hocket.protocol.addresses import Address
from hocket.protocol.connection import Connection
from hocket.protocol.doorway import dial, listen
from hocket.protocol.errors import ConnectError, HocketError, WireError
from hocket.protocol.frames import encode_frame
from hocket.protocol.messages import Chunk, Credit, Goodbye, Heartbeat, Message

LOOPS: list[Callable[[], asyncio.AbstractEventLoop]] = [asyncio.new_event_loop, uvloop.new_event_loop]
both_loops = pytest.mark.parametrize("loop_factory", LOOPS, ids=["asyncio", "uvloop"])


class End:
    """One end of a connection, with what it was told."""

    def __init__(self, sock: socket.socket, room: bytearray | None = None) -> None:
        self.messages: asyncio.Queue[tuple[Message, int, list[int]]] = asyncio.Queue()
        self.closed: asyncio.Future[HocketError | None] = asyncio.get_running_loop().create_future()
        self.connection = Connection(sock, trusted=True)
        self.connection.start(
            lambda *what: self.messages.put_nowait(what),
            self.closed.set_result,
            None if room is None else lambda _message, _nbytes: [memoryview(room)],
        )


def pair(kind: str) -> tuple[socket.socket, socket.socket]:
    if kind == "unix":
        return socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        a = socket.create_connection(listener.getsockname())
        b, _ = listener.accept()
        return a, b


def run(loop_factory: Any, main: Any) -> None:
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(asyncio.wait_for(main, 20))


@both_loops
@pytest.mark.parametrize("kind", ["unix", "tcp"])
def test_a_large_payload_both_ways_at_once_lands_in_place(loop_factory: Any, kind: str) -> None:
    async def main() -> None:
        nbytes = 20_000_003
        rooms = bytearray(nbytes), bytearray(nbytes)
        ends = [End(sock, room) for sock, room in zip(pair(kind), rooms, strict=True)]
        data = [os.urandom(nbytes), os.urandom(nbytes)]
        for end, sent in zip(ends, data, strict=True):
            end.connection.send(Chunk(1, "c", 2, 3, 4), [memoryview(sent)[:7], memoryview(sent)[7:]])
            end.connection.send(Heartbeat(1.0))
        for end in ends:
            assert (await end.messages.get())[:2] == (Chunk(1, "c", 2, 3, 4), nbytes)
            assert (await end.messages.get())[0] == Heartbeat(1.0)
            await end.connection.written()
        assert (rooms[1], rooms[0]) == (data[0], data[1])
        for end in ends:
            end.connection.close()
            assert await end.closed is None

    run(loop_factory, main())


@both_loops
def test_descriptors_arrive_with_the_frame_that_brought_them(loop_factory: Any) -> None:
    async def main() -> None:
        left, right = [End(sock) for sock in pair("unix")]
        reads, writes = os.pipe()
        left.connection.send(Heartbeat(1.0))
        left.connection.send(Heartbeat(2.0), fds=[writes])
        left.connection.send(Heartbeat(3.0))
        os.close(writes)
        found = [await right.messages.get() for _ in range(3)]
        assert [len(fds) for _, _, fds in found] == [0, 1, 0]
        os.write(found[1][2][0], b"x")
        assert os.read(reads, 1) == b"x"
        os.close(found[1][2][0])
        os.close(reads)
        left.connection.close()
        assert await right.closed is None

    run(loop_factory, main())


@both_loops
def test_what_was_said_before_the_other_side_closed_is_still_heard(loop_factory: Any) -> None:
    async def main() -> None:
        left, right = [End(sock) for sock in pair("unix")]
        left.connection.send(Goodbye("left"))
        left.connection.close()
        right.connection.send(Credit(1, "c", 2, 3))  # finds the pipe broken before the goodbye was read
        assert (await right.messages.get())[0] == Goodbye("left")
        await right.closed

    run(loop_factory, main())


@pytest.mark.parametrize("junk", [b"GET / HTTP/1.1\r\n\r\n", os.urandom(1) * 64, encode_frame(Heartbeat(1.0))[:-2]])
def test_junk_and_half_frames_close_the_connection_with_a_wire_error(junk: bytes) -> None:
    async def main() -> None:
        left, right = pair("tcp")
        end = End(right)
        left.sendall(junk)
        left.close()
        assert isinstance(await end.closed, WireError)

    run(None, main())


def test_sending_on_a_closed_connection_is_quiet_and_waiting_says_why() -> None:
    async def main() -> None:
        left, right = [End(sock) for sock in pair("tcp")]
        left.connection.close(WireError("enough"))
        left.connection.send(Heartbeat(1.0))
        with pytest.raises(WireError, match="enough"):
            await left.connection.written()
        assert isinstance(await left.closed, WireError)
        assert await right.closed is None

    run(None, main())


def test_waiting_for_what_cannot_leave_ends_when_the_other_side_does() -> None:
    async def main() -> None:
        left, right = pair("tcp")
        end = End(left)
        end.connection.send(Chunk(1, "c", 2, 3, 4), [memoryview(bytearray(50_000_000))])
        waiting = asyncio.ensure_future(end.connection.written())
        await asyncio.sleep(0)
        right.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        right.close()
        with pytest.raises(HocketError):
            await waiting
        await end.closed

    run(None, main())


def test_dialling_where_nobody_listens_names_the_address_and_the_setting() -> None:
    async def main() -> None:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            port = unused.getsockname()[1]
        with pytest.raises(ConnectError, match=rf"127\.0\.0\.1:{port}.*refused.*--coordinator") as caught:
            await dial(Address("127.0.0.1", port), "--coordinator")
        assert caught.value.setting == "--coordinator"
        with pytest.raises(ConnectError, match="No such file"):
            await dial(Address(path="/nonexistent/x.sock"), "HOCKET_WORKER")

    run(None, main())


def test_a_name_that_stands_for_ipv6_first_falls_back_to_ipv4() -> None:
    async def main() -> None:
        listener = listen(Address("127.0.0.1", 0), "x")
        connection = await dial(Address("localhost", listener.getsockname()[1]), "x")
        assert connection.peer_host == "127.0.0.1"
        connection.close()
        listener.close()

    run(None, main())


def test_a_taken_port_is_named_with_the_setting_that_changes_it() -> None:
    listener = listen(Address("127.0.0.1", 0), "--http-port")
    with pytest.raises(ConnectError, match="in use.*--http-port"):
        listen(Address("127.0.0.1", listener.getsockname()[1]), "--http-port")
    listener.close()


def test_a_socket_that_a_killed_worker_left_is_taken_over_but_not_that_of_a_living_one(tmp_path: Path) -> None:
    path = str(tmp_path / "deep" / "w.sock")
    first = listen(Address(path=path), "--socket")
    with pytest.raises(ConnectError, match="in use"):
        listen(Address(path=path), "--socket")
    first.close()
    second = listen(Address(path=path), "--socket")
    assert os.stat(path).st_mode & 0o777 == 0o600
    second.close()
