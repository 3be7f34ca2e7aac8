"""What one member calls, as the other members see it, and whether all called the same.

Every operation posts a `Signature` before anything else moves. `agree` compares those of all members: it is pure and
gives the same answer on every rank and host, so that all of them raise the same error without asking anybody.
"""

import hashlib
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import Any

import msgpack

from hocket.protocol.compression import check_compression
from hocket.protocol.errors import (
    AbortedError,
    HocketError,
    MismatchError,
    Ranks,
    SerialiseError,
    WireError,
    error_from_facts,
    error_to_facts,
)
from hocket.protocol.limits import SIGNATURE_NBYTES
from hocket.protocol.reduce_ops import ReduceOp


class Family(IntEnum):
    """How the bytes of an operation move, whatever its name."""

    SYNC = 0
    """nothing moves"""
    SHARED = 1
    """each contributor posts one piece, which all readers read"""
    PERSONAL = 2
    """each contributor posts a piece for each member"""
    REDUCE = 3
    """equal pieces are reduced; all or the root read the result"""
    REDUCE_SCATTER = 4
    """equal lists of pieces are reduced; each member reads the result of its own"""


FAMILY: dict[str, Family] = {
    "barrier": Family.SYNC,
    "broadcast": Family.SHARED,
    "all_gather": Family.SHARED,
    "all_gather_into_tensor": Family.SHARED,
    "all_gather_coalesced": Family.SHARED,
    "gather": Family.SHARED,
    "scan": Family.SHARED,
    "exscan": Family.SHARED,
    "broadcast_object_list": Family.SHARED,
    "all_gather_object": Family.SHARED,
    "gather_object": Family.SHARED,
    "scatter": Family.PERSONAL,
    "scatter_object_list": Family.PERSONAL,
    "all_to_all": Family.PERSONAL,
    "all_to_all_single": Family.PERSONAL,
    "all_reduce": Family.REDUCE,
    "all_reduce_coalesced": Family.REDUCE,
    "reduce": Family.REDUCE,
    "reduce_scatter": Family.REDUCE_SCATTER,
    "reduce_scatter_tensor": Family.REDUCE_SCATTER,
}
"""Every collective by its public name."""

PREFIX = frozenset({"scan", "exscan"})
"""Kinds whose member r reads the pieces of members up to r and reduces them itself."""
OBJECTS = frozenset(kind for kind in FAMILY if "object" in kind)
"""Kinds whose receivers learn the sizes from the senders' signatures."""
SAME_SHAPES = PREFIX | {"broadcast", "broadcast_object_list", "all_gather_coalesced"}
"""Kinds beside the reductions whose members must agree on every shape (for lists of objects: on their length)."""
NO_ROOT = -1


@dataclass(frozen=True, slots=True)
class Signature:
    """One member's call.

    ``sends`` are the nbytes that this member contributes: one number where all get the same, else one for each
    member; empty where it contributes nothing. ``recvs`` are the nbytes that it expects from each member (SHARED,
    PERSONAL) or of the result (REDUCE, REDUCE_SCATTER: one number); empty where it expects nothing or anything.
    ``shapes`` are the shapes behind them, for the comparison of reductions and for the reader of an error.
    """

    kind: str
    dtype: str = ""
    itemsize: int = 1
    shapes: tuple[tuple[int, ...], ...] = ()
    op: str = ""
    root: int = NO_ROOT
    sends: tuple[int, ...] = ()
    recvs: tuple[int, ...] = ()
    error: dict[str, Any] | None = None
    """set where the call itself was wrong or was withdrawn: the others must not wait for it"""
    compression: str = ""
    """what `hocket.protocol.compression.Compression` makes of it; empty where nothing is compressed"""

    def __str__(self) -> str:
        parts = [f"{self.dtype}{'+'.join(str(list(shape)) for shape in self.shapes)}"]
        parts += [f"op={self.op}" if self.op else "", f"root={self.root}" if self.root != NO_ROOT else ""]
        parts.append(f"compression={self.compression}" if self.compression else "")
        return f"{self.kind}({', '.join(part for part in parts if part)})"


def withdrawn(kind: str, error: HocketError) -> Signature:
    """The signature of a call that ended before it began, with its reason."""
    return Signature(kind, error=error_to_facts(error))


def encode_signature(signature: Signature) -> bytes:
    """The signature's bytes for the board and the wire; `MismatchError`'s cousins read them back."""
    data: bytes = msgpack.packb([getattr(signature, name) for name in Signature.__slots__])
    if len(data) > SIGNATURE_NBYTES - 8:
        raise WireError(
            f"{signature.kind}: its sizes need {len(data)} bytes, the board has room for {SIGNATURE_NBYTES - 8}"
        )
    return data


