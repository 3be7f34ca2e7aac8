"""What each case moves: its arrays, and what must stand in them afterwards. The same for every system.

The size S of a case, in bytes:

    all_reduce, broadcast   S on each rank, in place
    all_reduce_bf16         the same in bfloat16
    all_gather              S of output, S/n of input
    reduce_scatter          S of input, S/n of output
    all_to_all              S of input and S of output
    barrier                 0

Elements are float32 but for all_reduce_bf16, at least one for each rank: "4 B" of the last three operations is 4n B.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Array = npt.NDArray[Any]
"""float32, or bfloat16 for all_reduce_bf16."""
Empty = Callable[[int], Floats]
"""Memory for n float32, from where users of a system get theirs."""

KIB, MIB = 1 << 10, 1 << 20
SIZES = (4, KIB, 16 * KIB, 256 * KIB, MIB, 16 * MIB, 64 * MIB)
MOVING = ("all_reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all")
BF16 = "all_reduce_bf16"
OPS = (*MOVING, BF16, "barrier")
IN_PLACE = ("all_reduce", "broadcast", BF16)
SUMMED = ("all_reduce", BF16)
ROOT = 0
_PERIOD = 1009
"""Elements repeat after so many: a prime, so that no piece of a power of two looks like the next one."""
_MOST, _MOST_BF16 = 251, 29
"""Elements are below this: sums of bfloat16 are exact up to 256."""


@dataclass(slots=True)
class Case:
    """One rank's arrays for one operation and size; in place, ``source`` and ``target`` are the same memory."""

    op: str
    nbytes: int
    rank: int
    size: int
    source: Array
    target: Array

    def is_right(self) -> bool:
        """Whether ``target`` holds what the operation must give, every element of it, after one call."""
        every = range(self.size)
        length = len(self.target)
        if self.op in SUMMED:
            return _follows(self.target, _summed(every, 0, _most(self.op)))
        if self.op == "broadcast":
            return _follows(self.target, pattern(ROOT, 0))
        if self.op == "reduce_scatter":
            return _follows(self.target, _summed(every, self.rank * length))
        part = length // self.size
        start = self.rank * part if self.op == "all_to_all" else 0
        return all(_follows(self.target[rank * part : (rank + 1) * part], pattern(rank, start)) for rank in every)

    def settle(self) -> None:
        """Makes the source zero where calls would sum up to infinity."""
        if self.op in SUMMED:
            self.source.fill(0.0)


def pattern(rank: int, start: int, most: int = _MOST) -> Floats:
    """What a rank contributes from element ``start`` on, over and over: small whole numbers, whose sums are exact."""
    once = (np.arange(_PERIOD) * (rank + 3) % most + rank + 1).astype(np.float32)
    return np.roll(once, -(start % _PERIOD))


def _most(op: str) -> int:
    return _MOST_BF16 if op == BF16 else _MOST


def _summed(ranks: range, start: int, most: int = _MOST) -> Floats:
    total = np.zeros(_PERIOD, np.float32)
    for rank in ranks:
        total += pattern(rank, start, most)
    return total


def _rows(array: Array) -> tuple[Array, Array]:
    """The whole periods of an array, one in a row, and what is left of it."""
    whole = len(array) // _PERIOD * _PERIOD
    return array[:whole].reshape(-1, _PERIOD), array[whole:]


def _follows(array: Array, period: Floats) -> bool:
    period = period.astype(array.dtype)
    rows, rest = _rows(array)
    return bool((rows == period).all() and (rest == period[: len(rest)]).all())


def elements(op: str, nbytes: int, size: int) -> tuple[int, int]:
    """Numbers of elements in a rank's source and target."""
    if op in IN_PLACE:
        whole = max(1, nbytes // (2 if op == BF16 else 4))
        return whole, whole
    whole = max(1, nbytes // 4 // size) * size
    return {
        "all_gather": (whole // size, whole),
        "reduce_scatter": (whole, whole // size),
        "all_to_all": (whole, whole),
        "barrier": (0, 0),
    }[op]


def make_case(op: str, nbytes: int, rank: int, size: int, empty: Empty | None = None) -> Case:
    """Fresh arrays, all of their pages touched."""
    empty = empty or (lambda length: np.empty(length, np.float32))
    given, taken = elements(op, nbytes, size)
    source = _empty_bf16(given, empty) if op == BF16 else empty(given)
    rows, rest = _rows(source)
    once = pattern(rank, 0, _most(op))
    rows[:], rest[:] = once, once[: len(rest)]
    if op in IN_PLACE:
        return Case(op, nbytes, rank, size, source, source)
    target = empty(taken)
    target.fill(-1.0)
    return Case(op, nbytes, rank, size, source, target)


def _empty_bf16(length: int, empty: Empty) -> Array:
    """bfloat16[length] in a system's memory. Only where ml_dtypes is installed, as it is with hocket."""
    import ml_dtypes

    array: Array = empty((length + 1) // 2).view(ml_dtypes.bfloat16)[:length]
    return array


def size_text(nbytes: int) -> str:
    """``16384`` as ``16 KiB``."""
    for unit, name in ((MIB, "MiB"), (KIB, "KiB")):
        if nbytes and nbytes % unit == 0:
            return f"{nbytes // unit} {name}"
    return f"{nbytes} B"


def parse_size(text: str) -> int:
    """Bytes of ``64MiB``, ``1 KiB``, ``4`` or ``4B``. Raises ValueError for anything but whole float32s."""
    units: dict[str, Any] = {"mib": MIB, "kib": KIB, "b": 1, "": 1}
    digits = text.strip().lower().rstrip("bikm ")
    unit = text.strip().lower()[len(digits) :].strip()
    if not digits.isdecimal() or unit not in units or int(digits) * units[unit] < 4 or int(digits) * units[unit] % 4:
        raise ValueError(f"{text!r} is no size: 4, 16KiB, 64MiB, ... (a multiple of 4 bytes)")
    return int(digits) * int(units[unit])
