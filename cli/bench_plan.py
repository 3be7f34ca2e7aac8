"""What ``hocket bench`` measures: operations, sizes, and how bandwidths are counted. Pure; loads no numpy.

Sizes and bandwidths are those of nccl-tests, so that figures can be compared: the size is that of the larger of an
operation's two buffers, ``algbw`` is size by time, and ``busbw`` is algbw times the share of the size that each rank
must at least send or receive.
"""

import dataclasses
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from hocket.protocol.compression import CODECS, check_compression
from hocket.protocol.dtypes import DTYPES, check_reduce
from hocket.protocol.errors import ArgumentError
from hocket.protocol.reduce_ops import ReduceOp

ALL: Final = "all"
REDUCE_OPS: Final = ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "LAND", "LOR", "LXOR")
"""Those that take plain elements: MINLOC and MAXLOC need pairs."""
ALIASES: Final = MappingProxyType(
    {
        "float": "float32",
        "half": "float16",
        "double": "float64",
        "fp32": "float32",
        "fp16": "float16",
        "bf16": "bfloat16",
    }
)
LEAST_ITERATIONS, MOST_ITERATIONS = 20, 10_000
FILLED_S = 0.1
"""Without ``--iters``, a size is measured for about this long, within the two limits above."""
LARGEST_NBYTES = 1 << 40

_UNITS = "KMGT"
_SIZE = re.compile(rf"(\d+(?:\.\d+)?)([{_UNITS}]?)(?:i?B)?", re.IGNORECASE | re.ASCII)


def _one(_ranks: int) -> float:
    return 1.0


def _others(ranks: int) -> float:
    return (ranks - 1) / ranks


def _twice_others(ranks: int) -> float:
    return 2 * (ranks - 1) / ranks


@dataclass(frozen=True, slots=True)
class Operation:
    """How an operation is counted and which forms it has."""

    name: str
    factor: Callable[[int], float]
    """busbw by algbw, from the number of ranks"""
    parted: bool = False
    """whether the size consists of one part for each rank; ``count`` is then that of a part"""
    reduces: bool = False
    rooted: bool = False
    forms: tuple[str, ...] = ("out_of_place", "in_place")


IN_PLACE: Final = ("in_place",)
OUT_OF_PLACE: Final = ("out_of_place",)

OPERATIONS: Final[Mapping[str, Operation]] = MappingProxyType(
    {
        one.name: one
        for one in (
            Operation("all_reduce", _twice_others, reduces=True, forms=IN_PLACE),
            Operation("reduce", _one, reduces=True, rooted=True, forms=IN_PLACE),
            Operation("broadcast", _one, rooted=True, forms=IN_PLACE),
            Operation("all_gather", _others, parted=True),
            Operation("reduce_scatter", _others, parted=True, reduces=True),
            Operation("all_to_all", _others, parted=True),
            Operation("gather", _others, parted=True, rooted=True),
            Operation("scatter", _others, parted=True, rooted=True),
            Operation("sendrecv", _one, forms=OUT_OF_PLACE),
            Operation("barrier", _one, forms=OUT_OF_PLACE),
        )
    }
)


@dataclass(frozen=True, slots=True)
class Settings:
    """What every rank must know. Travels to the ranks as JSON."""

    operations: tuple[str, ...] = ("all_reduce",)
    smallest_nbytes: int = 4
    largest_nbytes: int = 64 << 20
    factor: int | None = 2
    step_nbytes: int | None = None
    warmup: int = 5
    iterations: int | None = None
    dtype: str = "float32"
    op: str = "SUM"
    root: int = 0
    check: bool = True
    compression: str | None = None
    board_memory: bool = False

    def to_json(self) -> str:
        """For `from_json` in another process."""
        return json.dumps(dataclasses.asdict(self))

    @staticmethod
    def from_json(text: str) -> "Settings":
        """What `to_json` gave."""
        fields: dict[str, Any] = json.loads(text)
        return Settings(**fields | {"operations": tuple(fields["operations"])})


# --- arguments -------------------------------------------------------------------------------------------------------


def parse_size(text: str, option: str) -> int:
    """A number of bytes; K, M, G and T are powers of 1024.

    >>> parse_size("64M", "-e"), parse_size("4", "-b"), parse_size("1.5kb", "-b")
    (67108864, 4, 1536)

    Raises:
        ArgumentError: not such a number, or more than `LARGEST_NBYTES`.
    """
    found = _SIZE.fullmatch(text.strip())
    if found is not None:
        shift = 10 * (1 + _UNITS.index(found[2].upper())) if found[2] else 0
        nbytes = float(found[1]) * (1 << shift)
        if nbytes <= LARGEST_NBYTES and nbytes == int(nbytes):
            return int(nbytes)
    raise ArgumentError(option, repr(text), "a size in bytes, such as 4, 8K, 64M or 1G, up to 1T")


def parse_operations(text: str) -> tuple[str, ...]:
    """The names of operations, with commas between them; ``all`` for all of them. ``allreduce`` will do.

    Raises:
        ArgumentError: an operation that is not measured.
    """
    known = {_run_together(name): name for name in OPERATIONS}
    given = text.split(",")
    if [_run_together(name) for name in given] == [ALL]:
        return tuple(OPERATIONS)
    for name in given:
        if _run_together(name) not in known:
            raise ArgumentError("OPERATION", repr(name), f"one of {', '.join(OPERATIONS)}, or all")
    return tuple(dict.fromkeys(known[_run_together(name)] for name in given))


