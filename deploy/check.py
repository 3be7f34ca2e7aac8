"""Checks a service from within: sums and gathers over all ranks, compares every element, and ends with status 0.

Run it as every rank of a world, after an installation: ``RANK=0 WORLD_SIZE=2 python check.py``, or
``hocket run -n 2 python check.py``. `compose.yaml` has four ranks in containers do it.
"""

import asyncio

import numpy as np

import hocket

SIZES = (1, 1_000, 1_000_000)


async def check_all_reduce(client: hocket.Client, size: int) -> None:
    """Rank r gives r+1, r+2, ...: small whole numbers, so that the sum is exact."""
    index = np.arange(size, dtype=np.float64) % 1_000
    mine = index + client.rank + 1
    await client.all_reduce(mine)
    expected = index * client.size + client.size * (client.size + 1) / 2
    assert np.array_equal(mine, expected), f"all_reduce of {size}: {mine}, expected {expected}"


async def check_all_gather(client: hocket.Client, size: int) -> None:
    """Every rank's numbers stand in its own row."""
    rows = np.zeros((client.size, size), np.int64)
    await client.all_gather_into_tensor(rows, np.arange(size) + client.rank * size)
    expected = np.arange(client.size * size).reshape(client.size, size)
    assert np.array_equal(rows, expected), f"all_gather of {size}: {rows}, expected {expected}"


async def main() -> None:
    """One rank."""
    async with hocket.connect() as client:
        for size in SIZES:
            await check_all_reduce(client, size)
            await check_all_gather(client, size)
        await client.barrier()
        print(f"rank {client.rank} of {client.size}: all_reduce and all_gather are right")


if __name__ == "__main__":
    asyncio.run(main())
