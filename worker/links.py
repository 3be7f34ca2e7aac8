"""Data links to other hosts: one connection for each pair of workers, dialled by the one with the lower number."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from hocket.protocol.addresses import Address
from hocket.protocol.connection import Connection
from hocket.protocol.doorway import dial
from hocket.protocol.errors import ConnectError, HocketError, WireError
from hocket.protocol.frames import Buffers
from hocket.protocol.handshake import introduce
from hocket.protocol.limits import CONNECT_TIMEOUT_S, HANDSHAKE_TIMEOUT_S, RECONNECT_FIRST_S
from hocket.protocol.messages import HostInfo, Message, PeerHello

log = logging.getLogger("hocket.worker")

OnPeerMessage = Callable[[int, Message, int], None]
OnPeerGone = Callable[[int, HocketError], None]
PeerSink = Callable[[int, Message, int], Buffers | None]


@dataclass(slots=True)
class _Link:
    host: HostInfo
    me: int
    """our own number, as the groups that use this link know it"""
    connection: Connection | None = None
    backlog: list[tuple[Message, list[memoryview]]] = field(default_factory=list)
    up: asyncio.Event = field(default_factory=asyncio.Event)
    gone: HocketError | None = None
    dialler: asyncio.Task[None] | None = None


class Links:
    """All data links of one worker."""

    def __init__(self, token: bytes, on_message: OnPeerMessage, on_gone: OnPeerGone, sink: PeerSink) -> None:
        self._token = token
        self._on_message, self._on_gone, self._sink = on_message, on_gone, sink
        self._links: dict[int, _Link] = {}
        self.me = -1
        self.instance = ""

    def ensure(self, host: HostInfo) -> None:
        """Sees to it that there is a link to ``host``, now or soon. One that has ended is made anew."""
        if not self.is_reachable(host.host):
            self.forget(host.host)
            link = self._links[host.host] = _Link(host, self.me)
            if link.me < host.host:
                link.dialler = asyncio.get_running_loop().create_task(self._dial(link))
            else:
                link.dialler = asyncio.get_running_loop().create_task(self._await_dialler(link))

    def is_reachable(self, host: int) -> bool:
        """Whether the link to ``host`` is up or coming up."""
        link = self._links.get(host)
        return link is not None and link.gone is None

    def send(self, host: int, message: Message, payload: Iterable[memoryview] = ()) -> None:
        """Sends, or keeps the message until the link is up. To a host that is gone it sends nothing."""
        link = self._links.get(host)
        if link is None or link.gone is not None:
            return
        if link.connection is None:
            link.backlog.append((message, list(payload)))
        else:
            link.connection.send(message, list(payload))

    async def sent(self, host: int) -> None:
        """Waits until all that was sent has left. Raises the error that ended the link."""
        link = self._links.get(host)
        if link is None:
            return
        if link.connection is None:
            await link.up.wait()
        if link.gone is not None:
            raise link.gone
        assert link.connection is not None
        if link.connection.queued:
            await link.connection.written()

    async def accept(self, connection: Connection) -> None:
        """Takes a connection of a peer that has proved itself; a wrong incarnation is refused.

        A second connection means that the peer has lost the first one, whether or not we have heard so.
        """
        try:
            async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
                hello = await connection.receive()
        except TimeoutError:
            raise WireError(f"it did not say who it is within {HANDSHAKE_TIMEOUT_S:g} s") from None
        if not isinstance(hello, PeerHello) or hello.wanted != self.instance:
            raise WireError("it looks for another worker than this one")
        link = self._links.get(hello.host)
        if link is not None and link.connection is not None:
            self._gone(link, ConnectError(connection.peer, "the network", "the other side connected anew"))
            self.forget(hello.host)
            link = None
        if link is None or link.gone is not None:
            link = self._links[hello.host] = _Link(HostInfo(hello.host, "", "", 0, 0, hello.instance), self.me)
        self._attach(link, connection)

    async def _dial(self, link: _Link) -> None:
        address = Address(link.host.address, link.host.port)
        last: HocketError = ConnectError(str(address), "--data-address of that worker", "no answer")
        deadline_s = asyncio.get_running_loop().time() + CONNECT_TIMEOUT_S
        while asyncio.get_running_loop().time() < deadline_s:
            try:
                connection = await dial(address, f"the data address of host {link.host.name}")
                await introduce(connection, "peer", "", self._token)
                connection.send(PeerHello(link.me, self.instance, link.host.instance))
                self._attach(link, connection)
                return
            except HocketError as error:
                last = error
                await asyncio.sleep(RECONNECT_FIRST_S)
        self._gone(link, last)

    async def _await_dialler(self, link: _Link) -> None:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S + 2):
                await link.up.wait()
        except TimeoutError:
            address = Address(link.host.address, link.host.port)
            self._gone(link, ConnectError(str(address), "the network", f"host {link.host.name} did not connect to us"))

    def _attach(self, link: _Link, connection: Connection) -> None:
        host = link.host.host
        link.connection = connection
        for message, payload in link.backlog:
            connection.send(message, payload)
        link.backlog.clear()
        link.up.set()
        connection.start(
            lambda message, nbytes, _fds: self._on_message(host, message, nbytes),
            lambda error: self._gone(link, error or ConnectError(connection.peer, "the network", "link closed")),
            lambda message, nbytes: self._sink(host, message, nbytes),
        )

    def _gone(self, link: _Link, error: HocketError) -> None:
        if link.gone is None and self._links.get(link.host.host) is link:
            link.gone = error
            link.up.set()
            self._on_gone(link.host.host, error)

    def forget(self, host: int) -> None:
        """Drops the link to a host that no group needs any more, or that is gone."""
        link = self._links.pop(host, None)
        if link is not None:
            if link.dialler is not None:
                link.dialler.cancel()
            if link.connection is not None:
                link.connection.close()

    async def close(self) -> None:
        """Closes all links."""
        diallers = [link.dialler for link in self._links.values() if link.dialler is not None]
        for host in list(self._links):
            self.forget(host)
        await asyncio.gather(*diallers, return_exceptions=True)
