"""From rows of rounds to markdown tables. Pure."""

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from cases import OPS, size_text

Row = dict[str, Any]
Key = tuple[str, str, int, int]
"""System, operation, n, nbytes."""
BASE = "hocket"


class Rounds:
    """All rows of a run: for each system and case, what each round measured."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._found: dict[Key, dict[int, Row]] = {}
        for row in rows:
            key = (row["system"], row["op"], row["n"], row["nbytes"])
            self._found.setdefault(key, {})[row["round"]] = row

    def systems(self) -> list[str]:
        """In the order in which they were first measured, hocket first."""
        return sorted(dict.fromkeys(key[0] for key in self._found), key=lambda system: system != BASE)

    def cases(self) -> dict[tuple[str, int], list[int]]:
        """Sizes measured, ascending, by operation and n."""
        found: dict[tuple[str, int], set[int]] = {}
        for _, op, n, nbytes in self._found:
            found.setdefault((op, n), set()).add(nbytes)
        order = sorted(found, key=lambda case: (OPS.index(case[0]), case[1]))
        return {case: sorted(found[case]) for case in order}

    def median(self, key: Key, field: str = "median_us") -> float | None:
        """The median over the rounds; None where there is none."""
        rows = self._found.get(key)
        return statistics.median(row[field] for row in rows.values()) if rows else None

    def ratio(self, key: Key) -> float | None:
        """A system's time over hocket's in the same round, median over the rounds: above 1, hocket is faster."""
        mine, theirs = self._found.get((BASE, *key[1:]), {}), self._found.get(key, {})
        rounds = [at for at in theirs if at in mine and mine[at]["median_us"]]
        both = [theirs[at]["median_us"] / mine[at]["median_us"] for at in rounds]
        return statistics.median(both) if both else None

    def spread(self, key: Key) -> float | None:
        """The slowest round over the fastest."""
        values = [row["median_us"] for row in self._found.get(key, {}).values()]
        return max(values) / min(values) if values and min(values) else None

    def other_cores(self) -> list[float]:
        """Cores that the rest of the machine kept busy, for each job."""
        jobs = {(key[0], key[2], at): row for key, rows in self._found.items() for at, row in rows.items()}
        return [row["other_cores"] for row in jobs.values()]


def number(value: float | None) -> str:
    """Three digits, thousands apart, fewer for what is very small; nothing for None."""
    if value is None:
        return ""
    if 0 < value < 0.095:
        return f"{value:.1g}"
    digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:,.{digits}f}".replace(",", " ")


def table(heads: Sequence[str], body: Iterable[Sequence[str]]) -> list[str]:
    """A markdown table, figures to the right, and an empty line after it."""
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *body]
    return ["| " + " | ".join(line) + " |" for line in lines] + [""]


def render(rows: Iterable[Row]) -> list[str]:
    """All tables, as lines of markdown."""
    found = Rounds(rows)
    lines = [*_summary(found)]
    for (op, n), sizes in found.cases().items():
        if op != "barrier":
            lines += [f"### {op}, n = {n}", "", *_one_operation(found, op, n, sizes)]
    return lines + _barriers(found)


def _one_operation(found: Rounds, op: str, n: int, sizes: Sequence[int]) -> list[str]:
    body = []
    for system in found.systems():
        keys = [(system, op, n, nbytes) for nbytes in sizes]
        if any(found.median(key) is not None for key in keys):
            body.append([f"{system}, µs", *(number(found.median(key)) for key in keys)])
    for system in found.systems():
        keys = [(system, op, n, nbytes) for nbytes in sizes]
        if system != BASE and any(found.ratio(key) is not None for key in keys):
            body.append([f"{system} / {BASE}", *(number(found.ratio(key)) for key in keys)])
    return table(["", *map(size_text, sizes)], body)


def _barriers(found: Rounds) -> list[str]:
    ns = [n for op, n in found.cases() if op == "barrier"]
    if not ns:
        return []
    body = []
    for system in found.systems():
        cells = []
        for n in ns:
            key = (system, "barrier", n, 0)
            cells += [number(found.median(key)), number(found.median(key, "p99_us")), number(found.ratio(key))]
        body.append([system, *cells])
    heads = [head for n in ns for head in (f"n = {n}, µs", "p99", f"/ {BASE}")]
    return ["### barrier", "", *table(["", *heads], body)]


def _summary(found: Rounds) -> list[str]:
    """Where each peer stands over all cases, and how far the rounds were apart."""
    body = []
    for system in found.systems():
        keys = [(system, op, n, nbytes) for (op, n), sizes in found.cases().items() for nbytes in sizes]
        ratios = [ratio for key in keys if (ratio := found.ratio(key)) is not None]
        spreads = [spread for key in keys if (spread := found.spread(key)) is not None]
        apart = number(statistics.median(spreads)) if spreads else ""
        if system == BASE or not ratios:
            body.append([system, *[""] * 4, apart])
            continue
        behind = sum(ratio > 1 for ratio in ratios)
        figures = [number(statistics.geometric_mean(ratios)), number(min(ratios)), number(max(ratios))]
        body.append([system, f"{behind} of {len(ratios)}", *figures, apart])
    heads = ["", f"cases in which {BASE} is faster", f"time / {BASE}, geometric mean", "least", "most", "rounds apart"]
    return ["### Over all cases", "", *table(heads, body)]
