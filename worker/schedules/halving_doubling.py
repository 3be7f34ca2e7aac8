"""Recursive halving and doubling: a reduce-scatter in log2 rounds, then its mirror image as an all-gather.

In each round of the first half, partners split the chunks that they still share: each gives one half away and
reduces the other. The first exchange, with the nearest partner, moves half of the array; the last one, with the
farthest, a single chunk. The way back repeats the exchanges in reverse, so that chunks return complete.
Every chunk is summed at one host and copied from there, so that all hosts hold the same bits.
"""

from collections.abc import Iterator

from hocket.worker.schedules.folding import folded
from hocket.worker.schedules.schedule import Action, Round, doublings, floor_power_of_two


def chunks(size: int) -> int:
    """Number of chunks that `all_reduce` among `size` hosts works on: the largest power of two <= `size`."""
    return floor_power_of_two(size)


def all_reduce(rank: int, size: int) -> Iterator[Round]:
    """Reduce by vector halving with distance doubling, then gather by vector doubling with distance halving.

    With p hosts, of which c form the core (`folding`), and n bytes in the array:

    Chunks: c. Rounds: 2 log2(c), and 2 more where p > c.
    Bytes per host: 2n(c-1)/c sent and received; one n more each way for hosts that are paired, and n alone
    each way for those that sit out.
    Best for: medium arrays, and large ones where p is a power of two.
    Source: Rabenseifner, ICCS 2004, LNCS 3036, doi:10.1007/978-3-540-24685-5_1.
    """
    yield from folded(rank, size, tuple(range(chunks(size))), _halve_and_double)


def _halve_and_double(place: int, core: int) -> Iterator[Round]:
    low, width = 0, core  # the chunks that this host still works on
    trail = []
    for distance in doublings(core):
        partner = place ^ distance
        width //= 2
        lower, upper = tuple(range(low, low + width)), tuple(range(low + width, low + 2 * width))
        kept, given = (upper, lower) if place & distance else (lower, upper)
        yield Round(partner, given, partner, kept, Action.REDUCE)
        trail.append((partner, kept, given))
        low = kept[0]
    for partner, kept, given in reversed(trail):
        yield Round(partner, kept, partner, given)
