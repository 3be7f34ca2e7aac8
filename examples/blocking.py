"""The blocking twin: torch.distributed's functions, without torch and without asyncio.

    hocket run -n 2 python examples/blocking.py

`hocket.client.sync` has one function for each operation. A call returns when the operation has ended, or at once with
``async_op=True``, which gives a work to wait for.
"""

import numpy as np

import hocket.client.sync as dist


def main() -> None:
    """One rank."""
    dist.init_process_group()
    rank, size = dist.get_rank(), dist.get_world_size()

    total = np.array([rank + 1.0, rank + 2.0])
    dist.all_reduce(total)
    assert total.tolist() == [sum(r + 1.0 for r in range(size)), sum(r + 2.0 for r in range(size))]

    everybodys = np.zeros((size, 2))
    work = dist.all_gather_into_tensor(everybodys, np.array([rank, -rank], float), async_op=True)
    squares = sum(i * i for i in range(1000))  # the data moves meanwhile
    work.wait()
    assert everybodys.tolist() == [[r, -r] for r in range(size)] and squares == 332833500

    words = [f"from rank {rank}"]
    dist.broadcast_object_list(words, src=size - 1)
    assert words == [f"from rank {size - 1}"]

    dist.barrier()
    if rank == 0:
        print(f"all_reduce: {total}\nall_gather_into_tensor: {everybodys.tolist()}\nbroadcast_object_list: {words}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
