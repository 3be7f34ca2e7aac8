"""A whole service inside the test's own event loop: coordinator, workers on loopback addresses, clients as ranks."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import hocket
from hocket.coordinator.config import CoordinatorConfig
from hocket.coordinator.server import Coordinator
from hocket.protocol.addresses import Address
from hocket.worker.agent import Worker
from hocket.worker.config import WorkerConfig


@dataclass(frozen=True, slots=True)
class Placement:
    """Where ranks are: rank r on host ``hosts[r]``; ``remote`` ranks share no memory with their worker."""

    hosts: tuple[int, ...]
    remote: tuple[int, ...] = ()

    def __str__(self) -> str:
        ranks = [f"{host}{'r' if rank in self.remote else ''}" for rank, host in enumerate(self.hosts)]
        return "-".join(ranks)

    @property
    def one_host(self) -> bool:
        """Whether all ranks are on one host, so that reductions are in rank order."""
        return len(set(self.hosts)) == 1


PLACEMENTS = tuple(
    Placement(hosts, remote)
    for hosts, remote in (
        ((0,), ()),
        ((0, 0), ()),
        ((0, 0, 0), ()),
        ((0,) * 4, ()),
        ((0,) * 7, ()),
        ((0, 1), ()),
        ((0, 1, 1), ()),
        ((0, 0, 0, 1), ()),
        ((0, 1, 0, 1), ()),
        ((1, 0, 0, 1, 1, 0, 0), ()),
        ((0, 1, 2), ()),
        ((2, 0, 1, 0), ()),
        ((0, 0, 1, 2, 1, 0, 0), ()),
        ((0,), (0,)),
        ((0, 0), (1,)),
        ((0, 0, 0), (0, 2)),
        ((0, 1, 1), (1,)),
        ((0, 1, 0, 1), (0, 3)),
        ((0, 1, 2, 2), (0, 1, 2, 3)),
    )
)
"""One, two and three hosts, even, uneven and interleaved, with and without ranks that share no memory."""

Body = Callable[[hocket.Client], Awaitable[Any]]
LIMIT_S = 60.0


@dataclass(slots=True)
class Service:
    """What a test needs to know of a running service."""

    coordinator: Coordinator
    workers: list[Worker]
    folder: str

    def socket(self, host: int) -> str:
        """Address of a host's worker for ranks there."""
        return f"unix:{self.workers[host].config.socket}"


@asynccontextmanager
async def service(hosts: int = 1, **settings: Any) -> AsyncIterator[Service]:
    """Starts a coordinator and a worker for each host (127.0.0.1, 127.0.0.2, ...)."""
    with tempfile.TemporaryDirectory(prefix="hk") as folder:
        async with Coordinator(CoordinatorConfig(port=0, http_port=0, **settings)) as coordinator:
            workers: list[Worker] = []
            try:
                for host in range(hosts):
                    config = WorkerConfig(
                        coordinator=Address("127.0.0.1", coordinator.port),
                        socket=f"{folder}/w{host}.sock",
                        data_address=Address(f"127.0.0.{host + 1}", 0),
                        name=f"h{host}",
                    )
                    worker = Worker(config)
                    await worker.start()
                    workers.append(worker)
                    await worker.registered()
                yield Service(coordinator, workers, folder)
            finally:
                for worker in workers:
                    await worker.stop()


async def world(
    running: Service, placement: Sequence[int], body: Body, *, remote: Sequence[int] = (), job: str = "test", **how: Any
) -> list[Any]:
    """Runs ``body(client)`` as rank r on host ``placement[r]``, all at once. Returns what each returns.

    ``remote`` ranks use no shared memory. An error of one rank is raised once all have ended.
    """
    size = len(placement)

    async def rank(number: int) -> Any:
        async with hocket.connect(
            running.socket(placement[number]),
            job=job,
            rank=number,
            world_size=size,
            shared=number not in remote,
            **{"timeout": 30, **how},
        ) as client:
            return await body(client)

    async with asyncio.timeout(LIMIT_S):
        results = await asyncio.gather(*(rank(number) for number in range(size)), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


@asynccontextmanager
async def clients(
    running: Service, placement: Sequence[int], *, remote: Sequence[int] = (), job: str = "test", **how: Any
) -> AsyncIterator[list[hocket.Client]]:
    """The ranks of a world as a list of clients, for tests that drive them one by one."""
    size = len(placement)
    async with AsyncExitStack() as stack:
        joining = [
            hocket.connect(
                running.socket(placement[number]),
                job=job,
                rank=number,
                world_size=size,
                shared=number not in remote,
                **{"timeout": 30, **how},
            )
            for number in range(size)
        ]
        found = await asyncio.gather(*(stack.enter_async_context(each) for each in joining))
        yield list(found)
