"""The benchmarks from end to end: hocket alone, two ranks, tiny sizes."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TINY = ("--peers", "none", "--ns", "2", "--sizes", "4,4KiB", "--rounds", "1", "--budget", "0.01")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "benchmarks" / "run.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_every_operation_is_measured_and_written_down(tmp_path: Path) -> None:
    child = run(*TINY, "--json", "--out", str(tmp_path))
    assert child.returncode == 0, child.stderr
    rows = [json.loads(line) for line in child.stdout.splitlines()]
    moving = ["all_reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all"]
    cases = [(op, nbytes) for op in moving for nbytes in (4, 4096)] + [("barrier", 0)]
    assert [(row["op"], row["nbytes"]) for row in rows] == cases
    assert all(row["system"] == "hocket" and row["n"] == 2 and row["round"] == 1 for row in rows)
    assert all(0 < row["median_us"] <= row["p99_us"] and row["calls"] >= 10 for row in rows)
    assert (tmp_path / "results.jsonl").read_text() == child.stdout
    assert "### all_to_all, n = 2" in (tmp_path / "tables.md").read_text()


def test_a_system_that_is_unknown_is_refused_with_those_that_are_known() -> None:
    child = run("--peers", "nccl")
    assert child.returncode == 2
    assert "'nccl' is none of gloo, openmpi, mpich, none" in child.stderr
