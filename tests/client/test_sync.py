"""The blocking twin. Its module is one rank, so most tests have it in a thread, beside an asyncio client as rank 1."""

import asyncio
import functools
import inspect
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest
from harness.processes import Rank, RealService, facts_of, real_service
from harness.service import Service, service

import hocket
import hocket.client.sync as dist
from hocket.client.collectives import Collectives

LIMIT_S = 30.0


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    if dist.is_initialized():
        dist.destroy_process_group()


def initialise(running: Service, **how: Any) -> None:
    settings: dict[str, Any] = {"job": "test", "rank": 0, "world_size": 2, "timeout": LIMIT_S, **how}
    dist.init_process_group(running.socket(0), **settings)


@asynccontextmanager
async def peer(**how: Any) -> AsyncIterator[hocket.Client]:
    """The module is rank 0 of 2; this is rank 1."""
    async with service() as running:
        connecting = hocket.connect(running.socket(0), job="test", rank=1, world_size=2, timeout=LIMIT_S, **how)
        starting = asyncio.create_task(asyncio.to_thread(initialise, running, **how))
        async with connecting as client:
            await starting
            yield client
            await asyncio.to_thread(dist.destroy_process_group)


async def both(blocking: Callable[[], Any], other: Any) -> Any:
    """Runs a blocking call in a thread while rank 1 does its part. Returns what the call returns."""
    async with asyncio.timeout(LIMIT_S):
        result, _ = await asyncio.gather(asyncio.to_thread(blocking), other)
    return result


# --- what it offers --------------------------------------------------------------------------------------------------

OPERATIONS = sorted(
    name
    for kind in Collectives.__mro__
    for name, value in vars(kind).items()
    if not name.startswith("_") and inspect.isfunction(value)
)


def test_there_are_as_many_operations_as_the_design_names() -> None:
    assert len(OPERATIONS) == 28


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_has_a_twin_with_the_same_parameters_and_text(name: str) -> None:
    twin, method = getattr(dist, name), getattr(hocket.Client, name)
    assert name in dist.__all__
    assert list(inspect.signature(twin).parameters.values()) == list(inspect.signature(method).parameters.values())[1:]
    assert (twin.__name__, twin.__module__) == (name, "hocket.client.sync")
    assert twin.__doc__ == method.__doc__


def test_everything_it_offers_is_there() -> None:
    assert [name for name in dist.__all__ if not hasattr(dist, name)] == []
    assert dist.is_available()


@pytest.mark.parametrize(
    "call",
    [
        lambda: dist.all_reduce(np.ones(1)),
        lambda: dist.barrier(async_op=True),
        lambda: dist.isend(np.ones(1), 1),
        lambda: dist.recv(np.ones(1)),
        lambda: dist.batch_isend_irecv([]),
        dist.get_rank,
        dist.get_world_size,
        lambda: dist.new_group([0]),
        lambda: dist.split(0),
        lambda: dist.join("workers", 2),
        dist.destroy_process_group,
    ],
)
def test_before_it_is_initialised_every_call_says_so(call: Callable[[], Any]) -> None:
    assert not dist.is_initialized()
    with pytest.raises(hocket.ClosedError, match="not initialised"):
        call()


# --- operations ------------------------------------------------------------------------------------------------------


async def test_a_blocking_call_returns_what_the_await_gives() -> None:
    async with peer() as other:
        x = np.array([1.0])
        assert await both(lambda: dist.all_reduce(x), other.all_reduce(np.array([2.0]))) is x
        assert x.tolist() == [3.0]
        found = await both(lambda: dist.all_gather_object(None, {"rank": 0}), other.all_gather_object(None, "one"))
        assert found == [{"rank": 0}, "one"]
        got = await both(lambda: dist.gather(x), other.gather(np.array([5.0])))
        assert [part.tolist() for part in got] == [[3.0], [5.0]]
        assert await both(dist.barrier, other.barrier()) is None
        assert await both(dist.monitored_barrier, other.monitored_barrier()) is None


