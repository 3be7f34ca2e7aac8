"""Starting the processes of a job, and seeing them end."""

import contextlib
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

STOP_LIMIT_S = 5.0
POLL_S = 0.02
PATIENCE_S = 3.0
"""How long the other ranks may go on when one has failed."""

Environ = dict[str, str]
Process = subprocess.Popen[bytes]


class JobError(Exception):
    """A job that did not end well. Its text says why, with the end of what the processes printed."""


def start(command: Sequence[str | Path], environ: Environ, log: IO[bytes]) -> Process:
    """Starts a program whose output goes to the log."""
    return subprocess.Popen(command, env=environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


@contextlib.contextmanager
def ended_at_last(processes: list[Process]) -> Iterator[None]:
    """Ends whatever of ``processes`` runs when the block is left, the last one first."""
    try:
        yield
    finally:
        for process in reversed(processes):
            process.terminate()
            try:
                process.wait(STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def wait_for_all(processes: Sequence[Process], limit_s: float) -> None:
    """Waits until all have ended well.

    Raises:
        JobError: one has not, or the time is up.
    """
    end_s = time.monotonic() + limit_s
    late = f"not done within {limit_s:.0f} s"
    while True:
        codes = [process.poll() for process in processes]
        failed = [f"process {at} ended with {code}" for at, code in enumerate(codes) if code]
        if failed and late.startswith("not"):
            end_s, late = min(end_s, time.monotonic() + PATIENCE_S), failed[0]
        if None not in codes:
            break
        if time.monotonic() > end_s:
            raise JobError(late)
        time.sleep(POLL_S)
    if failed:
        raise JobError(failed[0])


def with_end_of_log(failed: JobError, log: IO[bytes]) -> JobError:
    """The same error, with the last lines that the processes printed."""
    log.seek(0)
    said = log.read().decode(errors="replace").strip().splitlines()[-12:]
    return JobError("\n    ".join([str(failed), *said]))
