"""One rank of torch.distributed with the gloo backend. Run by `run.py` in gloo's environment, with RANK set."""

import asyncio
import os
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from cases import ROOT, Case, Floats
from congestion import use_cubic
from sampling import Blocking, Settings, measure_all


class GlooRank(Blocking):
    """See `sampling.Rank`."""

    def __init__(self) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()

    def empty(self, length: int) -> Floats:
        """Torch's own memory, seen through numpy."""
        array: Floats = torch.empty(length, dtype=torch.float32).numpy()
        return array

    def bind(self, case: Case) -> Callable[[], Any]:
        """See `sampling.Rank`."""
        source, target = torch.from_numpy(case.source), torch.from_numpy(case.target)
        gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
        scatter = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)
        calls: dict[str, Callable[[], Any]] = {
            "all_reduce": lambda: dist.all_reduce(source),
            "broadcast": lambda: dist.broadcast(source, ROOT),
            "all_gather": lambda: gather(target, source),
            "reduce_scatter": lambda: scatter(target, source),
            "all_to_all": lambda: dist.all_to_all_single(target, source),
            "barrier": dist.barrier,
        }
        return calls[case.op]

    def block(self) -> None:
        """See `sampling.Blocking`."""
        dist.barrier()

    async def agree(self, value: float) -> float:
        """See `sampling.Rank`."""
        word = torch.tensor([value], dtype=torch.float64)
        dist.broadcast(word, ROOT)
        return float(word[0])


def main() -> None:
    """Joins the world and measures."""
    settings = Settings.read()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)  # as torchrun has it
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", init_method=f"file://{settings.folder}/store", rank=rank, world_size=size)
    dist.barrier()
    os.write(sys.stderr.fileno(), f"congestion control: {use_cubic()}\n".encode())  # whole, beside the others' lines
    asyncio.run(measure_all(GlooRank(), settings))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
