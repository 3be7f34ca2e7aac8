"""Dissemination: word of every host's arrival spreads to all, as rumours do."""

from collections.abc import Iterator

from hocket.worker.schedules.schedule import Round, doublings


def barrier(rank: int, size: int) -> Iterator[Round]:
    """Wait until every host has arrived, by messages that carry nothing.

    After the round of distance d, a host has heard, directly or not, of the 2d - 1 hosts to its left. With p hosts:

    Chunks: none. Rounds: ceil(log2 p). Bytes per host: none.
    Best for: barriers among any number of hosts.
    Source: Hensgen, Finkel and Manber, IJPP 17(1), 1988, doi:10.1007/BF01379320.
    """
    for distance in doublings(size):
        yield Round((rank + distance) % size, (), (rank - distance) % size, ())
