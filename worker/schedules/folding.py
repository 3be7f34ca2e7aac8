"""Folding: how algorithms that need a power of two of hosts serve any number.

With p hosts, c of which (the largest power of two) form the *core*, the first 2(p-c) hosts pair up. The odd one of each
pair hands its data to the even one, sits the algorithm out and is handed the result afterwards.

Source: Thakur, Rabenseifner and Gropp, IJHPCA 19(1), 2005, doi:10.1177/1094342005051521.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

from hocket.worker.schedules.schedule import Action, Round, floor_power_of_two


def folded(
    rank: int, size: int, chunks: tuple[int, ...], among_core: Callable[[int, int], Iterator[Round]]
) -> Iterator[Round]:
    """All-reduce among any number of hosts by one that needs a power of two.

    Chunks: those named. Rounds: 2 more than `among_core` has, none more for a power of two.
    Bytes per host: the array once for hosts that sit out (sent, and received), as much again for their partners.

    Args:
        chunks: ids of all chunks.
        among_core: the schedule for (place in the core, size of the core), its peers being places in the core.
    """
    core = floor_power_of_two(size)
    extra = size - core
    paired = rank < 2 * extra
    if paired and rank % 2:
        yield Round(rank - 1, chunks, None, ())
        yield Round(None, (), rank - 1, chunks)
        return

    def host(place: int | None) -> int | None:
        if place is None:
            return None
        return 2 * place if place < extra else place + extra

    if paired:
        yield Round(None, (), rank + 1, chunks, Action.REDUCE)
    for turn in among_core(rank // 2 if paired else rank - extra, core):
        yield replace(turn, to=host(turn.to), source=host(turn.source))
    if paired:
        yield Round(rank + 1, chunks, None, ())
