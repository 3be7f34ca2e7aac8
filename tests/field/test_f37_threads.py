"""F37: collectives from several threads at once."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from harness.processes import Rank, RealService, real_service

import hocket


@pytest.fixture(scope="module")
def hosts() -> Iterator[RealService]:
    """Two hosts that serve all tests here, each with a job of its own."""
    with real_service(2) as service:
        yield service


def at_once(*works: Callable[[], Any]) -> list[Any]:
    """What each gives, in a thread of its own; an exception is raised here."""
    found: list[Any] = [None] * len(works)

    def run(index: int) -> None:
        try:
            found[index] = works[index]()
        except BaseException as error:
            found[index] = error

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(40)
        assert not thread.is_alive(), "a thread hangs"
    for one in found:
        if isinstance(one, BaseException):
            raise one
    return found


def a_group_each(rank: Rank) -> list[list[float]]:
    import hocket.client.sync as dist

    dist.init_process_group(timeout=30)

    def loop(name: str, value: float) -> list[float]:
        group = dist.new_group([0, 1], name=name)
        totals = set()
        for _ in range(200):
            x = np.array([value])
            dist.all_reduce(x, group=group)
            totals.add(float(x[0]))
        return sorted(totals)

    found = at_once(lambda: loop("a", 1.0), lambda: loop("b", 10.0))
    dist.destroy_process_group()
    return found


def one_group_for_both(rank: Rank) -> list[str]:
    import hocket.client.sync as dist

    dist.init_process_group(timeout=30)

    def loop(size: int) -> str:
        for _ in range(100):
            x = np.ones(size)
            try:
                dist.all_reduce(x)
            except hocket.MismatchError as error:
                assert "world" in str(error) and (x == 1).all()
            else:
                assert (x == 2).all()
        return "ended"

    found = at_once(lambda: loop(2), lambda: loop(3))
    x = np.ones(1)
    dist.all_reduce(x)
    assert x[0] == 2
    return found


def a_channel_each(rank: Rank) -> list[float]:
    import hocket.client.sync as dist

    dist.init_process_group(timeout=30)

    def loop(channel: str, size: int) -> float:
        for turn in range(100):
            x = np.full(size, float(turn))
            dist.all_reduce(x, channel=channel)
            assert (x == 2 * turn).all()
        return float(x[0])

    return at_once(lambda: loop("left", 2), lambda: loop("right", 3), lambda: loop("large", 100_000))


def facade_beside_asyncio(rank: Rank) -> list[Any]:
    import hocket.client.sync as dist

    def blocking() -> float:
        dist.init_process_group(job="blocking", timeout=30)
        for _ in range(100):
            x = np.array([rank.number + 1.0])
            dist.all_reduce(x)
        return float(x[0])

    async def main() -> float:
        async with hocket.connect(job="asyncio", timeout=30) as client:
            for _ in range(100):
                x = np.array([10.0])
                await client.all_reduce(x)
            return float(x[0])

    async def both() -> list[float]:
        return list(await asyncio.gather(asyncio.to_thread(blocking), main()))

    return asyncio.run(both())


def clients_in_threads(rank: Rank) -> list[float]:
    """Each thread with its own event loop and client."""

    async def loop(job: str) -> float:
        async with hocket.connect(job=job, timeout=30) as client:
            for _ in range(50):
                x = np.array([1.0])
                await client.all_reduce(x)
            return float(x[0])

    return at_once(*(lambda job=f"job{i}": asyncio.run(loop(job)) for i in range(4)))


def new_groups_from_threads(rank: Rank) -> list[list[int]]:
    """Threads that make unnamed groups of different members never get one another's."""
    import hocket.client.sync as dist

    dist.init_process_group(timeout=30)

    def make(members: list[int]) -> list[int]:
        found = set()
        for _ in range(10):
            if rank.number in members:
                group = dist.new_group(members)
                found.add(tuple(group.ranks))
                out = dist.all_gather_object(None, rank.number, group=group)
                assert out == members
        return sorted(found)

    return at_once(lambda: make([0, 1]), lambda: make([1, 2]), lambda: make([0, 1, 2]))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (a_group_each, [[2.0], [20.0]]),
        (one_group_for_both, ["ended", "ended"]),
        (a_channel_each, [198.0, 198.0, 198.0]),
        (facade_beside_asyncio, [3.0, 20.0]),
        (clients_in_threads, [2.0] * 4),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_f37_threads(hosts: RealService, body: Any, expected: list[Any]) -> None:
    placement = (0, 1) if body in (a_group_each, one_group_for_both, a_channel_each) else (0, 0)
    ranks = hosts.start(body, placement, job=f"{body.__name__}{placement}")
    assert [rank.result(within_s=40) for rank in ranks] == [expected, expected]
    assert [line for rank in ranks for line in rank.log if "Exception" in line] == []


def test_f37_unnamed_groups_of_different_members_from_threads(hosts: RealService) -> None:
    ranks = hosts.start(new_groups_from_threads, (0, 1, 0), job="groups")
    assert [rank.result(within_s=40) for rank in ranks] == [
        [[[0, 1]], [], [[0, 1, 2]]],
        [[[0, 1]], [[1, 2]], [[0, 1, 2]]],
        [[], [[1, 2]], [[0, 1, 2]]],
    ]
