"""The benchmarks from end to end: hocket alone, two ranks, tiny sizes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ALONE = ("--peers", "none", "--rounds", "1", "--budget", "0.01")
TINY = ("--placements", "host", "--ns", "2", "--sizes", "4,4KiB", *ALONE)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "benchmarks" / "run.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_every_operation_is_measured_and_written_down(tmp_path: Path) -> None:
    child = run(*TINY, "--json", "--out", str(tmp_path))
    assert child.returncode == 0, child.stderr
    rows = [json.loads(line) for line in child.stdout.splitlines()]
    moving = ["all_reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all"]
    cases = [(op, nbytes) for op in (*moving, "all_reduce_bf16") for nbytes in (4, 4096)] + [("barrier", 0)]
    measured = [row for row in rows if row["system"] == "hocket"]
    assert [(row["op"], row["nbytes"]) for row in measured] == cases
    assert all((row["place"], row["n"], row["round"]) == ("host", 2, 1) for row in rows)
    assert all(0 < row["median_us"] <= row["p99_us"] and row["calls"] >= 10 for row in measured)
    assert [row["op"] for row in rows if row["system"] == "tcp"] == ["round_trip", "one_way"]
    assert (tmp_path / "results.jsonl").read_text().partition("\n")[2] == child.stdout
    assert "### all_to_all, one host, n = 2" in (tmp_path / "tables.md").read_text()


def test_what_was_kept_can_be_shown_once_more(tmp_path: Path) -> None:
    row = {"system": "hocket", "place": "host", "n": 2, "op": "barrier", "nbytes": 0, "round": 1}
    lines = [{"facts": ["- machine: a good one"]}, row | {"median_us": 4.0, "p99_us": 9.0, "other_cores": 0.0}]
    (tmp_path / "results.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    child = run("--render", "--out", str(tmp_path))
    assert child.returncode == 0, child.stderr
    assert "- machine: a good one" in child.stdout
    assert "| hocket | 4.00 | 9.00 |  |" in child.stdout


@pytest.mark.hosts
def test_hosts_with_a_limit_and_a_delay_are_measured_too(tmp_path: Path) -> None:
    between = ("--placements", "slow", "--layouts", "2x1", "--ops", "all_reduce", "--sizes", "4")
    child = run(*between, *ALONE, "--json", "--out", str(tmp_path))
    assert child.returncode == 0, child.stderr
    rows = {row["op"]: row for row in map(json.loads, child.stdout.splitlines())}
    assert {row["place"] for row in rows.values()} == {"slow-2x1"}
    assert rows["round_trip"]["median_us"] >= 2000  # twice the delay
    assert rows["one_way"]["median_us"] >= 64 * 2**20 / 125  # no more than the rate
    assert rows["all_reduce"]["median_us"] >= 1000


def test_a_system_that_is_unknown_is_refused_with_those_that_are_known() -> None:
    child = run("--peers", "nccl")
    assert child.returncode == 2
    assert "'nccl' is none of gloo, openmpi, mpich, ray, pccl, none" in child.stderr
