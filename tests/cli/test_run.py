"""``hocket run`` as people call it: a process of its own, whose children, output and exit status are looked at."""

import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from harness.commands import environment, finished

from hocket.cli.plan import deal, read_hosts
from hocket.protocol.errors import ArgumentError

ROOT = Path(__file__).resolve().parents[2]
COMMAND = (sys.executable, "-m", "hocket.cli", "run")
NO_SERVICE = ("--hosts", "unix:/nowhere")
"""Workers that exist already, as far as the launcher knows: for ranks that never connect."""
LIMIT_S = 60

ALL_REDUCE = """
import asyncio, os, sys
import numpy as np
import hocket

async def main():
    async with hocket.connect() as client:
        x = np.full(3, client.rank + 1.0)
        await client.all_reduce(x)
        print(client.size, client.host, x, flush=True)
        if sys.argv[1:] == [str(client.rank)]:
            raise ValueError("the culprit")
        if sys.argv[1:] == ["hang"] and client.rank == 1:
            await asyncio.Event().wait()
        await client.all_reduce(x)

asyncio.run(main())
"""


def launch(*arguments: str, **settings: str) -> "subprocess.CompletedProcess[str]":
    return finished([*COMMAND, *arguments], LIMIT_S, **settings)


@contextmanager
def running(*arguments: str, **settings: str) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        env=environment(**settings),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        process.communicate(timeout=LIMIT_S)


def lines_until(process: "subprocess.Popen[str]", word: str, times: int) -> list[str]:
    """What it prints until the word has come so often."""
    assert process.stdout is not None
    found: list[str] = []
    while sum(word in line for line in found) < times:
        line = process.stdout.readline()
        assert line, f"ended early: {found}"
        found.append(line.rstrip("\n"))
    return found


def pids(lines: list[str]) -> list[int]:
    """The process ids that ranks have printed as ``pid=...``."""
    return [int(found) for line in lines for found in re.findall(r"pid=(\d+)", line)]


