"""reduce_scatter_tensor: the inputs of all ranks are reduced, and each rank gets its own part of the result.

    hocket run -n 2 python examples/reduce_scatter_tensor.py

The input holds one part for each rank, so that it is as many times as large as the output as there are ranks. Other
sizes are refused on the spot: an output that is too large is not filled with whatever is at hand.
"""

import asyncio

import numpy as np

import hocket


async def tell(client: hocket.Client, title: str, value: object) -> None:
    """Rank 0 prints what each rank holds, in rank order."""
    lines = await client.gather_object(f"  rank {client.rank}: {value}", dst=0)
    if client.rank == 0:
        print("\n".join([title, *lines]), flush=True)


async def wrong_size(client: hocket.Client) -> None:
    """An output as large as the input: there is no such operation, and every rank is told so."""
    mine = np.array([client.rank + 1.0, client.rank + 2.0])
    output = np.full(client.size, -1.0)
    try:
        await client.reduce_scatter_tensor(output, mine)
    except hocket.ArgumentError as error:
        await tell(client, "an output of 2 elements for an input of 2", error)
    assert (output == -1.0).all(), "nothing was written"


async def right_size(client: hocket.Client, op: hocket.ReduceOp) -> None:
    """Rank r gets element r of the reduction of [1, 2] and [2, 3]."""
    mine = np.array([client.rank + 1.0, client.rank + 2.0])
    output = np.zeros(1)
    await client.reduce_scatter_tensor(output, mine, op=op)
    await tell(client, f"{op} of [1, 2] and [2, 3]", output)
    everybodys = np.array([[1.0, 2.0], [2.0, 3.0]])
    whole = everybodys.sum(axis=0) if op == hocket.ReduceOp.SUM else everybodys.prod(axis=0)
    assert output[0] == whole[client.rank]


async def main() -> None:
    """One of two ranks."""
    async with hocket.connect() as client:
        assert client.size == 2, "this example is for two ranks: hocket run -n 2"
        await wrong_size(client)
        await right_size(client, hocket.ReduceOp.SUM)
        await right_size(client, hocket.ReduceOp.PRODUCT)


if __name__ == "__main__":
    asyncio.run(main())
