"""What the arrays of one call must be to one another, checked before anything is sent.

Whatever contradicts itself within one call is the caller's mistake alone: an `ArgumentError` that names both sides.
What only contradicts other members' calls is found by `hocket.protocol.signature.agree`.
"""

import operator
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import combinations
from math import prod
from typing import Any, Final, cast

import numpy as np

from hocket.client.arrays import Array, FlatBytes, as_input, as_output
from hocket.fabric.dtypes import AnyDtype, wire_dtype
from hocket.protocol.dtypes import check_reduce
from hocket.protocol.errors import ArgumentError, ArgumentTypeError
from hocket.protocol.reduce_ops import LOCATING, NAMES, ReduceOp

Shape = tuple[int, ...]

_OVERLAP_WORK: Final = 10_000
"""Steps after which numpy gives up on whether two strided arrays share an element."""
_FEW: Final = 16
"""Up to here asking about each pair of arrays is faster than to look up and sort their addresses."""
_OPS: Final = f"a ReduceOp: ReduceOp.{', ReduceOp.'.join(sorted(NAMES - {'PREMUL_SUM'}))}, ReduceOp.PREMUL_SUM(factor)"


# --- lists -----------------------------------------------------------------------------------------------------------


def as_list(value: object, argument: str, size: int | None = None, items: str = "arrays") -> Sequence[Any]:
    """``value`` if it is a list or tuple, of ``size`` entries (None: of any number).

    Raises:
        ArgumentTypeError: it is something else.
        ArgumentError: it has another length.
    """
    if not isinstance(value, list | tuple):
        many = "" if size is None else f" of {size}"
        given = "None" if value is None else f"of type {type(value).__name__}"
        raise ArgumentTypeError(argument, given, f"a list{many} {items}")
    if size is not None and len(value) != size:
        given = f"a {type(value).__name__} of {len(value)} {items}"
        raise ArgumentError(argument, given, f"a list of {size} {items}, one for each member of the group")
    return value


def take_inputs(value: object, argument: str, size: int | None = None) -> list[Array]:
    """The caller's list of tensors to read from, one for each of ``size`` members (None: any number).

    Raises:
        ArgumentError: its length, or one of them (see `as_input`).
    """
    return [as_input(item, f"{argument}[{index}]") for index, item in enumerate(as_list(value, argument, size))]


def take_outputs(value: object, argument: str, size: int | None = None) -> list[Array]:
    """The caller's list of tensors to write to, one for each of ``size`` members (None: any number).

    Raises:
        ArgumentError: its length, or one of them (see `as_output`); two of them share memory.
    """
    arrays = [as_output(item, f"{argument}[{index}]") for index, item in enumerate(as_list(value, argument, size))]
    check_apart(arrays, [f"{argument}[{index}]" for index in range(len(arrays))])
    return arrays


# --- dtypes and reduce ops -------------------------------------------------------------------------------------------


def check_dtype(array: Array, argument: str, other: Array, other_argument: str) -> None:
    """Returns where both arrays have one dtype, byte order aside.

    Raises:
        ArgumentError: they have not; names both.
        UnsupportedError: one of the dtypes does not travel at all.
    """
    if array.dtype == other.dtype:
        return
    name, other_name = wire_dtype(array.dtype, argument), wire_dtype(other.dtype, other_argument)
    if name != other_name:
        raise ArgumentError(argument, f"of dtype {name}", f"{other_name}, the dtype of argument {other_argument!r}")


def check_dtypes(arrays: Sequence[Array], argument: str, other: Array, other_argument: str) -> None:
    """`check_dtype` for each entry of a list."""
    for index, array in enumerate(arrays):
        if array.dtype != other.dtype:
            check_dtype(array, f"{argument}[{index}]", other, other_argument)


def op_name(op: object) -> str:
    """A reduce op as it travels.

    Raises:
        ArgumentTypeError: it is none.
    """
    if isinstance(op, ReduceOp):
        return op.to_wire()
    raise ArgumentTypeError("op", f"of type {type(op).__name__} ({op!r:.40})", _OPS)


