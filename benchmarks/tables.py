"""From rows of rounds to markdown tables. Pure."""

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from cases import BF16, OPS, size_text
from places import KINDS, title_of
from reference import ONE_WAY, REFERENCE, ROUND_TRIP

Row = dict[str, Any]
Spot = tuple[str, str, int]
"""Operation, place as `Place.label` has it, n."""
Key = tuple[str, str, str, int, int]
"""System, operation, place, n, nbytes."""
BASE = "hocket"


class Rounds:
    """All rows of a run: for each system and case, what each round measured."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._found: dict[Key, dict[int, Row]] = {}
        for row in rows:
            key = (row["system"], row["op"], row["place"], row["n"], row["nbytes"])
            self._found.setdefault(key, {})[row["round"]] = row

    def systems(self) -> list[str]:
        """In the order in which they were first measured, hocket first, without the reference."""
        found = dict.fromkeys(key[0] for key in self._found if key[0] != REFERENCE)
        return sorted(found, key=lambda system: system != BASE)

    def spots(self) -> dict[Spot, list[int]]:
        """Sizes measured, ascending, by operation, place and n, without the reference's."""
        found: dict[Spot, set[int]] = {}
        for system, op, place, n, nbytes in self._found:
            if system != REFERENCE:
                found.setdefault((op, place, n), set()).add(nbytes)
        order = sorted(found, key=lambda spot: (*_place_order(spot[1:]), OPS.index(spot[0])))
        return {spot: sorted(found[spot]) for spot in order}

    def places(self) -> list[tuple[str, int]]:
        """All places with their n, one host first."""
        return sorted({(key[2], key[3]) for key in self._found}, key=_place_order)

    def median(self, key: Key, field: str = "median_us") -> float | None:
        """The median over the rounds; None where there is none."""
        rows = self._found.get(key)
        return statistics.median(row[field] for row in rows.values()) if rows else None

    def times_us(self, key: Key) -> dict[int, float]:
        """What each round measured."""
        return {at: row["median_us"] for at, row in self._found.get(key, {}).items()}

    def over_the_best(self, mine: Key, theirs: Sequence[Key]) -> float | None:
        """A case's time over the shortest of ``theirs`` in the same round, median over the rounds."""
        others = [self.times_us(key) for key in theirs]
        ratios = []
        for at, value in self.times_us(mine).items():
            best = min((times[at] for times in others if times.get(at)), default=None)
            if best:
                ratios.append(value / best)
        return statistics.median(ratios) if ratios else None

    def ratio(self, key: Key) -> float | None:
        """hocket's time over a system's in the same round, median over the rounds: below 1, hocket is faster."""
        return self.over_the_best((BASE, *key[1:]), [key])

    def spread(self, key: Key) -> float | None:
        """The slowest round over the fastest."""
        values = self.times_us(key).values()
        return max(values) / min(values) if values and min(values) else None

    def other_cores(self) -> list[float]:
        """Cores that the rest of the machine kept busy, for each job."""
        jobs = {(key[0], *key[2:4], at): row for key, rows in self._found.items() for at, row in rows.items()}
        return [row["other_cores"] for row in jobs.values() if "other_cores" in row]


def _place_order(place: tuple[str, int]) -> tuple[int, int, str]:
    label, n = place
    return (list(KINDS).index(label.partition("-")[0]), n, label)


# --- cells -----------------------------------------------------------------------------------------------------------


def number(value: float | None) -> str:
    """Three digits, thousands apart, fewer for what is very small; nothing for None."""
    if value is None:
        return ""
    if 0 < value < 0.095:
        return f"{value:.1g}"
    digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:,.{digits}f}".replace(",", " ")


def ratio_text(value: float | None) -> str:
    """A ratio of times, in bold where hocket takes longer."""
    return f"**{number(value)}**" if value is not None and value > 1 else number(value)


def table(heads: Sequence[str], body: Iterable[Sequence[str]]) -> list[str]:
    """A markdown table, figures to the right, and an empty line after it."""
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *body]
    return ["| " + " | ".join(line) + " |" for line in lines] + [""]


# --- tables ----------------------------------------------------------------------------------------------------------