@lru_cache(4096)
def call_word(encoded: bytes) -> int:
    """64 bits that stand for a signature: members compare these, and the signatures themselves only where they differ.

    A cryptographic hash (RFC 7693), for two signatures that ought to be told apart must not be given one word.
    """
    return int.from_bytes(hashlib.blake2b(encoded, digest_size=8).digest(), "little")


@lru_cache(4096)
def decode_signature(data: bytes) -> Signature:
    """Reads `encode_signature`'s bytes. Raises `WireError` on anything else."""
    try:
        kind, dtype, itemsize, shapes, op, root, sends, recvs, error, compression = msgpack.unpackb(data)
        if kind not in FAMILY:
            raise ValueError(f"unknown operation {kind!r}")
        sizes = (tuple(sends), tuple(recvs), tuple(map(tuple, shapes)))
        if itemsize < 1 or any(not isinstance(size, int) or size < 0 for part in sizes[:2] for size in part):
            raise ValueError("sizes must be whole numbers from 0 up")
        plain = (type(dtype), type(op), type(root), type(compression)) == (str, str, int, str)
        if not plain or not isinstance(error, dict | None):
            raise TypeError("a field is of another type")
        if compression:
            check_compression(kind, dtype, ReduceOp.from_wire(op), compression)
    except (ValueError, TypeError, msgpack.exceptions.UnpackException) as broken:
        raise WireError(f"not a signature: {data[:64]!r}") from broken
    return Signature(kind, dtype, itemsize, sizes[2], op, root, sizes[0], sizes[1], error, compression)


@dataclass(frozen=True, slots=True)
class Agreement:
    """What all members agreed to do: the family, and for each member what it contributes."""

    family: Family
    signatures: tuple[Signature, ...]

    @property
    def first(self) -> Signature:
        """The first member's signature, whose common part is everybody's."""
        return self.signatures[0]


@lru_cache(512)
def agree(encoded: tuple[bytes, ...]) -> Agreement | HocketError:
    """Compares the signatures of all members, in rank order.

    Returns:
        The agreement, or the error that every member raises (a fresh copy of it: see `error_from_facts`).
    """
    signatures = tuple(decode_signature(data) for data in encoded)
    for rank, signature in enumerate(signatures):
        if signature.error is not None:
            return withdrawn_error(rank, signature)
    common = [_common(signature) for signature in signatures]
    if any(other != common[0] for other in common[1:]):
        return MismatchError(_calls(signatures))
    why = _sizes_differ(FAMILY[signatures[0].kind], signatures)
    if why:
        return MismatchError(_calls(signatures), why)
    return Agreement(FAMILY[signatures[0].kind], signatures)


def withdrawn_error(rank: int, signature: Signature) -> HocketError:
    """What the others raise for a member whose call was wrong: its error where that names the rank, else aborted."""
    assert signature.error is not None
    cause = error_from_facts(signature.error)
    if isinstance(cause, SerialiseError) or type(cause) is AbortedError:
        return cause
    return AbortedError(rank, f"{signature.kind}: {cause.sentence()}")


def _common(signature: Signature) -> tuple[Any, ...]:
    alike = FAMILY[signature.kind] is Family.REDUCE or signature.kind in SAME_SHAPES
    shapes = signature.shapes if alike else ()
    return signature.kind, signature.dtype, signature.op, signature.root, shapes, signature.compression


def _calls(signatures: tuple[Signature, ...]) -> tuple[tuple[Ranks, str], ...]:
    calls: dict[str, list[int]] = {}
    for rank, signature in enumerate(signatures):
        calls.setdefault(str(signature), []).append(rank)
    return tuple((tuple(ranks), call) for call, ranks in calls.items())


def _sizes_differ(family: Family, signatures: tuple[Signature, ...]) -> str:
    """A sentence about the first two members whose sizes do not fit, or nothing."""
    size = len(signatures)
    if family is Family.REDUCE_SCATTER:
        for rank, signature in enumerate(signatures):
            if signature.sends != signatures[0].sends:
                return f"rank {rank}'s input has other parts than rank 0's"
            if signature.recvs and signature.recvs[0] != signature.sends[rank]:
                have, want = signature.recvs[0] // signature.itemsize, signature.sends[rank] // signature.itemsize
                return f"rank {rank} gets {want} elements, its output has {have}"
        return ""
    if family not in (Family.SHARED, Family.PERSONAL):
        return ""
    for reader in range(size):
        expected = signatures[reader].recvs
        if not expected:
            continue
        for sender in range(size):
            sent = _sent(signatures[sender], reader)
            if sent is not None and sent != expected[sender]:
                unit = signatures[sender].itemsize
                return (
                    f"rank {sender} sends {sent // unit} to rank {reader}, "
                    f"rank {reader} expects {expected[sender] // unit}"
                )
    return ""


def _sent(signature: Signature, reader: int) -> int | None:
    if not signature.sends:
        return 0
    return signature.sends[0] if FAMILY[signature.kind] is Family.SHARED else signature.sends[reader]
