"""A host with systemd as its first process, and hocket installed: a container on an overlay of this machine's root.

Nothing is downloaded and nothing on the machine is changed: what the host writes goes to memory, its network is a
loopback of its own, and its mounts are in a namespace that ends with it. Python is mounted at another place, for the
services may look neither into home folders nor into the checkout.

    with systemd_host("one") as host:
        host.run("systemctl", "start", "hocket-worker")
"""

import json
import os
import queue
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
SYSTEMD = ROOT / "deploy" / "systemd"
UNITS = ("hocket-coordinator.service", "hocket-worker.service")
PREFIX = "/opt/hocket"
PYTHON = f"{PREFIX}/bin/python"
BOOT_S, STEP_S, POLL_S = 60.0, 30.0, 0.05
CGROUPS = [Path("/sys/fs/cgroup", kind) for kind in ("systemd", "unified", "")]

BOOT = """
set -e
base=$1 name=$2
mount -t tmpfs -o mode=755 tmpfs "$base/memory"
mkdir "$base/memory/up" "$base/memory/work" "$base/memory/root"
mount -t overlay overlay -o lowerdir="$base/layer":/,upperdir="$base/memory/up",workdir="$base/memory/work" \\
    "$base/memory/root"
shift 2
exec systemd-nspawn --quiet --directory="$base/memory/root" --machine="$name" --register=no --keep-unit \\
    --private-network --console=pipe --link-journal=no "$@" --boot -- systemd.unit=basic.target
"""
"""basic.target: the services that this machine has enabled for itself stay out."""


class Program:
    """A program inside the host, its output line by line."""

    def __init__(self, command: Sequence[str]) -> None:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True)
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._seen: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def tell(self, line: str) -> None:
        """Writes a line to its input."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def wait_for(self, start: str, timeout_s: float = STEP_S) -> str:
        """The next line that begins with ``start``; fails with all that was said if none comes."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, deadline_s - time.monotonic()))
            except queue.Empty:
                line = None
            assert line is not None, f"no {start!r} came; it said:\n" + "\n".join(self._seen)
            self._seen.append(line)
            if line.startswith(start):
                return line

    def end(self, timeout_s: float = STEP_S) -> int:
        """Its exit status, once it has ended by itself."""
        return self._process.wait(timeout_s)

    def close(self) -> None:
        """Ends it, whatever it does."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()


class Host:
    """A booted host."""

    def __init__(self, leader: int) -> None:
        self._leader = leader
        self._programs: list[Program] = []

    def inside(self, command: Sequence[str], user: str = "", **env: str) -> list[str]:
        """The command that runs another one in here, in a clean environment; it ends with the process it gives."""
        enter = ["nsenter", "-t", str(self._leader), "-m", "-u", "-i", "-n", "-p", "-C", "-r", "-w", "--"]
        clean = ["env", "-i", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8"]
        as_user = ["--reuid", user, "--regid", user, "--init-groups"] if user else []
        variables = [f"{name}={value}" for name, value in env.items()]
        return [*enter, *clean, *variables, "setpriv", "--pdeathsig", "KILL", *as_user, "--", *command]

    def run(self, *command: str, check: bool = True, timeout_s: float = STEP_S) -> str:
        """Runs a command in here as root and returns what it wrote, errors included."""
        child = subprocess.run(
            self.inside(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        assert not check or child.returncode == 0, f"{command} ended with {child.returncode}: {child.stdout}"
        return child.stdout

    def start(self, *command: str, user: str = "", **env: str) -> Program:
        """Starts a program in here; it is ended with the host at the latest."""
        program = Program(self.inside(command, user, **env))
        self._programs.append(program)
        return program

    def show(self, unit: str, *properties: str) -> dict[str, str]:
        """Properties of a unit."""
        lines = self.run("systemctl", "show", unit, *(f"--property={name}" for name in properties)).splitlines()
        return dict(line.split("=", 1) for line in lines)

    def main_pid(self, unit: str) -> int:
        """Process id of a service, as it is in here."""
        return int(self.show(unit, "MainPID")["MainPID"])

    def get(self, path: str) -> Any:
        """What the coordinator's HTTP API answers."""
        ask = f"import urllib.request as u; print(u.urlopen('http://127.0.0.1:7421{path}', timeout=5).read().decode())"
        return json.loads(self.run(PYTHON, "-c", ask))

    def wait_until(self, event: Callable[[], bool], what: str, timeout_s: float = STEP_S) -> None:
        """Waits for something that systemd does."""
        deadline_s = time.monotonic() + timeout_s
        while not event():
            journal = "" if time.monotonic() < deadline_s else self.run("journalctl", "--no-pager", "-n", "50")
            assert time.monotonic() < deadline_s, f"not within {timeout_s:g} s: {what}\n{journal}"
            time.sleep(POLL_S)  # polls an event

    def close_programs(self) -> None:
        """Ends what `start` started."""
        while self._programs:
            self._programs.pop().close()


