"""A whole worker: how it starts and stops, what ranks hear when it is gone, and that it gives back what it took."""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness.service import Service, clients, service

import hocket
from hocket.client.engine import engine
from hocket.protocol.addresses import Address
from hocket.protocol.errors import ConnectError
from hocket.protocol.messages import Contest
from hocket.worker.agent import Worker
from hocket.worker.config import WorkerConfig

LIMIT_S = 20.0


async def settled(works: list[Any]) -> list[Any]:
    async def one(work: Any) -> Any:
        return await work

    async with asyncio.timeout(LIMIT_S):
        return await asyncio.gather(*map(one, works), return_exceptions=True)


async def sum_up(found: list[Any], **how: Any) -> None:
    for result in await settled([each.all_reduce(np.ones(3), **how) for each in found]):
        assert list(result) == [len(found)] * 3


async def until(condition: Callable[[], bool]) -> None:
    """Lets the loop go around until a condition holds that other threads bring about."""
    async with asyncio.timeout(LIMIT_S):
        while not condition():  # noqa: ASYNC110 - the workers share this loop
            await asyncio.sleep(0)


# --- starting and stopping -------------------------------------------------------------------------------------------


async def test_a_second_worker_on_the_same_socket_is_refused_and_the_first_keeps_it() -> None:
    async with service() as running:
        second = Worker(WorkerConfig(socket=running.workers[0].config.socket, name="second"))
        with pytest.raises(ConnectError, match="HOCKET_SOCKET"):
            await second.start()
        await second.stop()
        async with clients(running, [0, 0]) as found:
            await sum_up(list(found))


async def test_a_worker_whose_second_door_is_taken_gives_the_first_back(tmp_path: Path) -> None:
    path = tmp_path / "w.sock"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        worker = Worker(WorkerConfig(socket=str(path), listen=Address("127.0.0.1", taken.getsockname()[1])))
        with pytest.raises(ConnectError, match="HOCKET_LISTEN"):
            await worker.start()
        await worker.stop()
        await worker.stop()
    assert not path.exists()


async def test_a_socket_that_a_killed_worker_left_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "w.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    worker = Worker(WorkerConfig(socket=str(path)))
    await worker.start()
    assert path.exists()
    await worker.stop()
    assert not path.exists()


# --- a worker that is gone -------------------------------------------------------------------------------------------


async def stop(worker: Worker) -> None:
    """In good order."""
    await worker.stop()


async def kill(worker: Worker) -> None:
    """As the kernel closes the sockets of a process that was killed: at once, and without a word."""
    connections = [session.connection for session in worker._sessions.values()]
    connections += [link.connection for link in worker._links._links.values() if link.connection is not None]
    assert worker._control._connection is not None
    for connection in [worker._control._connection, *connections]:
        connection._socket.shutdown(socket.SHUT_RDWR)
    await worker.stop()


ENDS: dict[str, Callable[[Worker], Awaitable[None]]] = {"stopped": stop, "killed": kill}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("remote", [(), (1, 2)], ids=["", "two remote"])
async def test_ranks_of_a_worker_that_is_gone_hear_so_and_those_elsewhere_which_ranks_were_lost_within_a_second(
    end: Callable[[Worker], Awaitable[None]], remote: tuple[int, ...]
) -> None:
    async with service(3) as running, clients(running, [0, 1, 1, 2], remote=remote) as found:
        await sum_up(list(found))
        works = [client.all_reduce(np.ones(1)) for client in found[:3]]
        await asyncio.sleep(0)
        began_s = asyncio.get_running_loop().time()
        await end(running.workers[1])
        results = await settled([*works, found[3].all_reduce(np.ones(1))])
        assert asyncio.get_running_loop().time() - began_s < 1.0
        assert all(isinstance(error, hocket.MemberLostError) for error in results), results
        for error in results[1:3]:
            assert error.cause == "worker lost" and error.host == "h1"
        for error in (results[0], results[3]):
            assert (error.ranks, error.host) == ((1, 2), "h1")
            assert error.cause in ("worker lost", "unreachable")
        async with clients(running, [0, 2, 0], job="survivors") as left:
            await sum_up(list(left))


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
async def test_nobody_hangs_whose_worker_goes_in_the_midst_of_large_operations(
    end: Callable[[Worker], Awaitable[None]],
) -> None:
    async with service(2) as running, clients(running, [0, 1, 1]) as found:
        await sum_up(list(found))
        works = [client.all_reduce(np.ones(2_000_000)) for client in found]
        works += [client.send(np.ones(2_000_000), dst=(client.rank + 1) % 3) for client in found]
        await asyncio.sleep(0)
        await end(running.workers[1])
        for result in await settled(works):
            assert isinstance(result, hocket.MemberLostError | np.ndarray | None), repr(result)


