"""What a small operation sends from host to host: all that a host owes another one, along with its members' signatures.

One exchange does both, so that a small operation costs a single message each way. Whether a host sends its share like
this follows from its own members' signatures alone, for that is all it knows then; the others come to the same answer
from the same signatures. The operation ends in this manner if all hosts have sent so.

    reductions     the host's members reduced, in the accumulator's dtype: the whole, or the parts of the other's
    moves          the pieces of its members that the other's members read, one after the other
"""

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np

from hocket.fabric.board import Board, Bytes, stage
from hocket.fabric.dtypes import numpy_dtype
from hocket.fabric.kernels import Array, combine, reduce_into
from hocket.fabric.plan import Plan, Shape, shape_for
from hocket.fabric.program import result_view
from hocket.protocol.dtypes import accumulator
from hocket.protocol.errors import WireError
from hocket.protocol.limits import SMALL_NBYTES
from hocket.protocol.reduce_ops import ReduceOp
from hocket.protocol.signature import FAMILY, Family, Signature, decode_signature
from hocket.worker.compression import Feedback, pack, unpack

Ranks = tuple[int, ...]
Texts = tuple[bytes, ...]


@lru_cache(1024)
def small_shapes(texts: Texts, size: int, block_nbytes: int) -> tuple[Shape, ...] | None:
    """What the members of a host contribute, if that is little enough; None where it takes blocks.

    Args:
        texts: signatures of all members of the host.
        size: of the group.

    Raises:
        WireError: a text is no signature.
    """
    signatures = [decode_signature(text) for text in texts]
    first, family = signatures[0], FAMILY[signatures[0].kind]
    parts = size if family in (Family.PERSONAL, Family.REDUCE_SCATTER) else 1
    reduces = family in (Family.REDUCE, Family.REDUCE_SCATTER)
    for each in signatures:
        if (
            each.error is not None
            or each.kind != first.kind
            or len(each.sends) not in (0, parts)
            or (reduces and _reduction(each) != _reduction(first))
        ):
            return None  # their calls are withdrawn or do not match, which everybody will find
    nbytes = [sum(each.sends) for each in signatures]
    if (max(nbytes) if reduces else sum(nbytes)) > SMALL_NBYTES:
        return None
    shapes = tuple(shape_for(each, size, block_nbytes) for each in signatures)
    return shapes if max(shape.owed for shape in shapes) <= 1 else None


def _reduction(signature: Signature) -> tuple[object, ...]:
    return signature.dtype, signature.op, signature.sends, signature.compression


