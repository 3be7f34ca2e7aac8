"""What the tensors of conformance cases hold, how they lie in memory, and when two of them count as the same."""

import zlib
from typing import Any

import numpy as np
from harness.reference import HALVES, Array

from hocket.fabric.dtypes import numpy_dtype
from hocket.protocol.reduce_ops import ReduceOp

REDUCING = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
REDUCING += ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")
RECORD = "{'names': ['a', 'b'], 'formats': ['int16', 'float64'], 'offsets': [0, 2], 'itemsize': 10}"
MOVING = (*REDUCING, "float8_e4m3fn", "float8_e5m2", "U3", "M8[ms]", "V5", RECORD)
OPS = ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "LAND", "LOR", "LXOR", "MINLOC", "MAXLOC")
OPS += ("PREMUL_SUM(0.5)",)
LAYOUTS = ("flat", "strided", "swapped", "fortran")

_SPECIALS = (np.nan, np.inf, -np.inf, -0.0, 0.0, 1.0, -3.0)


def _random(*seed: Any) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(repr(seed).encode()))


def moved_values(dtype: str, elements: int, rank: int) -> Array:
    """Any bits at all (bools: 0 and 1): nothing that moves may look at them."""
    target, random = numpy_dtype(dtype), _random(dtype, elements, rank)
    if dtype == "bool":
        return random.integers(0, 2, elements).astype(bool)
    if target.kind == "U":
        return random.integers(32, 0xD000, (elements, target.itemsize // 4)).astype(np.uint32).view(target).reshape(-1)
    return np.frombuffer(random.bytes(elements * target.itemsize), target).copy()


def reduced_values(dtype: str, op: str, elements: int, data: str, rank: int) -> Array:
    """Operands of a reduction.

    ``data`` is ``exact``: results do not depend on the order of operands, for floats are small whole numbers and
    integers wrap; ``real``: ordinary floats; ``special``: NaNs, infinities and zeros of both signs as well.
    """
    target, random, name = numpy_dtype(dtype), _random(dtype, op, elements, data, rank), ReduceOp.from_wire(op).name
    if name in ("MINLOC", "MAXLOC"):
        low = 0 if target.kind == "u" else -3
        return np.stack([random.integers(low, 4, elements), random.integers(0, 100, elements)], -1).astype(target)
    if target.kind in "biu":
        return _integers(target, elements, random)
    if data == "exact":
        return _small(target, name, elements, random)
    if data == "special":
        found = random.choice(_SPECIALS, elements).astype(target)
        return found + (1j * random.integers(-4, 4, elements)).astype(target) if target.kind == "c" else found
    reals = random.standard_normal(elements)
    return (reals + 1j * random.standard_normal(elements) if target.kind == "c" else reals).astype(target)


def _integers(target: np.dtype[Any], elements: int, random: np.random.Generator) -> Array:
    if target.kind == "b":
        return random.integers(0, 2, elements).astype(bool)
    found = np.frombuffer(random.bytes(elements * target.itemsize), target).copy()
    found[random.integers(0, 4, elements) == 0] = 0
    return found


def _small(target: np.dtype[Any], name: str, elements: int, random: np.random.Generator) -> Array:
    if name == "PRODUCT":
        factors = (1, -1, 1j, 1 - 1j) if target.kind == "c" else (1.0, -1.0, 2.0, 0.5, -2.0)
        return np.asarray(random.choice(factors, elements)).astype(target)
    found = random.integers(-8, 9, elements)
    return (found + 1j * random.integers(-8, 9, elements) if target.kind == "c" else found).astype(target)


def laid(array: Array, layout: str) -> Array:
    """The same elements in other memory: ``strided``, byte-``swapped``, in ``fortran`` order, or as they are."""
    if layout == "strided" and array.ndim:
        room = np.empty((2 * array.shape[0] + 1, *array.shape[1:]), array.dtype)
        found = room[1::2]
        found[...] = array
        return found
    if layout == "swapped" and array.dtype.kind in "iufcM" and array.dtype not in HALVES:
        return array.astype(array.dtype.newbyteorder())
    if layout == "fortran" and array.ndim > 1:
        return np.asfortranarray(array)
    return array


def same_bits(found: Array, expected: Array) -> bool:
    """Whether shape, dtype (in either byte order) and every bit are the expected ones."""
    if found.shape != expected.shape or found.dtype.newbyteorder("=") != expected.dtype:
        return False
    return np.array_equal(_bits(found), _bits(expected))


def same_values(found: Array, expected: Array, ranks: int) -> bool:
    """Whether a reduction is right: zeros of both signs count as one, and so do all NaNs.

    ``ranks`` above 0: as near as a sum or product of that many reals in any order comes to that in another one.
    """
    if found.shape != expected.shape or found.dtype.newbyteorder("=") != expected.dtype:
        return False
    if np.array_equal(_bits(found), _bits(expected)):
        return True
    if found.dtype.kind not in "fcV":
        return False
    wide = np.complex128 if found.dtype.kind == "c" else np.float64
    fine = 2.0 ** (-50 if found.real.itemsize == 8 else -21) * ranks
    coarse = max(fine, _ROUNDING.get(found.dtype.name, 0.0) if ranks else 0.0)
    with np.errstate(all="ignore"):
        return bool(np.allclose(found.astype(wide), expected.astype(wide), rtol=coarse, atol=fine, equal_nan=True))


_ROUNDING = {"float16": 2.0**-10, "bfloat16": 2.0**-7}
"""A last place of what is rounded once."""


def _bits(array: Array) -> Array:
    native = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("="), copy=False))
    return native.reshape(-1).view(np.uint8)
