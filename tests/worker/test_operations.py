"""What a worker tells of operations that are under way on its host, read off its boards."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from harness.service import Service, clients, service

import hocket
from hocket.protocol.errors import AbortedError
from hocket.protocol.messages import OperationInfo
from hocket.worker.operations import operations_of

LIMIT_S = 10.0


def under_way(running: Service, host: int = 0) -> list[OperationInfo]:
    worker = running.workers[host]
    return [info for group in worker._groups.values() for info in operations_of(group, time.monotonic_ns())]


async def until(condition: Callable[[], bool]) -> None:
    """Lets the loop go around until a condition holds that other threads bring about."""
    async with asyncio.timeout(LIMIT_S):
        while not condition():  # noqa: ASYNC110 - the workers share this loop
            await asyncio.sleep(0)


async def settled(works: list[Any]) -> list[Any]:
    async def one(work: Any) -> Any:
        return await work

    async with asyncio.timeout(LIMIT_S):
        return await asyncio.gather(*map(one, works), return_exceptions=True)


PLACEMENTS = {"one host": ([0, 0, 0], ()), "two hosts": ([0, 0, 1], ()), "one remote": ([0, 0, 0], (0,))}
everywhere = pytest.mark.parametrize(("placement", "remote"), PLACEMENTS.values(), ids=PLACEMENTS)


@everywhere
async def test_an_operation_is_told_from_its_first_member_on_and_no_more_once_it_is_over(
    placement: list[int], remote: tuple[int, ...]
) -> None:
    async with service(max(placement) + 1) as running, clients(running, placement, remote=remote) as found:
        assert under_way(running) == []
        x = [np.ones(2) for _ in found]
        works = [found[0].all_reduce(x[0])]
        await until(lambda: [info.arrived for info in under_way(running)] == [(0,)])
        (info,) = under_way(running)
        assert (info.operation, info.number, info.channel) == ("all_reduce", 1, "")
        assert (info.job, info.group_name, info.epoch) == ("test", "world", 1)
        assert info.missing == (1, 2)
        assert len(info.arrived_ages_s) == 1 and 0 <= info.first_arrived_s < LIMIT_S
        works.append(found[1].all_reduce(x[1]))
        await until(lambda: [info.arrived for info in under_way(running)] == [(0, 1)])
        (later,) = under_way(running)
        assert later.missing == (2,) and later.first_arrived_s >= info.first_arrived_s
        assert later.first_arrived_s == max(later.arrived_ages_s)
        works.append(found[2].all_reduce(x[2]))
        await settled(works)
        await until(lambda: under_way(running) == [])


async def test_the_other_host_tells_of_those_that_it_has_heard_of() -> None:
    async with service(2) as running, clients(running, [0, 0, 1]) as found:
        works = [found[2].barrier(channel="x")]
        await until(lambda: bool(under_way(running, 1)))
        (info,) = under_way(running, 1)
        assert (info.channel, info.operation, info.arrived, info.missing) == ("x", "barrier", (2,), (0, 1))
        works.append(found[0].barrier(channel="x"))
        await until(lambda: under_way(running, 1)[0].missing == (1,))  # a host whose ranks are late tells who is there
        works.append(found[1].barrier(channel="x"))
        await settled(works)
        await until(lambda: under_way(running, 0) == under_way(running, 1) == [])


async def test_each_channel_has_its_own() -> None:
    async with service() as running, clients(running, [0, 0]) as found:
        works = [found[0].barrier(channel="a"), found[1].broadcast(np.ones(1), src=1, channel="b")]
        await until(lambda: len(under_way(running)) == 2)
        told = {info.channel: (info.operation, info.arrived, info.missing) for info in under_way(running)}
        assert told == {"a": ("barrier", (0,), (1,)), "b": ("broadcast", (1,), (0,))}
        works += [found[1].barrier(channel="a"), found[0].broadcast(np.ones(1), src=1, channel="b")]
        await settled(works)


@everywhere
async def test_an_operation_that_was_aborted_is_not_under_way(placement: list[int], remote: tuple[int, ...]) -> None:
    async with service(max(placement) + 1) as running, clients(running, placement, remote=remote) as found:
        work = found[0].barrier()
        await until(lambda: bool(under_way(running)))
        work.cancel()
        assert isinstance((await settled([work]))[0], AbortedError)
        assert under_way(running) == []
        await settled([client.barrier() for client in found[1:]])
        await settled([client.barrier() for client in found])
        await until(lambda: under_way(running) == [])


async def test_an_operation_that_a_verdict_completed_is_over_when_all_have_left_it() -> None:
    async with service() as running, clients(running, [0, 0]) as found:
        works = [client.all_reduce(np.ones(300_000)) for client in found]
        works[0].cancel()
        await settled(works)
        await until(lambda: under_way(running) == [])


async def test_an_ended_group_has_nothing_under_way() -> None:
    async with service() as running, clients(running, [0, 0, 0]) as found:
        work = found[0].barrier()
        await until(lambda: bool(under_way(running)))
        await found[1].close()
        await settled([work])
        assert running.workers[0]._groups and under_way(running) == []


async def test_the_coordinator_gathers_what_all_hosts_tell() -> None:
    async with service(2) as running, clients(running, [0, 1]) as found:
        work = found[1].all_reduce(np.ones(1))
        await until(lambda: bool(under_way(running, 1)))
        reports = await running.coordinator.ask_operations()
        mine = reports[running.workers[1].number]
        assert mine is not None and [(info.operation, info.arrived) for info in mine] == [("all_reduce", (1,))]
        assert reports[running.workers[0].number] == ()
        await settled([work, found[0].all_reduce(np.ones(1))])


async def test_a_signature_that_cannot_be_read_is_told_as_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    async with service() as running, clients(running, [0, 0]) as found:
        work = found[0].barrier()
        await until(lambda: bool(under_way(running)))
        with monkeypatch.context() as gone:
            gone.setattr("hocket.fabric.board.Board.signature", lambda *_which: None)
            assert [info.operation for info in under_way(running)] == ["?"]
            gone.setattr("hocket.fabric.board.Board.signature", lambda *_which: b"junk")
            assert [info.operation for info in under_way(running)] == ["?"]
        await settled([work, found[1].barrier()])
        assert isinstance(found[0], hocket.Client)
