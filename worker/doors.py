"""The sockets that a worker listens on, and the tasks behind them: who comes in has proved itself first."""

import asyncio
import errno
import logging
import socket
from collections.abc import Awaitable, Callable, Coroutine

from hocket.protocol.addresses import Address
from hocket.protocol.connection import Connection, peer_name
from hocket.protocol.doorway import listen
from hocket.protocol.errors import HocketError
from hocket.protocol.handshake import admit

log = logging.getLogger("hocket.worker")

OVERLOADED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
OVERLOAD_PAUSE_S = 1.0
STRANGERS = 512
"""Connections that may be at the door at a time, neither in nor turned away yet."""

Enter = Callable[[Connection], Awaitable[None]]


class Doors:
    """Listeners by role. Strangers are logged with their address and turned away; they cost nothing else."""

    def __init__(self, token: bytes, socket_mode: int) -> None:
        self._token, self._socket_mode = token, socket_mode
        self._listeners: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def open(self, address: Address, setting: str, role: str, enter: Enter) -> socket.socket:
        """Listens; whoever proves to be of the role is handed to ``enter``. Raises `ConnectError`, naming the setting.

        The Unix socket asks for no token: who may open it is told by its mode.
        """
        sock = listen(address, setting, self._socket_mode)
        self._listeners.append(sock)
        token = b"" if address.path else self._token

        def accept() -> None:
            try:
                taken, _ = sock.accept()
            except OSError as gone:
                log.debug("nobody came in at %s: %s", address, gone)
                if gone.errno in OVERLOADED:  # else the loop would ask again at once, for as long as it lasts
                    loop.remove_reader(sock)
                    self.spawn(self._try_again(sock, accept))
                return
            if len(self._tasks) >= STRANGERS:
                log.warning("%s turned away: %d others are at the door already", peer_name(taken), STRANGERS)
                taken.close()
                return
            self.spawn(self._admit(Connection(taken), role, token, enter))

        loop = asyncio.get_running_loop()
        loop.add_reader(sock, accept)
        return sock

    async def _try_again(self, sock: socket.socket, accept: Callable[[], None]) -> None:
        await asyncio.sleep(OVERLOAD_PAUSE_S)
        if sock.fileno() >= 0:
            asyncio.get_running_loop().add_reader(sock, accept)

    async def _admit(self, connection: Connection, role: str, token: bytes, enter: Enter) -> None:
        try:
            await admit(connection, (role,), token)
            await enter(connection)
        except HocketError as error:
            log.warning("%s turned away: %s", connection.peer, error)
            connection.close(error)
        except BaseException:  # the doors close
            connection.close()
            raise

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        """Runs a task that ends with the doors at the latest."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Closes all listeners and ends all tasks. Closing twice is harmless."""
        while self._listeners:  # first, so that nobody comes in behind our back
            listener = self._listeners.pop()
            asyncio.get_running_loop().remove_reader(listener)
            listener.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
