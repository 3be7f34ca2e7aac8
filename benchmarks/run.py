"""Measures hocket beside gloo, Open MPI and MPICH, one after the other in rounds, on this machine.

    make bench                                     everything: under 6 minutes, and a few more once for the peers
    make bench ARGS=--quick                        a first impression: under a minute
    make bench ARGS='--ops all_reduce --ns 2 --sizes 4,1MiB --peers gloo --rounds 5'

Tables go to standard output and, with every row of every round, to benchmarks/results/. See benchmarks/README.md.
"""

import argparse
import json
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from cases import OPS, SIZES, parse_size
from machine import Busy, describe, say
from sampling import Settings
from setup import install
from systems import LAUNCHERS, JobError, run_job
from tables import BASE, Rounds, Row, number, render

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
PEERS = tuple(system for system in LAUNCHERS if system != BASE)
QUICK_SIZES = (4, 16 << 10, 1 << 20, 16 << 20)
QUIET_CORES = 0.3
"""Others may keep so much of the machine busy before the report warns."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Choice:
    """What is to be measured."""

    systems: tuple[str, ...]
    ops: tuple[str, ...]
    sizes: tuple[int, ...]
    ns: tuple[int, ...]
    rounds: int
    minutes: float
    budget_s: float
    limit_s: float


def choose(arguments: Sequence[str] | None) -> tuple[Choice, argparse.Namespace]:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--quick", action="store_true", help="one short round of few sizes, n = 2 unless --ns is given")
    parser.add_argument("--rounds", type=_whole, metavar="N", help="times that everything is measured (3)")
    parser.add_argument(
        "--minutes", type=float, default=6.0, metavar="M", help="begin no round that would end later (6)"
    )
    parser.add_argument("--peers", type=_among(PEERS, "none"), help=f"{','.join(PEERS)} or none (all)", metavar="A,B")
    parser.add_argument("--ops", type=_among(OPS), help=f"{','.join(OPS)} (all)", metavar="A,B")
    parser.add_argument(
        "--sizes", type=_each(parse_size), help="4,1KiB,16KiB,256KiB,1MiB,16MiB,64MiB (all)", metavar="A,B"
    )
    parser.add_argument("--ns", type=_each(_whole), help="numbers of ranks (2,4)", metavar="A,B")
    parser.add_argument("--budget", type=float, metavar="S", help="seconds for the calls of one case (0.1)")
    parser.add_argument("--limit", type=float, default=120.0, metavar="S", help="seconds that one job may take (120)")
    parser.add_argument("--json", action="store_true", help="print rows as JSON lines instead of tables")
    parser.add_argument("--out", type=Path, default=RESULTS, metavar="FOLDER", help="for results.jsonl and tables.md")
    parser.add_argument("--keep", action="store_true", help="write the tables to benchmarks/RESULTS.md as well")
    given = parser.parse_args(arguments)
    quick = given.quick
    peers = PEERS if given.peers is None else tuple(peer for peer in given.peers if peer != "none")
    choice = Choice(
        (BASE, *peers),
        given.ops or OPS,
        given.sizes or (QUICK_SIZES if quick else SIZES),
        given.ns or ((2,) if quick else (2, 4)),
        given.rounds or (1 if quick else 3),
        given.minutes,
        given.budget or (0.05 if quick else 0.1),
        given.limit,
    )
    return choice, given


def _whole(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(f"{text} is below 1")
    return number


def _each(read: Callable[[str], T]) -> Callable[[str], tuple[T, ...]]:
    def read_all(text: str) -> tuple[T, ...]:
        try:
            return tuple(dict.fromkeys(read(word) for word in text.split(",")))
        except ValueError as wrong:
            raise argparse.ArgumentTypeError(str(wrong)) from None

    return read_all


def _among(*known: Any) -> Callable[[str], tuple[str, ...]]:
    names = [name for group in known for name in ((group,) if isinstance(group, str) else group)]

    def read(word: str) -> str:
        if word not in names:
            raise ValueError(f"{word!r} is none of {', '.join(names)}")
        return word

    return _each(read)


# --- measuring -------------------------------------------------------------------------------------------------------


def usable(systems: Sequence[str]) -> tuple[tuple[str, ...], list[str]]:
    """The systems that can be measured here, and why the others cannot."""
    there, left_out = [], []
    for system in systems:
        reason = "" if system == BASE else install(system)
        if reason:
            left_out.append(f"{system} is left out: {reason}")
            say(left_out[-1])
        else:
            there.append(system)
    return tuple(there), left_out


def measure(choice: Choice, remarks: list[str]) -> Iterator[Row]:
    """Runs all jobs, round after round; in each the next system begins. What does not work is added to ``remarks``."""
    jobs = len(choice.systems) * len(choice.ns) * choice.rounds
    done, start_s = 0, time.monotonic()
    for turn in range(choice.rounds):
        took_s = time.monotonic() - start_s
        if turn and took_s * (turn + 1) / turn > choice.minutes * 60:
            remarks.append(
                f"{turn} of {choice.rounds} rounds: another one would have taken more than {choice.minutes:g} minutes"
            )
            say(remarks[-1])
            return
        first = turn % len(choice.systems)
        for n in choice.ns:
            for system in (*choice.systems[first:], *choice.systems[:first]):
                done += 1
                head = f"[{done}/{jobs}] round {turn + 1}, n = {n}, {system}:"
                yield from _one_job(choice, system, n, turn, head, remarks)


def _one_job(choice: Choice, system: str, n: int, turn: int, head: str, remarks: list[str]) -> Iterator[Row]:
    busy, start_s = Busy(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="hocket-bench-") as folder:
        settings = Settings(folder, n, choice.ops, choice.sizes, choice.budget_s)
        try:
            job = run_job(system, settings, choice.limit_s)
        except JobError as failed:
            say(head, failed)
            remarks.append(f"{system}, n = {n}, round {turn + 1}: {str(failed).splitlines()[0]}")
            return
    others = busy.others(job.cpu_s)
    say(head, f"{len(job.rows)} cases in {time.monotonic() - start_s:.1f} s; others used {others:.2f} cores")
    if job.remark and (remark := f"{system}: {job.remark}") not in remarks:
        remarks.append(remark)
    for row in job.rows:
        yield {"system": system, **row, "round": turn + 1, "other_cores": round(others, 2)}


# --- reporting -------------------------------------------------------------------------------------------------------

HOW = (
    "Time of one call in microseconds: the median over a round's calls, then over the rounds. `peer / hocket` is the "
    "peer's time over hocket's in the same round, median over the rounds: above 1, hocket is faster. Read the ratios; "
    "times depend on the machine and on what else it does. How it is measured is in `benchmarks/README.md`."
)


def report(rows: list[Row], facts: list[str], took_s: float) -> str:
    """The whole report, in markdown."""
    others = Rounds(rows).other_cores()
    load = f"{number(sum(others) / len(others))} on average, {number(max(others))} at most" if others else "unknown"
    turns = max((row["round"] for row in rows), default=0)
    rounds = f"{turns} round{'s' * (turns != 1)}, {took_s / 60:.1f} minutes"
    facts = [*facts, f"- {rounds}; cores that the rest of the machine kept busy meanwhile: {load}"]
    if others and sum(others) / len(others) > QUIET_CORES:
        facts.append("- **the machine was not quiet**: long waits for a core hide what the systems themselves cost")
    return "\n".join(["# Benchmarks", "", HOW, "", *facts, "", *render(rows)]).rstrip() + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the program. Returns 1 if hocket itself could not be measured."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    choice, given = choose(arguments)
    systems, remarks = usable(choice.systems)
    choice, start_s = replace(choice, systems=systems), time.monotonic()
    facts = describe(systems)
    given.out.mkdir(parents=True, exist_ok=True)
    rows = []
    with open(given.out / "results.jsonl", "w", encoding="utf-8", buffering=1) as file:
        for row in measure(choice, remarks):
            rows.append(row)
            file.write(json.dumps(row) + "\n")
    text = report(rows, facts + [f"- {remark}" for remark in remarks], time.monotonic() - start_s)
    (given.out / "tables.md").write_text(text, encoding="utf-8")
    if given.keep:
        (HERE / "RESULTS.md").write_text(text, encoding="utf-8")
    print("".join(json.dumps(row) + "\n" for row in rows) if given.json else text, end="")
    return 0 if any(row["system"] == BASE for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