@pytest.mark.parametrize("positional", [True, False])
async def test_an_asynchronous_call_returns_its_work_at_once(positional: bool) -> None:
    async with peer() as other:
        x = np.array([1.0])
        how = ((hocket.ReduceOp.SUM, None, True), {}) if positional else ((), {"async_op": True})
        work = dist.all_reduce(x, *how[0], **how[1])
        assert isinstance(work, hocket.Work)
        assert not work.is_completed()
        await other.all_reduce(np.array([2.0]))
        assert (await asyncio.to_thread(work.wait, LIMIT_S)).tolist() == [3.0]
        assert work.wait() is x


async def test_send_and_recv_block_and_recv_returns_the_sender() -> None:
    async with peer() as other:
        y = np.zeros(2)
        assert await both(lambda: dist.recv(y), other.send(np.array([1.0, 2.0]), 0)) == 1
        assert y.tolist() == [1.0, 2.0]
        z = np.zeros(1)
        assert await both(lambda: dist.send(np.array([7.0]), 1), other.recv(z, 0)) is None
        assert z.tolist() == [7.0]
        objects: list[Any] = [None]
        assert await both(lambda: dist.recv_object_list(objects, 1), other.send_object_list(["hello"], 0)) == 1
        assert objects == ["hello"]
        theirs: list[Any] = [None]
        sending = other.recv_object_list(theirs, 0)
        assert await both(lambda: dist.send_object_list([{1: 2}], 1), sending) is None
        assert theirs == [{1: 2}]


async def test_a_batch_takes_the_modules_own_functions() -> None:
    async with peer() as other:
        out, into = np.array([1.0]), np.zeros(1)
        works = dist.batch_isend_irecv([dist.P2POp(dist.isend, out, 1), dist.P2POp(dist.irecv, into, 1)])
        theirs = np.zeros(1)
        await other.recv(theirs, 0)
        await other.send(np.array([2.0]), 0)
        for work in works:
            await asyncio.to_thread(work.wait, LIMIT_S)
        assert (theirs.tolist(), into.tolist()) == ([1.0], [2.0])


async def test_what_is_under_way_goes_on_while_the_caller_only_looks() -> None:
    async with peer() as other:
        into, x = np.zeros(1), np.array([1.0])
        works = [dist.irecv(into, 1), dist.all_reduce(x, async_op=True)]
        theirs = [other.isend(np.array([7.0]), 0), other.all_reduce(np.array([2.0]))]

        def look() -> None:
            until_s = time.monotonic() + LIMIT_S
            while not all(work.is_completed() for work in works) and time.monotonic() < until_s:
                sum(range(10_000))

        await asyncio.to_thread(look)
        assert (into.tolist(), x.tolist()) == ([7.0], [3.0])
        for work in theirs:
            await work


async def test_an_error_is_raised_by_the_call() -> None:
    async with peer() as other:
        theirs = asyncio.ensure_future(asyncio.wait_for(other.all_reduce(np.zeros(3)), LIMIT_S))
        with pytest.raises(hocket.MismatchError):
            await asyncio.to_thread(dist.all_reduce, np.zeros(2))
        with pytest.raises(hocket.MismatchError):
            await theirs
        with pytest.raises(hocket.DeadlineError) as late:
            await asyncio.to_thread(dist.barrier, timeout=0.1)
        assert late.value.missing == (1,)


async def test_a_callback_that_would_wait_for_its_own_thread_is_told_so() -> None:
    async with peer() as other:
        found: list[str] = []
        calls = [dist.barrier, lambda: dist.recv(np.zeros(1)), lambda: dist.new_group([0, 1])]

        def wait_in_it(_work: hocket.Work) -> None:
            for call in calls:
                with pytest.raises(hocket.UsageError) as refused:
                    call()
                found.append(str(refused.value))

        work = dist.irecv(np.zeros(1), 1)
        work.add_done_callback(wait_in_it)
        await other.send(np.zeros(1), 0)
        await work
        assert [text.startswith("a callback") for text in found] == [True] * len(calls)
        await both(dist.barrier, other.barrier())


# --- groups ----------------------------------------------------------------------------------------------------------


