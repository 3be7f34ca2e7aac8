"""Which rank failed first, and what it said. Pure: from exit statuses and the last lines of standard error."""

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass

SHOWN_LINES = 20
"""Lines that are shown of a rank that left no traceback."""
CONSEQUENCES = ("MemberLostError", "EpochEndedError", "AbortedError", "DeadlineAbortedError")
"""Errors by which a rank says that another one had failed before."""

_BEGINS = re.compile(r"^\s*(\+ Exception Group )?Traceback \(most recent call last\):")
_CHAINED = re.compile(r"^\s*(During handling of the above exception|The above exception was the direct cause)")
_ERROR = re.compile(r"^(?:\s*\| )?([\w.]+): ")


@dataclass(frozen=True, slots=True)
class Failure:
    """One rank's end: its exit status as `subprocess` has it (negative: a signal), and its last lines."""

    rank: int
    status: int
    lines: tuple[str, ...]


def exit_status(status: int) -> int:
    """As a shell has it: 128 and the signal's number for a process that a signal ended.

    >>> exit_status(3), exit_status(-9)
    (3, 137)
    """
    return 128 - status if status < 0 else status


def describe(status: int) -> str:
    """How a process ended.

    >>> describe(3), describe(-9), describe(-99)
    ('exit 3', 'SIGKILL', 'signal 99')
    """
    if status >= 0:
        return f"exit {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"


def first_failure(failures: Sequence[Failure]) -> Failure:
    """The one that the others followed.

    A rank that fails says so to the others before its interpreter has ended, so that they may end earlier: what they
    raise tells them from it.

    Args:
        failures: at least one, in the order in which the processes ended.
    """
    return next((one for one in failures if not _followed(one)), failures[0])


def _followed(failure: Failure) -> bool:
    """Whether its last error speaks of another rank's failure."""
    errors = [found[1] for line in last_words(failure.lines) if (found := _ERROR.match(line))]
    return failure.status > 0 and bool(errors) and errors[-1].rsplit(".", 1)[-1] in CONSEQUENCES


def last_words(lines: Sequence[str]) -> list[str]:
    """The last traceback with those that led to it, else the last lines."""
    begins = [number for number, line in enumerate(lines) if _BEGINS.match(line)]
    if not begins:
        return list(lines[-SHOWN_LINES:])
    first = begins.pop()
    while begins and any(_CHAINED.match(line) for line in lines[begins[-1] : first]):
        first = begins.pop()
    return list(lines[first:])
