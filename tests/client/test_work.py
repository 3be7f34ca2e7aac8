import asyncio
import gc
import logging
import threading
import time
from collections.abc import Callable

import pytest

from hocket.client import work as module
from hocket.client.work import Finished, Work
from hocket.protocol.errors import AbortedError, ClosedError, DeadlineError


def under_way(cancel: Callable[[str], None] = lambda _cause: None) -> Work:
    return Work("all_reduce", cancel)


def ended(value: object = None, error: AbortedError | None = None) -> Work:
    work = under_way()
    work.complete(value, error)
    return work


def test_a_work_under_way_has_no_outcome_and_says_to_await_it() -> None:
    work = under_way()
    assert (work.done(), work.is_completed(), repr(work)) == (False, False, "<Work all_reduce: under way>")
    for look in (work.result, work.exception):
        with pytest.raises(ClosedError, match="all_reduce is still under way: await it first"):
            look()


def test_an_outcome_can_be_looked_at_as_often_as_one_likes() -> None:
    work = ended([1, 2])
    assert (work.done(), work.result(), work.result(), work.exception()) == (True, [1, 2], [1, 2], None)
    assert repr(work) == "<Work all_reduce: done>"


def test_an_error_is_given_or_raised() -> None:
    error = AbortedError(1, "its reasons")
    work = ended(error=error)
    assert work.exception() is error
    with pytest.raises(AbortedError, match="its reasons"):
        work.result()
    assert repr(work) == "<Work all_reduce: failed: aborted by rank 1: its reasons>"


def test_an_operation_ends_once() -> None:
    with pytest.raises(AssertionError, match="all_reduce ended twice"):
        ended().complete(None, None)


# --- callbacks -------------------------------------------------------------------------------------------------------


def test_callbacks_come_when_it_ends_and_at_once_when_it_has() -> None:
    work, seen = under_way(), list[Work]()
    work.add_done_callback(seen.append)
    assert seen == []
    work.complete(None, None)
    work.add_done_callback(seen.append)
    assert seen == [work, work]


def test_a_callback_that_fails_is_logged_and_holds_nothing_up(caplog: pytest.LogCaptureFixture) -> None:
    work, seen = under_way(), list[Work]()
    work.add_done_callback(lambda _work: 1 / 0)
    work.add_done_callback(seen.append)
    work.complete("value", None)
    assert (seen, work.result()) == ([work], "value")
    assert "a callback of all_reduce failed" in caplog.text


# --- waiting ---------------------------------------------------------------------------------------------------------


async def test_awaiting_an_operation_that_has_ended_does_not_give_way_to_the_loop() -> None:
    other = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(other.set_result, None)
    assert await ended(7) == 7
    assert not other.done()


async def test_an_await_ends_when_another_thread_completes_the_operation() -> None:
    work = under_way()
    waiting = asyncio.create_task(_value(work))
    await asyncio.sleep(0)
    thread = threading.Thread(target=work.complete, args=("value", None))
    thread.start()
    assert await waiting == "value"
    thread.join()


async def test_an_await_raises_the_error() -> None:
    work = under_way()
    waiting = asyncio.create_task(_value(work))
    await asyncio.sleep(0)
    work.complete(None, AbortedError(1, "its reasons"))
    with pytest.raises(AbortedError):
        await waiting


def test_a_work_may_be_awaited_on_several_loops() -> None:
    work = under_way()
    waiting = threading.Barrier(3)

    async def wait_for_it() -> object:
        asyncio.get_running_loop().call_soon(waiting.wait)
        return await work

    found: list[object] = []
    threads = [threading.Thread(target=lambda: found.append(asyncio.run(wait_for_it()))) for _ in range(2)]
    for thread in threads:
        thread.start()
    waiting.wait()
    work.complete("value", None)
    for thread in threads:
        thread.join()
    assert found == ["value", "value"]