@contextmanager
def systemd_host(name: str) -> Iterator[Host]:
    """Boots a host on which hocket's units lie ready, with user and token, as ``deploy/README.md`` says.

    Raises:
        AssertionError: it did not come up; what it said is in the message.
    """
    name = f"{name}-{os.getpid()}"
    with tempfile.TemporaryDirectory(prefix="hocket-host-", dir="/dev/shm") as base, cgroup(name) as cgroups:
        for folder in ("layer", "memory"):
            Path(base, folder).mkdir()
        lay_out(Path(base, "layer"))
        with open(Path(base, "log"), "w+", encoding="utf-8") as log:
            process = boot(base, name, cgroups, log.fileno())
            try:
                host = wait_for_boot(process)
                host.run("ldconfig")  # for a Python that is linked to a shared library of its own
                try:
                    yield host
                finally:
                    host.close_programs()
                    with suppress(AssertionError, subprocess.TimeoutExpired):
                        host.run("systemctl", "poweroff", check=False, timeout_s=5)
                        process.wait(10)
            except AssertionError as failed:
                failed.add_note(Path(base, "log").read_text(encoding="utf-8", errors="replace")[-4000:])
                raise
            finally:
                process.kill()  # and with it all processes of its namespace
                process.wait()


def boot(base: str, name: str, cgroups: list[Path], log: int) -> subprocess.Popen[bytes]:
    """Starts the container. Whatever ends this process, or the one it returns, ends everything in there."""
    binds = [f"--bind-ro={sys.base_prefix}:/opt/python", f"--bind-ro={sysconfig.get_path('purelib')}:/opt/packages"]
    private = ["unshare", "--mount", "--propagation", "private", "--pid", "--mount-proc", "--fork", "--kill-child"]

    def enter_cgroups() -> None:
        for folder in cgroups:
            (folder / "cgroup.procs").write_text(str(os.getpid()))

    return subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", "--", *private, "--", "sh", "-c", BOOT, "boot", base, name, *binds],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        preexec_fn=enter_cgroups,
    )


def wait_for_boot(process: subprocess.Popen[bytes]) -> Host:
    """The host, once systemd in it has started what it has to."""
    deadline_s = time.monotonic() + BOOT_S
    while time.monotonic() < deadline_s and process.poll() is None:
        leader = [grandchild for child in children(process.pid) for grandchild in children(child)]
        if leader:
            host = Host(leader[0])
            if host.run("systemctl", "is-system-running", check=False).strip() in ("running", "degraded"):
                return host
        time.sleep(POLL_S)  # polls an event
    raise AssertionError(f"the host did not come up (exit status {process.poll()})")


def children(pid: int) -> list[int]:
    """Children of a process's main thread; none of a process that is gone."""
    with suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()]
    return []


@contextmanager
def cgroup(name: str) -> Iterator[list[Path]]:
    """A cgroup of its own in every hierarchy that systemd uses, or two hosts would share one."""
    folders = [parent / f"hocket-{name}" for parent in CGROUPS if (parent / "cgroup.procs").exists()]
    try:
        for folder in folders:
            folder.mkdir()
        yield folders
    finally:
        deadline_s = time.monotonic() + BOOT_S
        while any(folder.exists() for folder in folders) and time.monotonic() < deadline_s:
            for folder in folders:
                for inner in [*sorted((path for path in folder.rglob("*") if path.is_dir()), reverse=True), folder]:
                    with suppress(OSError):  # somebody is still ending in there
                        inner.rmdir()
            time.sleep(POLL_S)  # polls an event


def lay_out(root: Path) -> None:
    """Puts hocket below ``/opt/hocket`` and its units, user and token where ``deploy/README.md`` has them."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    prefix = root / PREFIX.removeprefix("/")
    packages = prefix / "lib" / version / "site-packages"
    shutil.copytree(ROOT / "src" / "hocket", packages / "hocket", ignore=shutil.ignore_patterns("__pycache__"))
    (packages / "packages.pth").write_text("/opt/packages\n", encoding="ascii")
    interpreter = Path(sys.executable).resolve().relative_to(Path(sys.base_prefix).resolve())
    (prefix / "bin").mkdir()
    (prefix / "bin" / "python").symlink_to(Path("/opt/python") / interpreter)
    (prefix / "pyvenv.cfg").write_text(
        f"home = /opt/python/bin\nversion = {sys.version.split()[0]}\n", encoding="ascii"
    )
    command = prefix / "bin" / "hocket"
    start = f"#!{PYTHON}\nimport sys\nfrom hocket.cli.__main__ import main\nsys.exit(main())\n"
    command.write_text(start, encoding="ascii")
    command.chmod(0o755)
    etc = root / "etc"
    for source, target in [
        *((unit, f"systemd/system/{unit}") for unit in UNITS),
        ("hocket.sysusers.conf", "sysusers.d/hocket.conf"),
        ("hocket.tmpfiles.conf", "tmpfiles.d/hocket.conf"),
    ]:
        (etc / target).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(SYSTEMD / source, etc / target)
    (etc / "ld.so.conf.d").mkdir()
    (etc / "ld.so.conf.d" / "00-python.conf").write_text("/opt/python/lib\n", encoding="ascii")
    (etc / "hocket").mkdir()
    (etc / "hocket" / "token").write_text("a token for tests\n", encoding="ascii")
