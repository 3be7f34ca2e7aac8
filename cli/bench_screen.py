"""How ``hocket bench`` shows what rank 0 tells: lines on standard output, and on a terminal how far it is."""

import json
import re
import sys
from collections.abc import Callable

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from hocket.cli.bench_report import Event, Report
from hocket.cli.output import Printer, write_all
from hocket.cli.processes import ERR, OUT, Sink

_OWN_ERROR = re.compile(rb"\w+Error: ")
_BEGINS = re.compile(rb"Traceback \(most recent call last\):")


class ProgressLine:
    """A line on standard error for the measurement under way; none where that is no terminal."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._shown: Progress | None = None

    @property
    def shown(self) -> bool:
        """Whether there is one."""
        return self._shown is not None

    def show(self, what: str, done: int, of: int) -> None:
        """Shows it in place of what was shown before. ``of`` is 0 while results are checked."""
        if not self._console.is_terminal:
            return
        if self._shown is None or not of:
            self.clear()
            columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
            self._shown = Progress(*columns, console=self._console, transient=True, auto_refresh=False)
            self._shown.add_task(what, total=of or None, completed=done)
            self._shown.start()
        self._shown.update(self._shown.task_ids[0], description=what, completed=done, total=of or None)
        self._shown.refresh()

    def clear(self) -> None:
        """Takes it away, so that something else can be printed."""
        if self._shown is not None:
            self._shown.stop()
            self._shown = None


class Screen(Printer):
    """Shows a run whose rank 0 prints events, one JSON object on each line.

    What ranks print on standard error is passed on, except for the one line by which each says how it failed: the
    launcher repeats that of the rank which failed first.
    """

    def __init__(self, report: Report, progress: ProgressLine, prefix: bool, on_broken: Callable[[], None]) -> None:
        super().__init__(prefix, on_broken)
        self._report, self._progress = report, progress

    def sink(self, label: str, number: int) -> Sink:
        """What takes a child's lines. Those of daemons are printed as they are."""
        usual = super().sink(label, number)
        if not label.isdecimal():
            return usual
        broke = False

        def take(fd: int, lines: list[bytes]) -> None:
            nonlocal broke
            if fd == OUT:
                for line in lines:
                    self._take(line)
                return
            broke = broke or any(map(_BEGINS.match, lines))
            shown = lines if broke else [line for line in lines if not _OWN_ERROR.match(line)]
            if shown:
                usual(ERR, shown)

        return take

    def write(self, fd: int, data: bytes) -> None:
        """Writes, once the progress line is out of the way."""
        self._progress.clear()
        super().write(fd, data)

    def _take(self, line: bytes) -> None:
        event: Event = json.loads(line)
        if event["event"] == "progress":
            self._progress.show(self._report.describe(event), event["done"], event["of"])
        elif lines := self._report.lines(event):
            self.write(OUT, "".join(f"{line}\n" for line in lines).encode())


def shown_directly(report: Report, progress: ProgressLine) -> Callable[[Event], None]:
    """Shows events of this very process."""

    def tell(event: Event) -> None:
        if event["event"] == "progress":
            progress.show(report.describe(event), event["done"], event["of"])
        elif lines := report.lines(event):
            progress.clear()
            write_all(sys.stdout.fileno(), "".join(f"{line}\n" for line in lines).encode())

    return tell
