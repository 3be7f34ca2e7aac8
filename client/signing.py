"""Signatures of calls, made once and kept: a program calls the same operations on the same shapes over and over."""

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Final

from hocket.client.arrays import Array
from hocket.client.consistency import Shape, check_reduction
from hocket.fabric.dtypes import AnyDtype, wire_dtype
from hocket.protocol.compression import check_compression
from hocket.protocol.errors import ArgumentError, WireError
from hocket.protocol.reduce_ops import ReduceOp
from hocket.protocol.signature import Signature, encode_signature

Sizes = tuple[int, ...]
Signed = tuple[Signature, bytes]
"""A signature, and its bytes."""

_KEPT_SIZES: Final = 256
"""Longest list of sizes for which a signature is kept: in large groups they would take too much memory."""
_LISTED_SHAPES: Final = 64
"""Members up to which the shapes of a list are told to the others, who only show them in errors."""


def sign(
    kind: str, dtype: AnyDtype, shapes: tuple[Shape, ...], op: str, root: int, sends: Sizes, recvs: Sizes
) -> Signed:
    """The signature of a call that moves elements of ``dtype``.

    Raises:
        UnsupportedError: the dtype does not travel.
        ArgumentError: so many arrays, or members, that the signature is too long.
    """
    make = _sign_kept if len(sends) + len(recvs) + len(shapes) <= _KEPT_SIZES else _sign
    return make(kind, dtype, shapes, op, root, sends, recvs)


@lru_cache(512)
def sign_reduction(
    kind: str, dtype: AnyDtype, shapes: tuple[Shape, ...], op: str, root: int, compression: str = ""
) -> Signed:
    """The signature of a call that reduces whole tensors of ``shapes``, with hosts that compress, or not (``""``).

    Raises:
        UnsupportedError: the dtype does not reduce by ``op``, or not with this compression.
        ArgumentError: the shapes do not, or are too many.
    """
    check_reduction(dtype, op, shapes, "tensor")
    check_compression(kind, wire_dtype(dtype), ReduceOp.from_wire(op), compression)
    nbytes = sum(map(prod, shapes)) * dtype.itemsize
    return _sign(kind, dtype, shapes, op, root, (nbytes,), (), compression)


@lru_cache(1)
def sign_barrier() -> Signed:
    """The signature of a call that moves nothing."""
    signature = Signature("barrier")
    return signature, encode_signature(signature)


def _sign(
    kind: str,
    dtype: AnyDtype,
    shapes: tuple[Shape, ...],
    op: str,
    root: int,
    sends: Sizes,
    recvs: Sizes,
    compression: str = "",
) -> Signed:
    itemsize = max(dtype.itemsize, 1)
    signature = Signature(kind, wire_dtype(dtype), itemsize, shapes, op, root, sends, recvs, None, compression)
    try:
        return signature, encode_signature(signature)
    except WireError as limit:
        allowed = "fewer arrays in one call, or a smaller group"
        raise ArgumentError("tensor", f"too long to describe ({limit})", allowed) from limit


_sign_kept = lru_cache(512)(_sign)


def only(root: int, nbytes: int, size: int) -> Sizes:
    """Sizes by member: ``nbytes`` from the root, nothing from the others."""
    sizes = [0] * size
    sizes[root] = nbytes
    return tuple(sizes)


def list_shapes(arrays: Sequence[Array]) -> tuple[Shape, ...]:
    """The shapes of a list as others are told them: one if all are the same, at most as many as anybody will read."""
    shapes = tuple(array.shape for array in arrays)
    return shapes[:1] if len(set(shapes)) == 1 else shapes[:_LISTED_SHAPES]