def render(rows: Iterable[Row]) -> list[str]:
    """All tables of times and ratios, as lines of markdown."""
    found = Rounds(rows)
    lines = [*_summary(found), *_references(found)]
    for (op, place, n), sizes in found.spots().items():
        if op != "barrier":
            lines += [f"### {op}, {title_of(place, n)}", "", *_one_operation(found, (op, place, n), sizes)]
    return lines + _barriers(found)


def _one_operation(found: Rounds, spot: Spot, sizes: Sequence[int]) -> list[str]:
    body = []
    for system in found.systems():
        keys = [(system, *spot, nbytes) for nbytes in sizes]
        if any(found.median(key) is not None for key in keys):
            body.append([f"{system}, µs", *(number(found.median(key)) for key in keys)])
    for system in found.systems():
        keys = [(system, *spot, nbytes) for nbytes in sizes]
        if system != BASE and any(found.ratio(key) is not None for key in keys):
            body.append([f"{BASE} / {system}", *(ratio_text(found.ratio(key)) for key in keys)])
    if spot[0] == BF16:
        body += _beside_float32(found, spot, sizes)
    return table(["", *map(size_text, sizes)], body)


def _beside_float32(found: Rounds, spot: Spot, sizes: Sequence[int]) -> list[list[str]]:
    body = []
    for system in found.systems():
        pairs = [((BASE, *spot, nbytes), (system, "all_reduce", *spot[1:], nbytes)) for nbytes in sizes]
        ratios = [found.over_the_best(mine, [theirs]) for mine, theirs in pairs]
        if any(ratio is not None for ratio in ratios):
            body.append([f"{BASE} / {system}’s float32", *map(ratio_text, ratios)])
    return body


def _barriers(found: Rounds) -> list[str]:
    places = [spot[1:] for spot in found.spots() if spot[0] == "barrier"]
    if not places:
        return []
    lines = ["### barrier", ""]
    for place, n in places:
        body = []
        for system in found.systems():
            key = (system, "barrier", place, n, 0)
            if found.median(key) is not None:
                ratio = "" if system == BASE else ratio_text(found.ratio(key))
                body.append([system, number(found.median(key)), number(found.median(key, "p99_us")), ratio])
        lines += table([title_of(place, n), "µs", "p99", f"{BASE} / it"], body)
    return lines


def _references(found: Rounds) -> list[str]:
    """What one TCP connection does at each place."""
    body = []
    for place, n in found.places():
        (trip, trip_nbytes), (way, way_nbytes) = ROUND_TRIP, ONE_WAY
        round_trip = (REFERENCE, trip, place, n, trip_nbytes)
        one_way_us = found.median((REFERENCE, way, place, n, way_nbytes))
        if one_way_us is not None:
            rate = number(way_nbytes / one_way_us / 1e3)
            times = [number(found.median(round_trip, field)) for field in ("median_us", "p99_us")]
            body.append([title_of(place, n), *times, rate])
    heads = ["one TCP connection", "round trip of 64 B, µs", "p99", "one way, GB/s"]
    return ["### The networks", "", *table(heads, body)] if body else []


def _summary(found: Rounds) -> list[str]:
    """Where hocket stands beside each peer over all cases of a place, and how far the rounds were apart."""
    body = []
    for place, n in found.places():
        spots = [(spot, sizes) for spot, sizes in found.spots().items() if spot[1:] == (place, n)]
        for system in found.systems():
            keys = [(system, *spot, nbytes) for spot, sizes in spots for nbytes in sizes]
            spreads = [spread for key in keys if (spread := found.spread(key)) is not None]
            ratios = [ratio for key in keys if system != BASE and (ratio := found.ratio(key)) is not None]
            if not spreads:
                continue
            faster = f"{sum(ratio < 1 for ratio in ratios)} of {len(ratios)}" if ratios else ""
            mean = ratio_text(statistics.geometric_mean(ratios)) if ratios else ""
            ends = [ratio_text(end(ratios)) if ratios else "" for end in (min, max)]
            body.append([title_of(place, n), system, faster, mean, *ends, number(statistics.median(spreads))])
    heads = ["", "system", f"{BASE} is faster in", f"{BASE} / it, geometric mean", "least", "most", "rounds apart"]
    return ["### Over all cases", "", *table(heads, body)]
