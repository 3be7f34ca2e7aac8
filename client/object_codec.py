"""One object taken apart into a tree for msgpack, and built again while msgpack reads the tree."""

import datetime
import math
import zoneinfo
from collections.abc import Callable
from typing import Any, Final

import msgpack
import numpy as np

from hocket.client.arrays import flat_bytes
from hocket.client.object_form import (
    MARKS,
    CannotTravelError,
    Kind,
    dtype_of,
    dtype_tree,
    record_dtype,
    require,
    type_name,
)
from hocket.protocol.errors import SerialiseError
from hocket.protocol.limits import OBJECT_DEPTH, OBJECT_INLINE_NBYTES

_ATOMS: Final = frozenset({type(None), bool, float, str})
"""Types whose every value msgpack takes as it is."""
_TEXT: Final = frozenset({str})


# --- to a tree -------------------------------------------------------------------------------------------------------


class Encoder:
    """Takes one object apart: `encode` gives the tree for msgpack, ``contents`` collects what lies behind it."""

    def __init__(self) -> None:
        self.contents: list[Any] = []
        self._around: set[int] = set()

    def encode(self, value: Any, depth: int) -> Any:
        """The tree of ``value``, which lies in ``depth`` containers."""
        kind = type(value)
        if kind in _ATOMS:
            return value
        if kind is int:
            if _fits(value, value):
                return value
            return [MARKS[Kind.INT], value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)]
        encoder = _ENCODERS.get(kind)
        if encoder is not None:
            return encoder(self, value, depth)
        if issubclass(kind, np.generic) and kind is value.dtype.type:
            return [MARKS[Kind.SCALAR], dtype_tree(value.dtype, value), value.tobytes()]
        base = next((base for base in kind.__mro__ if base in _ENCODERS or base in _ATOMS or base is int), None)
        if base is None:
            raise CannotTravelError(value, "not one of the types that travel as they are")
        raise CannotTravelError(value, f"a subclass of {type_name(base)}, which would arrive as a plain one")

    def _items(self, container: Any, items: list[Any], depth: int, step: Callable[[int], str]) -> list[Any]:
        """The trees of a container's items; ``step`` names the way to the one with that index."""
        if depth >= OBJECT_DEPTH:
            raise CannotTravelError(container, f"nested more than {OBJECT_DEPTH} deep")
        kinds = set(map(type, items))
        if kinds <= _ATOMS or (kinds == {int} and _fits(min(items), max(items))):
            return items
        if id(container) in self._around:
            raise CannotTravelError(container, "contains itself")
        self._around.add(id(container))
        trees: list[Any] = []
        try:
            for item in items:
                trees.append(self.encode(item, depth + 1))
        except CannotTravelError as reason:
            reason.steps.append(step(len(trees)))
            raise
        self._around.discard(id(container))
        return trees

    # Each container is listed or copied first, in one step, so that other threads do not change it underway.

    def _list(self, value: list[Any], depth: int) -> Any:
        return self._items(value, list(value), depth, "[{}]".format)

    def _tuple(self, value: tuple[Any, ...], depth: int) -> Any:
        return [MARKS[Kind.TUPLE], *self._items(value, list(value), depth, "[{}]".format)]

    def _set(self, value: set[Any] | frozenset[Any], depth: int) -> Any:
        kind = Kind.SET if type(value) is set else Kind.FROZENSET
        return [MARKS[kind], *self._items(value, list(value), depth, lambda _: "<item of the set>")]

    def _dict(self, value: dict[Any, Any], depth: int) -> Any:
        now = value.copy()
        keys = list(now)
        plain = _TEXT.issuperset(map(type, keys))
        key_trees = keys if plain else self._items(value, keys, depth, "<key number {}>".format)
        trees = self._items(value, list(now.values()), depth, lambda index: f"[{_key_name(keys[index])}]")
        return dict(zip(keys, trees, strict=True)) if plain else [MARKS[Kind.DICT], key_trees, trees]

    def _bytes(self, value: bytes, depth: int) -> Any:
        if len(value) <= OBJECT_INLINE_NBYTES:
            return value
        self.contents.append(value)
        return [MARKS[Kind.BYTES], len(value)]

    def _bytearray(self, value: bytearray, depth: int) -> Any:
        return [MARKS[Kind.BYTEARRAY], self._bytes(bytes(value), depth)]

    def _complex(self, value: complex, depth: int) -> Any:
        return [MARKS[Kind.COMPLEX], value.real, value.imag]

    def _date(self, value: datetime.date, depth: int) -> Any:
        return [MARKS[Kind.DATE], value.year, value.month, value.day]

    def _time(self, value: datetime.time | datetime.datetime, depth: int) -> Any:
        clock = [value.hour, value.minute, value.second, value.microsecond, self._zone(value), value.fold]
        if isinstance(value, datetime.datetime):
            return [MARKS[Kind.DATETIME], value.year, value.month, value.day, *clock]
        return [MARKS[Kind.TIME], *clock]

    def _zone(self, value: datetime.time | datetime.datetime) -> Any:
        try:
            return self.encode(value.tzinfo, 0)
        except CannotTravelError as reason:
            reason.steps.append(".tzinfo")
            raise

    def _timedelta(self, value: datetime.timedelta, depth: int) -> Any:
        return [MARKS[Kind.TIMEDELTA], value.days, value.seconds, value.microseconds]

    def _timezone(self, value: Any, depth: int) -> Any:
        offset, *name = value.__getinitargs__()  # the only way to tell a name that was given from a made one
        return [MARKS[Kind.TIMEZONE], self._timedelta(offset, 0), *name]

    def _zoneinfo(self, value: zoneinfo.ZoneInfo, depth: int) -> Any:
        if type(value.key) is not str:
            raise CannotTravelError(value, "a time zone without a key")
        return [MARKS[Kind.ZONEINFO], value.key]

    def _array(self, value: np.ndarray[Any, Any], depth: int) -> Any:
        form = dtype_tree(value.dtype, value)
        if value.nbytes > 0 and not value.flags.c_contiguous:
            contiguous = np.zeros(value.shape, value.dtype)  # zeros: the padding of records travels, too
            contiguous[...] = value
            value = contiguous
        self.contents.append(flat_bytes(value))
        return [MARKS[Kind.ARRAY], form, list(value.shape)]

    def _text_scalar(self, value: np.str_, depth: int) -> Any:
        return [MARKS[Kind.TEXT_SCALAR], value[:]]  # an array would drop zeros at its end

    def _bytes_scalar(self, value: np.bytes_, depth: int) -> Any:
        return [MARKS[Kind.BYTES_SCALAR], self._bytes(value[:], depth)]


