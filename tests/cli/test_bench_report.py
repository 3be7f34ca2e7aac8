import json

import pytest

from hocket.cli.bench_plan import Settings
from hocket.cli.bench_report import Event, Report

BEGIN: Event = {
    "event": "begin",
    "version": "1.2.3",
    "hosts": ["a", "a", "b", "b"],
    "pids": [11, 12, 13, 14],
    "cores": ["python"],
}


def figures(time_s: float, wrong: int | None = 0) -> Event:
    return {"time_s": time_s, "median_s": time_s, "p99_s": time_s, "min_s": time_s, "iterations": 20, "wrong": wrong}


def row(operation: str, count: int, **forms: Event) -> Event:
    return {"event": "row", "operation": operation, "count": count, **forms}


def told(report: Report, *events: Event) -> list[str]:
    return [line for event in (BEGIN, *events, {"event": "end"}) for line in report.lines(event)]


def test_a_row_of_the_table_has_the_columns_of_nccl_tests() -> None:
    report = Report(Settings(operations=("all_gather",)), as_json=False)
    lines = told(report, row("all_gather", 1000, out_of_place=figures(2e-6), in_place=figures(1e-3)))
    shown = [line.split() for line in lines if not line.startswith("#")]
    left = ["16000", "1000", "float32", "none", "-1"]
    assert shown == [[*left, "2.00", "8.00", "6.00", "0", "1000", "0.02", "0.01", "0"]]
    assert lines[-1] == "# Avg bus bandwidth    : 3.0060 GB/s"


def test_a_form_that_an_operation_has_not_is_not_available() -> None:
    report = Report(Settings(root=2, operations=("reduce",), op="MAX"), as_json=False)
    lines = told(report, row("reduce", 1, in_place=figures(1e-6)))
    shown = [line.split() for line in lines if not line.startswith("#")]
    assert shown == [["4", "1", "float32", "max", "2", *["n/a"] * 4, "1.00", "0.00", "0.00", "0"]]


def test_each_operation_gets_its_heading_once_and_an_average_of_its_own() -> None:
    report = Report(Settings(operations=("all_reduce", "broadcast", "barrier")), as_json=False)
    rows = [row(name, count, in_place=figures(1e-6)) for name in ("all_reduce", "broadcast") for count in (250, 500)]
    lines = told(report, *rows, row("barrier", 0, out_of_place=figures(1e-6)))
    heads = [line.split()[1] for line in lines if "out-of-place" in line]
    assert heads == ["all_reduce", "broadcast", "barrier"]
    assert lines[-3:] == [
        "# Avg bus bandwidth    : 1.8750 GB/s",
        "#   all_reduce         : 2.2500 GB/s",
        "#   broadcast          : 1.5000 GB/s",
    ]


def test_wrong_elements_are_summed_and_the_first_place_is_named() -> None:
    report = Report(Settings(), as_json=False)
    rows = [row("all_reduce", count, in_place=figures(1e-6, wrong)) for count, wrong in ((1, 0), (2, 3), (4, 4))]
    lines = told(report, *rows)
    assert "# Wrong elements       : 7" in lines
    assert report.verdict() == "7 elements wrong, first in all_reduce of 8 B, in place"


def test_json_is_one_object_a_row_and_a_summary() -> None:
    report = Report(Settings(), as_json=True)
    shown = [json.loads(line) for line in told(report, row("all_reduce", 250, in_place=figures(1e-6, 2)))]
    assert [one.get("summary", False) for one in shown] == [False, True]
    assert (shown[0]["size_nbytes"], shown[0]["op"], shown[0]["out_of_place"]) == (1000, "SUM", None)
    assert shown[0]["in_place"]["busbw_GBps"] == pytest.approx(1.5)
    assert (shown[1]["wrong"], shown[1]["version"], shown[1]["core"]) == (2, "1.2.3", ["python"])


def test_without_a_check_nothing_is_said_to_be_right() -> None:
    report = Report(Settings(check=False), as_json=False)
    lines = told(report, row("all_reduce", 1, in_place=figures(1e-6, None)))
    assert next(line for line in lines if not line.startswith("#")).split()[-1] == "n/a"
    assert "# Wrong elements       : not checked" in lines


def test_progress_says_what_is_measured() -> None:
    report = Report(Settings(), as_json=False)
    report.lines(BEGIN)
    event = {"event": "progress", "operation": "all_to_all", "count": 8, "form": "out_of_place"}
    assert report.describe(event) == "all_to_all, 128 B, out of place"
