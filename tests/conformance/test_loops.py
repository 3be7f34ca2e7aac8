"""The caller's event loop: of any kind, several in one process, and never held up by what hocket does."""

import asyncio
import importlib.util
import itertools
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import numpy as np
import pytest
from harness.operations import KINDS, REDUCTIONS, Case, carry_out_all
from harness.service import service

import hocket
from hocket.client.client import Client

EVERY_KIND = [Case(kind, 3000, op="SUM" if kind in REDUCTIONS else "", root=1) for kind in KINDS]
TICK_S = 0.01
GAP_S = 0.2
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.new_event_loop}
if importlib.util.find_spec("uvloop"):
    import uvloop

    LOOPS["uvloop"] = uvloop.new_event_loop


class Elsewhere:
    """A service on an event loop and a thread of its own, so that callers' loops are theirs alone."""

    def __init__(self, hosts: int) -> None:
        self._ready, self._hosts = threading.Event(), hosts
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self.sockets: list[str] = []

    async def _serve(self) -> None:
        self._loop, self._done = asyncio.get_running_loop(), asyncio.Event()
        async with service(self._hosts) as running:
            self.sockets = [running.socket(host) for host in range(self._hosts)]
            self._ready.set()
            await self._done.wait()

    def __enter__(self) -> "Elsewhere":
        self._thread.start()
        assert self._ready.wait(20)
        return self

    def __exit__(self, *_what: object) -> None:
        self._loop.call_soon_threadsafe(self._done.set)
        self._thread.join(20)


@asynccontextmanager
async def rank_of(elsewhere: Elsewhere, rank: int, size: int, job: str, **how: Any) -> AsyncIterator[Client]:
    socket = elsewhere.sockets[rank % len(elsewhere.sockets)]
    async with hocket.connect(socket, job=job, rank=rank, world_size=size, timeout=30, **how) as client:
        yield client


@pytest.mark.parametrize("hosts", [1, 2])
@pytest.mark.parametrize("loop", LOOPS)
def test_every_operation_works_on_any_event_loop(loop: str, hosts: int, count: Any) -> None:
    async def main(elsewhere: Elsewhere) -> None:
        async def rank(number: int) -> None:
            async with rank_of(elsewhere, number, 3, loop, shared=number != 2) as client:
                await carry_out_all(client, EVERY_KIND, one_host=hosts == 1)

        await asyncio.gather(*(rank(number) for number in range(3)))

    with Elsewhere(hosts) as elsewhere, asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(main(elsewhere))
    count.add(len(EVERY_KIND))


def test_ranks_on_loops_and_threads_of_their_own_meet(count: Any) -> None:
    """Each rank has a thread and a loop; loops are of both kinds."""
    failures: list[BaseException] = []

    def rank(elsewhere: Elsewhere, number: int) -> None:
        async def main() -> None:
            async with rank_of(elsewhere, number, 4, "threads") as client:
                await carry_out_all(client, EVERY_KIND, one_host=False)

        try:
            with asyncio.Runner(loop_factory=list(LOOPS.values())[number % len(LOOPS)]) as runner:
                runner.run(main())
        except BaseException as failure:
            failures.append(failure)

    with Elsewhere(2) as elsewhere:
        threads = [threading.Thread(target=rank, args=(elsewhere, number)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert failures == []
    count.add(len(EVERY_KIND))


class Ticker:
    """Ticks on the running loop, and knows the longest time between two ticks."""

    def __enter__(self) -> "Ticker":
        self._loop, self._ticks = asyncio.get_running_loop(), [time.monotonic()]
        self._next = self._loop.call_soon(self._tick)
        return self

    def _tick(self) -> None:
        self._ticks.append(time.monotonic())
        self._next = self._loop.call_later(TICK_S, self._tick)

    def __exit__(self, *_what: object) -> None:
        self._next.cancel()
        self._ticks.append(time.monotonic())

    @property
    def longest_gap_s(self) -> float:
        return max(after - before for before, after in itertools.pairwise(self._ticks))


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("hosts", [1, 2])
def test_a_loop_goes_on_ticking_while_64_mib_are_reduced(loop: str, hosts: int, count: Any) -> None:
    async def main(elsewhere: Elsewhere) -> float:
        async with AsyncExitStack() as stack:
            joining = [stack.enter_async_context(rank_of(elsewhere, rank, 2, "ticks")) for rank in range(2)]
            ranks = await asyncio.gather(*joining)
            tensors = [np.ones(64 << 18, np.float32) for _ in ranks]
            with Ticker() as ticker:
                await asyncio.gather(*(client.all_reduce(t) for client, t in zip(ranks, tensors, strict=True)))
            assert all((tensor[:: 1 << 16] == 2).all() for tensor in tensors)
            return ticker.longest_gap_s

    with Elsewhere(hosts) as elsewhere, asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        gap_s = runner.run(main(elsewhere))
    assert gap_s < GAP_S
    count.add(1)
