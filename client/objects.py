"""Objects as bytes and back, exactly and safely: msgpack for what it knows, marked arrays for the rest.

The contents of numpy arrays and long bytes lie behind the msgpack part, in the order in which they are met:

    kind of packing (uint8), length of the msgpack part (uint64), msgpack part, contents

Types travel exactly: a subclass (`IntEnum`, `namedtuple`, `OrderedDict`, ...) would arrive as something else and is
refused. Two references to one object arrive as two objects. A pickle is made, and loaded, only where that is allowed.
"""

import io
import pickle
import struct
from typing import Any, Final

import msgpack

from hocket.client.object_codec import Decoder, Encoder
from hocket.client.object_form import CannotTravelError, require, text_of, type_name
from hocket.protocol.errors import SerialiseError, WireError

_HEAD: Final = struct.Struct("<BQ")
_PLAIN, _PICKLED = 0, 1
_ALLOW: Final = "call connect(allow_pickle=True) on every rank"


def dumps(obj: object, *, rank: int, allow_pickle: bool = False) -> bytes:
    """``obj`` as bytes, from which `loads` makes an equal object of the same types.

    Args:
        obj: None, bool, int, float, complex, str, bytes, bytearray, list, tuple, dict, set, frozenset, date, time,
            datetime, timedelta, timezone, ZoneInfo, numpy scalars and arrays without Python objects, nested at will.
        rank: who holds it, for errors.
        allow_pickle: whether to pickle, as a whole, an object that holds anything else.

    Raises:
        SerialiseError: it holds something else, contains itself, is nested more than `OBJECT_DEPTH` deep, or cannot be
            pickled either (with the reason as ``__cause__``).
    """
    encoder = Encoder()
    try:
        tree = _pack(encoder.encode(obj, 0))
    except CannotTravelError as reason:
        found = reason
    except RecursionError as error:
        found = CannotTravelError(obj, "nested too deep for what is left of the call stack")
        found.__cause__ = error
    except (TypeError, ValueError) as error:  # longer than msgpack's limits; a class that cannot be hashed
        found = CannotTravelError(obj, f"something in it cannot be packed: {text_of(error)}")
        found.__cause__ = error
    else:
        return b"".join([_HEAD.pack(_PLAIN, len(tree)), tree, *encoder.contents])
    if allow_pickle:
        return _pickled(obj, rank, found)
    detail = f"{found.sentence()}; to have it pickled, {_ALLOW}"
    raise SerialiseError(rank, type_name(type(found.value)), detail) from found.__cause__


def loads(data: bytes | memoryview, *, rank: int, allow_pickle: bool = False) -> object:
    """The object that ``rank`` put into `dumps`; arrays are new, writable and contiguous.

    Memory is bounded by what ``data`` holds, whatever lengths it announces.

    Raises:
        SerialiseError: it is a pickle, which is not allowed here or cannot be loaded here (the class is missing, for
            example); or it names a time zone that this host does not know.
        WireError: ``data`` is not what `dumps` makes.
    """
    view = memoryview(data).cast("B")
    if len(view) < _HEAD.size:
        raise WireError(f"{len(view)} bytes are too few for an object")
    packing, length = _HEAD.unpack(view[: _HEAD.size])
    end = _HEAD.size + length
    if packing not in (_PLAIN, _PICKLED) or end > len(view):
        raise WireError(f"not the head of an object: packing {packing}, {length} of {len(view)} bytes")
    tree, contents = view[_HEAD.size : end], view[end:]
    try:
        if packing == _PICKLED:
            name = require(str, Decoder(rank, contents[:0]).decode(tree))
            return _unpickle(name, contents, rank, allow_pickle)
        return Decoder(rank, contents).decode(tree)
    except (SerialiseError, WireError, MemoryError):
        raise
    except Exception as broken:  # whatever a constructor makes of nonsense
        raise WireError(f"not an object that hocket packed: {text_of(broken):.200}") from broken


def _pack(tree: Any) -> bytes:
    # Lone surrogates are legal in a str. The tree has exact types only; strict_types would show a slip of ours.
    packed: bytes = msgpack.packb(tree, strict_types=True, unicode_errors="surrogatepass")
    return packed


# --- pickles ---------------------------------------------------------------------------------------------------------


def _pickled(obj: object, rank: int, found: CannotTravelError) -> bytes:
    """The whole object as a pickle, headed by the type that asked for it. Raises `SerialiseError`."""
    try:
        data = pickle.dumps(obj, protocol=5)
    except Exception as error:  # __reduce__ may raise anything
        if _pickles(found.value):
            found = CannotTravelError(obj, "")
        detail = f"{found.sentence()}; pickling failed, too" if found.why else "pickling failed"
        raise SerialiseError(rank, type_name(type(found.value)), f"{detail}: {text_of(error)}") from error
    name = _pack(type_name(type(found.value)))
    return b"".join([_HEAD.pack(_PICKLED, len(name)), name, data])


def _pickles(value: object) -> bool:
    try:
        pickle.dumps(value, protocol=5)
    except Exception:
        return False
    return True


class _Unpickler(pickle.Unpickler):
    """Remembers what was looked up in vain."""

    missing: str | None = None

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        self.missing = f"{module_name}.{global_name}"
        found = super().find_class(module_name, global_name)
        self.missing = None
        return found


def _unpickle(name: str, data: memoryview, rank: int, allow_pickle: bool) -> object:
    if not allow_pickle:
        raise SerialiseError(rank, name, f"rank {rank} pickled it, and this rank does not load pickles: {_ALLOW}")
    unpickler = _Unpickler(io.BytesIO(data))
    try:
        return unpickler.load()
    except Exception as error:  # __setstate__ may raise anything
        detail = f"the pickle from rank {rank} cannot be loaded here: {text_of(error)}"
        raise SerialiseError(rank, unpickler.missing or name, detail) from error
