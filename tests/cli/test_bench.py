"""``hocket bench`` as people call it: processes of their own, embedded, small."""

import json
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from harness.commands import environment, finished

from hocket.cli.__main__ import main
from hocket.cli.bench_plan import OPERATIONS
from hocket.cli.output import MakePrinter
from hocket.cli.plan import Plan

ROOT = Path(__file__).resolve().parents[2]
COMMAND = (sys.executable, "-m", "hocket.cli", "bench")
QUICK = ("-n", "2", "-w", "1", "--iters", "2")
LIMIT_S = 100


def bench(*arguments: str, **settings: str) -> "subprocess.CompletedProcess[str]":
    return finished([*COMMAND, *arguments], LIMIT_S, **settings)


def rows_and_summary(ended: "subprocess.CompletedProcess[str]") -> tuple[list[dict[str, Any]], dict[str, Any]]:
    assert ended.returncode == 0, ended.stderr
    *rows, summary = [json.loads(line) for line in ended.stdout.splitlines()]
    return rows, summary


@pytest.fixture(scope="module")
def everything() -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Rows and summary of all operations with two ranks."""
    return rows_and_summary(bench("all", *QUICK, "-b", "1K", "-e", "64K", "-f", "8", "-d", "float64", "--json"))


def test_every_operation_is_right_in_each_of_its_forms(everything: tuple[list[dict[str, Any]], dict[str, Any]]) -> None:
    rows, summary = everything
    for operation in OPERATIONS.values():
        mine = [row for row in rows if row["operation"] == operation.name]
        assert mine, operation.name
        for row in mine:
            for form in ("out_of_place", "in_place"):
                if form in operation.forms:
                    assert row[form]["wrong"] == 0, row
                else:
                    assert row[form] is None, row
    assert (summary["summary"], summary["ranks"], summary["wrong"]) == (True, 2, 0)
    assert set(summary["average_busbw_GBps_of"]) == set(OPERATIONS) - {"barrier"}


def test_rows_have_the_sizes_asked_for_and_consistent_figures(
    everything: tuple[list[dict[str, Any]], dict[str, Any]],
) -> None:
    rows, summary = everything
    for name, parts in (("all_reduce", 1), ("all_gather", 2)):
        shown = [(row["size_nbytes"], row["count"]) for row in rows if row["operation"] == name]
        assert shown == [(size, size // 8 // parts) for size in (1024, 8192, 65536)]
    busbw = []
    for row in rows:
        for figures in filter(None, (row["out_of_place"], row["in_place"])):
            assert 0 < figures["min_us"] <= figures["median_us"] <= figures["p99_us"]
            assert figures["iterations"] == 2
            if row["operation"] == "barrier":
                assert figures["algbw_GBps"] is None and figures["busbw_GBps"] is None
                continue
            factor = OPERATIONS[row["operation"]].factor(2)
            assert figures["algbw_GBps"] == pytest.approx(row["size_nbytes"] / figures["time_us"] / 1e3)
            assert figures["busbw_GBps"] == pytest.approx(figures["algbw_GBps"] * factor)
            busbw.append(figures["busbw_GBps"])
    assert summary["average_busbw_GBps"] == pytest.approx(sum(busbw) / len(busbw))


def test_the_table_names_ranks_hosts_and_processes_and_ends_with_the_average() -> None:
    ended = bench("all_to_all", "-n", "3", "--hosts", "2", "-w", "0", "--iters", "1", "-b", "60", "-e", "60")
    assert (ended.returncode, ended.stderr) == (0, "")
    lines = ended.stdout.splitlines()
    assert lines[0].startswith("# hocket ") and ", 3 ranks on 2 hosts, core: " in lines[0]
    assert lines[2].startswith("#   host0: ranks 0, 1 (pids ") and lines[3].startswith("#   host1: rank 2 (pid ")
    assert next(line for line in lines if not line.startswith("#")).split()[:5] == ["60", "5", "float32", "none", "-1"]
    assert lines[-1].startswith("# Avg bus bandwidth    : ") and lines[-1].endswith(" GB/s")


def test_inside_a_world_it_is_one_rank_and_rank_0_prints() -> None:
    command = [
        sys.executable,
        "-m",
        "hocket.cli",
        "run",
        "-n",
        "2",
        "--no-prefix",
        *COMMAND,
        *QUICK[2:],
        "-e",
        "4",
        "--json",
    ]
    ended = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=LIMIT_S, check=False)
    rows, summary = rows_and_summary(ended)
    assert [row["size_nbytes"] for row in rows] == [4]
    assert (summary["ranks"], ended.stderr) == (2, "")


def test_an_interrupt_ends_the_ranks_and_says_nothing_more() -> None:
    endless = ("-n", "2", "-b", "4", "-e", "8", "--iters", "1000000000")
    process = subprocess.Popen(
        [*COMMAND, "sendrecv,all_reduce", *endless],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert select.select([process.stdout], [], [], LIMIT_S)[0]
    head = [process.stdout.readline() for _ in range(3)]
    pids = [int(word.strip(",)\n")) for word in head[2].partition("(pids ")[2].split()]
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, errors) == (130, "")
    assert len(pids) == 2 and not any(Path(f"/proc/{pid}").exists() for pid in pids)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("-b", "8X"), "argument '-b' is '8X', allowed is a size in bytes, such as 4, 8K, 64M or 1G, up to 1T"),
        (("-b", "8", "-e", "4"), "argument '-e' is 4, allowed is 8 or more, for that is the smallest size (-b)"),
        (("-f", "2", "-i", "4"), "argument '-i' is 4, allowed is nothing beside -f: sizes grow by one of them"),
        (("-n", "2", "-r", "2"), "argument '-r' is 2, allowed is 0 to 1 with 2 ranks"),
        (("--worker", "3"), "argument '--worker' is 3, allowed is an address: host:port or unix:/path"),
        (("--timeout", "0"), "argument '--timeout' is 0.0, allowed is seconds as a number above 0"),
    ],
)
def test_a_bad_argument_gives_one_sentence(
    arguments: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert main(["bench", *arguments]) == 1
    assert capsys.readouterr().err == f"hocket: {sentence}\n"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("-n", "3"), "argument '-n' is 3, allowed is 2 or not given"),
        (("--hosts", "2"), "argument '--hosts' is 2, allowed is nothing"),
        (("--timeout", "9"), "argument '--timeout' is 9.0, allowed is nothing"),
    ],
)
def test_inside_a_world_it_refuses_to_start_ranks(
    arguments: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert main(["bench", *arguments]) == 1
    assert capsys.readouterr().err == f"hocket: {sentence}: WORLD_SIZE is set, so that others start the ranks\n"


def test_wrong_elements_make_the_run_fail_and_are_named(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = {"time_s": 1e-6, "median_s": 1e-6, "p99_s": 1e-6, "min_s": 1e-6, "iterations": 2}
    events: list[dict[str, Any]] = [
        {"event": "begin", "version": "1", "hosts": ["a", "a"], "pids": [1, 2], "cores": ["python"]},
        {"event": "row", "operation": "all_reduce", "count": 2, "in_place": figures | {"wrong": 3}},
        {"event": "end"},
    ]

    def execute(_plan: Plan, printer: MakePrinter) -> int:
        printer(False, lambda: None).sink("0", 0)(1, [json.dumps(event).encode() + b"\n" for event in events])
        return 0

    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.setattr("hocket.cli.bench.execute", execute)
    assert main(["bench", "-n", "2"]) == 1
    shown = capfd.readouterr()
    assert shown.err == "hocket: 3 elements wrong, first in all_reduce of 8 B, in place\n"
    assert "# Wrong elements       : 3\n" in shown.out


def test_a_failure_is_said_once_and_names_its_cause() -> None:
    ended = bench("-n", "2", "--worker", "unix:/nowhere")
    assert ended.returncode == 1
    assert ended.stderr.count("cannot use unix:/nowhere: No such file or directory") == 1
