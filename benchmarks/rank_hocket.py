"""One rank of hocket: asyncio's own event loop, every call awaited. Run by `run.py`, with RANK set."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
from cases import BF16, ROOT, Case, Floats
from sampling import Awaiting, Settings, measure_all

import hocket


class HocketRank(Awaiting):
    """See `sampling.Rank`."""

    def __init__(self, client: hocket.Client) -> None:
        self.client = client
        self.rank, self.size = client.rank, client.size

    def empty(self, length: int) -> Floats:
        """See `sampling.Rank`."""
        return np.empty(length, np.float32)

    def bind(self, case: Case) -> Callable[[], Awaitable[Any]]:
        """See `sampling.Rank`."""
        client, source, target = self.client, case.source, case.target
        calls: dict[str, Callable[[], Awaitable[Any]]] = {
            "all_reduce": lambda: client.all_reduce(source),
            BF16: lambda: client.all_reduce(source),
            "broadcast": lambda: client.broadcast(source, ROOT),
            "all_gather": lambda: client.all_gather_into_tensor(target, source),
            "reduce_scatter": lambda: client.reduce_scatter_tensor(target, source),
            "all_to_all": lambda: client.all_to_all_single(target, source),
            "barrier": client.barrier,
        }
        return calls[case.op]

    async def barrier(self) -> None:
        """See `sampling.Rank`."""
        await self.client.barrier()

    async def agree(self, value: float) -> float:
        """See `sampling.Rank`."""
        word = np.array([value])
        await self.client.broadcast(word, ROOT)
        return float(word[0])


async def main() -> None:
    """Joins the world and measures."""
    async with hocket.connect(timeout=60) as client:
        await measure_all(HocketRank(client), Settings.read())


if __name__ == "__main__":
    asyncio.run(main())