_ENCODERS: Final[dict[type, Callable[[Encoder, Any, int], Any]]] = {
    bytes: Encoder._bytes,
    bytearray: Encoder._bytearray,
    complex: Encoder._complex,
    list: Encoder._list,
    tuple: Encoder._tuple,
    set: Encoder._set,
    frozenset: Encoder._set,
    dict: Encoder._dict,
    datetime.date: Encoder._date,
    datetime.time: Encoder._time,
    datetime.datetime: Encoder._time,
    datetime.timedelta: Encoder._timedelta,
    datetime.timezone: Encoder._timezone,
    zoneinfo.ZoneInfo: Encoder._zoneinfo,
    np.ndarray: Encoder._array,
    np.str_: Encoder._text_scalar,
    np.bytes_: Encoder._bytes_scalar,
}


def _fits(least: int, greatest: int) -> bool:
    """Whether msgpack has these integers and those between them."""
    return least >= -(1 << 63) and greatest < 1 << 64


def _key_name(key: object) -> str:
    """A dict's key in an error: shown where that is short and safe."""
    if isinstance(key, str | bytes):
        return repr(key[:40])
    short = key is None or isinstance(key, float) or (isinstance(key, int) and key.bit_length() <= 64)
    return repr(key) if short else f"<{type_name(type(key))}>"


# --- from a tree -----------------------------------------------------------------------------------------------------