def lives(pid: int) -> bool:
    """Whether a process is there and is more than an entry that nobody has read."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(ALL_REDUCE)
    return path


# --- where ranks go --------------------------------------------------------------------------------------------------


def test_ranks_are_dealt_in_blocks_and_the_first_hosts_get_more() -> None:
    assert deal(4, 2) == [0, 0, 1, 1]
    assert deal(7, 3) == [0, 0, 0, 1, 1, 2, 2]
    assert deal(3, 1) == [0, 0, 0]


def test_hosts_are_a_number_or_addresses_and_else_what_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOCKET_WORKER", raising=False)
    assert read_hosts(None, 2) == 1
    assert read_hosts("2", 2) == 2
    assert read_hosts("unix:/a, [::1]:7000", 2) == ("unix:/a", "[::1]:7000")
    monkeypatch.setenv("HOCKET_WORKER", "unix:/there")
    assert read_hosts(None, 2) == ("unix:/there",)
    assert read_hosts("1", 2) == 1


@pytest.mark.parametrize("text", ["0", "3", "a:1,b:1,c:1", "::1:5000", "a", ""])
def test_hosts_that_ranks_cannot_fill_or_that_are_no_address_are_refused(text: str) -> None:
    with pytest.raises(ArgumentError, match="hosts"):
        read_hosts(text, 2)


def test_every_rank_is_told_its_place_and_its_worker() -> None:
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "HOCKET_WORKER", "HOCKET_JOB", "PYTHONUNBUFFERED")
    program = f"import json, os; print(json.dumps([os.environ[name] for name in {names}]))"
    command = ("-n", "3", "--hosts", "unix:/a,unix:/b", "--no-prefix", sys.executable, "-c", program)
    first, second = launch(*command), launch(*command, HOCKET_JOB="mine")
    told = sorted(map(json.loads, first.stdout.splitlines()))
    job = told[0][5]
    assert told == [
        ["0", "3", "0", "2", "unix:/a", job, "1"],
        ["1", "3", "1", "2", "unix:/a", job, "1"],
        ["2", "3", "0", "1", "unix:/b", job, "1"],
    ]
    assert job.startswith("run-")
    assert {json.loads(line)[5] for line in second.stdout.splitlines()} == {"mine"}


def test_ranks_on_two_emulated_hosts_reduce_over_both(script: Path) -> None:
    result = launch("-n", "4", "--hosts", "2", sys.executable, str(script))
    assert (result.returncode, result.stderr) == (0, "")
    assert sorted(result.stdout.splitlines()) == [f"[{rank}] 4 host{rank // 2} [10. 10. 10.]" for rank in range(4)]


def test_an_own_service_answers_hocket_ops_and_shows_its_log_when_asked() -> None:
    result = launch("-n", "1", "--verbose", sys.executable, "-m", "hocket.cli", "workers")
    assert result.returncode == 0, result.stderr
    assert "127.0.0.1" in result.stdout
    assert "[coordinator]" in result.stderr
    assert "[worker]" in result.stderr


# --- output ----------------------------------------------------------------------------------------------------------


def test_each_line_carries_its_rank_and_keeps_its_stream_and_the_last_one_needs_no_end() -> None:
    program = "printf 'one\\ntwo\\n'; printf 'oops\\n' >&2; printf 'no end'"
    result = launch("-n", "2", *NO_SERVICE, "sh", "-c", program)
    lines = result.stdout.splitlines()
    for rank in "01":
        assert [line for line in lines if line.startswith(f"[{rank}]")] == [
            f"[{rank}] one", f"[{rank}] two", f"[{rank}] no end"
        ]  # fmt: skip
    assert sorted(result.stderr.splitlines()) == ["[0] oops", "[1] oops"]


def test_without_prefix_lines_come_as_they_are() -> None:
    result = launch("-n", "1", *NO_SERVICE, "--no-prefix", "sh", "-c", "printf 'a\\nb'")
    assert result.stdout == "a\nb"


def test_a_rank_that_prints_more_than_a_pipe_holds_is_not_held_up() -> None:
    program = "import sys; sys.stdout.write('x' * 300_000 + '\\n'); sys.stdout.write('y\\n' * 100_000)"
    result = launch("-n", "2", *NO_SERVICE, sys.executable, "-c", program)
    assert result.returncode == 0
    assert result.stdout.count("x") == 600_000
    assert result.stdout.count("] y\n") == 200_000


def test_a_reader_that_goes_away_ends_the_run() -> None:
    with running("-n", "2", *NO_SERVICE, "yes") as process:
        lines_until(process, "y", 1)
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(LIMIT_S) == 128 + signal.SIGPIPE
        process.stdout = None


# --- failures --------------------------------------------------------------------------------------------------------


def test_the_status_is_that_of_the_rank_that_failed_and_the_others_do_not_go_on() -> None:
    result = launch("-n", "3", *NO_SERVICE, "sh", "-c", "test $RANK = 1 && exit 7; exec sleep 1000")
    assert result.returncode == 7
    assert result.stderr.splitlines() == ["rank 1 failed first (exit 7)"]


def test_a_rank_that_a_signal_ended_gives_128_and_the_signals_number() -> None:
    result = launch("-n", "2", *NO_SERVICE, "sh", "-c", "test $RANK = 0 || kill -9 $$")
    assert result.returncode == 128 + signal.SIGKILL
    assert result.stderr.splitlines() == ["rank 1 failed first (SIGKILL)"]


def test_the_culprits_traceback_is_shown_again_and_not_that_of_those_who_lost_it(script: Path) -> None:
    result = launch("-n", "3", sys.executable, str(script), "1")
    assert result.returncode == 1
    _, found, report = result.stderr.partition("rank 1 failed first (exit 1):\n")
    assert found, result.stderr
    assert report.startswith("  Traceback (most recent call last):\n")
    assert report.endswith("  ValueError: the culprit\n")
    assert "MemberLostError" in result.stderr
    assert "MemberLostError" not in report


def test_a_run_that_takes_too_long_says_who_is_waited_for(script: Path) -> None:
    result = launch("-n", "2", "--timeout", "6", sys.executable, str(script), "hang")
    assert result.returncode == 124
    assert "no end within 6 s; still running: 0, 1" in result.stderr
    assert "all_reduce #2" in result.stderr
    assert "rank 1 missing" in result.stderr


@pytest.mark.parametrize(
    ("command", "status", "text"),
    [
        (("no-such-program",), 127, "hocket run: no-such-program: no such program"),
        (("/etc/passwd",), 126, "hocket run: /etc/passwd: not executable"),
        ((), 2, "Missing argument"),
    ],
)
def test_a_command_that_cannot_be_run_is_named(command: tuple[str, ...], status: int, text: str) -> None:
    result = launch("-n", "2", *command)
    assert (result.returncode, result.stdout) == (status, "")
    assert text in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("-n", "2", "--hosts", "3"),
        ("-n", "2", "--timeout", "0"),
        ("-n", "1", "--http", "7421", *NO_SERVICE),
        ("-n", "1", "--http", "70000"),
    ],
)
def test_settings_that_do_not_fit_are_one_line_on_standard_error(arguments: tuple[str, ...]) -> None:
    result = launch(*arguments, "true")
    assert (result.returncode, result.stdout) == (1, "")
    assert len(result.stderr.splitlines()) == 1
    assert result.stderr.startswith("hocket: ")


# --- ends ------------------------------------------------------------------------------------------------------------

PARENT = """
import os, signal, subprocess, sys
child = subprocess.Popen(["sleep", "1000"])
try:
    print(f"ready pid={os.getpid()} pid={child.pid}", flush=True)
    signal.pause()
