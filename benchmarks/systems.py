"""Every system that is measured: what starts its ranks at a place, and what it can do."""

import contextlib
import os
import resource
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from cases import BF16, MOVING, OPS
from places import Site
from processes import Environ, JobError, Process, ended_at_last, start, wait_for_all, with_end_of_log
from sampling import SETTINGS, Settings, collect
from service import hocket_service
from setup import peer_environ, python_of
from tables import BASE

HERE = Path(__file__).resolve().parent
REMARK = "congestion control: "
"""A rank's line that begins like this is kept beside the results."""


@dataclass(frozen=True, slots=True)
class Job:
    """What came of one job: a row for each case, what its processes used of the cores, and what they had to say."""

    rows: list[dict[str, Any]]
    cpu_s: float
    remark: str = ""


def run_job(system: str, settings: Settings, limit_s: float, site: Site) -> Job:
    """Measures all cases of ``settings`` with one system.

    Raises:
        JobError: a process failed, or the time was up.
    """
    before_s = _children_s()
    with open(Path(settings.folder, "log"), "w+b") as log:
        try:
            with SYSTEMS[system].launch(system, settings, log, site) as processes:
                wait_for_all(processes, limit_s)
        except JobError as failed:
            raise with_end_of_log(failed, log) from None
        log.seek(0)
        said = log.read().decode(errors="replace").splitlines()
    remark = next((line for line in said if line.startswith(REMARK)), "")
    return Job(collect(settings), _children_s() - before_s, remark)


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _environ(settings: Settings, own: Environ) -> Environ:
    """What every rank gets. Its modules lie beside this file; OpenMP has one thread, as launchers of ranks set it."""
    return own | {SETTINGS: settings.dump(), "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}


@contextlib.contextmanager
def _ranks(
    site: Site, command: Sequence[str | Path], environ: Callable[[int], Environ], log: IO[bytes]
) -> Iterator[list[Process]]:
    """One process for each rank, on its host; ``environ`` is asked for the host's."""
    processes: list[Process] = []
    with ended_at_last(processes):
        for rank in range(site.place.size):
            own = environ(site.place.host_of(rank)) | {"RANK": str(rank), "WORLD_SIZE": str(site.place.size)}
            processes.append(start([*site.prefix_of_rank(rank), *command], own, log))
        yield processes


# --- launchers -------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _hocket(_system: str, settings: Settings, log: IO[bytes], site: Site) -> Iterator[list[Process]]:
    """A coordinator, and a worker for each host, of their own for each job."""
    with hocket_service(site, log) as service:
        environ, program = _environ(settings, dict(os.environ)), [sys.executable, str(HERE / "rank_hocket.py")]
        with _ranks(site, program, lambda host: environ | service.environ(host), log) as ranks:
            yield ranks


@contextlib.contextmanager
def _gloo(system: str, settings: Settings, log: IO[bytes], site: Site) -> Iterator[list[Process]]:
    environ = _environ(settings, peer_environ()) | {"GLOO_SOCKET_IFNAME": site.interface}
    with _ranks(site, [python_of(system), HERE / "rank_gloo.py"], lambda _host: environ, log) as ranks:
        yield ranks


@contextlib.contextmanager
def _mpi(system: str, settings: Settings, log: IO[bytes], site: Site) -> Iterator[list[Process]]:
    """One mpiexec, which starts the ranks. Open MPI has to be told that more ranks than cores, and root, are meant."""
    python, environ = python_of(system), _environ(settings, peer_environ())
    options: list[str] = ["--allow-run-as-root", "--oversubscribe"] if system == "openmpi" else []
    if site.network:
        options, more = _mpich_between_hosts(settings, site)
        environ |= more
    program = [str(python), str(HERE / "rank_mpi.py")]
    command = [*site.prefix(0), str(python.with_name("mpiexec")), *options, "-n", str(settings.size), *program]
    processes = [start(command, environ, log)]
    with ended_at_last(processes):
        yield processes


def _mpich_between_hosts(settings: Settings, site: Site) -> tuple[list[str], Environ]:
    """MPICH's launcher starts a daemon on each host with a command that takes the place of ssh.

    So ranks of one host use its shared memory, and TCP to the others, as they would on machines of their own.
    """
    hosts = range(site.place.hosts)
    enter = "\n".join(f'{site.address(host)}) exec {" ".join(site.prefix(host))} sh -c "$*" ;;' for host in hosts)
    remote = Path(settings.folder, "remote")
    remote.write_text(
        f'#!/bin/sh\nwhile [ "${{1#-}}" != "$1" ]; do shift; done\nhost=$1\nshift\ncase $host in\n{enter}\nesac\n',
        encoding="utf-8",
    )
    remote.chmod(0o700)
    options = ["-launcher", "ssh", "-launcher-exec", str(remote), "-iface", site.interface]
    options += ["-hosts", ",".join(map(site.address, hosts)), "-ppn", str(site.place.per_host)]
    return options, {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp", "FI_TCP_IFACE": site.interface}


@contextlib.contextmanager
def _ray(system: str, settings: Settings, log: IO[bytes], _site: Site) -> Iterator[list[Process]]:
    """One process starts Ray, and in it an actor for each rank."""
    environ = _environ(settings, peer_environ()) | {"GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": str(HERE)}
    processes = [start([python_of(system), HERE / "rank_ray.py"], environ, log)]
    with ended_at_last(processes):
        yield processes


@contextlib.contextmanager
def _pccl(system: str, settings: Settings, log: IO[bytes], site: Site) -> Iterator[list[Process]]:
    """PCCL's master, which outlives the ranks, and these."""
    program = [python_of(system), HERE / "rank_pccl.py"]
    environ = _environ(settings, peer_environ())
    masters = [start([*program, "master"], environ, log)]
    with ended_at_last(masters), _ranks(site, program, lambda _host: environ, log) as ranks:
        yield ranks


Launch = Callable[[str, Settings, IO[bytes], Site], contextlib.AbstractContextManager[list[Process]]]


@dataclass(frozen=True, slots=True)
class System:
    """``launch``: the ranks have started when the context is entered, and have ended when it is left."""

    launch: Launch
    ops: tuple[str, ...] = tuple(op for op in OPS if op != BF16)
    kinds: tuple[str, ...] = ("host", "veth", "slow")
    by_default: bool = True


SYSTEMS = {
    BASE: System(_hocket, OPS),
    "gloo": System(_gloo),
    "openmpi": System(_mpi, kinds=("host",)),
    "mpich": System(_mpi),
    "ray": System(_ray, (*MOVING[:-1], "barrier"), ("host",), by_default=False),
    "pccl": System(_pccl, MOVING[:1], ("host",), by_default=False),
}
