"""What the children of a launcher print, each line with the name of who printed it."""

import os
import select
from collections.abc import Callable

from hocket.cli.processes import Sink

COLOURS = (36, 33, 32, 35, 34, 31)


def write_all(fd: int, data: bytes) -> None:
    """Writes to a descriptor whatever mode it is in. Raises `BrokenPipeError` where nobody reads any more."""
    left = memoryview(data)
    while left:
        try:
            left = left[os.write(fd, left) :]
        except BlockingIOError:
            select.select([], [fd], [])


class Printer:
    """Prints children's lines on our own standard output and error."""

    def __init__(self, prefix: bool, on_broken: Callable[[], None]) -> None:
        """``on_broken`` is called, once, when nobody reads our output any more."""
        self._prefix, self._on_broken = prefix, on_broken
        self._broken = False

    def sink(self, label: str, number: int) -> Sink:
        """What takes a child's lines; the number chooses its colour."""
        prefixes = {fd: self._prefix_of(label, number, fd) for fd in (1, 2)}

        def take(fd: int, lines: list[bytes]) -> None:
            prefix = prefixes[fd]
            if prefix:
                lines = [prefix + line if line.endswith(b"\n") else prefix + line + b"\n" for line in lines]
            self.write(fd, b"".join(lines))

        return take

    def _prefix_of(self, label: str, number: int, fd: int) -> bytes:
        if not self._prefix:
            return b""
        if os.isatty(fd) and not os.environ.get("NO_COLOR"):
            return f"\x1b[{COLOURS[number % len(COLOURS)]}m[{label}]\x1b[0m ".encode()
        return f"[{label}] ".encode()

    def say(self, text: str) -> None:
        """The launcher's own words, on standard error."""
        self.write(2, f"{text}\n".encode())

    def write(self, fd: int, data: bytes) -> None:
        """Writes, unless it was found before that nobody reads."""
        if self._broken:
            return
        try:
            write_all(fd, data)
        except BrokenPipeError:
            self._broken = True
            self._on_broken()


MakePrinter = Callable[[bool, Callable[[], None]], Printer]
"""Makes a printer: whether lines get a prefix, and what to call when nobody reads."""


def discard(_fd: int, _lines: list[bytes]) -> None:
    """A sink for what nobody wants to see; `Child.tail` has the end of it all the same."""
