"""What is said of the machine and the versions beside the figures, and how busy others keep it meanwhile."""

import datetime
import importlib.metadata
import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from setup import ENVIRONMENTS, peer_environ, python_of


def describe(systems: Sequence[str]) -> list[str]:
    """Machine, versions and date, as lines of a markdown list."""
    versions = [f"hocket {importlib.metadata.version('hocket')} (numpy {importlib.metadata.version('numpy')})"]
    versions += [_versions(system) for system in systems if system in ENVIRONMENTS]
    return [
        f"- machine: {_processor()}, {len(os.sched_getaffinity(0))} cores, {_memory_nbytes() / 2**30:.0f} GiB, "
        f"Linux {platform.release().split('-')[0]}, CPython {platform.python_version()}",
        f"- versions: {'; '.join(versions)}",
        f"- date: {datetime.datetime.now(datetime.UTC):%Y-%m-%d}; load when it began: {os.getloadavg()[0]:.1f}",
    ]


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def _memory_nbytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _versions(system: str) -> str:
    names = [package.split("==")[0] for package in ENVIRONMENTS[system].packages]
    program = f"import importlib.metadata as m; print(*(f'{{n}} {{m.version(n)}}' for n in {names!r}), sep=', ')"
    command = [str(python_of(system)), "-c", program]
    child = subprocess.run(command, capture_output=True, text=True, env=peer_environ(), check=False)
    return f"{system}: {child.stdout.strip() or 'unknown'}"


class Busy:
    """How many cores' worth of time the whole machine has used since this object was made."""

    def __init__(self) -> None:
        self._since_s, self._used_s = time.monotonic(), _used_s()

    def others(self, ours_s: float) -> float:
        """Cores that all but a job of ``ours_s`` seconds of processor time kept busy, on average."""
        own = time.monotonic() - self._since_s
        return max(0.0, (_used_s() - self._used_s - ours_s) / own) if own else 0.0


def _used_s() -> float:
    words = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:]
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, words[:8])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def say(*words: object) -> None:
    """Progress, beside the results: on standard error."""
    print(*words, file=sys.stderr, flush=True)