async def test_groups_know_ranks_in_the_world_and_in_themselves() -> None:
    async with peer() as other:
        assert (dist.get_rank(), dist.get_world_size(), dist.get_process_group_ranks()) == (0, 2, [0, 1])
        theirs = await asyncio.to_thread(dist.new_group, [1])
        assert (dist.get_rank(theirs), dist.get_world_size(theirs)) == (-1, -1)
        assert dist.get_process_group_ranks(theirs) == [1]
        assert dist.get_group_rank(theirs, 1) == 0
        assert dist.get_global_rank(theirs, 0) == 1
        with pytest.raises(hocket.ArgumentError, match="global_rank"):
            dist.get_group_rank(theirs, 0)
        with pytest.raises(hocket.ArgumentError, match="group_rank"):
            dist.get_global_rank(theirs, 1)
        with pytest.raises(TypeError, match="group"):
            dist.get_rank("world")  # type: ignore[arg-type]
        with pytest.raises(hocket.ArgumentError, match="not in group"):
            dist.barrier(theirs)
        assert (await other.new_group([1])).rank == 0


async def test_groups_are_made_by_list_by_colour_and_by_name() -> None:
    async with peer() as other:
        made = await both(lambda: dist.new_group([0, 1], name="pair"), other.new_group([0, 1], name="pair"))
        assert (made.name, dist.get_world_size(made)) == ("pair", 2)
        divided = await both(lambda: dist.split(7), other.split(None))
        assert divided.ranks == (0,)
        named = await both(lambda: dist.join("meeting", 2), other.join("meeting", 2))
        assert (named.name, named.size) == ("meeting", 2)
        x = np.ones(1)
        await asyncio.to_thread(dist.all_reduce, x, group=divided)
        dist.destroy_process_group(divided)
        with pytest.raises(hocket.ClosedError):
            await asyncio.to_thread(dist.all_reduce, x, group=divided)
        assert dist.is_initialized()


# --- life ------------------------------------------------------------------------------------------------------------


async def test_it_is_initialised_once_at_a_time_and_again_after_its_end() -> None:
    async with service() as running:
        for _ in range(3):
            connecting = hocket.connect(running.socket(0), job="test", rank=1, world_size=2, timeout=LIMIT_S)
            starting = asyncio.create_task(asyncio.to_thread(initialise, running))
            async with connecting as other:
                await starting
                assert dist.is_initialized()
                with pytest.raises(hocket.UsageError, match="initialised already"):
                    initialise(running)
                mine, theirs = await asyncio.gather(asyncio.to_thread(dist.new_group, [0, 1]), other.new_group([0, 1]))
                x = np.array([1])
                await both(functools.partial(dist.all_reduce, x, group=mine), theirs.all_reduce(np.array([2])))
                assert x.tolist() == [3]
                await asyncio.to_thread(dist.destroy_process_group)
                assert not dist.is_initialized()
                with pytest.raises(hocket.ClosedError, match="not initialised"):
                    dist.barrier()


# --- ranks that are processes ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster() -> Iterator[RealService]:
    with real_service() as running:
        yield running


def values(cluster: RealService, body: Callable[[Rank], Any], ranks: int, job: str) -> list[Any]:
    """What a body returns on each rank."""
    return [rank.result(LIMIT_S) for rank in cluster.start(body, (0,) * ranks, job=job)]


def plain_script(_rank: Rank) -> Any:
    dist.init_process_group()
    x = np.array([dist.get_rank() + 1.0])
    total = dist.all_reduce(x)[0]
    dist.destroy_process_group()
    return [total, dist.is_initialized()]


def test_it_works_in_plain_scripts(cluster: RealService) -> None:
    assert values(cluster, plain_script, 4, "plain") == [[10.0, False]] * 4


async def in_a_loop(rank: Rank) -> Any:
    dist.init_process_group()
    x, y = np.array([rank.number + 1.0]), np.array([rank.number + 1.0])
    dist.all_reduce(x)
    async with hocket.connect(job="next to it") as client:
        await client.all_reduce(y)
    dist.destroy_process_group()
    return [x[0], y[0]]


