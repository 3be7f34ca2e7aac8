"""The reference for `kernels`, in numpy alone: what serves where there is no native core.

Results are the same bits on every rank. Three things would break that, for the order of the operands or the place in
a vector decides them: which of two NaNs goes on, which of two zeros is the smaller one, and whether a complex product
is rounded between its multiplications and its sum. Here accumulators hold no NaN but the one that numpy calls nan, MIN
and MAX take -0 for smaller than +0, and complex numbers are multiplied as reals.
Nothing warns: sums of integers wrap, those of floats become infinite.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from hocket.fabric.dtypes import AnyDtype, numpy_dtype, wire_dtype
from hocket.protocol.dtypes import DTYPES, accumulator, check_reduce, real_part
from hocket.protocol.reduce_ops import BITWISE, EXTREMES, LOCATING, LOGICAL, ReduceOp

Array = npt.NDArray[Any]
Fold = Callable[[Array, Sequence[Array]], None]
"""``fold(out, inputs)``: out = the inputs one after the other, each combined with what came before."""
Move = Callable[[Array, Array], object]
"""``move(source, target)``: target = source, converted."""

_PIECE_NBYTES: Final = 64 << 10
"""Worked on at a time where a step needs memory of its own, which stays in the cache that way."""
_DOT_LENGTH: Final = 4096
"""Up to here BLAS multiplies in the calling thread and is the fastest to tell whether there is a NaN."""
_HALF_NBYTES: Final = 2


class Apply(Protocol):
    """Out = a (op) b, where ``out`` may be the very memory of ``a``."""

    def __call__(self, a: Array, b: Array, /, *, out: Array) -> object: ...


@dataclass(frozen=True, slots=True)
class _Kernel:
    """How an op reduces tensors of a dtype."""

    fold: Fold
    real: AnyDtype | None = None
    """Of floats and complex numbers, the dtype of the accumulator's reals."""
    truth: bool = False
    """True where results are 0 or 1, whatever a lone input holds."""


def reduce_into(out: Array, inputs: Sequence[Array], op: ReduceOp) -> None:
    """See `kernels.reduce_into`, which checks the lengths."""
    _kernel(op.name, op.factor, inputs[0].dtype).fold(out, inputs)


def finish(out: Array, acc: Array, op: ReduceOp, size: int) -> None:
    """See `kernels.finish`."""
    kernel = _kernel(op.name, op.factor, out.dtype)
    if kernel.truth:
        kernel.fold(out, (acc,))
    elif op.name == "AVG" and kernel.real is not None:
        # A complex number is never converted and divided like two reals: by a complex one, infinities become NaN.
        _divide(_read_as(kernel.real, acc), size, _read_as(kernel.real, out) if acc.dtype == out.dtype else out)
    elif acc.dtype != out.dtype:
        _round(acc, out)
    elif out is not acc:
        np.copyto(out, acc)


# --- floats ----------------------------------------------------------------------------------------------------------


def _read_as(dtype: AnyDtype, array: Array) -> Array:
    return array if array.dtype == dtype else array.view(dtype)


def _has_nan(reals: Array) -> bool:
    """Whether there is a NaN: nearly always not, which takes no memory to find out."""
    if not len(reals):
        return False
    if reals.itemsize == _HALF_NBYTES:
        # numpy compares float16 one by one, but integers many at a time: NaNs lie beyond the infinity of their sign.
        infinity = _infinity_bits(reals.dtype)
        if np.maximum.reduce(reals.view(np.int16)) > infinity:
            return True
        return bool(np.maximum.reduce(reals.view(np.uint16)) > infinity + 0x8000)
    # Neither a sum of squares nor a minimum is NaN without one.
    probe = reals.dot(reals) if len(reals) <= _DOT_LENGTH else np.minimum.reduce(reals)
    return bool(probe != probe)


def _unify_nans(reals: Array) -> None:
    """Makes every NaN the same one."""
    step = _PIECE_NBYTES // reals.itemsize
    for start in range(0, len(reals), step):
        piece = reals[start : start + step]
        np.copyto(piece, piece.dtype.type(np.nan), where=np.isnan(piece))


_quiet = np.errstate(all="ignore")


@_quiet
def _divide(source: Array, divisor: int, target: Array) -> None:
    np.divide(source, source.dtype.type(divisor), out=target, casting="unsafe")


@_quiet
def _round(source: Array, target: Array) -> None:
    np.copyto(target, source, casting="unsafe")


# --- folding ---------------------------------------------------------------------------------------------------------


