"""What both directions of `hocket.client.objects` share: kinds of values, dtypes as trees, names for errors.

A tree is what msgpack packs. A value that msgpack lacks is an array whose first item is a *mark*: an ext without data,
whose code is the value's `Kind`. No list of the caller begins like that.
"""

import enum
from typing import Any, Final

import msgpack
import numpy as np

from hocket.fabric.dtypes import numpy_dtype, wire_dtype
from hocket.protocol.errors import UnsupportedError

Dtype = np.dtype[Any]


class Kind(enum.IntEnum):
    """What a marked array stands for: the code of its first item."""

    INT = 1
    COMPLEX = 2
    BYTES = 3
    BYTEARRAY = 4
    TUPLE = 5
    SET = 6
    FROZENSET = 7
    DICT = 8
    DATE = 9
    TIME = 10
    DATETIME = 11
    TIMEDELTA = 12
    TIMEZONE = 13
    ZONEINFO = 14
    ARRAY = 15
    SCALAR = 16
    TEXT_SCALAR = 17
    BYTES_SCALAR = 18
    RECORD = 19
    SUBARRAY = 20


MARKS: Final = (None, *(msgpack.ExtType(kind, b"") for kind in Kind))
"""The first item of a marked array, at the place of its kind."""


class CannotTravelError(Exception):
    """``value`` is at fault, for the reason ``why``; containers add the way to it, innermost step first."""

    def __init__(self, value: object, why: str) -> None:
        super().__init__(why)
        self.value, self.why = value, why
        self.steps: list[str] = []

    def sentence(self) -> str:
        """Where in the object, and why."""
        way = "".join(reversed(self.steps))
        if len(way) > 200:
            way = f"{way[:100]}...{way[-80:]}"
        return f"at {way}: {self.why}" if way else self.why


# --- dtypes ----------------------------------------------------------------------------------------------------------


def dtype_tree(dtype: Dtype, value: object) -> Any:
    """A dtype as a tree: byte order and name of an elementary one, else a marked array of its parts.

    Raises:
        CannotTravelError: ``value``, whose dtype it is, cannot travel for it.
    """
    if dtype.hasobject:
        raise CannotTravelError(value, f"dtype {dtype!s:.100} holds Python objects")
    if dtype.subdtype is not None:
        return [MARKS[Kind.SUBARRAY], dtype_tree(dtype.subdtype[0], value), list(dtype.subdtype[1])]
    if dtype.names is None:
        try:
            return (">" if dtype.newbyteorder("<") != dtype else "<") + _element_name(dtype)
        except UnsupportedError as reason:
            raise CannotTravelError(value, str(reason)) from reason
    by_name: Any = dtype.fields
    fields = [(*by_name[name], None)[:3] for name in dtype.names]
    titles = [title for _, _, title in fields]
    if dtype.type not in (np.void, np.record) or not {type(title) for title in titles} <= {str, type(None)}:
        raise CannotTravelError(value, f"dtype {dtype!s:.100} is of a special kind")
    forms = [dtype_tree(field, value) for field, _, _ in fields]
    layout = [forms, [offset for _, offset, _ in fields], titles, dtype.itemsize]
    return [MARKS[Kind.RECORD], list(dtype.names), *layout, dtype.type is np.record]


def _element_name(dtype: Dtype) -> str:
    """Name of an elementary dtype without its byte order."""
    if dtype.kind in "mM" and np.datetime_data(dtype)[1] < 1:
        # numpy makes such a dtype, and divides by zero, which ends the process, when it compares it.
        raise UnsupportedError(str(dtype), "moving between ranks", "its unit has no length")
    if dtype.char in "gG":  # longdouble: the bits of its fraction tell whose format it is
        return f"{dtype.char}{np.finfo(dtype).nmant}"
    # longlong equals int64, yet is a type of its own
    return dtype.char if dtype.char in "qQ" else wire_dtype(dtype)


def dtype_of(form: Any) -> Dtype:
    """A dtype from its tree, whose marked parts are built already. Raises `WireError`, or anything, if it is none."""
    if isinstance(form, np.dtype):
        return form
    order, name = require(str, form)[:1], form[1:]
    # Literals are not asked for here. A unit of length 0 must not even become a dtype: see `_element_name`.
    if order not in ("<", ">") or name.startswith(("{", "(", "M8[0", "m8[0")):
        raise ValueError(f"not a dtype: {form!r:.100}")
    dtype = np.dtype(name[0]) if name[:1] in ("q", "Q", "g", "G") else numpy_dtype(name)
    if _element_name(dtype) != name:
        raise ValueError(f"dtype {name!r:.100} is of another kind of machine")
    ordered = dtype.newbyteorder(order)
    return dtype if ordered == dtype else ordered  # native is "=", whatever its name on this machine


def record_dtype(
    names: list[str], forms: list[Any], offsets: list[int], titles: list[str | None], itemsize: int, is_record: bool
) -> Dtype:
    """A record's dtype from the parts of its tree."""
    formats = [dtype_of(form) for form in forms]
    layout: Any = {"names": names, "formats": formats, "offsets": offsets, "titles": titles, "itemsize": itemsize}
    dtype = np.dtype(layout)
    return np.dtype((np.record, dtype)) if is_record else dtype


# --- names and checks ------------------------------------------------------------------------------------------------


def type_name(kind: type) -> str:
    """A type as errors name it: with its module, unless that is builtins."""
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def text_of(error: BaseException) -> str:
    """An exception as text, even where its own `__str__` fails."""
    try:
        said = str(error)
    except Exception:
        said = "(its own text raises an error)"
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def require(kind: type, value: Any) -> Any:
    """``value`` itself. Raises TypeError where its type is not exactly ``kind``: many constructors take too much."""
    if type(value) is not kind:
        raise TypeError(f"{type(value).__name__} instead of {kind.__name__}")
    return value
