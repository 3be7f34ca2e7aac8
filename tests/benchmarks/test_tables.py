"""From rows to tables, and from clock readings to samples."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return {name: __import__(name) for name in ("sampling", "tables")}


def row(
    system: str, turn: int, median_us: float, op: str = "all_reduce", nbytes: int = 4, place: str = "host"
) -> dict[str, Any]:
    return {
        "system": system, "place": place, "op": op, "n": 2, "nbytes": nbytes, "round": turn,
        "median_us": median_us, "p99_us": 2 * median_us, "other_cores": 0.0,
    }  # fmt: skip


def test_ratios_are_taken_within_a_round_before_their_median(modules: dict[str, Any]) -> None:
    mine, theirs = (3.0, 20.0, 100.0), (1.0, 10.0, 100.0)
    rows = [row("hocket", at, value) for at, value in enumerate(mine)]
    rows += [row("gloo", at, value) for at, value in enumerate(theirs)]
    rounds = modules["tables"].Rounds(rows)
    key = ("gloo", "all_reduce", "host", 2, 4)
    assert (rounds.median(key), rounds.ratio(key), rounds.spread(key)) == (10.0, 2.0, 100.0)


def test_a_round_that_one_system_missed_counts_for_the_others_only(modules: dict[str, Any]) -> None:
    rows = [row("hocket", 1, 2.0), row("gloo", 1, 6.0), row("gloo", 2, 600.0)]
    key = ("gloo", "all_reduce", "host", 2, 4)
    assert modules["tables"].Rounds(rows).ratio(key) == pytest.approx(1 / 3)
    assert modules["tables"].Rounds(rows[1:]).ratio(key) is None


def test_the_best_of_several_is_found_in_each_round_anew(modules: dict[str, Any]) -> None:
    rows = [row("hocket", turn, 6.0) for turn in (1, 2, 3)]
    rows += [row("openmpi", turn, value) for turn, value in ((1, 2.0), (2, 12.0), (3, 30.0))]
    rows += [row("mpich", turn, value) for turn, value in ((1, 60.0), (2, 3.0), (3, 4.0))]
    keys = [(system, "all_reduce", "host", 2, 4) for system in ("hocket", "openmpi", "mpich")]
    assert modules["tables"].Rounds(rows).over_the_best(keys[0], keys[1:]) == 2.0


def test_the_tables_show_times_and_ratios_side_by_side(modules: dict[str, Any]) -> None:
    rows = [row("gloo", 1, 1250.0), row("hocket", 1, 2.5), row("hocket", 1, 4.0, "barrier", 0)]
    lines = modules["tables"].render(rows)
    at = lines.index("### all_reduce, one host, n = 2")
    shown = [
        "|  | 4 B |",
        "| --- | ---: |",
        "| hocket, µs | 2.50 |",
        "| gloo, µs | 1 250 |",
        "| hocket / gloo | 0.002 |",
    ]
    assert lines[at + 2 : at + 7] == shown
    assert "| hocket | 4.00 | 8.00 |  |" in lines


def test_where_hocket_loses_the_table_says_so(modules: dict[str, Any]) -> None:
    lines = modules["tables"].render([row("gloo", 1, 2.0), row("hocket", 1, 5.0)])
    assert "| hocket / gloo | **2.50** |" in lines


def test_places_have_tables_of_their_own_and_one_of_their_networks(modules: dict[str, Any]) -> None:
    rows = [row(system, 1, 1000.0, place=place) for place in ("slow-2x1", "host") for system in ("hocket", "gloo")]
    rows += [row("tcp", 1, 2100.0, "round_trip", 64, "slow-2x1"), row("tcp", 1, 64e4, "one_way", 64 << 20, "slow-2x1")]
    lines = modules["tables"].render(rows)
    heads = [line for line in lines if line.startswith("### all_reduce")]
    assert heads == ["### all_reduce, one host, n = 2", "### all_reduce, 2 hosts × 1 rank, 1 Gbit/s + 1 ms"]
    assert "| 2 hosts × 1 rank, 1 Gbit/s + 1 ms | 2 100 | 4 200 | 0.10 |" in lines


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, ""), (0.00312, "0.003"), (0.5, "0.50"), (12.34, "12.3"), (99.96, "100"), (43210.9, "43 211")],
)
def test_numbers_keep_about_three_digits(modules: dict[str, Any], value: float | None, text: str) -> None:
    assert modules["tables"].number(value) == text


def test_a_sample_ends_with_the_last_rank(modules: dict[str, Any]) -> None:
    times = np.array([[[0, 100, 200], [50, 150, 260]], [[0, 90, 210], [60, 140, 300]]]) * 1000
    samples = modules["sampling"].samples_us
    assert samples("all_reduce", times).tolist() == [90.0, 150.0]
    assert samples("broadcast", times).tolist() == [50.0, 100.0]
