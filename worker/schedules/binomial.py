"""Binomial trees: between a root and all other hosts, in ceil(log2) rounds.

A host's *place* is its rank counted from the root, which is at place 0. The sub-tree of place v covers the places
from v up to, not including, v + 2^k, where 2^k is the lowest set bit of v (for the root: the first power of two that
covers all); its children stand at v+1, v+2, v+4, ... within that. Sub-trees are runs of neighbouring places, which is
what lets gather and scatter forward them whole. Where the number of hosts is no power of two, the last sub-trees are
cut short.

Below, p is the number of hosts and n the size of the whole array.

Source: Thakur, Rabenseifner and Gropp, IJHPCA 19(1), 2005, doi:10.1177/1094342005051521; for gather and scatter
Chan, Heimlich, Purkayastha and van de Geijn, CCPE 19(13), 2007, doi:10.1002/cpe.1206.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from hocket.worker.schedules.schedule import Action, Round, ceil_log2, doublings

ARRAY = (0,)


def broadcast(rank: int, size: int, root: int) -> Iterator[Round]:
    """Copy chunk 0 from the root to all, the farthest and largest sub-tree first.

    Chunks: 1, of id 0. Rounds: ceil(log2 p) from first to last; a host takes part in 1 + its number of children.
    Bytes per host: n received, n sent to each child (of which the root has ceil(log2 p)).
    Best for: small arrays.
    Source: Thakur, Rabenseifner and Gropp, as above.
    """
    tree = _Tree(rank, size, root)
    if tree.parent is not None:
        yield Round(None, (), tree.parent, ARRAY)
    for child in reversed(tree.children):
        yield Round(child, ARRAY, None, ())


def reduce(rank: int, size: int, root: int) -> Iterator[Round]:
    """Reduce chunk 0 towards the root, the nearest and smallest sub-tree first: `broadcast` backwards.

    The chunk of a host that has children ends as a partial sum.

    Chunks: 1, of id 0. Rounds: ceil(log2 p) from first to last; a host takes part in 1 + its number of children.
    Bytes per host: n sent, n received from each child (of which the root has ceil(log2 p)).
    Best for: small arrays.
    Source: Thakur, Rabenseifner and Gropp, as above.
    """
    tree = _Tree(rank, size, root)
    for child in tree.children:
        yield Round(None, (), child, ARRAY, Action.REDUCE)
    if tree.parent is not None:
        yield Round(tree.parent, ARRAY, None, ())


def gather(rank: int, size: int, root: int) -> Iterator[Round]:
    """Collect at the root chunks of which chunk r starts at host r, each host forwarding its whole sub-tree.

    Chunks: p, of which a host needs room for those of its sub-tree.
    Rounds: ceil(log2 p) from first to last; a host takes part in 1 + its number of children.
    Bytes per host: n(p-1)/p received at the root; elsewhere n/p for each host of its sub-tree sent, the same
    without its own chunk received.
    Best for: any size of array.
    Source: Chan, Heimlich, Purkayastha and van de Geijn, as above.
    """
    tree = _Tree(rank, size, root)
    for child in tree.children:
        yield Round(None, (), child, _Tree(child, size, root).members)
    if tree.parent is not None:
        yield Round(tree.parent, tree.members, None, ())


def scatter(rank: int, size: int, root: int) -> Iterator[Round]:
    """Hand chunk r from the root to host r, in bundles for whole sub-trees: `gather` backwards.

    Chunks: p, of which a host needs room for those of its sub-tree.
    Rounds: ceil(log2 p) from first to last; a host takes part in 1 + its number of children.
    Bytes per host: n(p-1)/p sent by the root; elsewhere n/p for each host of its sub-tree received, the same
    without its own chunk sent.
    Best for: any size of array.
    Source: Chan, Heimlich, Purkayastha and van de Geijn, as above.
    """
    tree = _Tree(rank, size, root)
    if tree.parent is not None:
        yield Round(None, (), tree.parent, tree.members)
    for child in reversed(tree.children):
        yield Round(child, _Tree(child, size, root).members, None, ())


@dataclass(frozen=True, slots=True)
class _Tree:
    """The sub-tree of one host; hosts are named by rank."""

    rank: int
    size: int
    root: int

    @property
    def place(self) -> int:
        return (self.rank - self.root) % self.size

    @property
    def span(self) -> int:
        """Places that the sub-tree covers where it is not cut short."""
        return self.place & -self.place if self.place else 1 << ceil_log2(self.size)

    @property
    def parent(self) -> int | None:
        return self._host(self.place - self.span) if self.place else None

    @property
    def children(self) -> tuple[int, ...]:
        """The children, the nearest and smallest one first."""
        places = (self.place + distance for distance in doublings(self.span))
        return tuple(self._host(place) for place in places if place < self.size)

    @property
    def members(self) -> tuple[int, ...]:
        """All hosts of the sub-tree, this one first."""
        end = min(self.place + self.span, self.size)
        return tuple(self._host(place) for place in range(self.place, end))

    def _host(self, place: int) -> int:
        return (place + self.root) % self.size