def _run_together(name: str) -> str:
    return re.sub(r"[\s_-]", "", name.lower())


def parse_dtype(text: str) -> str:
    """The canonical name of a dtype; ``float``, ``half``, ``double`` and ``bf16`` will do.

    Raises:
        ArgumentError: a dtype that hocket does not know by name.
    """
    name = ALIASES.get(text.lower(), text.lower())
    if name not in DTYPES:
        raise ArgumentError("-d", repr(text), f"one of {', '.join(DTYPES)}")
    return name


def parse_op(text: str) -> str:
    """The name of a reduce operation, in any case; ``prod`` and ``avg`` are nccl-tests' spellings.

    Raises:
        ArgumentError: not one of `REDUCE_OPS`.
    """
    name = {"PROD": "PRODUCT"}.get(text.upper(), text.upper())
    if name not in REDUCE_OPS:
        raise ArgumentError("-o", repr(text), f"one of {', '.join(REDUCE_OPS)}")
    return name


def check_settings(settings: Settings, ranks: int) -> None:
    """Returns where everything can be measured with so many ranks.

    Raises:
        ArgumentError: it names the option, what was given and what is allowed.
        UnsupportedError: the dtype does not reduce by the operation, or not with the compression.
    """
    given = settings
    if given.smallest_nbytes < 1:
        raise ArgumentError("-b", str(given.smallest_nbytes), "1 byte or more")
    if given.largest_nbytes < given.smallest_nbytes:
        allowed = f"{given.smallest_nbytes} or more, for that is the smallest size (-b)"
        raise ArgumentError("-e", str(given.largest_nbytes), allowed)
    if given.factor is not None and given.factor < 2:
        raise ArgumentError("-f", str(given.factor), "2 or more, or a step in bytes (-i)")
    if given.step_nbytes is not None and given.step_nbytes < 1:
        raise ArgumentError("-i", str(given.step_nbytes), "1 byte or more")
    if not 0 <= given.root < ranks:
        raise ArgumentError("-r", str(given.root), f"0 to {ranks - 1} with {ranks} {'rank' if ranks == 1 else 'ranks'}")
    if given.compression is not None and given.compression not in CODECS:
        raise ArgumentError("--compression", repr(given.compression), f"one of {', '.join(CODECS)}")
    if given.compression is not None and "all_reduce" not in given.operations:
        raise ArgumentError("--compression", given.compression, "nothing, where all_reduce is not measured")
    if any(OPERATIONS[name].reduces for name in given.operations):
        check_reduce(given.dtype, ReduceOp(given.op))
    if given.compression is not None:
        check_compression("all_reduce", given.dtype, ReduceOp(given.op), given.compression)


# --- sizes -----------------------------------------------------------------------------------------------------------


def sizes(settings: Settings) -> Iterator[int]:
    """The sizes that are asked for, ascending: each the factor times the one before, or larger by the step."""
    size = settings.smallest_nbytes
    while size <= settings.largest_nbytes:
        yield size
        size = size + settings.step_nbytes if settings.step_nbytes else size * (settings.factor or 2)


def count_of(operation: Operation, size_nbytes: int, itemsize: int, ranks: int) -> int:
    """Elements that fit: of the whole buffer, or of one rank's part. At least one, except for a barrier."""
    if operation.name == "barrier":
        return 0
    return max(1, size_nbytes // (itemsize * (ranks if operation.parted else 1)))


def size_of(operation: Operation, count: int, itemsize: int, ranks: int) -> int:
    """Bytes of the larger buffer for so many elements."""
    return count * itemsize * (ranks if operation.parted else 1)


def counts(operation: Operation, settings: Settings, ranks: int) -> list[int]:
    """The counts that are measured: each once, although several small sizes may come to the same whole elements."""
    itemsize = DTYPES[settings.dtype].itemsize
    return list(dict.fromkeys(count_of(operation, size, itemsize, ranks) for size in sizes(settings)))


# --- figures ---------------------------------------------------------------------------------------------------------


def bandwidths(operation: Operation, size_nbytes: int, time_s: float, ranks: int) -> tuple[float, float]:
    """``algbw`` and ``busbw`` in bytes per second."""
    algbw = size_nbytes / time_s
    return algbw, algbw * operation.factor(ranks)


def percentile(ascending: Sequence[float], share: float) -> float:
    """The smallest of the values that at least ``share`` of them do not exceed.

    >>> percentile([1, 2, 3, 4], 0.5), percentile([1, 2, 3, 4], 0.99)
    (2, 4)
    """
    rank = -(-len(ascending) * share // 1)
    return ascending[max(0, int(rank) - 1)]


def iterations_for(settings: Settings, call_s: float) -> int:
    """How often to repeat an operation that takes about ``call_s``."""
    if settings.iterations is not None:
        return settings.iterations
    return max(LEAST_ITERATIONS, min(MOST_ITERATIONS, int(FILLED_S / max(call_s, 1e-9))))
