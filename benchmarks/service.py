"""A hocket of its own for each job: a coordinator, and a worker on each host."""

import contextlib
import os
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from places import Site
from processes import POLL_S, Environ, JobError, Process, ended_at_last, start

START_LIMIT_S = 20.0
PORT = 7420
"""The coordinator's, on an emulated host, where no other has it."""


@dataclass(slots=True)
class Service:
    """What runs. ``workers`` are the processes, one for each host."""

    folder: str
    workers: list[Process]

    def environ(self, host: int) -> Environ:
        """What the ranks on a host need to find their worker."""
        return {"HOCKET_WORKER": f"unix:{_socket(self.folder, host)}"}


def _socket(folder: str, host: int) -> str:
    return f"{folder}/worker{host}.sock"


@contextlib.contextmanager
def hocket_service(site: Site, log: IO[bytes]) -> Iterator[Service]:
    """Starts all that ranks at a place need, and ends it afterwards.

    Raises:
        JobError: something did not start.
    """
    running: list[Process] = []
    with tempfile.TemporaryDirectory(prefix="hk") as folder, _mailbox(folder) as mailbox, ended_at_last(running):
        told = dict(os.environ) | {"NOTIFY_SOCKET": mailbox.getsockname()}
        port = PORT if site.network else _free_port()
        token = _token(folder) if site.network else []
        coordinator = ["hocket.coordinator", "--host", site.address(0), "--port", str(port), "--http-port", "0"]
        commands = [(0, [*coordinator, *token])]
        for host in range(site.place.hosts):
            commands.append((host, ["hocket.worker", *_worker_options(site, host, folder, port), *token]))
        for host, command in commands:
            running.append(start([*site.prefix(host), sys.executable, "-m", *command], told, log))
            _wait_until_ready(command[0], running[-1], mailbox)
        yield Service(folder, running[1:])


def _worker_options(site: Site, host: int, folder: str, port: int) -> list[str]:
    options = ["--coordinator", f"{site.address(0)}:{port}", "--socket", _socket(folder, host), "--name", f"host{host}"]
    return options if site.network else [*options, "--data-address", "127.0.0.1:0"]


def _token(folder: str) -> list[str]:
    """What listens beyond loopback wants one."""
    file = Path(folder, "token")
    file.write_text("known to these hosts alone", encoding="ascii")
    file.chmod(0o600)
    return ["--token-file", str(file)]


@contextlib.contextmanager
def _mailbox(folder: str) -> Iterator[socket.socket]:
    """Where daemons say that they are ready, the way they say so to systemd."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as mailbox:
        mailbox.bind(f"{folder}/notify")
        mailbox.settimeout(POLL_S)
        yield mailbox


def _wait_until_ready(module: str, process: Process, mailbox: socket.socket) -> None:
    end_s = time.monotonic() + START_LIMIT_S
    while time.monotonic() < end_s:
        if process.poll() is not None:
            raise JobError(f"{module} ended with {process.returncode}")
        with contextlib.suppress(TimeoutError):
            if b"READY=1" in mailbox.recv(4096):
                return
    raise JobError(f"{module} was not ready within {START_LIMIT_S:.0f} s")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
