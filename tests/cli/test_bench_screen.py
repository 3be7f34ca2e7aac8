import io
import json
import os
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from hocket.cli.bench_plan import Settings
from hocket.cli.bench_report import Report
from hocket.cli.bench_screen import ProgressLine, Screen

BEGIN = {"event": "begin", "version": "1", "hosts": ["a"], "pids": [1], "cores": ["python"]}


class Printed(Screen):
    """Keeps what it would write."""

    def __init__(self, progress: ProgressLine) -> None:
        super().__init__(Report(Settings(), as_json=False), progress, True, lambda: None)
        self.out: dict[int, bytes] = {1: b"", 2: b""}

    def write(self, fd: int, data: bytes) -> None:
        self._progress.clear()
        self.out[fd] += data


def line(**event: Any) -> bytes:
    return json.dumps(event).encode() + b"\n"


def console(terminal: bool) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=80)


def text(shown: Console) -> str:
    assert isinstance(shown.file, io.StringIO)
    return shown.file.getvalue()


def test_events_become_lines_and_progress_goes_to_the_terminal_alone() -> None:
    shown = console(terminal=True)
    screen = Printed(ProgressLine(shown))
    take = screen.sink("0", 0)
    take(1, [line(**BEGIN), line(event="progress", operation="all_reduce", count=2, form="in_place", done=5, of=20)])
    assert screen.out[1].startswith(b"# hocket 1, 1 rank on 1 host, core: python\n")
    assert b"5/20" not in screen.out[1]
    assert "all_reduce, 8 B, in place" in text(shown) and "5/20" in text(shown)


def test_without_a_terminal_no_progress_is_shown() -> None:
    shown = console(terminal=False)
    progress = ProgressLine(shown)
    progress.show("all_reduce", 1, 2)
    progress.clear()
    assert text(shown) == ""


def test_how_a_rank_failed_is_left_to_the_launcher_and_all_else_is_passed_on() -> None:
    screen = Printed(ProgressLine(console(terminal=False)))
    take = screen.sink("1", 1)
    take(2, [b"a warning\n", b"MemberLostError: rank 0 is gone\n"])
    assert screen.out[2] == b"[1] a warning\n"
    take(2, [b"Traceback (most recent call last):\n", b"ValueError: of our own\n"])
    assert screen.out[2].endswith(b"[1] Traceback (most recent call last):\n[1] ValueError: of our own\n")


def test_a_daemon_is_passed_on_as_it_is() -> None:
    screen = Printed(ProgressLine(console(terminal=False)))
    screen.sink("worker", 0)(2, [b"SomeError: logged\n"])
    assert screen.out[2] == b"[worker] SomeError: logged\n"


def test_a_line_clears_the_progress_before_it_is_printed(tmp_path: Path) -> None:
    progress = ProgressLine(console(terminal=True))
    screen = Screen(Report(Settings(), as_json=False), progress, False, lambda: None)
    progress.show("all_reduce", 1, 2)
    with (tmp_path / "out").open("wb") as file:
        screen.write(file.fileno(), b"row\n")
    assert (tmp_path / "out").read_bytes() == b"row\n"
    assert progress.shown is False


@pytest.fixture(autouse=True)
def no_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "NO_COLOR", "1")
