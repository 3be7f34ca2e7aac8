"""One rank of PCCL, which has all_reduce alone. Run by `run.py`, with RANK set; with ``master``, what ranks meet at."""

import asyncio
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from cases import Case, Floats
from congestion import use_cubic
from pccl import Attribute, Communicator, MasterNode, ReduceOp
from sampling import Blocking, Settings, measure_all

MASTER = "127.0.0.1:48501"
JOIN_LIMIT_S = 20.0
POLL_S = 0.02


class PcclRank(Blocking):
    """See `sampling.Rank`."""

    def __init__(self, communicator: Communicator, rank: int, size: int) -> None:
        self.communicator, self.rank, self.size = communicator, rank, size
        self._word, self._sum = np.zeros(1, np.float32), np.zeros(1, np.float32)

    def empty(self, length: int) -> Floats:
        """See `sampling.Rank`."""
        return np.empty(length, np.float32)

    def bind(self, case: Case) -> Callable[[], Any]:
        """See `sampling.Rank`. It sums from one array into another."""
        source, target = case.source.copy(), case.target
        return lambda: self.communicator.all_reduce(source, target, op=ReduceOp.SUM)

    def block(self) -> None:
        """See `sampling.Blocking`: it has no barrier, so a sum stands for one."""
        self.communicator.all_reduce(self._word, self._sum, op=ReduceOp.SUM)

    async def agree(self, value: float) -> float:
        """See `sampling.Rank`."""
        self._word[0] = value if self.rank == 0 else 0.0
        self.block()
        return float(self._sum[0])


def join(rank: int, size: int) -> PcclRank:
    """Waits until all have joined."""
    communicator = Communicator(MASTER, peer_group=0, p2p_connection_pool_size=1)
    communicator.connect(n_attempts=15)
    end_s = time.monotonic() + JOIN_LIMIT_S
    while communicator.get_attribute(Attribute.GLOBAL_WORLD_SIZE) < size:
        assert time.monotonic() < end_s, "the others did not join"
        if communicator.are_peers_pending():
            communicator.update_topology()
        time.sleep(POLL_S)
    return PcclRank(communicator, rank, size)


def main() -> None:
    """Serves as master, or joins and measures."""
    if sys.argv[1:] == ["master"]:
        MasterNode(listen_address=MASTER).run()
        while os.getppid() != 1:
            time.sleep(POLL_S)
        return
    settings = Settings.read()
    rank = join(int(os.environ["RANK"]), settings.size)
    rank.block()  # so that all connections are there
    use_cubic()
    asyncio.run(measure_all(rank, settings))
    sys.stdout.flush()
    os._exit(0)  # its destructors complain where others have gone


if __name__ == "__main__":
    main()
