"""An agreed operation in the native core's terms: sizes and offsets as one member needs them, worked out once.

The core carries out what is copied or reduced block by block. Prefix reductions, and reduce_scatter between hosts, go
by the Python program, whose reductions are native all the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hocket.fabric.core import native
from hocket.fabric.plan import Plan
from hocket.protocol.signature import Family, call_word, encode_signature


@dataclass(frozen=True, slots=True)
class NativePlan:
    """What the core makes of a plan for one member, with what its callers need to know of it."""

    of: Plan
    """what was agreed on"""
    recvs: tuple[int, ...]
    """nbytes that this member has room for"""
    made: Any
    """`_core.Plan`"""
    nblocks: int
    nbytes: int
    """that this member moves: sends and receives"""


def native_plan(plan: Plan, member: int, recvs: tuple[int, ...], bridged: bool) -> NativePlan | None:
    """The plan for the core, or None where the core does not carry it out.

    Args:
        plan: agreed by all members.
        member: whose plan it is.
        recvs: nbytes that it has room for: from each member where pieces move, of the result where they are reduced;
            empty where it gets nothing.
        bridged: whether other hosts take part.
    """
    if (
        native is None
        or plan.prefix
        or plan.size > native.MEMBERS
        or (bridged and plan.family is Family.REDUCE_SCATTER)
    ):
        return None
    mine, me = plan.shapes[member], plan.shapes[member].signature
    manner, reads = native.MOVE, bool(recvs) and plan.reads(member)
    wholes = list(recvs) if reads else [0] * plan.size
    if reads and not mine.reduces and not _fits(plan, member, recvs):
        return None
    kernel = None
    if mine.reduces:
        manner = native.SHARED if bridged or shares(plan) else native.OWN
        if bridged and plan.eager:
            manner = native.BROUGHT
        part = member if plan.family is Family.REDUCE_SCATTER else 0
        wholes = [plan.first.sends[part]] * plan.size
        kernel = (plan.op.name, plan.op.factor or 0.0, plan.first.dtype)
    made = native.Plan(
        manner,
        member,
        encode_signature(me),
        reads,
        kernel,
        plan.first.itemsize,
        mine.unit,
        list(me.sends),
        [call_word(encode_signature(shape.signature)) for shape in plan.shapes],
        wholes,
        [shape.unit for shape in plan.shapes],
        [shape.place(member) for shape in plan.shapes],
        [shape.owed for shape in plan.shapes],
        [_origin(shape.signature.sends, member) for shape in plan.shapes],
    )
    return NativePlan(plan, recvs, made, plan.nblocks, sum(me.sends) + sum(recvs))


def _fits(plan: Plan, member: int, recvs: Sequence[int]) -> bool:
    """Whether there is room for exactly what comes, or none, from each member."""
    return len(recvs) == plan.size and all(
        room in (0, _sent(shape.signature.sends, member)) for room, shape in zip(recvs, plan.shapes, strict=True)
    )


def _sent(sends: Sequence[int], reader: int) -> int:
    return sends[reader] if len(sends) > 1 else sum(sends)


def _origin(sends: Sequence[int], reader: int) -> int:
    """Where the reader's part begins in the sender's memory, if that is all in one piece."""
    return sum(sends[:reader]) if len(sends) > 1 else 0


def shares(plan: Plan) -> bool:
    """Whether the members on one host reduce into the result slot, each its share, rather than each for itself."""
    return plan.family is Family.REDUCE and not plan.small
