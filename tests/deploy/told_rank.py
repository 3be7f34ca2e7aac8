"""A rank that does what its standard input says, one word a line, and answers with a line.

join    connects and joins the job's world         joined
sum     all_reduce, checked on every element       sum SUM
wait    calls what cannot end by itself            waiting, then: lost CAUSE (and the client is closed)
"""

import asyncio
import sys

import numpy as np

import hocket


def say(line: str) -> None:
    print(line, flush=True)


async def add_up(client: hocket.Client) -> int:
    total = client.size * (client.size + 1) // 2
    mine = np.full(300_000, client.rank + 1, np.float32)
    await client.all_reduce(mine)
    assert (mine == total).all()
    return total


async def wait(client: hocket.Client) -> str:
    """Rank 0 is in a collective that the others never enter, the others await a message that never comes."""
    box = np.zeros(1)
    work = client.all_reduce(box) if client.rank == 0 else client.recv(box)
    say("waiting")
    try:
        await work
    except hocket.MemberLostError as lost:
        await client.close()
        return f"lost {lost.cause}"
    return "went on"


async def main() -> None:
    client = None
    while word := (await asyncio.to_thread(sys.stdin.readline)).strip():
        if word == "join":
            try:
                client = await hocket.connect(timeout=30)
                say("joined")
            except hocket.HocketError as refused:
                say(f"refused {refused}")
        elif word == "sum" and client is not None:
            say(f"sum {await add_up(client)}")
        elif word == "wait" and client is not None:
            say(await wait(client))
    if client is not None:
        await client.close()


asyncio.run(main())
