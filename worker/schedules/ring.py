"""Ring: every host sends to its right neighbour and receives from its left one, one chunk a round.

Below, p is the number of hosts and n the size of the whole array. No algorithm sends fewer bytes per host; the
price is a number of rounds that grows with p. Every chunk is summed along one path and copied from its end, so that
all hosts hold the same bits.

Source: Patarasuk and Yuan, JPDC 69(2), 2009, doi:10.1016/j.jpdc.2008.09.002.
"""

from collections.abc import Iterator

from hocket.worker.schedules.schedule import Action, Round


def all_reduce(rank: int, size: int) -> Iterator[Round]:
    """Reduce `size` chunks onto one host each, then pass each one round to all: `reduce_scatter`, `all_gather`.

    Chunks: p. Rounds: 2(p-1). Bytes per host: 2n(p-1)/p sent, as many received.
    Best for: large arrays, above all where p is no power of two.
    Source: Patarasuk and Yuan, as above.
    """
    yield from reduce_scatter(rank, size)
    yield from all_gather(rank, size)


def reduce_scatter(rank: int, size: int) -> Iterator[Round]:
    """Reduce `size` chunks so that chunk r ends complete at host r.

    Chunk r sets out at host r+1 and collects one contribution at each host that it passes; the other chunks
    of a host end as partial sums.

    Chunks: p. Rounds: p-1. Bytes per host: n(p-1)/p sent, as many received.
    Best for: large arrays.
    Source: Patarasuk and Yuan, as above.
    """
    right, left = (rank + 1) % size, (rank - 1) % size
    for step in range(size - 1):
        leaving, arriving = (rank - 1 - step) % size, (rank - 2 - step) % size
        yield Round(right, (leaving,), left, (arriving,), Action.REDUCE)


def all_gather(rank: int, size: int) -> Iterator[Round]:
    """Pass on chunks, of which chunk r starts at host r, until every host holds all `size`.

    Chunks: p. Rounds: p-1. Bytes per host: n(p-1)/p sent, as many received.
    Best for: large arrays where only neighbours are well connected; `bruck.all_gather` needs fewer rounds.
    Source: Patarasuk and Yuan, as above.
    """
    right, left = (rank + 1) % size, (rank - 1) % size
    for step in range(size - 1):
        leaving, arriving = (rank - step) % size, (rank - 1 - step) % size
        yield Round(right, (leaving,), left, (arriving,))
