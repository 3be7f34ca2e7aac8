"""The calls that ``hocket bench`` measures: for each operation and form, its buffers, what it fills and what must come.

A rank has two areas of memory, each as large as the largest buffer needed, and reuses them for every size.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from hocket.cli.bench_data import Array, contributed, fill, reduced, sent, tolerance, wrong
from hocket.cli.bench_plan import OPERATIONS, Operation, Settings, counts
from hocket.client.client import Client
from hocket.fabric.dtypes import numpy_dtype
from hocket.protocol.reduce_ops import ReduceOp

Part = tuple[Array, Array]
"""A one-dimensional array, and one period of what it holds or must hold."""


@dataclass(slots=True)
class Case:
    """One operation in one form, ready to be called."""

    call: Callable[[], Awaitable[Any]]
    filled: Sequence[Part]
    """what this rank's memory holds before the call"""
    expected: Sequence[Part]
    """what it must hold after it, on this rank"""
    tolerated: float = 0.0

    def prepare(self) -> None:
        """Fills the buffers. What is to come is blotted out first, for the same may have come there before."""
        for array, _ in self.expected:
            array[...] = 0
        for array, period in self.filled:
            fill(array, period)

    def wrong(self) -> int:
        """How many elements are not what they must be."""
        return sum(wrong(array, period, self.tolerated) for array, period in self.expected)

    def blank(self) -> None:
        """Zeroes the buffers: what is reduced in place, again and again, would grow beyond every bound."""
        for array, _ in self.filled:
            array[...] = 0


class Cases:
    """Makes the cases of one rank.

    Args:
        memory: gives an array of so many elements of a dtype.
    """

    def __init__(self, client: Client, settings: Settings, memory: Callable[[int, "np.dtype[Any]"], Array]) -> None:
        self._client, self._settings = client, settings
        self._rank, self._size = client.rank, client.size
        self._dtype = numpy_dtype(settings.dtype)
        self._op = ReduceOp(settings.op)
        named = [OPERATIONS[name] for name in settings.operations]
        wanted = {one.name: _elements(one, settings, self._size) for one in named}
        self._first = memory(max(wanted.values(), default=0), self._dtype)
        self._second = memory(max((wanted[one.name] for one in named if _needs_two(one)), default=0), self._dtype)

    def make(self, operation: Operation, form: str, count: int) -> Case:
        """The case of an operation: ``count`` elements, or so many for each rank."""
        make: Callable[[int, bool], Case] = getattr(self, f"_{operation.name}")
        return make(count, form == "in_place")

    def _parts(self, array: Array, count: int) -> list[Array]:
        return [array[rank * count : (rank + 1) * count] for rank in range(self._size)]

    def _mine(self, salt: int = 0) -> Array:
        return contributed(self._rank, self._size, self._dtype, self._op.name, salt)

    def _reduced(self, salt: int = 0) -> Array:
        return reduced(self._size, self._dtype, self._op.name, salt)

    def _tolerated(self, compression: str | None = None) -> float:
        return tolerance(self._op.name, self._dtype, self._size, compression)

    # --- reductions --------------------------------------------------------------------------------------------------

    def _all_reduce(self, count: int, _in_place: bool) -> Case:
        array, compression = self._first[:count], self._settings.compression
        call = partial(self._client.all_reduce, array, self._op, compression=compression)
        return Case(call, [(array, self._mine())], [(array, self._reduced())], self._tolerated(compression))

    def _reduce(self, count: int, _in_place: bool) -> Case:
        array, root = self._first[:count], self._settings.root
        expected = self._reduced() if self._rank == root else self._mine()
        call = partial(self._client.reduce, array, root, self._op)
        return Case(call, [(array, self._mine())], [(array, expected)], self._tolerated())

    def _reduce_scatter(self, count: int, in_place: bool) -> Case:
        source = self._first[: count * self._size]
        parts = self._parts(source, count)
        target = parts[self._rank] if in_place else self._second[:count]
        filled = [(part, self._mine(salt)) for salt, part in enumerate(parts)]
        call = partial(self._client.reduce_scatter_tensor, target, source, self._op)
        return Case(call, filled, [(target, self._reduced(self._rank))], self._tolerated())

    # --- moving ------------------------------------------------------------------------------------------------------

    def _broadcast(self, count: int, _in_place: bool) -> Case:
        client, array, root = self._client, self._first[:count], self._settings.root
        filled = [(array, sent(self._rank, self._dtype))]
        return Case(partial(client.broadcast, array, root), filled, [(array, sent(root, self._dtype))])

    def _all_gather(self, count: int, in_place: bool) -> Case:
        client, target = self._client, self._first[: count * self._size]
        parts = self._parts(target, count)
        source = parts[self._rank] if in_place else self._second[:count]
        expected = [(part, sent(rank, self._dtype)) for rank, part in enumerate(parts)]
        filled = [(source, sent(self._rank, self._dtype))]
        return Case(partial(client.all_gather_into_tensor, target, source), filled, expected)

    def _all_to_all(self, count: int, in_place: bool) -> Case:
        client, source = self._client, self._first[: count * self._size]
        target = source if in_place else self._second[: count * self._size]
        filled = [(part, sent(self._rank, self._dtype, to)) for to, part in enumerate(self._parts(source, count))]
        arrived = enumerate(self._parts(target, count))
        expected = [(part, sent(rank, self._dtype, self._rank)) for rank, part in arrived]
        return Case(partial(client.all_to_all_single, target, source), filled, expected)

    def _gather(self, count: int, in_place: bool) -> Case:
        client, root = self._client, self._settings.root
        parts = self._parts(self._first[: count * self._size], count)
        source = parts[self._rank] if in_place else self._second[:count]
        filled = [(source, sent(self._rank, self._dtype))]
        if self._rank != root:
            return Case(partial(client.gather, source, None, root), filled, filled)
        expected = [(part, sent(rank, self._dtype)) for rank, part in enumerate(parts)]
        return Case(partial(client.gather, source, parts, root), filled, expected)

    def _scatter(self, count: int, in_place: bool) -> Case:
        client, root = self._client, self._settings.root
        parts = self._parts(self._first[: count * self._size], count)
        target = parts[self._rank] if in_place else self._second[:count]
        expected = [(target, sent(root, self._dtype, self._rank))]
        if self._rank != root:
            return Case(partial(client.scatter, target, None, root), [], expected)
        filled = [(part, sent(root, self._dtype, rank)) for rank, part in enumerate(parts)]
        return Case(partial(client.scatter, target, parts, root), filled, expected)

    def _sendrecv(self, count: int, _in_place: bool) -> Case:
        client, source, target = self._client, self._first[:count], self._second[:count]
        after, before = (self._rank + 1) % self._size, (self._rank - 1) % self._size

        async def exchange() -> None:
            sending = client.isend(source, after)
            await client.recv(target, before)
            await sending

        return Case(exchange, [(source, sent(self._rank, self._dtype))], [(target, sent(before, self._dtype))])

    def _barrier(self, _count: int, _in_place: bool) -> Case:
        return Case(self._client.barrier, [], [])


def _needs_two(operation: Operation) -> bool:
    return "out_of_place" in operation.forms and operation.name != "barrier"


def _elements(operation: Operation, settings: Settings, ranks: int) -> int:
    """Elements of the larger buffer at the largest size."""
    return max(counts(operation, settings, ranks), default=0) * (ranks if operation.parted else 1)
