"""A service of one's own for one run: a coordinator and a worker for each emulated host, as child processes."""

import asyncio
import os
import re
import signal
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass

from hocket.cli.processes import Child, Children, Sink, end_groups
from hocket.protocol.errors import ArgumentError, HocketError

START_S = 30.0
"""How long a daemon may take until it serves."""
STOP_STEPS = ((signal.SIGTERM, 3.0), (signal.SIGKILL, 2.0))
HOSTS = 250
"""Hosts that can be emulated: each has an address of its own, 127.0.0.1 to 127.0.0.250."""
KEPT_SETTINGS = ("HOCKET_TOKEN_FILE", "HOCKET_LIVENESS_S", "HOCKET_HEARTBEAT_S")
NOT_OURS = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
"""Settings by which systemd speaks to the launcher, and only to it."""
LISTENS = re.compile(rb"coordinator listening on (\S+), http on (\S+)")
REGISTERED = re.compile(rb"registered with coordinator")


@dataclass(slots=True)
class Service:
    """Where a run's ranks find it: ``workers[h]`` for those on host h, ``http`` for commands such as ``hocket ops``."""

    workers: list[str]
    http: str


class Embedded:
    """Starts and stops the service. ``sink(label)`` takes what its daemons log, ``on_end`` hears if one ends early."""

    def __init__(self, children: Children, folder: str, sink: Callable[[str], Sink], on_end: Callable[[Child], None]):
        self._children, self._folder, self._sink, self._on_end = children, folder, sink, on_end
        self._daemons: list[Child] = []
        self._stopping = False
        self._env = {k: v for k, v in os.environ.items() if not k.startswith("HOCKET_") and k not in NOT_OURS}
        self._env |= {key: os.environ[key] for key in KEPT_SETTINGS if key in os.environ}

    async def start(self, hosts: int, http_port: int) -> Service:
        """Starts everything on free ports of the loopback addresses.

        Raises:
            ArgumentError: too many hosts.
            HocketError: a daemon did not come up; it says why.
        """
        if not 1 <= hosts <= HOSTS:
            raise ArgumentError("--hosts", str(hosts), f"1 to {HOSTS} emulated hosts")
        found = await self._daemon("coordinator", LISTENS, "--host", "127.0.0.1", "--port", "0",
                                   "--http-host", "127.0.0.1", "--http-port", str(http_port))  # fmt: skip
        coordinator, http = found[1].decode(), found[2].decode()
        sockets = [f"{self._folder}/worker{host}.sock" for host in range(hosts)]
        starting = []
        for host, path in enumerate(sockets):
            name = ("--name", f"host{host}") if hosts > 1 else ()
            options = ("--coordinator", coordinator, "--socket", path, "--data-address", f"127.0.0.{host + 1}:0")
            label = f"worker {host}" if hosts > 1 else "worker"
            starting.append(self._daemon(label, REGISTERED, *options, *name))
        for outcome in await asyncio.gather(*starting, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome
        return Service([f"unix:{path}" for path in sockets], http)

    async def _daemon(self, label: str, ready: "re.Pattern[bytes]", *options: str) -> "re.Match[bytes]":
        """Starts a daemon and waits for the line of its log that says it serves."""
        heard: asyncio.Future[re.Match[bytes] | None] = asyncio.get_running_loop().create_future()
        show = self._sink(label)

        def look(fd: int, lines: list[bytes]) -> None:
            show(fd, lines)
            for match in filter(None, map(ready.search, lines)):
                if not heard.done():
                    heard.set_result(match)

        def ended(child: Child) -> None:
            if not heard.done():
                heard.set_result(None)
            elif not self._stopping:
                self._on_end(child)

        command = [sys.executable, "-m", f"hocket.{label.split()[0]}", *options]
        child = self._children.start(label, command, self._env, look, ended)
        self._daemons.append(child)
        try:
            async with asyncio.timeout(START_S):
                match = await heard
        except TimeoutError:
            raise HocketError(f"the {label} did not serve within {START_S:g} s: {last_line(child)}") from None
        if match is None:
            await child.drain()
            raise HocketError(f"the {label} did not start: {last_line(child)}")
        return match

    async def stop(self) -> None:
        """Ends the daemons, the coordinator last."""
        self._stopping = True
        for daemons in (self._daemons[1:], self._daemons[:1]):
            await end_groups(daemons, STOP_STEPS)
            for daemon in daemons:
                await daemon.ended.wait()
                await daemon.drain()


def last_line(child: Child) -> str:
    """What a daemon said last, its name left out."""
    lines = [line.decode(errors="replace").strip() for line in child.tail if line.strip()]
    return re.sub(r"^hocket \w+: ", "", lines[-1]) if lines else "it said nothing"


def folder_for_sockets() -> str:
    """Where to make the folder of a run: the kernel takes 107 bytes for the path of a socket, and no more."""
    usual = tempfile.gettempdir()
    return usual if len(os.fsencode(usual)) <= 64 else "/tmp"
