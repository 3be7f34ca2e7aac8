"""One rank of MPI, through mpi4py's calls on buffers. Run by `run.py` under mpiexec."""

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
from cases import ROOT, Case, Floats
from mpi4py import MPI
from sampling import Blocking, Settings, measure_all


class MpiRank(Blocking):
    """See `sampling.Rank`."""

    def __init__(self) -> None:
        self.world = MPI.COMM_WORLD
        self.rank, self.size = self.world.rank, self.world.size

    def empty(self, length: int) -> Floats:
        """See `sampling.Rank`."""
        return np.empty(length, np.float32)

    def bind(self, case: Case) -> Callable[[], Any]:
        """See `sampling.Rank`."""
        world, source, target = self.world, case.source, case.target
        calls: dict[str, Callable[[], Any]] = {
            "all_reduce": lambda: world.Allreduce(MPI.IN_PLACE, source),
            "broadcast": lambda: world.Bcast(source, ROOT),
            "all_gather": lambda: world.Allgather(source, target),
            "reduce_scatter": lambda: world.Reduce_scatter_block(source, target),
            "all_to_all": lambda: world.Alltoall(source, target),
            "barrier": world.Barrier,
        }
        return calls[case.op]

    def block(self) -> None:
        """See `sampling.Blocking`."""
        self.world.Barrier()

    async def agree(self, value: float) -> float:
        """See `sampling.Rank`."""
        word = np.array([value])
        self.world.Bcast(word, ROOT)
        return float(word[0])


if __name__ == "__main__":
    asyncio.run(measure_all(MpiRank(), Settings.read()))
