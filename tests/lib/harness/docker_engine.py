"""A Docker engine of a test's own, and a base image for it, made of Debian packages: no image registry is asked.

The engine, its containers, networks and mounts live in namespaces that end with it; the machine's own engine, firewall
and interfaces are not touched. Its images stay in a folder, so that one engine can build them (on the machine's
network, for pip) and another one run them (on a network of its own).

    with docker_engine(folder, outside=True) as engine:
        engine.docker("build", "--network", "host", "-t", "hocket", ".")
    with docker_engine(folder) as engine:
        engine.compose(file, "up", "-d")
"""

import functools
import hashlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

START_S, STEP_S, POLL_S = 30.0, 60.0, 0.1
BASE_S = 400.0
NOFILE = 20_000
BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")
PACKAGES = "python3,python3-venv,python3-dev,ca-certificates"
SOURCES = Path("/etc/apt/sources.list.d/debian.sources")
SEARCH_PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])


def run(command: Sequence[str], timeout_s: float, env: dict[str, str] | None = None, check: bool = True) -> str:
    """What a command wrote, errors included. Raises `AssertionError` where it fails, unless told not to."""
    child = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout_s,
        check=False,
        env={**os.environ, "PATH": SEARCH_PATH, **(env or {})},
    )
    assert not check or child.returncode == 0, f"{' '.join(command)} ended with {child.returncode}:\n{child.stdout}"
    return child.stdout


@functools.cache
def docker_client() -> str:
    """A docker command that can build: newer ones need buildx for it, which is often not installed beside them."""
    found = [shutil.which("docker", path=path) for path in (SEARCH_PATH, "/usr/bin")]
    for client in dict.fromkeys(path for path in found if path is not None):
        major = run([client, "--version"], STEP_S).split("version ")[1].split(".")[0]
        if int(major) < 23 or "github.com" in run([client, "buildx", "version"], STEP_S, check=False):
            return client
    return ""


@functools.cache
def compose_client() -> tuple[str, ...]:
    """The command for compose files; empty where there is none."""
    if docker_client() and "Docker Compose version" in run(
        [docker_client(), "compose", "version"], STEP_S, check=False
    ):
        return (docker_client(), "compose")
    found = shutil.which("docker-compose", path=SEARCH_PATH)
    return (found,) if found else ()


def why_not() -> str:
    """What is missing on this machine for building and composing; empty where nothing is."""
    if not docker_client():
        return "needs a docker command that can build (with buildx)"
    if not compose_client():
        return "needs docker compose or docker-compose"
    if shutil.which("mmdebstrap", path=SEARCH_PATH) is None:
        return "needs mmdebstrap for a base image"
    return ""


@dataclass(frozen=True)
class Engine:
    """A running engine."""

    address: str

    @property
    def _env(self) -> dict[str, str]:
        return {"DOCKER_HOST": self.address, "DOCKER_BUILDKIT": "1", "COMPOSE_PROJECT_NAME": "hocket"}

    def docker(self, *arguments: str, timeout_s: float = STEP_S, check: bool = True) -> str:
        """Runs the docker command."""
        return run([docker_client(), *arguments], timeout_s, self._env, check)

    def compose(self, file: Path, *arguments: str, timeout_s: float = STEP_S, **env: str) -> str:
        """Runs compose on a file."""
        return run([*compose_client(), "-f", str(file), *arguments], timeout_s, {**self._env, **env})

    def inspect(self, name: str) -> Any:
        """All that the engine knows of a container or image."""
        [found] = json.loads(self.docker("inspect", name))
        return found

    def import_base(self, archive: Path, name: str) -> None:
        """Makes an image of a root file system."""
        self.docker("import", "--change", 'CMD ["python3"]', str(archive), name, timeout_s=2 * STEP_S)