def test_it_works_in_a_coroutine_and_next_to_an_asyncio_client(cluster: RealService) -> None:
    assert values(cluster, in_a_loop, 2, "loop") == [[3.0, 3.0]] * 2


def several_threads(rank: Rank) -> Any:
    dist.init_process_group()
    found: dict[str, Any] = {}

    def reduce_in_a_group(name: str, value: int) -> None:
        group = dist.new_group([0, 1], name=name)
        sums = set()
        for _ in range(200):
            x = np.array([value])
            dist.all_reduce(x, group=group)
            sums.add(int(x[0]))
        found[name] = sorted(sums)

    threads = [threading.Thread(target=reduce_in_a_group, args=pair) for pair in (("a", 1), ("b", 10))]
    if rank.number == 1:
        threads.reverse()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_threads_with_groups_of_their_own_do_not_meet(cluster: RealService) -> None:
    assert values(cluster, several_threads, 2, "threads") == [{"a": [2], "b": [20]}] * 2


def threads_that_share_a_group(_rank: Rank) -> Any:
    dist.init_process_group()
    found: list[Any] = []

    def call(size: int) -> None:
        x = np.ones(size)
        try:
            found.append(dist.all_reduce(x, timeout=10).tolist())
        except hocket.MismatchError as error:
            found.append("world" in str(error))

    threads = [threading.Thread(target=call, args=(size,)) for size in (2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(map(str, found))


def test_threads_that_share_a_channel_get_the_sum_or_a_mismatch(cluster: RealService) -> None:
    for found in values(cluster, threads_that_share_a_group, 2, "shared"):
        assert found in (["[2.0, 2.0, 2.0]", "[2.0, 2.0]"], ["True", "True"])


def interrupted(rank: Rank) -> Any:
    dist.init_process_group()
    error = None
    if rank.number == 0:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        try:
            dist.all_reduce(np.ones(1))
        except KeyboardInterrupt:
            error = "interrupted"
        rank.say("interrupted")
    else:
        rank.hear()
        try:
            dist.all_reduce(np.ones(1))
        except hocket.AbortedError as aborted:
            error = facts_of(aborted)["facts"]
    x = np.ones(1)
    dist.all_reduce(x)
    return [error, x[0]]


def test_an_interrupt_ends_the_operation_for_the_group_and_the_next_one_works(cluster: RealService) -> None:
    ranks = cluster.start(interrupted, (0, 0), job="interrupt")
    ranks[0].wait_for("interrupted")
    ranks[1].tell("go on")
    assert ranks[0].result() == ["interrupted", 2.0]
    error, total = ranks[1].result()
    assert (error["rank"], error["cause"], total) == (0, "interrupted", 2.0)


def in_a_child(rank: Rank) -> Any:
    dist.init_process_group()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            assert not dist.is_initialized()
            dist.init_process_group(job="children")
            x = np.ones(1)
            dist.all_reduce(x)
            status = 0 if x[0] == rank.size else 2
            dist.destroy_process_group()
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    x = np.ones(1)
    dist.all_reduce(x)
    return [status, x[0]]


def test_after_a_fork_the_child_initialises_anew_and_the_parent_goes_on(cluster: RealService) -> None:
    assert values(cluster, in_a_child, 2, "fork") == [[0, 2.0]] * 2


def late_start(rank: Rank) -> Any:
    if rank.number == 0:
        try:
            dist.init_process_group(timeout=1)
        except hocket.DeadlineError as error:
            missing = list(error.missing)
        rank.say("failed start")
    else:
        missing = []
        rank.hear()
    dist.init_process_group(timeout=20)
    x = np.ones(1)
    dist.all_reduce(x)
    return [missing, x[0]]


def test_a_start_that_failed_leaves_nothing_in_the_way_of_the_next(cluster: RealService) -> None:
    ranks = cluster.start(late_start, (0, 0), job="late")
    ranks[0].wait_for("failed start")
    ranks[1].tell("go on")
    assert [rank.result(LIMIT_S) for rank in ranks] == [[[1], 2.0], [[], 2.0]]
