"""What every collective does, in plain numpy: no blocks, no hosts, no messages.

All functions take what each rank gives, in rank order, and return what each rank gets. Reductions fold in rank order:
results in floating point are the bits of a group on one host, and near those of one that spans several.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Fold = Callable[[Array, Array], Array]

HALVES = (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))
TRUTH: dict[str, Fold] = {
    **dict.fromkeys(("SUM", "MAX", "BOR", "LOR"), np.logical_or),
    **dict.fromkeys(("PRODUCT", "MIN", "BAND", "LAND"), np.logical_and),
    **dict.fromkeys(("BXOR", "LXOR"), np.logical_xor),
}
"""Reductions of bools, and logical ones of anything."""
NUMBERS: dict[str, Fold] = {
    **dict.fromkeys(("SUM", "AVG", "PREMUL_SUM"), np.add),
    "PRODUCT": np.multiply,
    "MIN": np.minimum,
    "MAX": np.maximum,
    "BAND": np.bitwise_and,
    "BOR": np.bitwise_or,
    "BXOR": np.bitwise_xor,
}


def reduced(arrays: Sequence[Array], op: str, factor: float | None = None) -> Array:
    """One array of all: ``op`` is a reduce op's name, ``factor`` that of PREMUL_SUM."""
    with np.errstate(all="ignore"):
        return _reduced([np.asarray(array) for array in arrays], op, factor)


def _reduced(arrays: list[Array], op: str, factor: float | None) -> Array:
    dtype = arrays[0].dtype
    if op in ("MINLOC", "MAXLOC"):
        return functools.reduce(functools.partial(_better, -1 if op == "MINLOC" else 1), arrays).copy()
    if dtype == np.bool_ or op in ("LAND", "LOR", "LXOR"):
        return functools.reduce(TRUTH[op], [array != 0 for array in arrays]).astype(dtype)
    if dtype in HALVES and op in ("SUM", "AVG", "PREMUL_SUM", "PRODUCT"):
        arrays = [array.astype(np.float32) for array in arrays]
    if op == "PREMUL_SUM":
        arrays = [array * array.real.dtype.type(factor) for array in arrays]
    fold = _times if op == "PRODUCT" and dtype.kind == "c" else NUMBERS[op]
    total = functools.reduce(fold, arrays)
    if op == "AVG":
        reals = np.ascontiguousarray(total).view(total.real.dtype)
        total = (reals / reals.dtype.type(len(arrays))).view(total.dtype)
    return np.array(total).astype(dtype)


def _times(a: Array, b: Array) -> Array:
    """Complex a times b, each step rounded; numpy's own product joins two of them on some machines."""
    found = np.empty_like(a)
    found.real = a.real * b.real - a.imag * b.imag
    found.imag = a.real * b.imag + a.imag * b.real
    return found


def _better(sign: int, a: Array, b: Array) -> Array:
    """Of each two pairs (value, index) the one with the extreme value; of equal values the lesser index."""
    kept = a.copy()
    for at in np.ndindex(a.shape[:-1]):
        mine, other = a[at], b[at]
        if (-sign * other[0].item(), other[1].item()) < (-sign * mine[0].item(), mine[1].item()):
            kept[at] = other
    return kept


def all_reduce(arrays: Sequence[Array], op: str, factor: float | None = None) -> list[Array]:
    """Everybody gets the reduction."""
    return [reduced(arrays, op, factor)] * len(arrays)


def reduce(arrays: Sequence[Array], root: int, op: str, factor: float | None = None) -> list[Array]:
    """The root gets the reduction; the others keep theirs."""
    return [reduced(arrays, op, factor) if rank == root else array for rank, array in enumerate(arrays)]


def scan(arrays: Sequence[Array], op: str, factor: float | None = None) -> list[Array]:
    """Rank r gets the reduction of ranks 0 to r."""
    return [reduced(arrays[: rank + 1], op, factor) for rank in range(len(arrays))]


def exscan(arrays: Sequence[Array], op: str, factor: float | None = None) -> list[Array]:
    """Rank r gets the reduction of ranks 0 to r - 1; rank 0 keeps its own."""
    return [arrays[0], *(reduced(arrays[:rank], op, factor) for rank in range(1, len(arrays)))]


def reduce_scatter(lists: Sequence[Sequence[Array]], op: str, factor: float | None = None) -> list[Array]:
    """Rank r gets the reduction of everybody's r-th array."""
    return [reduced([given[rank] for given in lists], op, factor) for rank in range(len(lists))]


def broadcast(arrays: Sequence[Array], root: int) -> list[Array]:
    """Everybody gets the root's."""
    return [arrays[root]] * len(arrays)


def all_gather(arrays: Sequence[Array]) -> list[list[Array]]:
    """Everybody gets everybody's."""
    return [list(arrays)] * len(arrays)


def gather(arrays: Sequence[Array], root: int) -> list[list[Array]]:
    """The root gets everybody's, the others nothing."""
    return [list(arrays) if rank == root else [] for rank in range(len(arrays))]


def scatter(parts: Sequence[Array]) -> list[Array]:
    """Rank r gets the r-th of the root's ``parts``."""
    return list(parts)


def all_to_all(lists: Sequence[Sequence[Array]]) -> list[list[Array]]:
    """Rank r gets everybody's r-th array."""
    return [[given[rank] for given in lists] for rank in range(len(lists))]