def _at_once(apply: Apply, view: AnyDtype | None = None) -> Fold:
    """Folds the inputs read as ``view``, with an ``apply`` that needs no conversion."""

    def fold(out: Array, inputs: Sequence[Array]) -> None:
        if view is not None:
            out, inputs = out.view(view), [array.view(view) for array in inputs]
        if len(inputs) == 1:
            np.copyto(out, inputs[0])
            return
        apply(inputs[0], inputs[1], out=out)
        for array in inputs[2:]:
            apply(out, array, out=out)

    return fold


def _lifted(apply: Apply, lift: Move, view: AnyDtype, work: AnyDtype, lower: Move | None = None) -> Fold:
    """Folds, in dtype ``work``, what ``lift`` makes of the inputs read as ``view``; ``lower`` makes the output of it.

    Without ``lower`` the output is of dtype ``work``, or two such reals.
    """

    def fold(out: Array, inputs: Sequence[Array]) -> None:
        folded = np.empty(len(out), work) if lower else out.view(work)
        lift(inputs[0].view(view), folded)
        if len(inputs) > 1:
            lifted = np.empty_like(folded)
            for array in inputs[1:]:
                lift(array.view(view), lifted)
                apply(folded, lifted, out=folded)
        if lower:
            lower(folded, out)

    return _by_piece(fold)


def _by_piece(fold: Fold) -> Fold:
    """The same fold for any length, made of pieces: for one that needs memory of its own."""

    def fold_all(out: Array, inputs: Sequence[Array]) -> None:
        step = _PIECE_NBYTES // out.itemsize
        if len(out) <= step:
            fold(out, inputs)
            return
        for start in range(0, len(out), step):
            piece = slice(start, start + step)
            fold(out[piece], [array[piece] for array in inputs])

    return fold_all


def _with_one_nan(fold: Fold, real: AnyDtype) -> Fold:
    """The same fold, of which no other NaN comes out than numpy's nan. ``real`` is the dtype of the output's reals."""

    def fold_and_unify(out: Array, inputs: Sequence[Array]) -> None:
        fold(out, inputs)
        reals = _read_as(real, out)
        if _has_nan(reals):
            _unify_nans(reals)

    return fold_and_unify


# --- kernels ---------------------------------------------------------------------------------------------------------

_UFUNCS: Final[dict[str, Apply]] = {
    "SUM": np.add,
    "PRODUCT": np.multiply,
    "MIN": np.minimum,
    "MAX": np.maximum,
    "BAND": np.bitwise_and,
    "BOR": np.bitwise_or,
    "BXOR": np.bitwise_xor,
}
_ON_TRUTH: Final[dict[str, Apply]] = {
    **dict.fromkeys(("SUM", "MAX", "BOR", "LOR"), np.logical_or),
    **dict.fromkeys(("PRODUCT", "MIN", "BAND", "LAND"), np.logical_and),
    **dict.fromkeys(("BXOR", "LXOR"), np.logical_xor),
}


@lru_cache(maxsize=1024)
def _kernel(name: str, factor: float | None, dtype: AnyDtype) -> _Kernel:
    """The kernel for tensors of ``dtype``. Raises `UnsupportedError` where they do not reduce by that op."""
    op, tensor = ReduceOp(name, factor), wire_dtype(dtype)
    check_reduce(tensor, op)
    kind, wide = DTYPES[tensor].kind, accumulator(tensor, op)
    real = numpy_dtype(real_part(wide)) if kind in ("float", "complex") else None
    truth = kind == "bool" or name in LOGICAL
    if truth:
        fold = _fold_truth(_ON_TRUTH[name], dtype)
    elif name in LOCATING:
        # Not better: what a value must not be, compared with another one, to win.
        fold = _by_piece(_at_once(partial(_locate, np.greater_equal if name == "MINLOC" else np.less_equal)))
    elif name in EXTREMES and real is not None:
        fold = _fold_half_extremes(name, real) if real.itemsize == _HALF_NBYTES else _fold_extremes(name, real)
    elif name in EXTREMES | BITWISE:
        fold = _at_once(_UFUNCS[name])
    elif name == "PRODUCT" and kind == "complex":
        fold = _by_piece(_at_once(_multiply_complex))
    else:
        fold = _fold_sum(_UFUNCS["PRODUCT" if name == "PRODUCT" else "SUM"], dtype, real or dtype, factor)
    if real is not None:
        fold = _quiet(fold if truth else _with_one_nan(fold, real))
    return _Kernel(fold, real, truth)


