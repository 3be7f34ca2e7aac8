"""What an agreed operation moves in which block: pure arithmetic on the signatures, the same on every rank and host.

An operation's data pass the board in *blocks*. In each block, every contributor's slot holds one *piece* (SHARED,
REDUCE) or one piece for each member side by side (PERSONAL, REDUCE_SCATTER).
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache

from hocket.protocol.dtypes import DTYPES, accumulator
from hocket.protocol.errors import HocketError
from hocket.protocol.limits import SMALL_NBYTES
from hocket.protocol.reduce_ops import ReduceOp
from hocket.protocol.signature import FAMILY, NO_ROOT, PREFIX, Family, Signature, agree

ALIGNED_NBYTES = 64
PAIR = 2
"""Reductions are cut at even elements, so that MINLOC's pairs stay together."""


@dataclass(frozen=True)
class Shape:
    """How one member's contribution is cut into blocks; it depends on that member's own signature alone."""

    signature: Signature
    size: int
    block_nbytes: int

    @cached_property
    def family(self) -> Family:
        """The operation's family."""
        return FAMILY[self.signature.kind]

    @cached_property
    def reduces(self) -> bool:
        """Whether the board holds results of reductions."""
        return self.family in (Family.REDUCE, Family.REDUCE_SCATTER)

    @cached_property
    def wide(self) -> int:
        """Nbytes of one element of the accumulator (of a moved element where nothing is reduced)."""
        if not self.reduces:
            return self.signature.itemsize
        return DTYPES[accumulator(self.signature.dtype, ReduceOp.from_wire(self.signature.op))].itemsize

    @cached_property
    def unit(self) -> int:
        """Nbytes of a whole piece."""
        parts = self.size if self.family in (Family.PERSONAL, Family.REDUCE_SCATTER) else 1
        if self.reduces:
            elements = self.block_nbytes // parts // max(self.wide, self.signature.itemsize)
            return max(elements - elements % (ALIGNED_NBYTES if elements >= ALIGNED_NBYTES else PAIR), PAIR) * (
                self.signature.itemsize
            )
        room = self.block_nbytes // parts
        grain = ALIGNED_NBYTES if room >= ALIGNED_NBYTES else 1
        if parts == 1 and self.signature.itemsize <= room:
            grain = self.signature.itemsize
        return room - room % grain

    @cached_property
    def owed(self) -> int:
        """Blocks that this member posts."""
        return -(-max(self.signature.sends, default=0) // self.unit)

    def piece(self, block: int, reader: int = 0) -> tuple[int, int]:
        """Offset and nbytes, in the contribution for ``reader``, of the piece that ``block`` moves."""
        sends = self.signature.sends
        if not sends:
            return 0, 0
        whole = sends[reader] if self.family in (Family.PERSONAL, Family.REDUCE_SCATTER) else sends[0]
        start = min(block * self.unit, whole)
        return start, min(self.unit, whole - start)

    def place(self, reader: int) -> int:
        """Offset in the slot of the piece for ``reader``."""
        return reader * self.unit if self.family in (Family.PERSONAL, Family.REDUCE_SCATTER) else 0

    def result_place(self, part: int) -> int:
        """Offset in the result slot of the reduced piece of ``part``, in the accumulator's dtype."""
        return self.place(part) // self.signature.itemsize * self.wide


@lru_cache(1024)
def shape_for(signature: Signature, size: int, block_nbytes: int) -> Shape:
    """The shape of a contribution."""
    return Shape(signature, size, block_nbytes)


@dataclass(frozen=True)
class Plan:
    """An agreed operation, cut into blocks."""

    shapes: tuple[Shape, ...]

    @cached_property
    def first(self) -> Signature:
        """The first member's signature; its common part is everybody's."""
        return self.shapes[0].signature

    @cached_property
    def kind(self) -> str:
        """The operation's public name."""
        return self.first.kind

    @cached_property
    def family(self) -> Family:
        """The operation's family."""
        return FAMILY[self.kind]

    @cached_property
    def size(self) -> int:
        """Number of members."""
        return len(self.shapes)

    @cached_property
    def root(self) -> int:
        """The root, or `NO_ROOT`."""
        return self.first.root

    @cached_property
    def op(self) -> ReduceOp:
        """The reduce op. Only for kinds that reduce."""
        return ReduceOp.from_wire(self.first.op)

    @cached_property
    def nblocks(self) -> int:
        """Blocks of the operation."""
        return max(shape.owed for shape in self.shapes)

    @cached_property
    def small(self) -> bool:
        """Whether every rank reduces the whole by itself, which saves one wait."""
        return self.nblocks <= 1 and sum(self.first.sends) <= SMALL_NBYTES

    @cached_property
    def eager(self) -> bool:
        """Whether, between hosts, the workers reduce, and send what they have along with the members' signatures.

        Like `small`, it follows from any one member's signature.
        """
        return self.small and self.shapes[0].reduces and self.nblocks == 1

    @cached_property
    def prefix(self) -> bool:
        """Whether it is a scan: readers reduce the pieces of the members before them."""
        return self.kind in PREFIX

    def reads(self, member: int) -> bool:
        """Whether the member receives anything of the moved pieces or the result."""
        if self.root == NO_ROOT or self.kind in (
            "broadcast",
            "broadcast_object_list",
            "scatter",
            "scatter_object_list",
        ):
            return True
        return member == self.root


@lru_cache(512)
def plan_for(encoded: tuple[bytes, ...], block_nbytes: int) -> Plan | HocketError:
    """The plan that all members' signatures agree on, or the error that all of them raise."""
    agreement = agree(encoded)
    if isinstance(agreement, HocketError):
        return agreement
    size = len(encoded)
    return Plan(tuple(shape_for(signature, size, block_nbytes) for signature in agreement.signatures))
