"""Measures hocket beside gloo, Open MPI and MPICH, one after the other in rounds, on one host and between several.

    make bench                                     everything: under 15 minutes, and a few more once for the peers
    make bench ARGS=--quick                        a first impression of one host: under a minute
    make bench ARGS='--placements host --ops all_reduce --ns 2 --sizes 4,1MiB --peers gloo --rounds 5'
    make bench ARGS=--claims                       nothing but the programs that measure one claim each
    make bench ARGS=--keep                         results, tables and pictures also into docs/explanation/performance

Tables go to standard output and, with every row of every round, to benchmarks/results/. See benchmarks/README.md.
"""

import json
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from claims import run_claims
from machine import Busy, describe, say
from netns import NetworkError
from options import Choice, choose
from places import Place, Site, made
from processes import JobError
from reference import REFERENCE, measure_reference
from report import Results, draw, keep
from sampling import Settings
from setup import install
from systems import run_job
from tables import BASE, Row


def usable(choice: Choice) -> tuple[Choice, list[str]]:
    """What of a choice can be measured here, and why the rest cannot."""
    remarks, systems, places = [], [], []
    for system in choice.systems if choice.places else ():
        if reason := "" if system == BASE else install(system):
            remarks.append(f"{system} is left out: {reason}")
        else:
            systems.append(system)
    for place in choice.places:
        if reason := place.why_not():
            remarks.append(f"{place.label} is left out: {reason}")
        else:
            places.append(place)
    for remark in remarks:
        say(remark)
    return replace(choice, systems=tuple(systems), places=tuple(places)), remarks


class Run:
    """All jobs of a choice, round after round. What does not work is added to ``remarks``."""

    def __init__(self, choice: Choice, remarks: list[str]) -> None:
        self._choice, self._remarks = choice, remarks
        self._started_s = time.monotonic()

    def rows(self) -> Iterator[Row]:
        """Every round goes through all places, and at each through all systems; each time the next one begins."""
        rounds, limit_s = self._choice.rounds, self._choice.minutes * 60
        for turn in range(rounds if self._choice.places else 0):
            took_s = time.monotonic() - self._started_s
            if turn and took_s * (turn + 1) / turn > limit_s:
                self._remark(
                    f"{turn} of {rounds} rounds: another one would have taken more than {limit_s / 60:g} minutes"
                )
                return
            for place in self._choice.places:
                try:
                    with made(place) as site:
                        yield from self._one_place(site, turn)
                except NetworkError as failed:
                    self._remark(f"{place.label}, round {turn + 1}: {failed}")

    def _remark(self, text: str) -> None:
        say(text)
        if text not in self._remarks:
            self._remarks.append(text)

    def _one_place(self, site: Site, turn: int) -> Iterator[Row]:
        for row in measure_reference(site):
            yield self._complete(row, REFERENCE, site.place, turn)
        systems = self._choice.systems
        first = turn % len(systems)
        for system in (*systems[first:], *systems[:first]):
            if ops := self._choice.ops_of(system, site.place):
                yield from self._one_job(system, site, ops, turn)

    def _one_job(self, system: str, site: Site, ops: tuple[str, ...], turn: int) -> Iterator[Row]:
        choice, place, busy, start_s = self._choice, site.place, Busy(), time.monotonic()
        switch_s = site.switch_s()
        head = f"[{start_s - self._started_s:3.0f} s] round {turn + 1}, {place.label}, n = {place.size}, {system}:"
        with tempfile.TemporaryDirectory(prefix="hocket-bench-") as folder:
            settings = Settings(folder, place.size, ops, choice.sizes, choice.budget_s)
            try:
                job = run_job(system, settings, choice.limit_s, site)
            except JobError as failed:
                say(head, failed)
                self._remarks.append(f"{head.partition('] ')[2]} {str(failed).splitlines()[0]}")
                return
        others = busy.others(job.cpu_s + site.switch_s() - switch_s)
        say(head, f"{len(job.rows)} cases in {time.monotonic() - start_s:.1f} s; others used {others:.2f} cores")
        if job.remark and (remark := f"{system}: {job.remark}") not in self._remarks:
            self._remarks.append(remark)
        for row in job.rows:
            yield self._complete(row, system, place, turn) | {"other_cores": round(others, 2)}

    def _complete(self, row: dict[str, Any], system: str, place: Place, turn: int) -> Row:
        return {"system": system, "place": place.label, "n": place.size, **row, "round": turn + 1}


def measure(choice: Choice, path: Path) -> Results:
    """Measures everything; every row is in the file as soon as it is known."""
    choice, remarks = usable(choice)
    results, start_s = Results(describe(choice.systems)), time.monotonic()
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", encoding="utf-8", buffering=1) as file:
        for row in Run(choice, remarks).rows():
            results.rows.append(row)
            file.write(json.dumps(row) + "\n")
        if choice.claims:
            results.claims = run_claims()
    turns = max((row["round"] for row in results.rows), default=0)
    remarks.append(f"{turns} round{'s' * (turns != 1)}, {(time.monotonic() - start_s) / 60:.1f} minutes")
    results.facts += [f"- {remark}" for remark in remarks]
    return results


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the program. Returns 1 if hocket itself could not be measured."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    choice, given = choose(arguments, __doc__)
    path = given.out / "results.jsonl"
    results = Results.read(path) if given.render else measure(choice, path)
    results.write(path)
    text = results.page(draw(path) if given.pictures else [], "../README.md")
    (given.out / "tables.md").write_text(text, encoding="utf-8")
    if given.keep:
        keep(results)
    rows = (*results.rows, *results.claims)
    print("".join(json.dumps(row) + "\n" for row in rows) if given.json else text, end="")
    measured = any(row["system"] == BASE for row in results.rows)
    return 0 if measured or (results.claims and not choice.places) else 1


if __name__ == "__main__":
    sys.exit(main())
