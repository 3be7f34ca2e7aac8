"""Which schedule serves an operation best: a cost model of latency and bandwidth.

A message takes the link's latency and the time that its bytes need; a schedule takes as long as the longest chain of
messages that wait for each other. What a candidate costs is known in closed form: `steps` messages in a row, which
together carry `volume` times the operation's bytes. `check.simulate` arrives at the same times.

An operation's bytes are the size of the whole array that it is about. For all_gather and gather that is the complete
output, for reduce_scatter and scatter the complete input, for all_to_all what one host holds for all, itself included.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache, partial

from hocket.worker.schedules import (
    binomial,
    bruck,
    dissemination,
    halving_doubling,
    pairwise,
    recursive_doubling,
    ring,
)
from hocket.worker.schedules.schedule import Round, ceil_log2, floor_power_of_two


class Kind(Enum):
    """The collectives that hosts carry out between them. `contract.py` tells who holds what before and after."""

    ALL_REDUCE = "all_reduce"
    REDUCE = "reduce"
    BROADCAST = "broadcast"
    ALL_GATHER = "all_gather"
    GATHER = "gather"
    SCATTER = "scatter"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_TO_ALL = "all_to_all"
    BARRIER = "barrier"


@dataclass(frozen=True, slots=True)
class Link:
    """What connects two hosts: seconds that a message takes on top of its bytes, and bytes per second each way."""

    latency_s: float = 50e-6
    bandwidth_Bps: float = 2e9


DEFAULT_LINK = Link()


@dataclass(frozen=True, slots=True)
class Choice:
    """A schedule for all hosts.

    Args:
        name: of the algorithm, the same on every host.
        chunks: number of chunks that the operation's data is divided into; ids run from 0.
        rounds: gives the schedule of a host by its index; a root is bound in.
    """

    name: str
    chunks: int
    rounds: Callable[[int], Iterator[Round]]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A schedule and its price.

    Args:
        steps: messages on the longest chain.
        volume: bytes on that chain, as a multiple of the operation's bytes.
    """

    choice: Choice
    steps: int
    volume: float

    def cost_s(self, nbytes: int, link: Link) -> float:
        """Seconds that the schedule takes for an operation of `nbytes`."""
        return self.steps * link.latency_s + self.volume * nbytes / link.bandwidth_Bps


def choose(kind: Kind, nbytes: int, size: int, root: int = 0, link: Link = DEFAULT_LINK) -> Choice:
    """The cheapest schedule; of equally cheap ones the first in `candidates`.

    Args:
        nbytes: the operation's bytes as this module's text defines them; must be the same on every host.
        size: number of hosts, at least 1. A single host gets a schedule without rounds.
        root: index of the root's host, where the kind has a root.
    """
    return min(candidates(kind, size, root), key=lambda candidate: candidate.cost_s(nbytes, link)).choice


@lru_cache(maxsize=1024)
def candidates(kind: Kind, size: int, root: int = 0) -> tuple[Candidate, ...]:
    """All schedules that can carry out this kind among `size` hosts, with their prices."""
    assert 0 <= root < size, f"root {root} of {size} hosts"
    return _CANDIDATES[kind](size, root)


def _all_reduce(size: int, _root: int) -> tuple[Candidate, ...]:
    core = floor_power_of_two(size)
    fold = 2 if size > core else 0  # the whole array once in and once out again
    doublings = ceil_log2(core)
    return (
        Candidate(
            Choice("recursive_doubling", 1, partial(recursive_doubling.all_reduce, size=size)),
            steps=doublings + fold,
            volume=doublings + fold,
        ),
        Candidate(
            Choice("halving_doubling", halving_doubling.chunks(size), partial(halving_doubling.all_reduce, size=size)),
            steps=2 * doublings + fold,
            volume=2 * _share_of_others(core) + fold,
        ),
        Candidate(
            Choice("ring", size, partial(ring.all_reduce, size=size)),
            steps=2 * (size - 1),
            volume=2 * _share_of_others(size),
        ),
    )


def _reduce(size: int, root: int) -> tuple[Candidate, ...]:
    levels = ceil_log2(size)
    return (
        Candidate(Choice("binomial", 1, partial(binomial.reduce, size=size, root=root)), levels, levels),
        Candidate(
            Choice("ring_gather", size, partial(_reduce_scatter_gather, size=size, root=root)),
            steps=size - 1 + levels,
            volume=2 * _share_of_others(size),
        ),
    )


