"""Point to point: a token goes around a ring, neighbours exchange borders, and one rank listens to whoever speaks.

    hocket run -n 3 python examples/ring.py

Messages match by sender, receiver, tag and channel, in the order in which they were sent.
"""

import asyncio

import numpy as np

import hocket

ROUNDS = 2


async def token(client: hocket.Client) -> None:
    """Each rank adds its number to the token and hands it on; after two rounds it is back at rank 0."""
    right, left = (client.rank + 1) % client.size, (client.rank - 1) % client.size
    held = np.zeros(1, np.int64)
    for _ in range(ROUNDS):
        if client.rank > 0:
            await client.recv(held, src=left)
        held += client.rank
        await client.send(held, dst=right)
        if client.rank == 0:
            await client.recv(held, src=left)
    if client.rank == 0:
        assert held[0] == ROUNDS * sum(range(client.size))
        print(f"the token after {ROUNDS} rounds: {held[0]}")


async def borders(client: hocket.Client) -> None:
    """Both neighbours at once: all sends and receives are under way before any is awaited."""
    right, left = (client.rank + 1) % client.size, (client.rank - 1) % client.size
    mine = np.full(2, float(client.rank))
    from_left, from_right = np.empty(2), np.empty(2)
    to_right, to_left = 1, 2
    works = client.batch_isend_irecv(
        [
            hocket.P2POp("isend", mine, right, tag=to_right),
            hocket.P2POp("isend", mine, left, tag=to_left),
            hocket.P2POp("irecv", from_left, left, tag=to_right),
            hocket.P2POp("irecv", from_right, right, tag=to_left),
        ]
    )
    for work in works:
        await work
    assert (from_left == left).all() and (from_right == right).all()
    lines = await client.gather_object(f"rank {client.rank}: left {from_left}, right {from_right}", dst=0)
    if client.rank == 0:
        print("\n".join(lines))


async def anybody(client: hocket.Client) -> None:
    """Rank 0 receives from anybody; the work tells whose message it was. Objects travel between two ranks, too."""
    if client.rank > 0:
        await client.send(np.array([client.rank**2]), dst=0, tag=7)
        await client.send_object_list([{"rank": client.rank}], dst=0)
        return
    squares = {}
    for _ in range(client.size - 1):
        got = np.zeros(1, np.int64)
        work = client.recv(got, tag=7)
        await work
        squares[work.source] = int(got[0])
    assert squares == {rank: rank**2 for rank in range(1, client.size)}
    print(f"squares: {dict(sorted(squares.items()))}")
    for rank in range(1, client.size):
        card: list[object] = [None]
        await client.recv_object_list(card, src=rank)
        assert card == [{"rank": rank}]


async def main() -> None:
    """One rank."""
    async with hocket.connect() as client:
        await token(client)
        await borders(client)
        await anybody(client)
        await client.barrier()  # whoever leaves ends the world's epoch, so nobody does before all are done


if __name__ == "__main__":
    asyncio.run(main())
