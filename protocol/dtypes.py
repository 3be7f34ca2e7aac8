"""The dtypes that hocket knows by name, and which of them reduce how. Needs no numpy: the coordinator reads it, too.

A dtype outside the table (a record, a string, a date) moves between ranks as bytes and reduces nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

from hocket.protocol.errors import UnsupportedError
from hocket.protocol.reduce_ops import BITWISE, EXTREMES, LOCATING, SUMS, ReduceOp

Kind = Literal["bool", "int", "uint", "float", "complex", "float8"]


@dataclass(frozen=True, slots=True)
class Dtype:
    """One row of the table: canonical name, bytes per element, and what kind of number it is."""

    name: str
    itemsize: int
    kind: Kind


DTYPES: Final[Mapping[str, Dtype]] = MappingProxyType(
    {
        row.name: row
        for row in (
            Dtype("bool", 1, "bool"),
            Dtype("int8", 1, "int"),
            Dtype("int16", 2, "int"),
            Dtype("int32", 4, "int"),
            Dtype("int64", 8, "int"),
            Dtype("uint8", 1, "uint"),
            Dtype("uint16", 2, "uint"),
            Dtype("uint32", 4, "uint"),
            Dtype("uint64", 8, "uint"),
            Dtype("float16", 2, "float"),
            Dtype("bfloat16", 2, "float"),
            Dtype("float32", 4, "float"),
            Dtype("float64", 8, "float"),
            Dtype("complex64", 8, "complex"),
            Dtype("complex128", 16, "complex"),
            Dtype("float8_e4m3fn", 1, "float8"),
            Dtype("float8_e5m2", 1, "float8"),
        )
    }
)

_HALVES = frozenset({"float16", "bfloat16"})
_REALS = {"complex64": "float32", "complex128": "float64"}


def check_reduce(dtype: str, op: ReduceOp) -> None:
    """Returns where elements of ``dtype`` (a canonical name, or any other dtype's string) reduce by ``op``.

    A bool reads as a number of one bit: SUM and MAX are "or", PRODUCT and MIN are "and".

    Raises:
        UnsupportedError: they do not; the hint says what to do instead.
    """
    hint = _refusal(DTYPES.get(dtype), op.name)
    if hint is not None:
        raise UnsupportedError(dtype, f"reduce op {op.name}", hint)


def _refusal(row: Dtype | None, name: str) -> str | None:
    """Why not, in the words of the hint; None where the dtype reduces by the op called ``name``."""
    if row is None:
        return "it moves between ranks but does not reduce"
    if row.kind == "float8":
        return "it moves between ranks but does not reduce, convert it to bfloat16 or float32"
    if name in SUMS and name != "SUM" and row.kind in ("bool", "int", "uint"):
        return "use SUM, or convert it to a floating point dtype"
    if name in BITWISE and row.kind in ("float", "complex"):
        return "reduce a view of it as unsigned integers, or use LAND, LOR or LXOR for its truth"
    if name in EXTREMES | LOCATING and row.kind == "complex":
        return "complex numbers have no order, reduce its real part, imaginary part or magnitude"
    if name in LOCATING and row.kind == "bool":
        return "a pair of value and index needs a numeric dtype, such as int32"
    return None


def accumulator(dtype: str, op: ReduceOp) -> str:
    """Name of the dtype in which ``op`` folds elements of ``dtype``, and in which hosts exchange what they have so far.

    float32 for the sums and products of float16 and bfloat16, so that they are rounded once; else ``dtype`` itself.
    """
    return "float32" if dtype in _HALVES and op.name in SUMS | {"PRODUCT"} else dtype


def real_part(dtype: str) -> str:
    """Name of the dtype of a complex dtype's two halves; any other dtype's own name."""
    return _REALS.get(dtype, dtype)
