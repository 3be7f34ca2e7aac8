"""What ``hocket bench`` prints: a table in the manner of nccl-tests, or JSON. Pure: events go in, lines come out.

Events are dicts. ``begin`` tells versions, hosts and processes, ``progress`` how far a measurement is, ``row`` the
figures of one size, and ``end`` that all are there.
"""

import json
from typing import Any

from hocket.cli.bench_plan import (
    FILLED_S,
    LEAST_ITERATIONS,
    MOST_ITERATIONS,
    OPERATIONS,
    Operation,
    Settings,
    bandwidths,
    size_of,
)
from hocket.protocol.dtypes import DTYPES
from hocket.protocol.errors import name_ranks

Event = dict[str, Any]

FORMS = ("out_of_place", "in_place")
MISSING = "n/a"
NO_ROOT = -1
_GB = 1e9
_MICRO = 1e6
_LEFT = "{:>13} {:>12} {:>13} {:>7} {:>5}"
_RIGHT = "  {:>9} {:>7} {:>7} {:>7}"


class Report:
    """The lines of one benchmark, as it goes. ``wrong`` counts the elements that were not what they must be."""

    def __init__(self, settings: Settings, as_json: bool) -> None:
        self._settings, self._as_json = settings, as_json
        self._begin: Event = {}
        self._operation = ""
        self._busbw: dict[str, list[float]] = {}
        self.wrong = 0
        self._first_wrong = ""

    def lines(self, event: Event) -> list[str]:
        """What an event prints on standard output."""
        match event["event"]:
            case "begin":
                self._begin = event
                return [] if self._as_json else self._header()
            case "row":
                return self._row(event)
            case "end":
                return [json.dumps(self._summary())] if self._as_json else self._last_lines()
            case _:
                return []

    @property
    def _ranks(self) -> int:
        return len(self._begin["pids"])

    def describe(self, progress: Event) -> str:
        """What is being measured, in a few words."""
        operation = OPERATIONS[progress["operation"]]
        return f"{operation.name}, {self._nbytes(operation, progress['count'])} B, {_words(progress['form'])}"

    def verdict(self) -> str:
        """What was wrong, and where first."""
        return f"{_number(self.wrong, 'element')} wrong, first in {self._first_wrong}"

    def _nbytes(self, operation: Operation, count: int) -> int:
        return size_of(operation, count, DTYPES[self._settings.dtype].itemsize, self._ranks)

    # --- the head ----------------------------------------------------------------------------------------------------

    def _header(self) -> list[str]:
        given, begin = self._settings, self._begin
        hosts = list(dict.fromkeys(begin["hosts"]))
        where = f"{_number(self._ranks, 'rank')} on {_number(len(hosts), 'host')}"
        growth = f"step {given.step_nbytes} B" if given.step_nbytes else f"factor {given.factor}"
        often = f"{LEAST_ITERATIONS} to {MOST_ITERATIONS} ({FILLED_S:g} s)"
        lines = [
            f"# hocket {begin['version']}, {where}, core: {', '.join(begin['cores'])}",
            f"# {given.dtype}, sizes {given.smallest_nbytes} to {given.largest_nbytes} B, {growth}, "
            f"warm-up {given.warmup}, iterations {given.iterations or often}, "
            f"{'every element checked' if given.check else 'not checked'}"
            f"{f', compression {given.compression}' if given.compression else ''}"
            f"{', memory on the board' if given.board_memory else ''}",
        ]
        for host in hosts:
            ranks = tuple(rank for rank, other in enumerate(begin["hosts"]) if other == host)
            pids = ", ".join(str(begin["pids"][rank]) for rank in ranks)
            lines.append(f"#   {host}: {name_ranks(ranks)} ({'pid' if len(ranks) == 1 else 'pids'} {pids})")
        return lines

    @staticmethod
    def _columns(operation: str) -> list[str]:
        names = ("time", "algbw", "busbw", "#wrong")
        units = ("(us)", "(GB/s)", "(GB/s)", "")
        above = f"{{:<{len(_LEFT.format(*' ' * 5))}}}" + f"{{:^{len(_RIGHT.format(*names))}}}" * 2
        return [
            "#",
            above.format(f"# {operation}", "out-of-place", "in-place").rstrip(),
            "#" + (_LEFT.format("size", "count", "type", "redop", "root") + _RIGHT.format(*names) * 2)[1:],
            "#" + (_LEFT.format("(B)", "(elements)", "", "", "") + _RIGHT.format(*units) * 2)[1:].rstrip(),
        ]

    # --- rows --------------------------------------------------------------------------------------------------------

    def _row(self, event: Event) -> list[str]:
        operation = OPERATIONS[event["operation"]]
        nbytes = self._nbytes(operation, event["count"])
        forms = {form: self._figures(operation, nbytes, event.get(form)) for form in FORMS}
        for form, figures in forms.items():
            if figures is not None and figures["wrong"]:
                self._first_wrong = self._first_wrong or f"{operation.name} of {nbytes} B, {_words(form)}"
                self.wrong += figures["wrong"]
        left = {
            "size_nbytes": nbytes,
            "count": event["count"],
            "dtype": self._settings.dtype,
            "op": self._settings.op if operation.reduces else None,
            "root": self._settings.root if operation.rooted else None,
        }
        if self._as_json:
            return [json.dumps({"operation": operation.name, "ranks": self._ranks, **left, **forms})]
        lines = [] if self._operation == operation.name else self._columns(operation.name)
        self._operation = operation.name
        return [*lines, _left(left) + "".join(_right(forms[form]) for form in FORMS)]

    def _figures(self, operation: Operation, nbytes: int, figures: Event | None) -> Event | None:
        """The figures of one form as they are shown: microseconds, and 10^9 bytes per second."""
        if figures is None:
            return None
        algbw = busbw = None
        if nbytes:
            algbw, busbw = (rate / _GB for rate in bandwidths(operation, nbytes, figures["time_s"], self._ranks))
            self._busbw.setdefault(operation.name, []).append(busbw)
        times = {f"{name}_us": figures[f"{name}_s"] * _MICRO for name in ("time", "median", "p99", "min")}
        rates = {"algbw_GBps": algbw, "busbw_GBps": busbw}
        return {**times, **rates, "iterations": figures["iterations"], "wrong": figures["wrong"]}

    # --- the end -----------------------------------------------------------------------------------------------------

    def _last_lines(self) -> list[str]:
        several = len(self._busbw) > 1
        lines = ["#", f"# Wrong elements       : {self.wrong if self._settings.check else 'not checked'}"]
        if self._busbw:
            lines.append(f"# Avg bus bandwidth    : {self._average():.4f} GB/s")
        for name, rates in self._busbw.items() if several else ():
            lines.append(f"#   {name:<19}: {sum(rates) / len(rates):.4f} GB/s")
        return lines

    def _average(self) -> float | None:
        every = [rate for rates in self._busbw.values() for rate in rates]
        return sum(every) / len(every) if every else None

    def _summary(self) -> Event:
        begin = self._begin
        return {
            "summary": True,
            "version": begin["version"],
            "core": begin["cores"],
            "ranks": self._ranks,
            "hosts": begin["hosts"],
            "pids": begin["pids"],
            "dtype": self._settings.dtype,
            "compression": self._settings.compression,
            "board_memory": self._settings.board_memory,
            "warmup": self._settings.warmup,
            "wrong": self.wrong if self._settings.check else None,
            "average_busbw_GBps": self._average(),
            "average_busbw_GBps_of": {name: sum(rates) / len(rates) for name, rates in self._busbw.items()},
        }


def _number(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _words(form: str) -> str:
    return form.replace("_", " ")


def _left(facts: Event) -> str:
    op = facts["op"].lower() if facts["op"] else "none"
    root = NO_ROOT if facts["root"] is None else facts["root"]
    return _LEFT.format(facts["size_nbytes"], facts["count"], facts["dtype"], op, root)


def _right(figures: Event | None) -> str:
    if figures is None:
        return _RIGHT.format(*[MISSING] * 4)
    rates = [MISSING if figures[name] is None else f"{figures[name]:.2f}" for name in ("algbw_GBps", "busbw_GBps")]
    wrong = MISSING if figures["wrong"] is None else figures["wrong"]
    return _RIGHT.format(_microseconds(figures["time_us"]), *rates, wrong)


def _microseconds(value: float) -> str:
    """Two decimals as long as they say something.

    >>> _microseconds(3.14159), _microseconds(1234.5)
    ('3.14', '1234')
    """
    return f"{value:.2f}" if value < 1000 else f"{value:.0f}"
