"""Bruck's algorithms: distances 1, 2, 4, ... around a circle, for any number of hosts, in ceil(log2) rounds.

The paper rotates arrays so that what is sent lies together. Here chunks have names and stay where they are.

Source: Bruck, Ho, Kipnis, Upfal and Weathersby, IEEE TPDS 8(11), 1997, doi:10.1109/71.642949.
"""

from collections.abc import Iterator

from hocket.worker.schedules.schedule import Round, doublings


def all_gather(rank: int, size: int) -> Iterator[Round]:
    """Double the run of chunks, of which chunk r starts at host r, until every host holds all `size`.

    Before the round of distance d, a host holds the d chunks from its own one on. It sends as many of them as
    its peer still lacks to the host d to its left, and receives those that follow. With p hosts and n bytes in all
    chunks together:

    Chunks: p. Rounds: ceil(log2 p). Bytes per host: n(p-1)/p sent, as many received.
    Best for: any size of array: fewest rounds and fewest bytes.
    Source: Bruck et al., as above.
    """
    for distance in doublings(size):
        count = min(distance, size - distance)
        held, following = _run(rank, count, size), _run(rank + distance, count, size)
        yield Round((rank - distance) % size, held, (rank + distance) % size, following)


def all_to_all(rank: int, size: int) -> Iterator[Round]:
    """Carry each chunk to its destination by way of third hosts, along the binary digits of the distance.

    A chunk that has o hosts to go to the right makes one hop for each bit set in o, the lowest first. It keeps its id
    on the way, so that a host needs room for chunks that are neither from nor for it. With p hosts and n the bytes
    that one host holds for all hosts, itself included:

    Chunks: p^2; source s holds chunk s*p+d for destination d. A host's chunk for itself does not move.
    Rounds: ceil(log2 p). Bytes per host: n/p for each bit set in the numbers 1 to p-1, which is (n/2) log2(p) for
    powers of two, sent, and as many received.
    Best for: small arrays.
    Source: Bruck et al., as above.
    """
    for distance in doublings(size):
        to, source = (rank + distance) % size, (rank - distance) % size
        yield Round(to, _departing(rank, size, distance), source, _departing(source, size, distance))


def _run(start: int, count: int, size: int) -> tuple[int, ...]:
    return tuple((start + i) % size for i in range(count))


def _departing(rank: int, size: int, distance: int) -> tuple[int, ...]:
    """Ids of the chunks that leave `rank` in the round of this distance.

    They are those of any offset with this bit set; by now they have come as far as the lower bits say.
    """
    leaving = []
    for offset in range(distance, size):
        if offset & distance:
            start = (rank - offset % distance) % size
            leaving.append(start * size + (start + offset) % size)
    return tuple(leaving)
