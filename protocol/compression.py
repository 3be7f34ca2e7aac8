"""What hosts may make of partial sums before they exchange them, as a caller asks for it and as it travels.

The arithmetic is in `hocket.fabric.compression`.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from hocket.protocol.errors import ArgumentError, ArgumentTypeError, UnsupportedError, WireError
from hocket.protocol.limits import IDENTITY_NBYTES
from hocket.protocol.reduce_ops import ReduceOp

CODECS: Final = ("bf16", "int8")
COMPRESSIBLE: Final = frozenset({"all_reduce", "all_reduce_coalesced"})
"""Kinds of operations that take a compression."""
DTYPES: Final = frozenset({"float16", "bfloat16", "float32", "float64"})
OPS: Final = frozenset({"SUM", "AVG"})


@dataclass(frozen=True, slots=True)
class Compression:
    """How hosts compress what they exchange in an `all_reduce`. All members must ask for the same.

    Args:
        codec: ``"bf16"``: 2 bytes for an element; ``"int8"``: 1 byte for an element, and a scale for each 256.
        error_feedback: name under which each host remembers what this call's rounding left out, and adds it to what it
            sends in the next call of the same name, so that over many calls nothing gets lost. One name for each
            tensor. ``""``: nothing is remembered.

    Raises:
        ArgumentError: there is no such codec; the name is too long.
        ArgumentTypeError: one of them is not a string.
    """

    codec: str
    error_feedback: str = ""

    def __post_init__(self) -> None:
        if self.codec not in CODECS:
            raise ArgumentError("compression", repr(self.codec), f"None, {' or '.join(map(repr, CODECS))}")
        _check_name(self.error_feedback)

    def __str__(self) -> str:
        return self.to_wire()

    def to_wire(self) -> str:
        """The compression as a stable string, which `from_wire` reads."""
        return f"{self.codec}:{self.error_feedback}" if self.error_feedback else self.codec

    @staticmethod
    def from_wire(text: str) -> "Compression":
        """The compression that `to_wire` spelt. Raises `WireError` on anything else."""
        try:
            return _parse(text)
        except (ValueError, TypeError) as broken:
            raise WireError(f"not a compression: {text!r:.80}") from broken


def _check_name(name: object) -> None:
    if not isinstance(name, str):
        allowed = "a string: the name of what is remembered"
        raise ArgumentTypeError("error_feedback", f"of type {type(name).__name__}", allowed)
    if len(name.encode(errors="replace")) > IDENTITY_NBYTES or not name.isprintable():
        allowed = f"a string of at most {IDENTITY_NBYTES} bytes that can be printed"
        raise ArgumentError("error_feedback", f"{name[:40]!r}{'...' * (len(name) > 40)}", allowed)


@lru_cache(maxsize=1024)
def _parse(text: str) -> Compression:
    codec, _, name = text.partition(":")
    found = Compression(codec, name)
    if found.to_wire() != text:
        raise ValueError(f"{found} is spelt {text}")
    return found


def compression_name(value: object) -> str:
    """A caller's ``compression`` as it travels: a codec's name, a `Compression`, or ``""`` for None.

    Raises:
        ArgumentError: there is no such codec.
        ArgumentTypeError: it is something else.
    """
    if value is None:
        return ""
    if isinstance(value, Compression):
        return value.to_wire()
    if not isinstance(value, str):
        allowed = f"None, {', '.join(map(repr, CODECS))} or a hocket.Compression"
        raise ArgumentTypeError("compression", f"of type {type(value).__name__}", allowed)
    return Compression(value).to_wire()


def check_compression(kind: str, dtype: str, op: ReduceOp, compression: str) -> None:
    """Returns where an operation of this kind on elements of ``dtype`` may be compressed, or is not (``""``).

    Raises:
        UnsupportedError: it may not; the hint says what to do instead.
    """
    if not compression:
        return
    codec = Compression.from_wire(compression).codec
    if kind not in COMPRESSIBLE:
        raise UnsupportedError(dtype, f"compression in {kind}", "leave it out")
    if op.name not in OPS:
        hint = f"use {' or '.join(sorted(OPS, reverse=True))}, or leave the compression out"
        raise UnsupportedError(dtype, f"reduce op {op.name} with compression {codec}", hint)
    if dtype not in DTYPES:
        hint = f"leave it out, or convert to one of {', '.join(sorted(DTYPES))}"
        raise UnsupportedError(dtype, f"compression {codec}", hint)