class Carrier:
    """Makes and takes what hosts carry to each other, for one board."""

    def __init__(self, board: Board, members: tuple[Ranks, ...], me: int, feedback: Feedback) -> None:
        self.board, self.members, self.me = board, members, me
        self._feedback = feedback
        self.locals = members[me]

    def shapes(self, host: int, texts: Texts) -> tuple[Shape, ...] | None:
        """Those of a host's members; None where the host carries nothing."""
        assert len(texts) == len(self.members[host])
        return small_shapes(texts, self.board.size, self.board.block_nbytes)

    def is_ready(self, shapes: tuple[Shape, ...], number: int) -> bool:
        """Whether all members here have posted what they owe."""
        return all(
            shape.owed == 0 or self.board.posted(member) >= stage(number, 1)
            for member, shape in zip(self.locals, shapes, strict=True)
        )

    def made_for(self, shapes: tuple[Shape, ...], number: int) -> Callable[[int], bytes]:
        """What members here owe to those of another host, by its index."""
        first = shapes[0]
        if first.owed == 0 and first.family in (Family.SYNC, Family.REDUCE):
            return lambda _host: b""
        if first.family is Family.REDUCE:
            acc = self._reduced(first, number, 0)
            whole = pack(first.signature, acc, self._feedback) if first.signature.compression else acc.tobytes()
            return lambda _host: whole
        if first.family is Family.REDUCE_SCATTER:
            return lambda host: b"".join(self._reduced(first, number, part).tobytes() for part in self.members[host])
        if first.family is Family.SHARED:
            pieces = [self._piece(shape, member, 0, number) for shape, member in zip(shapes, self.locals, strict=True)]
            whole = b"".join(piece.tobytes() for piece in pieces)
            root = first.signature.root
            converging = first.signature.kind in ("gather", "gather_object")
            return lambda host: b"" if converging and root not in self.members[host] else whole
        return lambda host: b"".join(
            self._piece(shape, member, reader, number).tobytes()
            for shape, member in zip(shapes, self.locals, strict=True)
            for reader in self.members[host]
        )

    def _piece(self, shape: Shape, member: int, reader: int, number: int) -> Bytes:
        place, nbytes = shape.place(reader), shape.piece(0, reader)[1]
        return self.board.slot(member, number)[place : place + nbytes]

    def _reduced(self, shape: Shape, number: int, part: int) -> Array:
        """The members here reduced, in the accumulator's dtype."""
        signature, op = shape.signature, ReduceOp.from_wire(shape.signature.op)
        dtype, wide = numpy_dtype(signature.dtype), numpy_dtype(accumulator(signature.dtype, op))
        inputs = [self._piece(shape, member, part, number).view(dtype) for member in self.locals]
        acc: Array = np.empty(len(inputs[0]), wide)
        if len(acc):
            reduce_into(acc, inputs, op)
        return acc

    def finish(self, plan: Plan, number: int, carried: Sequence[bytes]) -> None:
        """Puts all hosts' shares where the members here read them.

        Args:
            carried: by host, in the order of hosts; ours is made as for the others.

        Raises:
            WireError: a host has sent another number of bytes than it owes.
        """
        if plan.first.compression:
            unpack(
                plan.first,
                carried,
                result_view(self.board, plan, number, 0, plan.first.sends[0] // plan.first.itemsize),
            )
        elif plan.family is Family.REDUCE:
            self._combine(plan, number, (0,), carried)
        elif plan.family is Family.REDUCE_SCATTER:
            self._combine(plan, number, self.locals, carried)
        elif plan.family in (Family.SHARED, Family.PERSONAL):
            for host, data in enumerate(carried):
                if host != self.me:
                    self._place(plan, number, host, data)

    def _combine(self, plan: Plan, number: int, parts: Ranks, carried: Sequence[bytes]) -> None:
        """In the order of hosts, which is the same everywhere."""
        shape, start = plan.shapes[0], 0
        for part in parts:
            acc = result_view(self.board, plan, number, part, shape.piece(0, part)[1] // shape.signature.itemsize)
            stop = start + acc.nbytes
            for host, data in enumerate(carried):
                if len(data) < stop:
                    raise _another_size(host, data, stop)
                share = np.frombuffer(data, np.uint8)[start:stop]
                if host == 0:
                    np.copyto(acc.view(np.uint8), share)
                elif len(acc):
                    combine(acc, share.view(acc.dtype), plan.op)
            start = stop
        for host, data in enumerate(carried):
            if len(data) != start:
                raise _another_size(host, data, start)

    def _place(self, plan: Plan, number: int, host: int, data: bytes) -> None:
        if plan.kind in ("gather", "gather_object") and plan.root not in self.locals:
            return
        readers = self.locals if plan.family is Family.PERSONAL else (0,)
        pieces = [self._piece(plan.shapes[m], m, reader, number) for m in self.members[host] for reader in readers]
        if sum(map(len, pieces)) != len(data):
            raise _another_size(host, data, sum(map(len, pieces)))
        start = 0
        for piece in pieces:
            piece[:] = np.frombuffer(data, np.uint8)[start : start + len(piece)]
            start += len(piece)


def _another_size(host: int, data: bytes, expected: int) -> WireError:
    return WireError(f"host {host} of the group sent {len(data)} bytes with its signatures, {expected} were expected")
