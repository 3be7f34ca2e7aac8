"""Recursive doubling: partners at distance 1, 2, 4, ... exchange all they know.

After k rounds 2^k neighbouring hosts share one sum. Both partners of an exchange add the same two values, so that all
hosts hold the same bits as long as addition is commutative.
"""

from collections.abc import Iterator

from hocket.worker.schedules.folding import folded
from hocket.worker.schedules.schedule import Action, Round, doublings


def all_reduce(rank: int, size: int) -> Iterator[Round]:
    """Reduce the whole array in the fewest rounds, by exchanging it whole in each.

    With p hosts, of which c form the core (`folding`), and n bytes in the array:

    Chunks: 1, of id 0. Rounds: log2(c), and 2 more where p > c.
    Bytes per host: n log2(c) sent and received; one n more each way for hosts that are paired, and n alone
    each way for those that sit out.
    Best for: arrays so small that latency is all, and any array between two hosts.
    Source: Thakur, Rabenseifner and Gropp, IJHPCA 19(1), 2005, doi:10.1177/1094342005051521.
    """
    yield from folded(rank, size, (0,), _exchange)


def _exchange(place: int, core: int) -> Iterator[Round]:
    for distance in doublings(core):
        partner = place ^ distance
        yield Round(partner, (0,), partner, (0,), Action.REDUCE)
