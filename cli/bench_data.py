"""The elements that ``hocket bench`` sends, and what must come of them. Numbers go in and out; nothing is sent here.

Elements are small whole numbers, so that every dtype holds them and their sum exactly. They repeat with a period that
is prime: what lands a block, a page or a rank too far does not go unnoticed.
"""

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from hocket.protocol.dtypes import real_part

PERIOD: Final = 1021
CHECKED_ROWS: Final = 256
"""Periods that are compared at once: a comparison takes no more memory than that."""
MOVED_BOUND: Final = 8
"""Elements that are only moved lie below: float8_e5m2 holds no more of them."""
SUM_BOUND: Final = 127
"""Sums do not exceed it (int8's largest), up to that many ranks."""

COMPRESSED_STEPS: Final = 2.1 / 253
"""By how much of the largest sum a compressed one may be off: rounded twice, each time as `hocket.fabric.compression`
says of int8. With bf16 it is less."""

Array = npt.NDArray[Any]

_FOLDS: Final[dict[str, Any]] = {
    "SUM": np.add,
    "AVG": np.add,
    "PRODUCT": np.multiply,
    "MIN": np.minimum,
    "MAX": np.maximum,
    "BAND": np.bitwise_and,
    "BOR": np.bitwise_or,
    "BXOR": np.bitwise_xor,
    "LAND": np.logical_and,
    "LOR": np.logical_or,
    "LXOR": np.logical_xor,
}
_NEUTRAL: Final = {"PRODUCT": 1, "BAND": MOVED_BOUND - 1, "BOR": 0, "LAND": 1, "LOR": 0}
"""Where many ranks' elements would soon come to the same, one rank in turn decides, and the others contribute this."""
_WIDE: Final[dict[str, Any]] = {"b": np.bool_, "i": np.int64, "u": np.int64, "c": np.complex128}
"""In what a reduction is computed here, by kind; anything else in float64."""
_STEPS: Final = {"float16": 2**-10, "bfloat16": 2**-7, "float32": 2**-23, "float64": 2**-52}
"""From 1 to the next larger number."""


def _hashed(salt: int, bound: int) -> npt.NDArray[np.int64]:
    """Numbers below ``bound`` without an order that a wrong offset could meet by chance: int64[PERIOD]."""
    places = np.arange(PERIOD, dtype=np.uint64)
    mixed = (places + np.uint64(1)) * np.uint64(2654435761) + np.uint64(salt) * np.uint64(40503)
    mixed ^= mixed >> np.uint64(15)
    mixed = (mixed * np.uint64(2246822519)) >> np.uint64(13)
    return (mixed % np.uint64(bound)).astype(np.int64)


def sent(rank: int, dtype: "np.dtype[Any]", salt: int = 0) -> Array:
    """One period of what ``rank`` sends where elements are only moved. ``salt``: which of its parts."""
    return _cast(_hashed(1 + rank * 8191 + salt, MOVED_BOUND), dtype)


def contributed(rank: int, ranks: int, dtype: "np.dtype[Any]", op: str, salt: int = 0) -> Array:
    """One period of what ``rank`` contributes to a reduction over ``ranks``."""
    if op in _NEUTRAL:
        decides = np.arange(PERIOD) % ranks == rank
        decisive = 1 + _hashed(salt, 3) if op == "PRODUCT" else _hashed(salt, MOVED_BOUND)
        return _cast(np.where(decides, decisive, _NEUTRAL[op]), dtype)
    return _cast(_hashed(1 + rank * 8191 + salt, _summed_bound(ranks)), dtype)


def _summed_bound(ranks: int) -> int:
    """Elements that are summed over so many ranks lie below."""
    return max(2, min(MOVED_BOUND, SUM_BOUND // ranks + 1))


def reduced(ranks: int, dtype: "np.dtype[Any]", op: str, salt: int = 0) -> Array:
    """One period of the reduction of what all ranks contribute, rounded once."""
    wide = _WIDE.get(dtype.kind, np.float64)
    total = contributed(0, ranks, dtype, op, salt).astype(wide)
    for rank in range(1, ranks):
        total = _FOLDS[op](total, contributed(rank, ranks, dtype, op, salt).astype(wide))
    if op in ("LAND", "LOR", "LXOR") and ranks == 1:
        total = total.astype(bool)
    if op == "AVG":
        total = total / ranks
    return _cast(total, dtype)


def _cast(numbers: Array, dtype: "np.dtype[Any]") -> Array:
    if dtype.kind == "b" and numbers.dtype != dtype:
        numbers = numbers % 2
    return numbers.astype(dtype)


def tolerance(op: str, dtype: "np.dtype[Any]", ranks: int, compression: str | None) -> float:
    """By how much an element may differ and still be right: nothing, except where rounding belongs to the operation."""
    step = _STEPS.get(real_part(dtype.name), 0.0)
    if compression is not None:
        largest = ranks * (_summed_bound(ranks) - 1) / (ranks if op == "AVG" else 1)
        return largest * (COMPRESSED_STEPS + 2 * step)
    return 2 * MOVED_BOUND * step if op == "AVG" else 0.0


# --- arrays ----------------------------------------------------------------------------------------------------------


def fill(array: Array, period: Array) -> None:
    """Writes the period into a one-dimensional array, again and again."""
    whole = array.size - array.size % PERIOD
    array[:whole].reshape(-1, PERIOD)[:] = period
    array[whole:] = period[: array.size - whole]


def wrong(array: Array, period: Array, tolerated: float = 0.0) -> int:
    """How many elements of a one-dimensional array are not what `fill` would have written there."""
    whole = array.size - array.size % PERIOD
    rows = array[:whole].reshape(-1, PERIOD)
    found = _differing(array[whole:], period[: array.size - whole], tolerated)
    for first in range(0, len(rows), CHECKED_ROWS):
        found += _differing(rows[first : first + CHECKED_ROWS], period, tolerated)
    return found


def _differing(got: Array, expected: Array, tolerated: float) -> int:
    if tolerated == 0.0:
        return int(np.count_nonzero(got != expected))
    wide = np.complex128 if got.dtype.kind == "c" else np.float64
    return int(np.count_nonzero(~(np.abs(got.astype(wide) - expected.astype(wide)) <= tolerated)))
