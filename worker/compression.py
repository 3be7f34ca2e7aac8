"""Reductions among hosts that send less than they have: partial sums go encoded, and all decode the same bytes.

    two hosts    each sends its encoded sum to the other, and both add the two up in the order of hosts
    more         each host gets everybody's encoded sum of one segment, adds them up in the order of hosts, and sends
                 the encoded result to everybody

Also its own part each host takes as it is after decoding, so that all arrive at the same bits. A host sends 2(p-1)/p
encoded arrays; with more than two hosts what comes out has been rounded once more.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from hocket.fabric.board import Bytes
from hocket.fabric.compression import BLOCK_ELEMENTS, Floats, decode, encode, encoded_nbytes
from hocket.fabric.dtypes import numpy_dtype
from hocket.protocol.compression import Compression
from hocket.protocol.dtypes import accumulator
from hocket.protocol.errors import UnsupportedError, WireError
from hocket.protocol.limits import FEEDBACK_NBYTES
from hocket.protocol.reduce_ops import ReduceOp
from hocket.protocol.signature import Signature
from hocket.worker.exchange import Exchange
from hocket.worker.schedules.choose import Choice, Kind, Link, choose

DIRECT_HOSTS = 2
"""Two hosts send as much either way. Three would send half as much again: 16 MiB at 100 Mbit/s took them 703 ms direct,
464 ms in segments, and 1863 ms uncompressed."""
SLOW_LINK = Link(bandwidth_Bps=125e6)
"""What schedules are chosen for here (1 Gbit/s): whoever has a fast one does not compress."""
_ENTRY_NBYTES = 256
"""What a name costs beside its array, for the count."""


class Phase(NamedTuple):
    """A schedule, and the memory that its chunks stand for."""

    choice: Choice
    views_of: Callable[[int], list[Bytes]]


@dataclass(slots=True)
class Feedback:
    """What rounding has left out of a channel's compressed sums on this host, by the names that callers gave."""

    limit_nbytes: int = FEEDBACK_NBYTES
    _arrays: dict[str, Floats] = field(default_factory=dict)
    _used: set[str] = field(default_factory=set)
    _released: bool = False

    @property
    def nbytes(self) -> int:
        """What all of it takes."""
        return sum(array.nbytes + _ENTRY_NBYTES for array in self._arrays.values())

    def array(self, signature: Signature) -> Floats | None:
        """What is still owed to an operation: an accumulator for all its elements, to be updated; None: nothing.

        Raises:
            UnsupportedError: it would be more than the limit. All hosts, which see the same operations, come to that.
        """
        name = Compression.from_wire(signature.compression).error_feedback
        if not name or self._released:
            return None
        dtype = numpy_dtype(accumulator(signature.dtype, ReduceOp.from_wire(signature.op)))
        elements = sum(signature.sends) // signature.itemsize
        found = self._arrays.get(name)
        if found is None or found.dtype != dtype or len(found) != elements:
            self._arrays.pop(name, None)
            needed = elements * dtype.itemsize + _ENTRY_NBYTES
            if self.nbytes + needed > self.limit_nbytes:
                does_not = f"error feedback {name!r} of {needed} bytes beside {self.nbytes} of other names"
                hint = f"{self.limit_nbytes} is what a channel remembers; use fewer names, another channel, or none"
                raise UnsupportedError(signature.dtype, does_not, hint)
            found = self._arrays[name] = np.zeros(elements, dtype)
        self._used.add(name)
        return found

    def keep(self) -> None:
        """The operation has sent what it should: what it left out is owed to the next one of its name."""
        self._used.clear()

    def drop(self) -> None:
        """The operation has ended in some other way, or not here: of its name nothing is known any more."""
        for name in self._used:
            self._arrays.pop(name, None)
        self._used.clear()

    def release(self) -> None:
        """The group has ended: there is no next operation that anything could be owed to."""
        self._released = True
        self._arrays.clear()


# --- small operations: one message -----------------------------------------------------------------------------------


def pack(signature: Signature, acc: Floats, feedback: Feedback) -> bytes:
    """This host's whole sum, encoded. ``acc`` is scratch afterwards."""
    codec = Compression.from_wire(signature.compression).codec
    return _encode_owing(codec, acc, feedback.array(signature)).tobytes()


def unpack(signature: Signature, partials: Sequence[bytes], acc: Floats) -> None:
    """Adds up the hosts' encoded sums, in their order. Raises `WireError` where one is of another length."""
    codec = Compression.from_wire(signature.compression).codec
    nbytes = encoded_nbytes(codec, len(acc), acc.itemsize)
    for partial in partials:
        if len(partial) != nbytes:
            raise WireError(f"a host sent {len(partial)} bytes of a compressed sum of {nbytes}")
    _decode_sum(codec, [np.frombuffer(partial, np.uint8) for partial in partials], acc)


