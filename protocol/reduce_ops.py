"""How elements of several ranks become one: the reduce operations, without the arithmetic."""

import math
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Final

from hocket.protocol.errors import ArgumentError, ArgumentTypeError, WireError

SUMS: Final = frozenset({"SUM", "AVG", "PREMUL_SUM"})
EXTREMES: Final = frozenset({"MIN", "MAX"})
BITWISE: Final = frozenset({"BAND", "BOR", "BXOR"})
LOGICAL: Final = frozenset({"LAND", "LOR", "LXOR"})
LOCATING: Final = frozenset({"MINLOC", "MAXLOC"})
NAMES: Final = SUMS | {"PRODUCT"} | EXTREMES | BITWISE | LOGICAL | LOCATING

_PREMUL = re.compile(r"PREMUL_SUM\(([^()\s]{1,32})\)", re.ASCII)


@dataclass(frozen=True, slots=True, repr=False)
class ReduceOp:
    """One reduce operation: equal where name and factor are equal, usable as a key.

    Use the ready-made ones (``ReduceOp.SUM``, ``ReduceOp.PREMUL_SUM(0.5)``). ``MINLOC`` and ``MAXLOC`` take arrays
    whose last dimension is 2, pairs of (value, index), and keep the pair of the extreme value; of equal values the one
    with the smaller index.

    Raises:
        ArgumentError: unknown name, a factor that is missing, superfluous or not finite.
    """

    name: str
    factor: float | None = None

    SUM: ClassVar["ReduceOp"]
    AVG: ClassVar["ReduceOp"]
    PRODUCT: ClassVar["ReduceOp"]
    MIN: ClassVar["ReduceOp"]
    MAX: ClassVar["ReduceOp"]
    BAND: ClassVar["ReduceOp"]
    BOR: ClassVar["ReduceOp"]
    BXOR: ClassVar["ReduceOp"]
    LAND: ClassVar["ReduceOp"]
    LOR: ClassVar["ReduceOp"]
    LXOR: ClassVar["ReduceOp"]
    MINLOC: ClassVar["ReduceOp"]
    MAXLOC: ClassVar["ReduceOp"]

    def __post_init__(self) -> None:
        if self.name not in NAMES:
            raise ArgumentError("op", repr(self.name), f"one of {', '.join(sorted(NAMES))}")
        if self.name == "PREMUL_SUM":
            object.__setattr__(self, "factor", _finite(self.factor))
        elif self.factor is not None:
            raise ArgumentError("factor", repr(self.factor), f"None for {self.name}")

    @staticmethod
    def PREMUL_SUM(factor: float) -> "ReduceOp":
        """The sum of the ranks' elements, each multiplied by ``factor`` first (in the accumulator's dtype).

        Raises:
            ArgumentTypeError: ``factor`` is not a real number.
            ArgumentError: ``factor`` is not finite.
        """
        return ReduceOp("PREMUL_SUM", factor)

    def __str__(self) -> str:
        return self.to_wire()

    def __repr__(self) -> str:
        return f"ReduceOp.{self.to_wire()}"

    def to_wire(self) -> str:
        """The operation as a stable string: equal operations, and only those, give equal strings."""
        return self.name if self.factor is None else f"{self.name}({self.factor!r})"

    @staticmethod
    def from_wire(text: str) -> "ReduceOp":
        """The operation that `to_wire` spelt.

        Raises:
            WireError: ``text`` is not an operation, or not spelt the one way that `to_wire` does.
        """
        try:
            return _parse(text)
        except (ValueError, TypeError) as broken:
            raise WireError(f"not a reduce op: {text!r:.80}") from broken


@lru_cache(maxsize=256)
def _parse(text: str) -> ReduceOp:
    premul = _PREMUL.fullmatch(text)
    op = ReduceOp.PREMUL_SUM(float(premul[1])) if premul else ReduceOp(text)
    if op.to_wire() != text:
        # 0.50 would be another operation than 0.5 to whoever compares the strings.
        raise ValueError(f"{op} is spelt {text}")
    return op


def _finite(factor: object) -> float:
    """``factor`` as a float: not NaN, which would equal nothing, nor an infinity, which leaves nothing of the data."""
    if isinstance(factor, str | bytes | bool) or not hasattr(factor, "__float__"):
        raise ArgumentTypeError("factor", f"of type {type(factor).__name__}", "a real number")
    number = float(factor)
    if not math.isfinite(number):
        raise ArgumentError("factor", repr(number), "a finite number")
    return number


for _name in NAMES - {"PREMUL_SUM"}:
    setattr(ReduceOp, _name, ReduceOp(_name))