class Decoder:
    """Builds one object, from the leaves up, while msgpack reads its tree; ``contents`` is what lies behind that."""

    def __init__(self, rank: int, contents: memoryview) -> None:
        self.rank = rank
        self._contents = contents
        self._marks = 0
        """Marks met so far that do not yet head an array: none may be left over."""

    def decode(self, tree: memoryview) -> object:
        """The object; anything may be raised where the bytes are not what `Encoder` makes."""
        _refuse_overdrawn(tree)
        value = msgpack.unpackb(
            tree, list_hook=self._build, ext_hook=self._mark, unicode_errors="surrogatepass", timestamp=3
        )
        if self._marks or len(self._contents):
            raise ValueError(f"{self._marks} marks and {len(self._contents)} bytes are left over")
        return value

    def _mark(self, code: int, data: bytes) -> "_Mark":
        if data:
            raise ValueError(f"a mark of {len(data)} bytes")
        self._marks += 1
        return _READ[code]

    def _build(self, items: list[Any]) -> object:
        if not items or type(items[0]) is not _Mark:
            return items
        self._marks -= 1
        return items[0].decoder(self, *items[1:])

    def _take(self, nbytes: int) -> memoryview:
        if not 0 <= nbytes <= len(self._contents):
            raise ValueError(f"{nbytes} bytes are announced, {len(self._contents)} are left")
        taken, self._contents = self._contents[:nbytes], self._contents[nbytes:]
        return taken

    def _bytes(self, nbytes: int) -> bytes:
        return bytes(self._take(require(int, nbytes)))

    def _zoneinfo(self, key: str) -> zoneinfo.ZoneInfo:
        try:
            return zoneinfo.ZoneInfo(require(str, key))
        except zoneinfo.ZoneInfoNotFoundError as missing:
            detail = f"this host does not know the time zone {key!r:.100}: install the system's or PyPI's tzdata"
            raise SerialiseError(self.rank, "zoneinfo.ZoneInfo", detail) from missing

    def _array(self, form: Any, shape: list[int]) -> np.ndarray[Any, Any]:
        if len(shape) > 64 or any(require(int, size) < 0 for size in shape):
            raise ValueError(f"not a shape: {shape!r:.100}")
        dtype = dtype_of(form)
        return _filled(tuple(shape), dtype, self._take(math.prod(shape) * dtype.itemsize))

    def _scalar(self, form: Any, data: bytes) -> object:
        dtype = dtype_of(form)
        if len(require(bytes, data)) != dtype.itemsize:
            raise ValueError(f"{len(data)} bytes are no {dtype}")
        return _filled((), dtype, memoryview(data))[()]


class _Mark:
    """A mark that was read, with the function that builds what it stands for."""

    __slots__ = ("decoder",)

    def __init__(self, decoder: Callable[..., object]) -> None:
        self.decoder = decoder


def _refuse_overdrawn(tree: memoryview) -> None:
    """Walks the tree without building it, so that no list is made for items that are not there."""
    unpacker = msgpack.Unpacker(max_buffer_size=max(len(tree), 1))
    unpacker.feed(tree)
    unpacker.skip()


def _filled(shape: tuple[int, ...], dtype: np.dtype[Any], data: memoryview) -> np.ndarray[Any, Any]:
    array: np.ndarray[Any, Any] = np.ndarray(shape, dtype)  # numpy.empty would widen text of no characters
    flat_bytes(array)[:] = np.frombuffer(data, np.uint8)
    return array


_DECODERS: Final[dict[Kind, Callable[..., object]]] = {
    Kind.INT: lambda _, data: int.from_bytes(require(bytes, data), "little", signed=True),
    Kind.COMPLEX: lambda _, real, imag: complex(require(float, real), require(float, imag)),
    Kind.BYTES: Decoder._bytes,
    Kind.BYTEARRAY: lambda _, data: bytearray(require(bytes, data)),
    Kind.TUPLE: lambda _, *items: items,
    Kind.SET: lambda _, *items: set(items),
    Kind.FROZENSET: lambda _, *items: frozenset(items),
    Kind.DICT: lambda _, keys, values: dict(zip(keys, values, strict=True)),
    Kind.DATE: lambda _, *parts: datetime.date(*parts),
    Kind.TIME: lambda _, *parts: datetime.time(*parts[:-1], fold=parts[-1]),
    Kind.DATETIME: lambda _, *parts: datetime.datetime(*parts[:-1], fold=parts[-1]),
    Kind.TIMEDELTA: lambda _, *parts: datetime.timedelta(*parts),
    Kind.TIMEZONE: lambda _, *parts: datetime.timezone(*parts),
    Kind.ZONEINFO: Decoder._zoneinfo,
    Kind.ARRAY: Decoder._array,
    Kind.SCALAR: Decoder._scalar,
    Kind.TEXT_SCALAR: lambda _, text: np.str_(require(str, text)),
    Kind.BYTES_SCALAR: lambda _, data: np.bytes_(require(bytes, data)),
    Kind.RECORD: lambda _, *parts: record_dtype(*parts),
    Kind.SUBARRAY: lambda _, form, shape: np.dtype((dtype_of(form), tuple(shape))),
}
_READ: Final = {int(kind): _Mark(decoder) for kind, decoder in _DECODERS.items()}