# --- what is given back ----------------------------------------------------------------------------------------------


def held() -> tuple[int, int]:
    """Descriptors of this process, which is worker and ranks in one, and its mappings of shared memory."""
    with open("/proc/self/maps") as maps:
        return len(os.listdir("/proc/self/fd")), sum("memfd:hocket" in line for line in maps)


async def worlds(running: Service, placement: list[int], remote: tuple[int, ...], rounds: int) -> None:
    """Worlds that come and go, each with sub-groups, channels, messages and an operation that was cut off."""
    for number in range(rounds):
        async with clients(running, placement, remote=remote, job=f"job {number}") as found:
            await sum_up(list(found))
            await sum_up(list(found), channel="another")
            groups = await asyncio.gather(*(client.new_group([0, 1]) for client in found[:2]))
            await sum_up(list(groups))
            work = found[0].barrier()
            work.cancel()
            await settled([work, *(client.barrier() for client in found[1:])])
            if number % 2:
                await groups[number % 3 % 2].leave()


PLACEMENTS = {"one host": ([0, 0, 0], ()), "one remote": ([0, 0, 0], (1,)), "two hosts": ([0, 1, 1], (2,))}


@pytest.mark.parametrize(("placement", "remote"), PLACEMENTS.values(), ids=PLACEMENTS)
async def test_after_many_worlds_and_groups_nothing_is_held_that_was_not_before(
    placement: list[int], remote: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hocket.worker.agent.ENDED_KEPT", 2)
    engine()  # whose threads hold descriptors of their own
    async with service(max(placement) + 1) as running:
        await worlds(running, placement, remote, 2)
        await until(lambda: not any(worker._sessions for worker in running.workers))
        level = held()
        await worlds(running, placement, remote, 8)
        await until(lambda: not any(worker._sessions for worker in running.workers))
        await until(lambda: held() <= level)
        for worker in running.workers:
            assert len(worker._groups) <= (2 if max(placement) else 0) and len(worker._ended) == len(worker._groups)
            assert len(worker._places) == len(set(worker._places)) == 2047
    await until(lambda: held()[1] == 0)


async def test_groups_that_are_left_by_clients_that_stay_are_forgotten_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hocket.worker.agent.ENDED_KEPT", 2)
    async with service(2) as running, clients(running, [0, 0, 1], remote=(1,)) as found:
        await sum_up(list(found))

        async def come_and_go(rounds: int, letter: str) -> None:
            for number in range(rounds):
                groups = await asyncio.gather(*(client.join(f"{letter}{number}", 3) for client in found))
                await sum_up(list(groups))
                for group in groups:
                    await group.leave()

        await come_and_go(4, "a")
        await until(lambda: all(len(worker._groups) <= 3 for worker in running.workers))
        level = held()
        await come_and_go(8, "b")
        await until(lambda: held() <= level)
        await sum_up(list(found))


async def test_a_stopped_worker_and_coordinator_leave_no_descriptor_behind() -> None:
    async def once() -> None:
        async with service(2) as running, clients(running, [0, 1], remote=(1,)) as found:
            await sum_up(list(found))
            group = await asyncio.gather(*(client.new_group() for client in found))
            await sum_up(list(group))

    await once()
    level = held()
    for _ in range(5):
        await once()
    await until(lambda: held() <= level)


# --- what comes at odd times -----------------------------------------------------------------------------------------


async def test_a_verdict_is_asked_for_of_a_group_that_the_other_host_has_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with service(2) as running, clients(running, [0, 1]) as found:
        await sum_up(list(found))
        number = next(iter(running.workers[0]._groups))
        work = found[1].barrier()
        running.workers[0]._end_group(number, hocket.EpochEndedError("it was told so"))
        running.workers[0]._drop_group(number)
        membership = found[1].world_membership
        assert membership is not None
        membership.post(Contest(number, "", 2, 1, None))
        (error,) = await settled([work])
        assert isinstance(error, hocket.HocketError)


async def test_many_groups_formed_at_once_by_name_over_hosts_all_work() -> None:
    async with service(3) as running, clients(running, [0, 1, 2]) as found:
        names = [f"n{number}" for number in range(20)]

        async def join_all(client: hocket.Client) -> list[hocket.Group]:
            return await asyncio.gather(*(client.join(name, 3) for name in names))

        groups = await asyncio.gather(*map(join_all, found))
        for of_name in zip(*groups, strict=True):
            await sum_up(list(of_name))
