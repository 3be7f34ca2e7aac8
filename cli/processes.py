"""Child processes with what they print, line by line. Each is the leader of a session of its own.

A terminal's Ctrl-C therefore reaches the launcher alone, which passes it on; and whatever a child has started can be
ended with it, since it is in the child's process group unless it took care to leave it.
"""

import asyncio
import contextlib
import ctypes
import os
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import IO

OUT, ERR = 1, 2
READ_NBYTES = 64 << 10
LINE_NBYTES = 64 << 10
"""A line that is longer than this is passed on in pieces."""
KEPT_LINES, KEPT_NBYTES = 200, 2000
"""Lines of standard error that are kept for the report, and how much of each."""
DRAIN_S = 1.0
"""How long output may still come once a child and all that it started have ended."""
POLL_S = 0.02
PR_SET_PDEATHSIG = 1

Sink = Callable[[int, list[bytes]], None]
"""Takes whole lines, and from which of ``OUT`` and ``ERR`` they come."""

_libc = ctypes.CDLL(None)


def _end_with_parent() -> None:
    """Between fork and exec: have the kernel end us should the launcher be killed."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


class Child:
    """A running program. ``status`` is None until it has ended, then as in `subprocess.Popen.returncode`."""

    def __init__(self, label: str, popen: "subprocess.Popen[bytes]", sink: Sink) -> None:
        self.label, self.popen, self._sink = label, popen, sink
        self.status: int | None = None
        self.ended = asyncio.Event()
        self.tail: deque[bytes] = deque(maxlen=KEPT_LINES)
        """the last lines of standard error"""
        self._parts = {OUT: b"", ERR: b""}
        self._open: dict[int, IO[bytes]] = {}
        self._drained = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number, pipe in ((OUT, popen.stdout), (ERR, popen.stderr)):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
            self._open[number] = pipe
            loop.add_reader(pipe.fileno(), self._read, number)

    def _read(self, number: int) -> None:
        try:
            data = os.read(self._open[number].fileno(), READ_NBYTES)
        except BlockingIOError:
            return
        *lines, rest = (self._parts[number] + data).split(b"\n")
        whole = [line + b"\n" for line in lines]
        if len(rest) > LINE_NBYTES or not data:
            whole += [rest] if rest else []
            rest = b""
        self._parts[number] = rest
        if whole:
            self._pass_on(number, whole)
        if not data:
            self._close(number)

    def _pass_on(self, number: int, lines: list[bytes]) -> None:
        if number == ERR:
            self.tail.extend(line[:KEPT_NBYTES] for line in lines)
        self._sink(number, lines)

    def _close(self, number: int) -> None:
        pipe = self._open.pop(number)
        asyncio.get_running_loop().remove_reader(pipe.fileno())
        pipe.close()
        if not self._open:
            self._drained.set()

    def signal_group(self, number: int) -> bool:
        """Signals the child and what it has started. Returns whether anybody was there."""
        try:
            os.killpg(self.popen.pid, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True

    async def drain(self) -> None:
        """Waits for the last output, and lets go of pipes that somebody else still holds open."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_S):
                await self._drained.wait()
        for number in list(self._open):
            if self._parts[number]:
                self._pass_on(number, [self._parts[number]])
            self._close(number)


class Children:
    """Starts children and hears of their ends. Made and used on the main thread's event loop."""

    def __init__(self) -> None:
        self._living: list[Child] = []
        self._on_end: dict[Child, Callable[[Child], None]] = {}
        asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, self._reap)

    def start(
        self,
        label: str,
        command: Sequence[str],
        env: Mapping[str, str],
        sink: Sink,
        on_end: Callable[[Child], None] = lambda _: None,
    ) -> Child:
        """Starts a program with no standard input. Raises `OSError` where that cannot be."""
        popen = subprocess.Popen(
            command,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=_end_with_parent,  # safe: this process has no other threads
        )
        child = Child(label, popen, sink)
        self._on_end[child] = on_end
        self._living.append(child)
        return child

    def _reap(self) -> None:
        """Signals of several ends may have become one: look at everybody."""
        for child in list(self._living):
            status = child.popen.poll()
            if status is not None:
                self._living.remove(child)
                child.status = status
                child.ended.set()
                self._on_end.pop(child)(child)

    def close(self) -> None:
        """Hears of nothing any more. All children must have ended."""
        assert not self._living, f"still running: {[child.label for child in self._living]}"
        asyncio.get_running_loop().remove_signal_handler(signal.SIGCHLD)


async def end_groups(children: Sequence[Child], steps: Sequence[tuple[int, float]]) -> None:
    """Ends children and whatever is left of what they have started.

    Args:
        children: whose process groups to end.
        steps: signals, and for how many seconds to wait after each for all to be gone.
    """
    loop = asyncio.get_running_loop()
    for number, grace_s in steps:
        until_s = loop.time() + grace_s
        living = [child for child in children if child.signal_group(number)]
        # Only leaders are our children: of the others' ends nobody tells us.
        while (living := [c for c in living if c.signal_group(0)]) and loop.time() < until_s:  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)
        if not living:
            return