# --- blocks of larger ones -------------------------------------------------------------------------------------------


def phases(exchange: Exchange, block: int, feedback: Feedback, me: int) -> Iterable[Phase]:
    """What the hosts do with a block: one phase where nothing is compressed, else as in `compressed`.

    Args:
        exchange: the operation.
        block: which block of it.
        feedback: what the channel remembers.
        me: index of this host.
    """
    first = exchange.plan.first
    if not first.compression:
        choice = exchange.choose(block)
        return [Phase(choice, exchange.views(block, choice))]
    start, acc = exchange.accumulator(block)
    owed = feedback.array(first)
    mine = None if owed is None else owed[start : start + len(acc)]
    return compressed(Compression.from_wire(first.compression).codec, acc, mine, len(exchange.members), me)


def compressed(codec: str, acc: Floats, owed: Floats | None, hosts: int, me: int) -> Iterator[Phase]:
    """The phases of one block, one after the other: each one's schedule is to be carried out before the next is taken.

    Args:
        codec: how sums are encoded.
        acc: this host's sum of the block; the sum of all hosts once the last phase is over.
        owed: what rounding has left out before, for these elements; updated. None: nothing is remembered.
        hosts: how many there are.
        me: this one's index.
    """
    return (_direct if hosts <= DIRECT_HOSTS else _in_segments)(codec, acc, owed, hosts, me)


def _direct(codec: str, acc: Floats, owed: Floats | None, hosts: int, me: int) -> Iterator[Phase]:
    nbytes = encoded_nbytes(codec, len(acc), acc.itemsize)
    rows = [np.empty(nbytes, np.uint8) for _ in range(hosts)]
    _encode_owing(codec, acc, owed, rows[me])
    yield Phase(choose(Kind.ALL_GATHER, nbytes * hosts, hosts, link=SLOW_LINK), lambda host: [rows[host]])
    _decode_sum(codec, rows, acc)


def _in_segments(codec: str, acc: Floats, owed: Floats | None, hosts: int, me: int) -> Iterator[Phase]:
    ends = [_segment_start(len(acc), host, hosts) for host in range(hosts + 1)]
    segments = [slice(start, stop) for start, stop in pairwise(ends)]
    sizes = [encoded_nbytes(codec, part.stop - part.start, acc.itemsize) for part in segments]
    cells: dict[int, Bytes] = {}

    def cell(pair: int) -> list[Bytes]:  # a host may pass on what is for others, so that it may hold any
        if pair not in cells:
            cells[pair] = np.empty(sizes[pair % hosts], np.uint8)
        return [cells[pair]]

    for host, part in enumerate(segments):
        _encode_owing(codec, acc[part], None if owed is None else owed[part], cell(me * hosts + host)[0])
    yield Phase(choose(Kind.ALL_TO_ALL, sum(sizes), hosts, link=SLOW_LINK), cell)
    mine = acc[segments[me]]
    _decode_sum(codec, [cell(host * hosts + me)[0] for host in range(hosts)], mine)
    rows = [np.empty(nbytes, np.uint8) for nbytes in sizes]
    encode(codec, mine, rows[me])
    if owed is not None:
        owed[segments[me]] += _left_out(codec, mine, rows[me])
    yield Phase(choose(Kind.ALL_GATHER, sum(sizes), hosts, link=SLOW_LINK), lambda host: [rows[host]])
    for part, row in zip(segments, rows, strict=True):
        decode(codec, row, acc[part])


def _segment_start(elements: int, host: int, hosts: int) -> int:
    """Where a host's segment begins: as even as whole blocks of the encoding allow."""
    at = elements * host // hosts
    return elements if host == hosts else at - at % BLOCK_ELEMENTS


def _encode_owing(codec: str, acc: Floats, owed: Floats | None, out: Bytes | None = None) -> Bytes:
    """Encodes a sum with what is owed to it, and notes what that leaves out."""
    if owed is None:
        return encode(codec, acc, out)
    with np.errstate(all="ignore"):
        acc += owed
    data = encode(codec, acc, out)
    owed[:] = _left_out(codec, acc, data)
    return data


def _left_out(codec: str, array: Floats, data: Bytes) -> Floats:
    """What ``data`` leave out of the array that they encode: nothing where that is not finite."""
    found = np.empty_like(array)
    decode(codec, data, found)
    with np.errstate(all="ignore"):
        np.subtract(array, found, out=found)
    finite = np.isfinite(found)
    if not finite.all():
        found[~finite] = 0
    return found


def _decode_sum(codec: str, rows: Sequence[Bytes], acc: Floats) -> None:
    for host, row in enumerate(rows):
        decode(codec, row, acc, add=host > 0)
