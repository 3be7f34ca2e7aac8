"""A socket that speaks frames, on any asyncio loop: the one shell around `frames` for all of hocket's connections.

Raw non-blocking sockets rather than transports: payloads are received straight into place, what is sent is known to be
sent before its memory is used again, and Unix sockets pass descriptors along.
"""

import asyncio
import contextlib
import logging
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hocket.protocol.addresses import Address
from hocket.protocol.errors import ConnectError, HocketError, WireError
from hocket.protocol.frames import Buffers, FrameReader, encode_frame
from hocket.protocol.limits import FRAME_FDS, LIVENESS_S
from hocket.protocol.messages import Message

log = logging.getLogger("hocket.protocol")

OnMessage = Callable[[Message, int, list[int]], None]
OnClosed = Callable[[HocketError | None], None]
READS_AT_ONCE = 16
FEW_NBYTES = 16 << 10
"""A read that brings less than this, and less than there was room for, has emptied the socket: it was no large payload,
of which more would be on its way."""
BUFFERS_AT_ONCE = 64


@dataclass(slots=True)
class _Outgoing:
    buffers: deque[memoryview]
    fds: list[int]
    written: asyncio.Future[None] | None = None


@dataclass(slots=True)
class _Incoming:
    """Messages that came before anybody asked for them, during the handshake."""

    messages: deque[tuple[Message, int, list[int]]] = field(default_factory=deque)
    waiter: asyncio.Future[None] | None = None