def _broadcast(size: int, root: int) -> tuple[Candidate, ...]:
    levels = ceil_log2(size)
    return (
        Candidate(Choice("binomial", 1, partial(binomial.broadcast, size=size, root=root)), levels, levels),
        Candidate(
            Choice("scatter_bruck", size, partial(_scatter_all_gather, size=size, root=root)),
            steps=2 * levels,
            volume=2 * _share_of_others(size),
        ),
    )


def _all_gather(size: int, _root: int) -> tuple[Candidate, ...]:
    others = _share_of_others(size)  # equal for both, so that the ring, with more steps, never wins by this model
    return (
        Candidate(Choice("bruck", size, partial(bruck.all_gather, size=size)), ceil_log2(size), others),
        Candidate(Choice("ring", size, partial(ring.all_gather, size=size)), size - 1, others),
    )


def _gather(size: int, root: int) -> tuple[Candidate, ...]:
    choice = Choice("binomial", size, partial(binomial.gather, size=size, root=root))
    return (Candidate(choice, ceil_log2(size), _share_of_others(size)),)


def _scatter(size: int, root: int) -> tuple[Candidate, ...]:
    choice = Choice("binomial", size, partial(binomial.scatter, size=size, root=root))
    return (Candidate(choice, ceil_log2(size), _share_of_others(size)),)


def _reduce_scatter(size: int, _root: int) -> tuple[Candidate, ...]:
    choice = Choice("ring", size, partial(ring.reduce_scatter, size=size))
    return (Candidate(choice, size - 1, _share_of_others(size)),)


def _all_to_all(size: int, _root: int) -> tuple[Candidate, ...]:
    forwarded = sum(offset.bit_count() for offset in range(size))
    return (
        Candidate(
            Choice("pairwise", size * size, partial(pairwise.all_to_all, size=size)),
            steps=size - 1,
            volume=_share_of_others(size),
        ),
        Candidate(
            Choice("bruck", size * size, partial(bruck.all_to_all, size=size)),
            steps=ceil_log2(size),
            volume=forwarded / size,
        ),
    )


def _barrier(size: int, _root: int) -> tuple[Candidate, ...]:
    choice = Choice("dissemination", 0, partial(dissemination.barrier, size=size))
    return (Candidate(choice, ceil_log2(size), 0.0),)


_CANDIDATES: dict[Kind, Callable[[int, int], tuple[Candidate, ...]]] = {
    Kind.ALL_REDUCE: _all_reduce,
    Kind.REDUCE: _reduce,
    Kind.BROADCAST: _broadcast,
    Kind.ALL_GATHER: _all_gather,
    Kind.GATHER: _gather,
    Kind.SCATTER: _scatter,
    Kind.REDUCE_SCATTER: _reduce_scatter,
    Kind.ALL_TO_ALL: _all_to_all,
    Kind.BARRIER: _barrier,
}


def _share_of_others(size: int) -> float:
    """What part of an array divided among all hosts is not a given host's own."""
    return (size - 1) / size


def _reduce_scatter_gather(rank: int, size: int, root: int) -> Iterator[Round]:
    """Reduce a large array: each host sums its chunk, the root collects them.

    Chunks: `size`. Rounds: p-1 + ceil(log2 p). Bytes: 2n(p-1)/p on the longest chain.
    Source: Chan, Heimlich, Purkayastha and van de Geijn, CCPE 19(13), 2007, doi:10.1002/cpe.1206.
    """
    yield from ring.reduce_scatter(rank, size)
    yield from binomial.gather(rank, size, root)


def _scatter_all_gather(rank: int, size: int, root: int) -> Iterator[Round]:
    """Broadcast a large array: the root deals out its chunks, then all exchange them.

    Chunks: `size`. Rounds: 2 ceil(log2 p). Bytes: 2n(p-1)/p on the longest chain.
    Source: Chan, Heimlich, Purkayastha and van de Geijn, CCPE 19(13), 2007, doi:10.1002/cpe.1206.
    """
    yield from binomial.scatter(rank, size, root)
    yield from bruck.all_gather(rank, size)
