"""The worker on the board for a rank that has no shared memory: the same program, with bytes from its connection."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hocket.fabric.board import Bytes
from hocket.fabric.lane import Lane
from hocket.fabric.operation import Operation
from hocket.fabric.plan import Shape, shape_for
from hocket.protocol.dtypes import DTYPES
from hocket.protocol.errors import HocketError, WireError, error_from_facts, error_to_facts
from hocket.protocol.messages import Done, Message, Submit
from hocket.protocol.signature import OBJECTS, Family, Signature, decode_signature

Reply = Callable[[Message, list[memoryview]], None]


@dataclass(slots=True)
class Incoming:
    """The pieces of a `Submit` while they arrive."""

    sends: list[Bytes]

    @classmethod
    def for_submit(cls, submit: Submit, nbytes: int) -> "Incoming":
        """Room for the pieces. Raises `WireError` where the sizes do not add up."""
        if min(submit.sends, default=0) < 0 or sum(submit.sends) != nbytes:
            raise WireError(f"an operation announces pieces of {submit.sends} bytes, {nbytes} come")
        return cls(_room(submit.sends))


def _room(sizes: tuple[int, ...]) -> list[Bytes]:
    try:
        return [np.empty(size, np.uint8) for size in sizes]
    except (MemoryError, ValueError) as broken:
        raise WireError(f"there is no room for pieces of {sizes} bytes") from broken


def _check(message: Submit, signature: Signature, shape: Shape) -> None:
    """Raises `WireError` for a call that no client makes, before the other members' programs meet it."""
    many = shape.family in (Family.PERSONAL, Family.REDUCE_SCATTER)
    if message.sends != signature.sends:
        raise WireError(f"pieces of {message.sends} bytes for a call that sends {signature.sends}")
    if len(signature.sends) not in (0, shape.size if many else 1):
        raise WireError(f"{signature.kind} in {len(signature.sends)} pieces among {shape.size} members")
    if shape.reduces and (
        signature.dtype not in DTYPES
        or signature.itemsize != DTYPES[signature.dtype].itemsize
        or any(nbytes % signature.itemsize for nbytes in signature.sends)
    ):
        raise WireError(f"{signature}: {signature.sends} bytes in elements of {signature.itemsize}")
    _ = shape.owed  # asks for the reduce op, which may be none


class StandIn:
    """One remote rank in one channel."""

    def __init__(self, lane: Lane, group: int, reply: Reply) -> None:
        self.lane = lane
        self._group, self._reply = group, reply
        self.operations: dict[int, Operation] = {}

    def submit(self, message: Submit, incoming: Incoming | None) -> None:
        """Starts a remote rank's operation. A withdrawn one only takes its number.

        Raises:
            WireError: its signature or sizes make no sense.
        """
        incoming = incoming or Incoming.for_submit(message, 0)
        signature, board = decode_signature(message.signature), self.lane.seat.board
        if signature.error is None:
            _check(message, signature, shape_for(signature, board.size, board.block_nbytes))
        recvs: list[Bytes] | None = _room(message.recvs)
        keeps = signature.kind == "broadcast_object_list" and signature.root == self.lane.seat.member
        if signature.kind in OBJECTS and not keeps:
            recvs = None
        elif signature.kind == "exscan" and self.lane.seat.member == 0:
            recvs = []  # rank 0's array stays as it is
        limit_s = message.timeout_s if message.timeout_s > 0 else 0.0  # also where it is not a number
        op = Operation(
            signature.kind, message.signature, incoming.sends, recvs, limit_s, lambda error: self._ended(op, error)
        )
        if signature.error is not None:
            op.error = error_from_facts(signature.error)
        self.lane.submit(op)
        if not op.over:
            self.operations[op.number] = op

    def _ended(self, op: Operation, error: HocketError | None) -> None:
        self.operations.pop(op.number, None)
        recvs = (op.recvs or []) if error is None else []
        facts = None if error is None else error_to_facts(error)
        done = Done(self._group, self.lane.channel, op.number, tuple(len(part) for part in recvs), facts)
        self._reply(done, [part.data for part in recvs if len(part)])
