"""all_to_all: every rank has something for every rank. With three ranks it is the transposition of a 3 x 3 matrix.

    hocket run -n 3 python examples/all_to_all.py

Lists may hold arrays of different sizes; `all_to_all_single` does the same with the rows of one array.
"""

import asyncio

import numpy as np

import hocket


async def tell(client: hocket.Client, title: str, value: object) -> None:
    """Rank 0 prints what each rank holds, in rank order."""
    lines = await client.gather_object(f"  rank {client.rank}: {value}", dst=0)
    if client.rank == 0:
        print("\n".join([title, *lines]), flush=True)


async def transposed(client: hocket.Client) -> None:
    """Rank r's row is [10r, 10r+1, ...]; afterwards it holds column r."""
    mine = [np.array([10 * client.rank + to]) for to in range(client.size)]
    got = [np.zeros(1, np.int64) for _ in range(client.size)]
    await client.all_to_all(got, mine)
    column = [int(piece[0]) for piece in got]
    assert column == [10 * sender + client.rank for sender in range(client.size)]
    await tell(client, "all_to_all", column)


async def uneven(client: hocket.Client) -> None:
    """Rank r sends r+1 numbers to everyone: sizes may differ, as long as both sides say the same."""
    mine = [np.full(client.rank + 1, client.rank) for _ in range(client.size)]
    got = [np.zeros(sender + 1, np.int64) for sender in range(client.size)]
    await client.all_to_all(got, mine)
    assert all((piece == sender).all() for sender, piece in enumerate(got))
    await tell(client, "all_to_all of uneven sizes", [piece.tolist() for piece in got])


async def rows(client: hocket.Client) -> None:
    """The rows of one array, sent and received by counts: rank r gives its neighbour two rows, the others one."""
    neighbour, before = (client.rank + 1) % client.size, (client.rank - 1) % client.size
    give = [2 if rank == neighbour else 1 for rank in range(client.size)]
    take = [2 if rank == before else 1 for rank in range(client.size)]
    mine = np.full((sum(give), 2), client.rank)
    got = np.zeros((sum(take), 2), mine.dtype)
    await client.all_to_all_single(got, mine, take, give)
    assert got[:, 0].tolist() == [sender for sender, count in enumerate(take) for _ in range(count)]
    await tell(client, "all_to_all_single by counts", got[:, 0].tolist())


async def main() -> None:
    """One rank."""
    async with hocket.connect() as client:
        await transposed(client)
        await uneven(client)
        await rows(client)


if __name__ == "__main__":
    asyncio.run(main())