def _fold_sum(apply: Apply, dtype: AnyDtype, work: AnyDtype, factor: float | None) -> Fold:
    """Sums (or multiplies) elements in dtype ``work``, each multiplied by ``factor`` first."""
    # Only a complex number is larger than what it is folded in: two reals.
    view = work if dtype.itemsize > work.itemsize else dtype
    if factor is not None:
        with np.errstate(all="ignore"):
            scale = work.type(factor)
        return _lifted(apply, lambda source, target: np.multiply(source, scale, out=target), view, work)
    if view != work:
        return _lifted(apply, _convert, view, work)
    return _at_once(apply, None if view == dtype else view)


def _convert(source: Array, target: Array) -> None:
    np.copyto(target, source)


def _fold_truth(apply: Apply, dtype: AnyDtype) -> Fold:
    """Folds what is not 0, one byte each. A bool is read as its byte: whoever wrote 2 there meant true."""
    truth = np.dtype(np.bool_)
    if dtype == truth:
        return _lifted(apply, _is_true, np.dtype(np.uint8), truth)
    return _lifted(apply, _is_true, dtype, truth, _convert)


def _is_true(source: Array, target: Array) -> None:
    np.not_equal(source, 0, out=target)


def _fold_extremes(name: str, dtype: AnyDtype) -> Fold:
    """MIN or MAX of floats. numpy's answer depends on the operands' order for two zeros or two NaNs, and only there.

    So it is asked both ways round, and of the two answers the smaller or greater *integer* is taken: read as one, -0 is
    the smallest there is and +0 is 0.
    """
    choose, bits = _UFUNCS[name], np.dtype(f"i{dtype.itemsize}")

    def apply(a: Array, b: Array, /, *, out: Array) -> None:
        swapped = np.empty_like(out)
        choose(b, a, out=swapped)
        choose(a, b, out=out)
        integers = out.view(bits)
        choose(integers, swapped.view(bits), out=integers)

    return _by_piece(_at_once(apply))


def _fold_half_extremes(name: str, dtype: AnyDtype) -> Fold:
    """MIN or MAX of float16 or bfloat16 as integers in the floats' order, several times faster than numpy's own.

    With the magnitude of negative numbers inverted, bits sort as integers: numbers from ``~infinity`` to ``infinity``,
    NaNs beyond both. Adding ``shift``, which wraps, moves the numbers to one end of the range and all NaNs to the
    other, the one that wins.
    """
    beyond = 0x7FFF - _infinity_bits(dtype)
    shift = beyond if name == "MIN" else -beyond

    def lift(source: Array, target: Array) -> None:
        _invert_negative(source, target)
        np.add(target, shift, out=target)

    def lower(source: Array, target: Array) -> None:
        np.subtract(source, shift, out=source)
        _invert_negative(source, target.view(np.int16))

    bits = np.dtype(np.int16)
    return _lifted(_UFUNCS[name], lift, bits, bits, lower)


def _invert_negative(source: Array, target: Array) -> None:
    """Inverts all bits but the sign where that is set. Its own inverse. ``target`` is other memory than ``source``."""
    np.right_shift(source, 15, out=target)
    np.bitwise_and(target, 0x7FFF, out=target)
    np.bitwise_xor(target, source, out=target)


@lru_cache
def _infinity_bits(half: AnyDtype) -> int:
    return int(np.full(1, np.inf, half).view(np.int16)[0])


def _multiply_complex(a: Array, b: Array, /, *, out: Array) -> None:
    """The textbook's four products. numpy's own multiplication fuses two of them with a sum: a * b is not b * a."""
    real = a.real * b.real
    real -= a.imag * b.imag
    imaginary = a.real * b.imag
    imaginary += a.imag * b.real
    out.real, out.imag = real, imaginary


def _locate(not_better: Callable[[Array, Array], Array], a: Array, b: Array, /, *, out: Array) -> None:
    """Of each two (value, index) pairs the better one. A NaN is better than any number.

    Equal values are told apart by index; what then still differs (the sign of a zero, the bits of a NaN) by bits.
    """
    value, other = a[::2], b[::2]
    wins = ~not_better(other, value) & (value == value)
    tie = ~(wins | ~not_better(value, other) & (other == other))
    if tie.any():
        bits = np.dtype(f"i{a.itemsize}")
        for view, column in ((a.dtype, 1), (bits, 0), (bits, 1)):
            key, other_key = a.view(view)[column::2], b.view(view)[column::2]
            wins |= tie & (other_key < key)
            tie &= ~(other_key < key) & ~(key < other_key)
    pair = _PAIRS[a.itemsize]
    np.copyto(out, a)
    np.copyto(out.view(pair), b.view(pair), where=wins)


_PAIRS: Final[dict[int, AnyDtype]] = {1: np.dtype("u2"), 2: np.dtype("u4"), 4: np.dtype("u8"), 8: np.dtype("c16")}
"""By the size of an element, a dtype that copies two of them as they are."""
