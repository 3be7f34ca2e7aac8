"""What happens when a rank is wrong, late or gone: an error of one cause on every rank, and then the next operation.

    hocket run -n 3 python examples/outcomes.py

No rank hangs, no process is killed, and nobody has to start anew: after a mismatch or a deadline the group goes on, and
after a loss the survivors form a new one.
"""

import asyncio
import os

import numpy as np

import hocket


async def tell(client: hocket.Client, title: str, value: object) -> None:
    """Rank 0 prints what each rank says, once where all say the same."""
    words = await client.gather_object(str(value), dst=0)
    if client.rank == 0:
        same = len(set(words)) == 1
        lines = [f"  all ranks: {words[0]}"] if same else [f"  rank {rank}: {word}" for rank, word in enumerate(words)]
        print("\n".join([title, *lines]), flush=True)


async def wrong(client: hocket.Client) -> None:
    """Rank 1 calls with another dtype: nobody's array is touched, and everybody is told who called what."""
    mine = np.ones(4, np.float64 if client.rank == 1 else np.float32)
    try:
        await client.all_reduce(mine)
    except hocket.MismatchError as error:
        assert (mine == 1).all()
        await tell(client, "one rank calls something else", error)


async def late(client: hocket.Client) -> None:
    """Rank 1 comes too late: the others say so after 0.3 s, and rank 1 hears of it when it comes."""
    if client.rank == 1:
        await asyncio.sleep(1.0)
    try:
        await client.all_reduce(np.ones(4), timeout=0.3)
    except hocket.DeadlineError as error:
        assert error.missing == (1,)
        await tell(client, "one rank is late", f"{type(error).__name__}: {error}")


async def in_step(client: hocket.Client) -> None:
    """After all that the group is as good as before."""
    mine = np.ones(1)
    await client.all_reduce(mine)
    await tell(client, "the next operation", f"{mine[0]:g}")


async def lost(client: hocket.Client) -> None:
    """The last rank's process ends in the middle: this epoch is over, and the others go on in a group of their own."""
    if client.rank == client.size - 1:
        os._exit(0)
    try:
        await client.all_reduce(np.ones(4))
    except hocket.MemberLostError as error:
        survivors = await client.join("survivors", client.size - len(error.ranks))
        if survivors.rank == 0:
            print(f"one rank is gone\n  {error}")
        mine = np.ones(1)
        await survivors.all_reduce(mine)
        assert mine[0] == survivors.size
        if survivors.rank == 0:
            print(
                f"  {survivors.size} of {client.size} ranks go on in group {survivors.name!r}: their sum is {mine[0]:g}"
            )


async def main() -> None:
    """One rank."""
    async with hocket.connect() as client:
        await wrong(client)
        await late(client)
        await in_step(client)
        await lost(client)


if __name__ == "__main__":
    asyncio.run(main())
