"""all_gather_into_tensor: everybody's input, in one array on every rank; flat, stacked, and in a group of some ranks.

    hocket run -n 3 python examples/all_gather_into_tensor.py

The shape of the output says which: concatenated along the first dimension, or stacked with one row for each rank. Its
dtype is the input's; nothing is converted on the way.
"""

import asyncio

import numpy as np

import hocket


async def flat(client: hocket.Client) -> None:
    """Rank r gives [r+1, r+2]; the output has room for all of them in a row."""
    mine = np.array([client.rank + 1, client.rank + 2])
    out = np.zeros(client.size * 2, mine.dtype)
    await client.all_gather_into_tensor(out, mine)
    assert out.tolist() == [r + i for r in range(client.size) for i in (1, 2)]
    if client.rank == 0:
        print(f"concatenated: {out.tolist()}")


async def stacked(client: hocket.Client) -> None:
    """Rank r gives a row; the output is the matrix of all rows."""
    mine = np.array([client.rank * 10 + 1, client.rank * 10 + 2, client.rank * 10 + 3])
    out = np.zeros((client.size, 3), mine.dtype)
    await client.all_gather_into_tensor(out, mine)
    assert out.tolist() == [[r * 10 + 1, r * 10 + 2, r * 10 + 3] for r in range(client.size)]
    if client.rank == 0:
        print(f"stacked: {out.tolist()}")


async def in_a_group(client: hocket.Client) -> None:
    """Ranks 0 and 1 only. Rank 2 need not call anything, though it may: it gets a handle on a group of others."""
    group = await client.new_group([0, 1])
    if client.rank not in (0, 1):
        assert group.rank == -1
        return
    mine = np.array([client.rank * 100, client.rank * 100 + 1])
    out = np.zeros(4, mine.dtype)
    await group.all_gather_into_tensor(out, mine)
    assert out.tolist() == [0, 1, 100, 101]
    if group.rank == 0:
        print(f"in group {group.name!r}: {out.tolist()}")


async def another_dtype(client: hocket.Client) -> None:
    """Integers do not become floats on the way."""
    try:
        await client.all_gather_into_tensor(np.zeros(client.size), np.arange(1))
    except hocket.ArgumentError as error:
        if client.rank == 0:
            print(f"float64 for int64: {error}")
    else:
        raise AssertionError("a dtype was converted in silence")


async def main() -> None:
    """One rank."""
    async with hocket.connect() as client:
        await flat(client)
        await stacked(client)
        await in_a_group(client)
        await another_dtype(client)
        await client.barrier()  # whoever leaves ends the world's epoch, so nobody does before all are done


if __name__ == "__main__":
    asyncio.run(main())
