"""Pairwise exchange: everybody deals with one partner after the other, directly."""

from collections.abc import Iterator

from hocket.worker.schedules.schedule import Round, floor_power_of_two


def all_to_all(rank: int, size: int) -> Iterator[Round]:
    """Send each chunk straight to the host that it is for.

    Where the number of hosts p is a power of two, the partner of a round is found by XOR, so that hosts exchange in
    pairs; else each host sends to the one that stands `step` to its right and receives from as far to its left. With n
    the bytes that one host holds for all hosts, itself included:

    Chunks: p^2; source s holds chunk s*p+d for destination d. A host's chunk for itself does not move.
    Rounds: p-1. Bytes per host: n(p-1)/p sent, as many received, which is the least possible.
    Best for: large arrays.
    Source: Thakur, Rabenseifner and Gropp, IJHPCA 19(1), 2005, doi:10.1177/1094342005051521.
    """
    in_pairs = size == floor_power_of_two(size)
    for step in range(1, size):
        to = rank ^ step if in_pairs else (rank + step) % size
        source = rank ^ step if in_pairs else (rank - step) % size
        yield Round(to, (rank * size + to,), source, (source * size + rank,))
