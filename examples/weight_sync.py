"""Services that come and go: a trainer publishes weights to inference servers, which answer requests all the while.

    hocket run -n 3 --no-prefix python examples/weight_sync.py

Nobody here has a place in a world of fixed size. Trainer and servers meet in the named group ``weights``, each in its
own event loop, with whatever else it does there. After the second version one server goes home; the group's epoch ends
for the others, they join anew, and the third version is published to those that are left.
"""

import asyncio
import os

import numpy as np
import numpy.typing as npt

import hocket

Array = npt.NDArray[np.float64]
SIZE, VERSIONS = 1000, 4
GOES_AFTER = 2
"""The version after which one of the servers leaves."""


async def train(client: hocket.Client, members: int) -> None:
    """The trainer: rank 0 of the group. Version v of the weights is v everywhere, so that answers can be checked."""
    group = await client.join("weights", members, rank=0)
    version = 1
    while version <= VERSIONS:
        weights = np.full(SIZE, float(version))
        try:
            await group.broadcast(np.array([version]), src=0)
            await group.broadcast(weights, src=0)
        except hocket.MemberLostError as error:
            members -= len(error.ranks)
            print(f"trainer: a server {error.cause}; version {version} again, for {members - 1} of them", flush=True)
            group = await client.join("weights", members, rank=0)
            continue
        print(f"trainer: published version {version} in epoch {group.epoch} of {group.name!r}", flush=True)
        version += 1
        await asyncio.sleep(0.1)  # as if it trained
    await group.broadcast(np.array([0]), src=0)


class Server:
    """An inference server: it answers from its weights, and exchanges these as a whole when new ones are complete."""

    def __init__(self, client: hocket.Client, members: int, goes: bool) -> None:
        self.client, self.members, self.goes = client, members, goes
        self.weights: Array = np.zeros(SIZE)
        self.answers: dict[int, int] = {}

    async def answer(self) -> None:
        """Requests that never stop, and are not held up by the weights that come in."""
        request = np.ones(SIZE) / SIZE
        while True:
            version = round(float(request @ self.weights))
            self.answers[version] = self.answers.get(version, 0) + 1
            await asyncio.sleep(0.001)

    async def follow(self) -> None:
        """Takes in versions until the trainer says 0, or until it is time to go."""
        group = await self.client.join("weights", self.members)
        while True:
            version, fresh = np.zeros(1, np.int64), np.empty(SIZE)
            try:
                await group.broadcast(version, src=0)
                if version[0] == 0:
                    return
                await group.broadcast(fresh, src=0)
            except hocket.MemberLostError as error:
                self.members -= len(error.ranks)
                group = await self.client.join("weights", self.members)
                continue
            assert (fresh == version[0]).all()
            self.weights = fresh
            if self.goes and version[0] == GOES_AFTER:
                group.leave()
                return


async def serve(client: hocket.Client, members: int, goes: bool) -> None:
    """A server's life."""
    server = Server(client, members, goes)
    answering = asyncio.create_task(server.answer())
    await server.follow()
    await asyncio.sleep(0.05)
    answering.cancel()
    newest = max(server.answers)
    assert newest == (GOES_AFTER if goes else VERSIONS)
    print(f"{client.name}: {'leaves' if goes else 'ends'} at version {newest}, never without weights", flush=True)


async def main() -> None:
    """The launcher's first process is the trainer, the others are servers. None of them takes a place in a world."""
    number, members = int(os.environ.pop("RANK")), int(os.environ.pop("WORLD_SIZE"))
    name = "trainer" if number == 0 else f"server {number}"
    async with hocket.connect(name=name) as client:
        if number == 0:
            await train(client, members)
        else:
            await serve(client, members, goes=number == members - 1)


if __name__ == "__main__":
    asyncio.run(main())
