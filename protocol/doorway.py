"""Ways to a `Connection`: dialling an address, and the listening socket at the other end."""

import asyncio
import os
import socket

from hocket.protocol.addresses import Address
from hocket.protocol.connection import Connection
from hocket.protocol.errors import ConnectError
from hocket.protocol.limits import CONNECT_TIMEOUT_S, SOCKET_MODE


async def dial(address: Address, setting: str, timeout_s: float = CONNECT_TIMEOUT_S) -> Connection:
    """Connects, trying each number that a host name stands for.

    Raises:
        ConnectError: nobody answers; it names the address and ``setting``, what changes it.
    """
    loop = asyncio.get_running_loop()
    failures: list[str] = []
    try:
        async with asyncio.timeout(timeout_s):
            for family, target in await _targets(address):
                sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
                try:
                    sock.setblocking(False)
                    await loop.sock_connect(sock, target)
                    return Connection(sock)
                except OSError as broken:
                    sock.close()
                    failures.append(os.strerror(broken.errno) if broken.errno else str(broken))
                except BaseException:
                    sock.close()
                    raise
    except TimeoutError:
        failures.append(f"no answer within {timeout_s:g} s")
    except socket.gaierror as unknown:
        failures.append(f"unknown host: {unknown.strerror}")
    raise ConnectError(str(address), setting, "; ".join(dict.fromkeys(failures)) or "no address found")


async def _targets(address: Address) -> list[tuple[socket.AddressFamily, str | tuple[str, int]]]:
    if address.path:
        return [(socket.AF_UNIX, address.path)]
    infos = await asyncio.get_running_loop().getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    return [(info[0], info[4]) for info in infos]  # type: ignore[misc]


def listen(address: Address, setting: str, socket_mode: int = SOCKET_MODE) -> socket.socket:
    """A listening socket, non-blocking.

    ``socket_mode`` is for a Unix socket; its folder, where that is missing, lets the same users pass.

    Raises:
        ConnectError: the address cannot be had; it names the address and the setting that changes it.
    """
    try:
        if address.path:
            return _listen_unix(address.path, socket_mode)
        infos = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, target = infos[0]
        sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.bind(target)
            sock.listen(1024)
            sock.setblocking(False)
        except OSError:
            sock.close()
            raise
        return sock
    except (OSError, UnicodeError) as broken:
        detail = broken.strerror if isinstance(broken, OSError) and broken.strerror else str(broken)
        raise ConnectError(str(address), setting, detail) from broken


def _listen_unix(path: str, mode: int) -> socket.socket:
    passing = (0o010 if mode & 0o070 else 0) | (0o001 if mode & 0o007 else 0)  # whoever may connect must get there
    os.makedirs(os.path.dirname(path) or ".", mode=0o700 | passing, exist_ok=True)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            if os.path.exists(path) and probe.connect_ex(path) != 0:
                os.unlink(path)  # left by a worker that was killed: nobody listens there
        sock.bind(path)
        os.chmod(path, mode)
        sock.listen(1024)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock
