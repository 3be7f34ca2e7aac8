"""Targets: what is reached is the worst of a group's sizes, and the table says whether it is enough."""

from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return {name: __import__(name) for name in ("tables", "targets")}


def row(system: str, nbytes: int, median_us: float, place: str = "host", n: int = 2, **other: Any) -> dict[str, Any]:
    facts = {"op": "all_reduce", "round": 1, "p99_us": median_us, "other_cores": 0.0}
    return {"system": system, "place": place, "n": n, "nbytes": nbytes, "median_us": median_us, **facts, **other}


def line(modules: dict[str, Any], rows: list[dict[str, Any]], start: str) -> list[str]:
    """The cells of the line that begins like this."""
    lines: list[str] = modules["targets"].render_targets(modules["tables"].Rounds(rows))
    found = next(text for text in lines if text.startswith(f"| {start}"))
    return [cell.strip() for cell in found.strip("|").split(" | ")[1:]]


def test_the_worst_size_counts_and_the_better_of_two_peers(modules: dict[str, Any]) -> None:
    rows = [row("hocket", 4, 2.0), row("openmpi", 4, 1.0), row("mpich", 4, 50.0)]
    rows += [row("hocket", 1024, 8.0), row("openmpi", 1024, 50.0), row("mpich", 1024, 2.0)]
    rows += [row("hocket", 16 << 10, 9.0), row("mpich", 16 << 10, 10.0)]
    cells = line(modules, rows, "all_reduce / the better MPI, one host, n = 2")
    assert cells == ["**4.00** (≤ 3) **no**", "0.90 (≤ 1) yes", "not measured (≤ 0.8)", "not measured (≤ 0.5)"]


def test_bfloat16_is_held_against_float32_of_the_same_bytes(modules: dict[str, Any]) -> None:
    rows = [row("hocket", 16 << 10, 10.0, op="all_reduce_bf16"), row("gloo", 16 << 10, 1000.0)]
    cells = line(modules, rows, "all_reduce of bfloat16")
    assert cells[:2] == ["", "0.01 (≤ 1/20) yes"]


def test_between_slow_hosts_the_round_trip_and_the_rate_are_the_measure(modules: dict[str, Any]) -> None:
    slow = {"place": "slow-2x2", "n": 4}
    rows = [row("tcp", 64, 2100.0, op="round_trip", **slow), row("hocket", 4, 2400.0, **slow)]
    rows += [row("hocket", 16 << 20, (16 << 20) / 120, **slow), row("hocket", 64 << 20, (64 << 20) / 100, **slow)]
    cells = line(modules, rows, "all_reduce, 2 hosts × 2 ranks, 1 Gbit/s + 1 ms")
    assert cells == ["round trip + 300 µs (≤ 500) yes", "", "", "**0.80 of the link** (≥ 0.93) **no**"]


def test_what_was_not_measured_is_counted_and_not_met(modules: dict[str, Any]) -> None:
    found = modules["tables"].Rounds([row("hocket", 4, 2.0), row("openmpi", 4, 1.0)])
    targets = modules["targets"]
    total = sum(outcome is not None for target in targets.TARGETS for outcome in targets.outcomes(found, target))
    lines = targets.render_targets(found)
    assert f"1 of 1 targets that were measured are met; {total - 1} were not measured." in lines[2]
    assert targets.render_targets(modules["tables"].Rounds([row("gloo", 4, 2.0)])) == []