def test_a_loop_that_was_closed_while_it_waited_does_no_harm() -> None:
    work = under_way()
    loop = asyncio.new_event_loop()
    loop.call_soon(loop.stop)
    waiting = loop.create_task(_value(work))
    loop.run_forever()
    loop.run_until_complete(asyncio.sleep(0))
    waiting._log_destroy_pending = False  # type: ignore[attr-defined] # left pending on purpose
    loop.close()
    work.complete("value", None)
    assert work.result() == "value"


def test_a_blocking_wait_ends_with_the_outcome_from_another_thread() -> None:
    work = under_way()
    thread = threading.Thread(target=work.complete, args=("value", None))
    thread.start()
    assert work.wait() == "value"
    thread.join()


def test_a_blocking_wait_with_a_limit_leaves_the_operation_alone() -> None:
    cancelled: list[str] = []
    work = under_way(cancelled.append)
    with pytest.raises(DeadlineError, match=r"0\.01 s; all_reduce is still under way"):
        work.wait(0.01)
    work.complete("value", None)
    assert (work.wait(0.01), cancelled) == ("value", [])


# --- cancelling ------------------------------------------------------------------------------------------------------


def test_cancelling_passes_the_cause_on_and_ends_nothing_by_itself() -> None:
    causes: list[str] = []
    work = under_way(causes.append)
    assert work.cancel("no longer wanted")
    assert work.cancel()
    assert (causes, work.done()) == (["no longer wanted", "cancelled by its caller"], False)


def test_what_has_ended_cannot_be_cancelled() -> None:
    causes: list[str] = []
    work = under_way(causes.append)
    work.complete(None, None)
    assert not work.cancel()
    assert causes == []


async def test_a_cancelled_await_returns_only_when_the_operation_has_ended() -> None:
    causes: list[str] = []
    work = under_way(causes.append)
    waiting = asyncio.create_task(_value(work))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.sleep(0)
    waiting.cancel()  # impatience changes nothing
    for _ in range(5):
        await asyncio.sleep(0)
    assert (causes, waiting.done()) == (["cancelled by its caller"], False)
    work.complete(None, AbortedError(0, "cancelled by its caller"))
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_a_cancelled_await_gives_up_where_no_verdict_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "VERDICT_TIMEOUT_S", 0.01)
    waiting = asyncio.create_task(_value(under_way()))
    await asyncio.sleep(0)
    waiting.cancel()
    async with asyncio.timeout(10):
        with pytest.raises(asyncio.CancelledError):
            await waiting


async def test_a_timeout_around_an_await_cancels_the_operation() -> None:
    work = under_way(lambda cause: work.complete(None, AbortedError(0, cause)))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await work
    assert isinstance(work.exception(), AbortedError)


# --- errors that nobody looks at -------------------------------------------------------------------------------------


@pytest.mark.parametrize("looked", [False, True])
def test_an_error_that_nobody_looked_at_is_logged(looked: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, logger="hocket.client")
    work = ended(error=AbortedError(1, "its reasons"))
    if looked:
        work.exception()
    del work
    gc.collect()
    assert ("nobody looked" in caplog.text) is not looked


async def _value(work: Work) -> object:
    return await work


async def test_awaits_of_what_has_ended_leave_others_their_turns_on_the_loop() -> None:
    turns = []

    async def other() -> None:
        while True:
            turns.append(time.monotonic())
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    began_s = time.monotonic()
    while time.monotonic() < began_s + 0.2:
        assert await Finished("all_reduce", 5) == 5
    task.cancel()
    assert len(turns) > 20, "it was starved"
    assert len(turns) < 400, "every await went through the loop"


async def test_finished_work_answers_like_any_other_that_has_ended() -> None:
    work, heard = Finished("barrier", None), []
    work.add_done_callback(heard.append)
    assert heard == [work] and isinstance(work, Work)
    assert (work.done(), work.is_completed(), work.result(), work.exception(), work.wait()) == (
        True,
        True,
        None,
        None,
        None,
    )
    assert work.cancel() is False and work.source is None
    assert repr(work) == "<Work barrier: done>"
