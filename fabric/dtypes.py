"""numpy's dtypes as strings that travel, and back.

Data travels in native little-endian order, so that the byte order of an array is not part of its name: it is swapped
while its elements are copied to the board.
"""

import ast
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import ml_dtypes
import numpy as np

from hocket.protocol.dtypes import DTYPES
from hocket.protocol.errors import ArgumentTypeError, UnsupportedError, WireError

AnyDtype = np.dtype[Any]

_EXTENSION_NAMES: Final = (
    "bfloat16",
    *("float8_e4m3fn", "float8_e5m2", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fnuz"),
    *("float8_e5m2fnuz", "float8_e8m0fnu", "float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn"),
    *("int1", "int2", "int4", "uint1", "uint2", "uint4"),
)
"""What ml_dtypes may have; its older versions lack some. All but the first reduce nothing but move like any bytes."""
_EXTENSIONS: Final[dict[str, AnyDtype]] = {
    name: np.dtype(getattr(ml_dtypes, name)) for name in _EXTENSION_NAMES if hasattr(ml_dtypes, name)
}
_NAMED: Final[dict[str, AnyDtype]] = {
    **{name: np.dtype(name) for name in DTYPES if name not in _EXTENSIONS},
    **_EXTENSIONS,
}
_PLAIN = re.compile(r"[USV]\d{1,10}|[Mm]8(\[([1-9]\d{0,9})?(Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as)\])?", re.ASCII)
_RECORD_KEYS = frozenset({"names", "formats", "offsets", "titles", "itemsize"})


@lru_cache(maxsize=1024)
def wire_dtype(dtype: AnyDtype, argument: str = "tensor") -> str:
    """The name under which elements of ``dtype`` travel, which `numpy_dtype` turns back (in native byte order).

    A dtype of `hocket.protocol.dtypes.DTYPES` by its canonical name; others of ml_dtypes by theirs; strings, dates and
    untyped bytes in numpy's short form (``"U5"``, ``"M8[ns]"``, ``"V7"``); a record as the literal from which numpy
    makes it. ``argument`` names the caller's argument in errors.

    Raises:
        ArgumentTypeError: the dtype holds Python objects.
        UnsupportedError: its elements mean different things on different machines (longdouble), or hocket does not
            know it.
    """
    if dtype.hasobject:
        allowed = "an array without Python objects (object collectives such as broadcast_object_list take any value)"
        raise ArgumentTypeError(argument, f"of object dtype {dtype}", allowed)
    form = _form(dtype)
    return form if isinstance(form, str) else repr(form)


@lru_cache(maxsize=1024)
def numpy_dtype(name: str) -> AnyDtype:
    """The dtype, in native byte order, whose `wire_dtype` is ``name``.

    Raises:
        WireError: ``name`` is not one that `wire_dtype` gives.
    """
    try:
        form = ast.literal_eval(name) if name[:1] in ("{", "(") else name
        dtype: AnyDtype = _from_form(form)
        # Only the one spelling passes: names are compared as strings where ranks must agree.
        if wire_dtype(dtype) == name:
            return dtype
    except (ValueError, SyntaxError, TypeError, KeyError, OverflowError, RecursionError, MemoryError) as broken:
        raise WireError(f"not a dtype: {name!r:.200}") from broken
    raise WireError(f"not a dtype: {name!r:.200}")


def _form(dtype: AnyDtype) -> Any:
    """``dtype`` as nested Python literals: a name, a pair (form, shape), or the dict of which numpy makes a record."""
    if dtype.subdtype is not None:
        return _form(dtype.subdtype[0]), dtype.subdtype[1]
    if dtype.names is not None:
        return _record_form(dtype)
    if _EXTENSIONS.get(dtype.name) == dtype or dtype.name in DTYPES:
        return dtype.name
    if dtype.kind in "USmM" or dtype.type is np.void:
        return dtype.newbyteorder("=").str[1:]
    raise UnsupportedError(dtype.name, "moving between ranks", "convert it to float64, or to another portable dtype")


def _record_form(dtype: AnyDtype) -> dict[str, Any]:
    names = list(dtype.names or ())
    table: Mapping[str, Any] = dtype.fields or {}
    fields = [table[name] for name in names]
    form = {
        "names": names,
        "formats": [_form(field[0]) for field in fields],
        "offsets": [field[1] for field in fields],
        "itemsize": dtype.itemsize,
    }
    # A title may be any object; it is a second name and no part of the layout, so that only text is kept.
    titles = [field[2] if len(field) > 2 and isinstance(field[2], str) else None for field in fields]
    return {**form, "titles": titles} if any(title is not None for title in titles) else form


def _from_form(form: Any) -> Any:
    """What `_form` took apart. Raises one of the errors that `numpy_dtype` translates where it is no such thing."""
    match form:
        case str() if form in _NAMED:
            return _NAMED[form]
        case str() if _PLAIN.fullmatch(form):
            return np.dtype(form)
        case (inner, tuple() as shape):
            return np.dtype((_from_form(inner), shape))
        case dict() if set(form) <= _RECORD_KEYS:
            record: Any = {**form, "formats": [_from_form(inner) for inner in form["formats"]]}
            return np.dtype(record)
        case _:
            raise ValueError(f"not a dtype: {form!r:.200}")
