"""The arithmetic of reductions, on flat contiguous arrays.

A reduction goes through three steps, wherever its parts lie:

    reduce_into   the ranks' elements, in rank order, into an accumulator       (inside a host)
    combine       one host's accumulator with another's                         (between hosts, in either order)
    finish        the accumulator into the tensor's dtype, rounded once

The native core does it where there is one; `numpy_kernels` is the reference, and does it elsewhere. Both give the same
bits, on every rank: members of one group may have either.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from hocket.fabric import numpy_kernels
from hocket.fabric.core import native
from hocket.fabric.dtypes import AnyDtype, wire_dtype
from hocket.fabric.numpy_kernels import Array
from hocket.protocol.dtypes import check_reduce
from hocket.protocol.reduce_ops import LOCATING, ReduceOp

__all__ = ["Array", "combine", "finish", "reduce_into"]


@lru_cache(maxsize=1024)
def _checked(dtype: AnyDtype, op: str) -> str:
    """The dtype's name. Raises `UnsupportedError` where it does not reduce by the op of that name."""
    name = wire_dtype(dtype)
    check_reduce(name, ReduceOp(op, 1.0 if op == "PREMUL_SUM" else None))
    return name


def _bytes(array: Array) -> Array:
    """As bytes, for ml_dtypes' arrays export no buffer."""
    return array.view(np.uint8)


def reduce_into(out: Array, inputs: Sequence[Array], op: ReduceOp) -> None:
    """Folds ``inputs`` in their order into ``out``. `finish` must follow: AVG has not divided yet.

    Args:
        out: accumulator[n], see `hocket.protocol.dtypes.accumulator`. May be the very memory of ``inputs[0]``; may not
            overlap an input in any other way.
        inputs: at least one tensor[n], all of one dtype; for MINLOC and MAXLOC (value, index) pairs in a row.
        op: how they become one.

    Raises:
        UnsupportedError: the dtype does not reduce by ``op``.
    """
    name = _checked(inputs[0].dtype, op.name)
    assert len({len(out), *map(len, inputs)}) == 1, "a reduction of arrays of different lengths"
    assert op.name not in LOCATING or len(out) % 2 == 0, f"{op.name} of {len(out)} elements, which are not pairs"
    if native is None:
        numpy_kernels.reduce_into(out, inputs, op)
    else:
        native.reduce_into(_bytes(out), [_bytes(array) for array in inputs], op.name, op.factor, name)


def combine(acc: Array, other: Array, op: ReduceOp) -> None:
    """Makes of ``acc`` acc (op) other, the same bits as other (op) acc.

    Args:
        acc: accumulator[n], as `reduce_into` or `combine` left it.
        other: accumulator[n], likewise. Left alone; may not overlap ``acc``.
        op: how they become one.

    Raises:
        UnsupportedError: the dtype does not reduce by ``op``.
    """
    # Each element was multiplied by the factor when it became part of an accumulator.
    op = ReduceOp.SUM if op.name == "PREMUL_SUM" else op
    reduce_into(acc, (acc, other), op)


def finish(out: Array, acc: Array, op: ReduceOp, size: int) -> None:
    """Writes the reduction over ``size`` ranks to ``out``: AVG divides, logical ops become 0 or 1, floats are rounded.

    Args:
        out: tensor[n]. May be the very memory of ``acc`` where they have one dtype.
        acc: accumulator[n]. Left alone unless ``out`` is its memory.
        op: how its elements became one.
        size: how many ranks took part.

    Raises:
        UnsupportedError: the dtype does not reduce by ``op``.
    """
    if native is None:
        numpy_kernels.finish(out, acc, op, size)
    else:
        name = _checked(out.dtype, op.name)
        native.finish(_bytes(out), (_bytes(acc),), op.name, op.factor, name, size)