except KeyboardInterrupt:
    print("interrupted", flush=True)
    sys.exit(3)
"""


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_is_passed_on_and_nothing_is_left(number: int, status: int) -> None:
    with tempfile.TemporaryDirectory(prefix="hk") as folder:
        with running("-n", "2", sys.executable, "-c", PARENT, TMPDIR=folder) as process:
            started = pids(lines_until(process, "ready", 2))
            assert len(started) == 4
            assert os.listdir(folder) != []
            process.send_signal(number)
            rest, errors = process.communicate(timeout=LIMIT_S)
        assert process.returncode == status, errors
        assert rest.count("interrupted") == (2 if number == signal.SIGINT else 0)
        assert "failed first" not in errors
        assert [pid for pid in started if lives(pid)] == []
        assert os.listdir(folder) == []


def test_the_second_interrupt_ends_ranks_that_do_not_listen() -> None:
    program = "trap '' TERM; trap 'echo told' INT; echo ready pid=$$; while :; do sleep 1000; done"
    with running("-n", "1", *NO_SERVICE, "sh", "-c", program) as process:
        started = pids(lines_until(process, "ready", 1))
        process.send_signal(signal.SIGINT)
        lines_until(process, "told", 1)
        begun_s = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT_S) == 130
        assert time.monotonic() - begun_s < 4, "it took the time that ranks get after the first"
    assert [pid for pid in started if lives(pid)] == []


def test_what_a_rank_leaves_behind_is_ended_and_its_hold_on_the_output_does_not_matter() -> None:
    program = "sh -c \"trap '' TERM; while :; do sleep 1000; done\" & echo pid=$!"
    result = launch("-n", "2", *NO_SERVICE, "sh", "-c", program)
    assert result.returncode == 0
    left = pids(result.stdout.splitlines())
    assert left
    assert [pid for pid in left if lives(pid)] == []


def test_ranks_and_daemons_end_with_a_launcher_that_is_killed() -> None:
    with running("-n", "1", sys.executable, "-c", PARENT) as process:
        started = pids(lines_until(process, "ready", 1))[:1]
        tasks = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        children = [int(pid) for pid in tasks]
        assert {*started} < {*children}
        assert len(children) == 3
        ends = [os.pidfd_open(pid) for pid in children]
        process.kill()
        process.wait(LIMIT_S)
        for fd in ends:
            readable, _, _ = select.select([fd], [], [], LIMIT_S)
            os.close(fd)
            assert readable