class Connection:
    """Frames in and out over one socket. All calls are made on the loop's thread.

    Until `start`, messages are fetched with `receive`; from then on they are handed to a callback. ``error`` is None
    for a close in good order (the other side's end of file between two frames, or ours).
    """

    def __init__(self, sock: socket.socket, *, trusted: bool = False) -> None:
        sock.setblocking(False)
        self._socket = sock
        self._loop = asyncio.get_running_loop()
        self._is_unix = sock.family == socket.AF_UNIX
        if not self._is_unix:
            _tune(sock)
        self._reader = FrameReader(self._sink, trusted=trusted)
        self._user_sink: Callable[[Message, int], Buffers | None] | None = None
        self._on_message: OnMessage | None = None
        self._on_closed: OnClosed | None = None
        self._fds: list[int] = []
        """descriptors of the frame that is incomplete"""
        self._fresh_fds: list[int] = []
        """descriptors of the last read, whose frame is not known yet"""
        self._paused = self._ending = False
        self._inbox = _Incoming()
        self._outbox: deque[_Outgoing] = deque()
        self._writing = False
        self.closed = False
        self.error: HocketError | None = None
        self.peer = peer_name(sock)
        self._loop.add_reader(sock, self._readable)

    # --- receiving ---------------------------------------------------------------------------------------------------

    def trust(self) -> None:
        """Lifts the limits that hold before authentication."""
        self._reader.trusted = True

    def start(
        self, on_message: OnMessage, on_closed: OnClosed, sink: Callable[[Message, int], Buffers | None] | None = None
    ) -> None:
        """From now on ``on_message(message, payload_nbytes, fds)`` gets what comes, ``sink`` places payloads.

        The receiver of descriptors owns them. ``on_closed`` is called once, also where the connection has ended
        already.
        """
        self._on_message, self._on_closed, self._user_sink = on_message, on_closed, sink
        while self._inbox.messages and not self.closed:
            on_message(*self._inbox.messages.popleft())
        if self.closed:
            self._loop.call_soon(on_closed, self.error)
        else:
            self._resume()

    async def receive(self) -> Message:
        """The next message before `start`; descriptors that came with it are closed.

        Raises the connection's error, or `WireError` at its end.
        """
        while not self._inbox.messages:
            if self.closed:
                raise self.error or WireError("the connection was closed before an answer came")
            self._inbox.waiter = self._loop.create_future()
            self._resume()
            await self._inbox.waiter
        message, _, fds = self._inbox.messages.popleft()
        _close_all(fds)
        return message

    def _pause(self) -> None:
        """Before `start` messages come one by one: what each says may change what holds for the bytes behind it."""
        if not self._paused:
            self._paused = True
            self._loop.remove_reader(self._socket)

    def _resume(self) -> None:
        if self._paused:
            self._paused = False
            self._loop.add_reader(self._socket, self._readable)
            self._loop.call_soon(self._readable)  # for what has been received already

    def _sink(self, message: Message, nbytes: int) -> Buffers | None:
        return self._user_sink(message, nbytes) if self._user_sink else None

    def _readable(self) -> None:
        try:
            for _ in range(READS_AT_ONCE):
                if not self._deliver_all():
                    return
                buffer = self._reader.buffer()
                nbytes = self._receive_some(buffer)
                if nbytes == 0:
                    self.close(None if self._reader.idle else WireError("the connection ended inside a frame"))
                    return
                self._reader.took(nbytes)
                if nbytes < min(len(buffer), FEW_NBYTES) and not self._is_unix:
                    break  # there was no more, most likely: asking again would cost a call that finds nothing
            self._deliver_all()
        except (BlockingIOError, InterruptedError):
            return
        except OSError as broken:
            self.close(_translated(broken, self.peer))
        except HocketError as broken:
            self.close(broken)
        except Exception as broken:  # a fault of ours: the stream cannot be gone on with, and its other end is to know
            log.exception("%s: a message could not be dealt with", self.peer)
            self.close(WireError(f"a message could not be dealt with: {broken!r}"))

    def _receive_some(self, buffer: memoryview) -> int:
        if not self._is_unix:
            return self._socket.recv_into(buffer)
        nbytes, ancillary, _, _ = self._socket.recvmsg_into(
            [buffer], socket.CMSG_SPACE(FRAME_FDS * 4), socket.MSG_CMSG_CLOEXEC
        )
        fds: list[int] = []
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                whole = len(data) - len(data) % 4
                fds += [int.from_bytes(data[i : i + 4], "little") for i in range(0, whole, 4)]
        self._fresh_fds = fds
        return nbytes

    def _deliver_all(self) -> bool:
        """Hands on what is complete. Returns whether more may be read.

        A read ends behind the bytes that descriptors were sent with, and may begin with earlier frames: those of this
        read belong to the last frame that it has bytes of, complete or not.
        """
        while not self.closed and not self._paused:
            if self._on_message is None and self._inbox.messages and not self._ending:
                self._pause()
                return False
            found = self._reader.next()
            if found is None or self._reader.idle:
                self._fds += self._fresh_fds
                self._fresh_fds = []
                if len(self._fds) > FRAME_FDS:
                    raise WireError(f"more than {FRAME_FDS} descriptors came with one frame")
            if found is None:
                return True
            self._deliver(*found)
        return False

    def _deliver(self, message: Message, payload_nbytes: int) -> None:
        fds, self._fds = self._fds, []
        if self._on_message is not None:
            self._on_message(message, payload_nbytes, fds)
            return
        self._inbox.messages.append((message, payload_nbytes, fds))
        if self._inbox.waiter is not None and not self._inbox.waiter.done():
            self._inbox.waiter.set_result(None)

    # --- sending -----------------------------------------------------------------------------------------------------

    @property
    def queued(self) -> int:
        """Frames that the socket has not taken yet."""
        return len(self._outbox)

    def send(self, message: Message, payload: Sequence[memoryview] = (), fds: Sequence[int] = ()) -> None:
        """Sends a frame, at once as far as the socket takes it. ``payload`` must stay as it is until `written`.

        Descriptors are duplicated, so the caller may close its own. On a closed connection it does nothing:
        ``on_closed`` tells.
        """
        if self.closed:
            return
        views = [view if view.format == "B" and view.ndim == 1 else view.cast("B") for view in payload]
        head = encode_frame(message, sum(map(len, views)))
        if not views and not fds and not self._outbox and self._send_at_once(head):
            return
        buffers = deque([memoryview(head), *(view for view in views if len(view))])
        self._outbox.append(_Outgoing(buffers, [os.dup(fd) for fd in fds]))
        if len(self._outbox) == 1:
            self._writable()

    def _send_at_once(self, data: bytes) -> bool:
        """Sends a frame that nothing waits before. False: the socket has taken nothing of it."""
        try:
            sent = self._socket.send(data)
        except OSError:
            return False  # what is wrong will be found out in the longer way
        if sent < len(data):
            self._outbox.append(_Outgoing(deque([memoryview(data)[sent:]]), []))
            self._writable()
        return True

    async def written(self) -> None:
        """Waits until all that was sent so far is in the kernel's hands. Raises the connection's error if it ends."""
        if self.closed:
            raise self.error or WireError("the connection is closed")
        if self._outbox:
            last = self._outbox[-1]
            if last.written is None:
                last.written = self._loop.create_future()
            await asyncio.shield(last.written)

    def _writable(self) -> None:
        try:
            while self._outbox:
                self._send_some(self._outbox[0])
        except (BlockingIOError, InterruptedError):
            if not self._writing:
                self._writing = True
                self._loop.add_writer(self._socket, self._writable)
            return
        except OSError as broken:
            self._cannot_send(_translated(broken, self.peer))
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self._socket)

    def _cannot_send(self, error: HocketError) -> None:
        """The other side has closed: what it said before that, such as a goodbye, is still to be read."""
        self._drop_outbox(error)
        self._loop.call_soon(self._read_the_rest, error)

    def _read_the_rest(self, error: HocketError) -> None:
        if not self.closed:
            self._ending, self._paused = True, False
            self._readable()
            self.close(error)

    def _send_some(self, first: _Outgoing) -> None:
        buffers = [first.buffers[i] for i in range(min(len(first.buffers), BUFFERS_AT_ONCE))]
        if first.fds:
            sent = socket.send_fds(self._socket, buffers, first.fds)
            _close_all(first.fds)
            first.fds = []
        else:
            sent = self._socket.sendmsg(buffers)
        while sent:
            taken = min(sent, len(first.buffers[0]))
            sent -= taken
            if taken == len(first.buffers[0]):
                first.buffers.popleft()
            else:
                first.buffers[0] = first.buffers[0][taken:]
        if not first.buffers:
            self._outbox.popleft()
            if first.written is not None and not first.written.done():
                first.written.set_result(None)

    # --- the end -----------------------------------------------------------------------------------------------------

    def close(self, error: HocketError | None = None) -> None:
        """Closes the socket and tells ``on_closed``. Closing twice is harmless."""
        if self.closed:
            return
        self.closed, self.error = True, error
        self._loop.remove_reader(self._socket)
        if self._writing:
            self._loop.remove_writer(self._socket)
        self._socket.close()
        for _, _, fds in self._inbox.messages:
            _close_all(fds)
        _close_all([*self._fds, *self._fresh_fds])
        self._fds, self._fresh_fds = [], []
        self._drop_outbox(error)
        if self._inbox.waiter is not None and not self._inbox.waiter.done():
            self._inbox.waiter.set_result(None)
        if self._on_closed is not None:
            self._loop.call_soon(self._on_closed, error)

    def _drop_outbox(self, error: HocketError | None) -> None:
        for outgoing in self._outbox:
            _close_all(outgoing.fds)
            if outgoing.written is not None and not outgoing.written.done():
                outgoing.written.set_exception(error or WireError("the connection is closed"))
                outgoing.written.exception()
        self._outbox.clear()

    @property
    def local_host(self) -> str:
        """Our own address on this connection: the one of our route to the other side."""
        return str(self._socket.getsockname()[0])

    @property
    def peer_host(self) -> str:
        """The other side's address, empty on a Unix socket."""
        return "" if self._is_unix else str(self._socket.getpeername()[0])

    def credentials(self) -> tuple[int, int, int]:
        """Process, user and group id of the other end of a Unix socket (pid 0 from another pid namespace)."""
        data = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        pid, uid, gid = (int.from_bytes(data[i : i + 4], "little", signed=True) for i in (0, 4, 8))
        return pid, uid, gid


def _close_all(fds: Sequence[int]) -> None:
    for fd in fds:
        with contextlib.suppress(OSError):  # nothing is to be done about a descriptor that is gone already
            os.close(fd)


def peer_name(sock: socket.socket) -> str:
    """The other side for a log line."""
    try:
        name = sock.getpeername()
    except OSError:
        return "a connection that is gone"
    return (
        str(Address(name[0], name[1])) if isinstance(name, tuple) else f"unix socket {sock.getsockname() or ''}".strip()
    )


def _tune(sock: socket.socket) -> None:
    """Small frames leave at once; a dead host is noticed by keepalive, which a stopped process still answers.

    Congestion control is cubic, where the kernel has it and lets us: bbr, some kernels' default, paces what it sends
    and moves half as much between hosts that are near to each other. It is asked for and not insisted on.
    """
    with contextlib.suppress(OSError):  # ENOENT: not in this kernel; EPERM: not allowed to this user
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, max(1, int(LIVENESS_S) - 1))


def _translated(broken: OSError, peer: str) -> HocketError:
    error = ConnectError(peer, "the network", os.strerror(broken.errno) if broken.errno else str(broken))
    error.__cause__ = broken
    return error
