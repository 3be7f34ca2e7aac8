"""The collectives that most programs need, one function each: broadcast, all_reduce, gather, scatter, objects.

    hocket run -n 2 python examples/collectives.py

Works with any number of ranks. Each function checks its own result; rank 0 prints what the ranks hold.
"""

import asyncio

import numpy as np

import hocket


async def tell(client: hocket.Client, title: str, value: object) -> None:
    """Rank 0 prints what each rank holds, in rank order."""
    lines = await client.gather_object(f"  rank {client.rank}: {value}", dst=0)
    if client.rank == 0:
        print("\n".join([title, *lines]), flush=True)


async def broadcast_object_list(client: hocket.Client) -> None:
    """Rank 0's objects replace everybody's. They travel as msgpack, not as pickles."""
    objects = ["foo", 12, {"key": "value"}] if client.rank == 0 else [None, None, None]
    await client.broadcast_object_list(objects, src=0)
    assert objects == ["foo", 12, {"key": "value"}]
    await tell(client, "broadcast_object_list from rank 0", objects)


async def broadcast(client: hocket.Client) -> None:
    """Rank 0's array replaces everybody's."""
    tensor = np.arange(10) if client.rank == 0 else np.zeros(10, np.int64)
    await client.broadcast(tensor, src=0)
    assert tensor.tolist() == list(range(10))
    await tell(client, "broadcast from rank 0", tensor)


async def all_reduce(client: hocket.Client) -> None:
    """The sum of all ranks' arrays, on every rank, in place."""
    tensor = np.arange(2) + 2 * client.rank
    before = tensor.tolist()
    await client.all_reduce(tensor, op=hocket.ReduceOp.SUM)
    assert tensor.tolist() == [sum(i + 2 * r for r in range(client.size)) for i in range(2)]
    await tell(client, "all_reduce, SUM", f"{before} -> {tensor.tolist()}")


async def gather(client: hocket.Client) -> None:
    """Rank 0 gets everybody's array; the others give no list."""
    tensor = np.array([client.rank])
    room = [np.zeros_like(tensor) for _ in range(client.size)] if client.rank == 0 else None
    await client.gather(tensor, room, dst=0)
    if room is not None:
        assert np.concatenate(room).tolist() == list(range(client.size))
    await tell(client, "gather to rank 0", room and np.concatenate(room))


async def scatter(client: hocket.Client) -> None:
    """Rank 0 has an array for each rank; only rank 0 gives the list."""
    parts = [np.full(2, 1.0 + 2.0 * rank) for rank in range(client.size)]
    tensor = np.zeros(2)
    await client.scatter(tensor, parts if client.rank == 0 else None, src=0)
    assert tensor.tolist() == parts[client.rank].tolist()
    await tell(client, "scatter from rank 0", tensor)


async def main() -> None:
    """One rank: all of them, over one connection."""
    async with hocket.connect() as client:
        for example in (broadcast_object_list, broadcast, all_reduce, gather, scatter):
            await example(client)


if __name__ == "__main__":
    asyncio.run(main())
