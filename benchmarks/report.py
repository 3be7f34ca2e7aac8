"""A run's results: kept as JSON lines, shown as a page of tables and as pictures."""

import json
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from machine import say
from setup import PICTURES, install, peer_environ, python_of
from tables import Rounds, Row, number, render
from targets import render_targets

QUIET_CORES = 0.3
"""Others may keep so much of the machine busy before the report warns."""
DRAW_LIMIT_S = 120.0
HERE = Path(__file__).resolve().parent
DOCS = HERE.parent / "docs" / "explanation" / "performance"

HOW = (
    "Time of one call in microseconds: the median over a round's calls, then over the rounds. A ratio is hocket's time "
    "over the other's in the same round, median over the rounds: below 1, hocket is faster; where it is slower, the "
    "figure is in bold. Read the ratios; times depend on the machine and on what else it does."
)


@dataclass(slots=True)
class Results:
    """What a run has found. ``facts`` are lines of a markdown list, ``claims`` what `claims.py` describes."""

    facts: list[str] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    claims: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> "Results":
        """Those of ``results.jsonl``."""
        found = cls()
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            if "facts" in row:
                found.facts = row["facts"]
            else:
                (found.claims if "claim" in row else found.rows).append(row)
        return found

    def write(self, path: Path) -> None:
        """Keeps them as JSON lines: facts, rows, claims."""
        lines: list[dict[str, Any]] = [{"facts": self.facts}, *self.rows, *self.claims]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")

    def page(self, pictures: list[str], how_path: str) -> str:
        """The whole report, in markdown. ``how_path`` is where the page finds the benchmarks' README."""
        rounds = Rounds(self.rows)
        lines = ["# Results", "", f"{HOW} [How it is measured]({how_path}).", "", *self.facts, *_load(rounds), ""]
        lines += [*render_targets(rounds), *_claims(self.claims)]
        lines += [line for name in pictures for line in (f"![{_caption(name)}]({name})", "")]
        return "\n".join([*lines, *(render(self.rows) if self.rows else [])]).rstrip() + "\n"


def _load(rounds: Rounds) -> list[str]:
    others = rounds.other_cores()
    if not others:
        return []
    mean = sum(others) / len(others)
    load = f"{number(mean)} on average, {number(max(others))} at most"
    lines = [f"- cores that the rest of the machine kept busy meanwhile: {load}"]
    if mean > QUIET_CORES:
        lines.append("- **the machine was not quiet**: long waits for a core hide what the systems themselves cost")
    return lines


def _claims(claims: list[dict[str, Any]]) -> list[str]:
    if not claims:
        return []
    lines = [f"- {claim['claim']}: {claim['sentence']}" + _verdict(claim["is_met"]) for claim in claims]
    return ["### Claims", "", *lines, ""]


def _verdict(is_met: bool | None) -> str:
    return "" if is_met is None else " Met." if is_met else " **Not met.**"


def _caption(name: str) -> str:
    *what, shown = name.removesuffix(".svg").split("-")
    return f"{'_'.join(what)}: {shown} against size".replace("operations_n", "operations on one host, n = ")


# --- files -----------------------------------------------------------------------------------------------------------


def draw(results: Path) -> list[str]:
    """Draws the pictures of a ``results.jsonl`` beside it. Returns their names; none where they cannot be drawn."""
    if reason := install(PICTURES):
        say(f"no pictures: {reason}")
        return []
    command = [str(python_of(PICTURES)), str(HERE / "draw.py"), str(results), str(results.parent)]
    drawn = subprocess.run(
        command, capture_output=True, text=True, timeout=DRAW_LIMIT_S, env=peer_environ(), check=False
    )
    if drawn.returncode:
        say("no pictures:", drawn.stderr.strip())
    return drawn.stdout.split()


def keep(results: Results) -> None:
    """Writes everything into the documentation: results.jsonl, results.md and the pictures."""
    path = DOCS / "results.jsonl"
    results.write(path)
    text = results.page(draw(path), "../../../benchmarks/README.md")
    (DOCS / "results.md").write_text(text, encoding="utf-8")
