import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hocket.client import engine as module
from hocket.client.engine import CORES, Engine, engine
from hocket.fabric.arena import PAGE_NBYTES, Arena
from hocket.fabric.bells import Bells, make_bell

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 20.0


@pytest.fixture
def running() -> Iterator[Engine]:
    made = Engine()
    yield made
    made.stop()
    assert not any(thread.is_alive() for thread in (made._io, made._data))


class FakeLane:
    """Idle until it is given ``work``; each poll takes one step of it."""

    def __init__(self, deadline_s: float = float("inf"), locals_: int = 1) -> None:
        self.left = 0
        self.deadline_s = deadline_s
        self.seat = SimpleNamespace(locals=tuple(range(locals_)))
        self.threads: list[str] = []
        self.done = threading.Event()
        self.polled = threading.Event()
        self.may_go_on: Callable[[], bool] = lambda: True

    @property
    def idle(self) -> bool:
        return self.left == 0

    def poll(self) -> bool:
        self.threads.append(threading.current_thread().name)
        self.polled.set()
        if self.left == 0 or not self.may_go_on():
            return False
        self.left -= 1
        if self.left == 0:
            self.done.set()
        return True


def bells() -> tuple[Bells, int]:
    made = Bells(Arena.create("bells", PAGE_NBYTES))
    made.add(3, make_bell())
    return made, 3


# --- sockets ---------------------------------------------------------------------------------------------------------


def test_coroutines_and_functions_run_on_one_thread_of_their_own(running: Engine) -> None:
    async def where() -> tuple[str, asyncio.AbstractEventLoop]:
        return threading.current_thread().name, asyncio.get_running_loop()

    assert running.call(where()).result(LIMIT_S) == ("hocket-io", running.loop)
    names: list[str] = []
    called = threading.Event()
    running.soon(lambda name: (names.append(name + threading.current_thread().name), called.set()), "on ")
    assert called.wait(LIMIT_S)
    assert names == ["on hocket-io"]


def test_what_a_coroutine_raises_comes_back(running: Engine) -> None:
    async def fail() -> None:
        raise KeyError("reason")

    with pytest.raises(KeyError, match="reason"):
        running.call(fail()).result(LIMIT_S)


# --- data ------------------------------------------------------------------------------------------------------------


def test_a_lane_is_carried_to_its_end_after_a_wake(running: Engine) -> None:
    lane = FakeLane()
    running.add_lane(lane)  # type: ignore[arg-type]
    lane.left = 5
    running.wake()
    assert lane.done.wait(LIMIT_S)
    assert set(lane.threads) == {"hocket-data"}


def test_a_lane_that_is_stuck_does_not_hold_the_others_up(running: Engine) -> None:
    stuck, other = FakeLane(), FakeLane()
    stuck.may_go_on = lambda: False
    for lane in (stuck, other):
        running.add_lane(lane)  # type: ignore[arg-type]
        lane.left = 3
    running.wake()
    assert other.done.wait(LIMIT_S)
    assert stuck.polled.wait(LIMIT_S)


def test_a_lane_that_was_removed_is_not_looked_at_again(running: Engine) -> None:
    gone, kept = FakeLane(), FakeLane()
    running.add_lane(gone)  # type: ignore[arg-type]
    running.add_lane(kept)  # type: ignore[arg-type]
    running.remove_lane(gone)  # type: ignore[arg-type]
    gone.left = kept.left = 1
    running.wake()
    assert kept.done.wait(LIMIT_S)
    assert gone.threads == []


def test_a_bell_wakes_the_thread_that_waits_for_others(running: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RECHECK_S", LIMIT_S)
    page, place = bells()
    running.add_sleeper(page, place)
    lane, allowed = FakeLane(locals_=CORES + 1), threading.Event()
    lane.may_go_on = allowed.is_set
    running.add_lane(lane)  # type: ignore[arg-type]
    lane.left = 1
    running.wake()
    assert lane.polled.wait(LIMIT_S)
    allowed.set()
    while not lane.done.wait(0.01):  # as members do: those that lie down late hear the next one
        page.ring([place])
    running.retire(page, page.fds[place])


def test_a_deadline_wakes_it_without_a_bell(running: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RECHECK_S", LIMIT_S * 10)
    lane = FakeLane(deadline_s=0.0, locals_=CORES + 1)
    polls: list[int] = []

    def third_time() -> bool:
        polls.append(1)
        return len(polls) > 2

    lane.may_go_on = third_time
    running.add_lane(lane)  # type: ignore[arg-type]
    lane.left = 1
    running.wake()
    assert lane.done.wait(LIMIT_S)


def test_retired_bells_are_closed_by_the_thread_that_slept_on_them(running: Engine) -> None:
    page, place = bells()
    fd = page.fds[place]
    running.add_sleeper(page, place)
    closed, close = threading.Event(), page.close

    def close_and_tell() -> None:
        close()
        assert threading.current_thread().name == "hocket-data"
        closed.set()

    page.close = close_and_tell  # type: ignore[method-assign]
    running.retire(page, fd)
    assert closed.wait(LIMIT_S)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


# --- life ------------------------------------------------------------------------------------------------------------


def test_there_is_one_engine_in_a_process_whoever_asks() -> None:
    found: list[Engine] = []
    threads = [threading.Thread(target=lambda: found.append(engine())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {id(one) for one in found} == {id(engine())}


def test_at_the_end_clients_that_nobody_closed_say_goodbye_first() -> None:
    said: list[str] = []
    made = Engine()

    def goodbye() -> None:
        assert made._io.is_alive()
        said.append("goodbye")

    def forgotten() -> None:
        said.append("forgotten")

    made.at_exit(goodbye)
    made.at_exit(forgotten)
    made.forget_closer(forgotten)
    made.forget_closer(forgotten)
    made.stop()
    assert said == ["goodbye"]
    assert not made._io.is_alive()
    assert made.loop.is_closed()


FORKING = """
import os, warnings
warnings.simplefilter("ignore")
from hocket.client.engine import engine
first = engine()
child = os.fork()
if child == 0:
    second = engine()
    async def one(): return 1
    first.stop()
    fine = second is not first and first.forked and not second.forked and second.call(one()).result(10) == 1
    os._exit(0 if fine else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), engine() is first, first.forked)
"""


def test_a_forks_child_gets_an_engine_of_its_own_and_leaves_the_parents_alone() -> None:
    assert output_of(FORKING) == "0 True False"


def test_a_process_ends_with_an_engine_that_was_used() -> None:
    program = (
        "from hocket.client.engine import engine\nasync def one(): return 1\nprint(engine().call(one()).result(10))"
    )
    assert output_of(program) == "1"


def output_of(program: str) -> Any:
    child = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (child.returncode, child.stderr) == (0, "")
    return child.stdout.strip()
