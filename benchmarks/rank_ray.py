"""All ranks of ray.util.collective with its gloo backend, in actors on numpy arrays. Run by `run.py`.

The loop that measures runs inside the actors: no actor call is timed.
"""

import asyncio
import logging
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import ray
import ray.util.collective as collective
from cases import ROOT, Case, Floats
from congestion import use_cubic
from sampling import Blocking, Settings, measure_all

OBJECT_STORE_NBYTES = 128 << 20


class RayRank(Blocking):
    """See `sampling.Rank`."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size

    def empty(self, length: int) -> Floats:
        """See `sampling.Rank`."""
        return np.empty(length, np.float32)

    def bind(self, case: Case) -> Callable[[], Any]:
        """See `sampling.Rank`."""
        source, target = case.source, case.target
        taken = np.split(target, self.size) if case.op == "all_gather" else []
        given = np.split(source, self.size) if case.op == "reduce_scatter" else []
        calls: dict[str, Callable[[], Any]] = {
            "all_reduce": lambda: collective.allreduce(source),
            "broadcast": lambda: collective.broadcast(source, ROOT),
            "all_gather": lambda: collective.allgather(taken, source),
            "reduce_scatter": lambda: collective.reducescatter(target, given),
            "barrier": collective.barrier,
        }
        return calls[case.op]

    def block(self) -> None:
        """See `sampling.Blocking`."""
        collective.barrier()

    async def agree(self, value: float) -> float:
        """See `sampling.Rank`."""
        word = np.array([value])
        collective.broadcast(word, ROOT)
        return float(word[0])


@ray.remote(num_cpus=0)
class Actor:
    """One rank's process."""

    def measure(self, rank: int, size: int, settings: dict[str, Any]) -> None:
        """Goes through all cases."""
        import torch

        torch.set_num_threads(1)
        collective.barrier()  # so that all connections are there
        use_cubic()
        asyncio.run(measure_all(RayRank(rank, size), Settings(**settings)))


def main() -> None:
    """Starts Ray and the actors, and waits for them."""
    settings = Settings.read()
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
    ray.init(
        num_cpus=2, include_dashboard=False, object_store_memory=OBJECT_STORE_NBYTES, log_to_driver=False,
        logging_level=logging.ERROR, _node_ip_address="127.0.0.1",
    )  # fmt: skip
    try:
        ranks = list(range(settings.size))
        actors = [Actor.remote() for _ in ranks]
        collective.create_collective_group(actors, settings.size, ranks, backend="gloo")
        ray.get([actor.measure.remote(rank, settings.size, settings.fields()) for rank, actor in enumerate(actors)])
    finally:
        ray.shutdown()


if __name__ == "__main__":
    main()