def check_reduction(dtype: AnyDtype, op: str, shapes: Sequence[Shape], argument: str) -> None:
    """Returns where arrays of these shapes reduce by ``op``.

    Raises:
        UnsupportedError: the dtype does not.
        ArgumentError: the op takes pairs, and the last dimension is not 2.
    """
    reduce_op = ReduceOp.from_wire(op)
    check_reduce(wire_dtype(dtype, argument), reduce_op)
    if reduce_op.name in LOCATING:
        for shape in shapes:
            if shape[-1:] != (2,):
                allowed = f"for {op} an array of (value, index) pairs, whose last dimension is 2"
                raise ArgumentError(argument, f"of shape {list(shape)}", allowed)


# --- sizes -----------------------------------------------------------------------------------------------------------


def check_size(array: Array, argument: str, other: Array, other_argument: str) -> None:
    """Returns where both arrays have equally many elements.

    Raises:
        ArgumentError: they have not; names both numbers.
    """
    if array.size != other.size:
        allowed = f"{other.size} elements, as argument {other_argument!r} has"
        raise ArgumentError(argument, f"an array of {array.size} elements", allowed)


def check_gathered(output: Array, source: Array, size: int) -> None:
    """Returns where ``output`` holds ``size`` times ``source``: concatenated along dimension 0, stacked, or flat.

    Raises:
        ArgumentError: it does not; names both shapes.
    """
    shape = source.shape
    flat = (size * source.size,)
    stacked = (size, *shape)
    concatenated = (size * shape[0], *shape[1:]) if shape else flat
    if output.shape not in (concatenated, stacked, flat):
        shapes = " or ".join(str(list(one)) for one in dict.fromkeys((concatenated, stacked, flat)))
        allowed = f"an array of shape {shapes}: {size} times argument 'input', of shape {list(shape)}"
        raise ArgumentError("output", f"of shape {list(output.shape)} ({output.size} elements)", allowed)


def check_scattered(output: Array, source: Array, size: int) -> None:
    """Returns where ``source`` has ``size`` times the elements of ``output``.

    Raises:
        ArgumentError: it has not; names both numbers.
    """
    needed = size * output.size
    if source.size != needed:
        allowed = f"{needed} = {size} x {output.size}: output has {output.size} elements, the group {size} members"
        raise ArgumentError("input", f"an array of {source.size} elements", allowed)


def check_rows(output: Array, source: Array) -> None:
    """Returns where both consist of rows, and the rows are of one shape.

    Raises:
        ArgumentError: they do not.
    """
    for array, argument in ((output, "output"), (source, "input")):
        if array.ndim == 0:
            raise ArgumentError(argument, "a 0-dimensional array", "an array whose first dimension can be split")
    if output.shape[1:] != source.shape[1:]:
        shape, rows = list(output.shape), list(source.shape[1:])
        allowed = f"an array of rows of shape {rows}, as argument 'input' has, whose shape is {list(source.shape)}"
        raise ArgumentError("output", f"of shape {shape}", allowed)