@contextmanager
def docker_engine(folder: Path, outside: bool = False) -> Iterator[Engine]:
    """Starts an engine with its images below ``folder``.

    Args:
        folder: short, for it holds sockets; in memory, or thousands of small files make everything slow.
        outside: on the machine's network, to build with ``--network host``; it has no networks for containers then.
    """
    address = f"unix://{folder}/docker.sock"
    settings = {
        "data-root": f"{folder}/data",
        "exec-root": f"{folder}/exec",
        "pidfile": f"{folder}/pid",
        "hosts": [address],
        "log-level": "warn",
        "cgroup-parent": f"/{folder.name}",
        "default-ulimits": {"nofile": {"Name": "nofile", "Soft": NOFILE, "Hard": NOFILE}},
        "iptables": not outside,
        "ip6tables": False,
        "ip-forward": not outside,
        "ip-masq": not outside,
        **({"bridge": "none"} if outside else {}),
    }
    (folder / "daemon.json").write_text(json.dumps(settings), encoding="utf-8")
    start = ["sh", "-c", 'ip link set lo up; exec dockerd --config-file "$1"', "sh", f"{folder}/daemon.json"]
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(
            [*confined(outside), *start],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, "PATH": SEARCH_PATH},
        )
    try:
        engine = Engine(address)
        wait_for_engine(engine, process, folder / "log")
        yield engine
    finally:
        stop(process)
        for cgroup in sorted(Path("/sys/fs/cgroup").glob(f"*/{folder.name}/**/"), reverse=True):
            with suppress(OSError):
                cgroup.rmdir()


def confined(outside: bool) -> list[str]:
    """The command for namespaces that end, with all processes in them, when this process or the engine does."""
    spaces = ["--mount", "--propagation", "private", "--pid", "--mount-proc", *([] if outside else ["--net"])]
    return ["setpriv", "--pdeathsig", "KILL", "--", "unshare", *spaces, "--fork", "--kill-child", "--"]


def wait_for_engine(engine: Engine, process: subprocess.Popen[bytes], log: Path) -> None:
    """Returns once it answers."""
    deadline_s = time.monotonic() + START_S
    while "Server Version" not in engine.docker("info", check=False):
        if process.poll() is not None or time.monotonic() > deadline_s:
            raise AssertionError(f"the Docker engine did not start:\n{log.read_text(errors='replace')[-4000:]}")
        time.sleep(POLL_S)  # polls an event


def stop(process: subprocess.Popen[bytes]) -> None:
    """Ends the engine and waits for it, so that its images are whole."""
    with suppress(OSError):
        [engine] = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text(encoding="ascii").split()
        os.kill(int(engine), 15)
    try:
        process.wait(STEP_S / 2)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def base_archive(folder: Path) -> Path:
    """A root file system with Python, standing in for ``python:*-slim``, as a tar archive in ``folder``, kept there.

    It trusts the certificates that this machine trusts, so that pip works in a build wherever it works here.
    """
    archive = folder / f"{hashlib.sha256(PACKAGES.encode() + BUNDLE.read_bytes()).hexdigest()[:16]}.tar"
    if not archive.exists():
        make_base(archive)
    return archive


def make_base(archive: Path) -> None:
    """Writes such an archive."""
    part, settings = archive.with_suffix(".part"), archive.with_suffix(".pip.conf")
    settings.write_text(f"[global]\ncert = {BUNDLE}\n", encoding="ascii")
    hooks = ['ln -s python3 "$1/usr/bin/python"', f"upload {BUNDLE} {BUNDLE}", f"upload {settings} /etc/pip.conf"]
    sources = [str(SOURCES)] if SOURCES.exists() else []
    release = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
    hook_options = [f"--customize-hook={hook}" for hook in hooks]
    what = ["--quiet", "--format=tar", "--variant=minbase", f"--include={PACKAGES}", *hook_options]
    in_memory = {"TMPDIR": "/dev/shm"}
    run(["mmdebstrap", *what, release["VERSION_CODENAME"], str(part), *sources], BASE_S, in_memory)
    part.rename(archive)
