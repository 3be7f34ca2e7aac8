"""Programs that measure one claim each: how they run their ranks, and what `run.py` makes of them.

Such a program has a function that every rank runs and one that judges what they found; started by hand it prints one
JSON line and a sentence:

    python benchmarks/idle.py
"""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from machine import say
from places import Place, made
from processes import JobError, ended_at_last, start, wait_for_all, with_end_of_log
from service import hocket_service

import hocket

HERE = Path(__file__).resolve().parent
PROGRAMS = ("many_small.py", "ticker.py", "idle.py", "memory.py")
LIMIT_S = 150.0
WORKER_PID = "HOCKET_BENCH_WORKER_PID"
_FOLDER = "HOCKET_BENCH_FOLDER"

Found = dict[str, Any]
"""What one rank has found; JSON knows all of it."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A claim, what was found, in a sentence, and whether it holds; None where nothing was promised."""

    claim: str
    sentence: str
    is_met: bool | None
    figures: dict[str, float] = field(default_factory=dict)


def run_program(
    program: str,
    ranks: int,
    measure: Callable[[hocket.Client], Awaitable[Found]],
    judge: Callable[[list[Found]], Verdict],
) -> None:
    """What such a program does: as a rank it measures; else it starts a service and its ranks, judges, and prints."""
    if _FOLDER in os.environ:
        asyncio.run(_be_rank(measure))
        return
    verdict = judge(_drive(program, ranks))
    print(json.dumps(asdict(verdict), ensure_ascii=False))
    print(verdict.sentence)


async def _be_rank(measure: Callable[[hocket.Client], Awaitable[Found]]) -> None:
    async with hocket.connect(timeout=LIMIT_S) as client:
        found = await measure(client)
    _keep(found)


def _keep(found: Found) -> None:
    Path(os.environ[_FOLDER], f"{os.environ['RANK']}.json").write_text(json.dumps(found), encoding="utf-8")


def _drive(program: str, ranks: int) -> list[Found]:
    with tempfile.TemporaryDirectory(prefix="hocket-bench-") as folder, open(Path(folder, "log"), "w+b") as log:
        try:
            with _ranks(program, ranks, folder, log) as processes:
                wait_for_all(processes, LIMIT_S)
        except JobError as failed:
            raise SystemExit(str(with_end_of_log(failed, log))) from None
        return [json.loads(Path(folder, f"{rank}.json").read_text(encoding="utf-8")) for rank in range(ranks)]


@contextlib.contextmanager
def _ranks(program: str, ranks: int, folder: str, log: IO[bytes]) -> Iterator[list["subprocess.Popen[bytes]"]]:
    processes: list[subprocess.Popen[bytes]] = []
    with made(Place("host", 1, ranks)) as site, hocket_service(site, log) as service, ended_at_last(processes):
        told = {_FOLDER: folder, WORKER_PID: str(service.workers[0].pid), "OMP_NUM_THREADS": "1"}
        for rank in range(ranks):
            own = {"RANK": str(rank), "WORLD_SIZE": str(ranks)}
            processes.append(start([sys.executable, program], os.environ | told | service.environ(0) | own, log))
        yield processes


def run_claims() -> list[dict[str, Any]]:
    """Runs all programs. Returns their JSON lines; one that fails says why."""
    found = []
    for name in PROGRAMS:
        done = subprocess.run([sys.executable, str(HERE / name)], capture_output=True, text=True, check=False)
        if done.returncode:
            why = (done.stderr.strip().splitlines() or ["failed without a word"])[0]
            found.append(asdict(Verdict(name.removesuffix(".py"), f"could not be measured: {why}.", False)))
        else:
            found.append(json.loads(done.stdout.splitlines()[0]))
        say(f"{name}: {found[-1]['sentence']}")
    return found