def row_splits(array: Array, argument: str, splits: object, size: int) -> list[int]:
    """How many rows (entries of dimension 0) belong to each of ``size`` members.

    Args:
        array: of at least one dimension.
        argument: its name; that of ``splits`` is the same with ``_split_sizes``.
        splits: the caller's list of sizes (numpy's integers are fine), or None for equal parts.
        size: members of the group.

    Raises:
        ArgumentError: the rows do not divide equally; a size is negative; they are too many or too few, or do not add
            up to the number of rows.
        ArgumentTypeError: no list, or not of whole numbers.
    """
    rows = array.shape[0]
    if splits is None:
        if rows % size:
            given = f"of shape {list(array.shape)}, and {rows} rows do not divide equally among {size} members"
            raise ArgumentError(argument, given, f"a multiple of {size} rows, or {argument}_split_sizes")
        return [rows // size] * size
    argument_splits = f"{argument}_split_sizes"
    sizes = _whole_numbers(splits, argument_splits)
    if len(sizes) != size:
        raise ArgumentError(argument_splits, f"a list of {len(sizes)} sizes", f"{size} sizes, one for each member")
    if min(sizes) < 0:
        given = f"{min(sizes)} in entry {sizes.index(min(sizes))} of {_brief(sizes)}"
        raise ArgumentError(argument_splits, given, "a list of sizes from 0 up")
    if sum(sizes) != rows:
        allowed = f"sizes that add up to {rows}, the first dimension of argument {argument!r}"
        raise ArgumentError(argument_splits, f"{_brief(sizes)}, which add up to {sum(sizes)}", allowed)
    return sizes


def _whole_numbers(values: Any, argument: str) -> list[int]:
    allowed = "a list of whole numbers, one for each member"
    if isinstance(values, np.ndarray) and values.ndim == 1:
        values = list(values)
    if not isinstance(values, list | tuple):
        raise ArgumentTypeError(argument, f"of type {type(values).__name__}", allowed)
    for index, value in enumerate(values):
        if isinstance(value, bool | np.bool_) or not hasattr(value, "__index__"):
            raise ArgumentTypeError(argument, f"{value!r:.40} (a {type(value).__name__}) in entry {index}", allowed)
    return [operator.index(value) for value in values]


def _brief(sizes: Sequence[int]) -> str:
    return str(sizes) if len(sizes) <= 32 else f"[{', '.join(map(str, sizes[:16]))}, ...]"


def parts(flat: FlatBytes, sizes: Sequence[int]) -> list[FlatBytes]:
    """``flat`` cut into consecutive views of ``sizes`` bytes."""
    cut, start = [], 0
    for nbytes in sizes:
        cut.append(flat[start : start + nbytes])
        start += nbytes
    return cut


def row_nbytes(array: Array) -> int:
    """Bytes of one entry of dimension 0."""
    return prod(array.shape[1:]) * array.itemsize


# --- shared memory ---------------------------------------------------------------------------------------------------


def check_apart(arrays: Sequence[Array], arguments: Sequence[str]) -> None:
    """Returns where no two outputs share memory, so that no result can overwrite another.

    Raises:
        ArgumentError: two do; names both.
    """
    for pair in _near_pairs(arrays):
        first, second = sorted(pair)
        if _share(arrays[first], arrays[second]):
            allowed = f"an array with memory of its own, apart from argument {arguments[first]!r}"
            raise ArgumentError(arguments[second], "an array that shares memory with another output", allowed)


def _near_pairs(arrays: Sequence[Array]) -> Iterator[tuple[int, int]]:
    """Pairs of indices whose arrays' memory interleaves, or more."""
    if len(arrays) ** 2 <= 4 * _FEW:
        for first, second in combinations(range(len(arrays)), 2):
            if np.may_share_memory(arrays[first], arrays[second]):
                yield first, second
        return
    reaching: list[tuple[int, int]] = []  # end and index of those that may reach beyond where we are
    for start, stop, index in sorted((*_span(array), index) for index, array in enumerate(arrays) if array.nbytes):
        reaching = [other for other in reaching if other[0] > start]
        yield from ((other, index) for _, other in reaching)
        reaching.append((stop, index))


def _share(a: Array, b: Array) -> bool:
    try:
        return np.shares_memory(a, b, max_work=cast(Any, _OVERLAP_WORK))
    except np.exceptions.TooHardError:
        return False  # undecided: the benefit of the doubt


def _span(array: Array) -> tuple[int, int]:
    """First byte of the array's memory and the one behind its last."""
    start: int = array.__array_interface__["data"][0]
    if array.flags.c_contiguous:
        return start, start + array.nbytes
    steps = [step * (size - 1) for size, step in zip(array.shape, array.strides, strict=True)]
    below, above = sum(step for step in steps if step < 0), sum(step for step in steps if step > 0)
    return start + below, start + above + array.itemsize


def is_same(a: FlatBytes, b: FlatBytes) -> bool:
    """Whether both are the very same memory, from the first byte to the last."""
    return _span(a) == _span(b)


def keep_apart(sends: list[FlatBytes], recvs: Sequence[FlatBytes]) -> list[FlatBytes]:
    """``sends``, copied where an operation would read what it has already written to ``recvs``.

    Args:
        sends: flat memory that is read.
        recvs: flat memory that is written, no two of which overlap.
    """
    if len(sends) * len(recvs) <= _FEW:
        return [send.copy() if any(np.may_share_memory(send, recv) for recv in recvs) else send for send in sends]
    spans = sorted(_span(flat) for flat in recvs if len(flat))
    starts = [start for start, _ in spans]
    return [send.copy() if _hits(spans, starts, send) else send for send in sends]


def _hits(spans: list[tuple[int, int]], starts: list[int], flat: FlatBytes) -> bool:
    if not len(flat) or not spans:
        return False
    start, stop = _span(flat)
    # Spans are apart from each other: only the last one that begins before our end can reach beyond our beginning.
    last = bisect_right(starts, stop - 1) - 1
    return last >= 0 and spans[last][1] > start
