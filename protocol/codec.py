"""Messages to bytes and back, strictly: what is unknown, missing, extra or of the wrong type is a `WireError`.

A message is a msgpack array: its code, then its fields in order. Records are arrays of their fields.
"""

import dataclasses
import types
import typing
from collections.abc import Callable
from operator import attrgetter, itemgetter
from typing import Any

import msgpack

from hocket.protocol.errors import WireError
from hocket.protocol.limits import MESSAGE_NBYTES
from hocket.protocol.messages import MESSAGES, Message, Record

Check = Callable[[Any], Any]
INT_BOUND = 1 << 63


def encode(message: Message) -> bytes:
    """The bytes of a message."""
    form = _FORMS[type(message)]
    fields = form.fields(message) if form.packs_as_it_is else [_plain(field) for field in form.fields(message)]
    data: bytes = msgpack.packb((message.code, *fields))
    return data


def decode(data: bytes | bytearray | memoryview) -> Message:
    """The message in ``data``. Raises `WireError` unless it is exactly one, whole and well typed."""
    if len(data) > MESSAGE_NBYTES:
        raise WireError(f"message of {len(data)} bytes, allowed are {MESSAGE_NBYTES}")
    try:
        values = msgpack.unpackb(data, use_list=True, strict_map_key=True)
    except (ValueError, TypeError, RecursionError, msgpack.exceptions.UnpackException) as broken:
        raise WireError(f"not msgpack: {bytes(data[:32])!r}") from broken
    if not isinstance(values, list) or not values or type(values[0]) is not int:
        raise WireError("a message is an array that begins with its code")
    kind = MESSAGES.get(values[0])
    if kind is None:
        raise WireError(f"unknown message code {values[0]}")
    return typing.cast(Message, _build(kind, values[1:]))


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Record):
        return [_plain(field) for field in _FORMS[type(value)].fields(value)]
    return value


def _build(kind: type, values: list[Any]) -> Any:
    form = _FORMS[kind]
    if len(values) != len(form.all):
        raise WireError(f"{kind.__name__} has {len(form.all)} fields, {len(values)} came")
    # scalars in one comparison, for this is done for every message; what it finds wrong is looked at one by one
    plain = tuple(map(type, form.pick(values))) == form.scalars
    plain = plain and all(values[index] < INT_BOUND for index in form.ints)
    for index, name, check in form.others if plain else form.all:
        try:
            values[index] = check(values[index])
        except TypeError as broken:
            raise WireError(f"{kind.__name__}.{name}: {broken}") from broken
    return kind(*values)


def _exactly(expected: type) -> Check:
    def check(value: Any) -> Any:
        fits = type(value) is expected
        if not fits or (expected is int and not -INT_BOUND <= value < INT_BOUND):
            raise TypeError(f"expected {expected.__name__}, found {type(value).__name__}")
        return value

    return check


def _facts(value: Any) -> Any:
    if type(value) is not dict or not all(type(key) is str for key in value):
        raise TypeError(f"expected the facts of an error, found {type(value).__name__}")
    return value


def _record(kind: type) -> Check:
    def check(value: Any) -> Any:
        if type(value) is not list:
            raise TypeError(f"expected a {kind.__name__}, found {type(value).__name__}")
        return _build(kind, value)

    return check


def _tuple_of(item: Check, of: type) -> Check:
    quick = {of} & {str, bytes, float, bool}  # nothing but the type is to be checked

    def check(value: Any) -> Any:
        if type(value) is not list:
            raise TypeError(f"expected an array, found {type(value).__name__}")
        if not set(map(type, value)) <= quick:
            return tuple([item(entry) for entry in value])
        return tuple(value)

    return check


def _optional(inner: Check) -> Check:
    return lambda value: None if value is None else inner(value)


def _check_for(annotation: Any) -> Check:
    if annotation in (int, float, str, bytes, bool):
        return _exactly(annotation)
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is dict:
        return _facts
    if origin is tuple:
        assert len(arguments) == 2 and arguments[1] is ..., f"only tuple[x, ...] travels: {annotation}"
        return _tuple_of(_check_for(arguments[0]), arguments[0])
    if origin is types.UnionType or origin is typing.Union:
        inner = [argument for argument in arguments if argument is not type(None)]
        assert len(inner) == 1, f"only a union with None travels: {annotation}"
        return _optional(_check_for(inner[0]))
    assert isinstance(annotation, type) and issubclass(annotation, Record), f"{annotation} does not travel"
    _form_of(annotation)
    return _record(annotation)


Field = tuple[int, str, Check]
"""index, name and check"""


@dataclasses.dataclass(frozen=True, slots=True)
class _Form:
    """What is known of a kind of message or record."""

    fields: Callable[[Any], tuple[Any, ...]]
    """the values of all fields"""
    packs_as_it_is: bool
    """whether msgpack knows the fields' types: no records among them"""
    all: tuple[Field, ...]
    others: tuple[Field, ...]
    """fields that are no scalars"""
    pick: Callable[[list[Any]], tuple[Any, ...]]
    """gives the values of scalars, of which `scalars` are the types"""
    scalars: tuple[type, ...]
    ints: tuple[int, ...]
    """indices of ints; msgpack's may be too large"""


_SCALARS = (int, float, str, bytes, bool)
_FORMS: dict[type, _Form] = {}


def _form_of(kind: type) -> _Form:
    if kind not in _FORMS:
        hints = typing.get_type_hints(kind)
        names = tuple(field.name for field in dataclasses.fields(kind))
        fields = tuple((index, name, _check_for(hints[name])) for index, name in enumerate(names))
        scalars = tuple(index for index, name in enumerate(names) if hints[name] in _SCALARS)
        _FORMS[kind] = _Form(
            attrgetter(*names) if len(names) > 1 else lambda value: tuple(getattr(value, name) for name in names),
            not any(_has_records(hints[name]) for name in names),
            fields,
            tuple(field for field in fields if field[0] not in scalars),
            itemgetter(*scalars) if len(scalars) > 1 else lambda values: tuple(values[index] for index in scalars),
            tuple(hints[names[index]] for index in scalars),
            tuple(index for index in scalars if hints[names[index]] is int),
        )
    return _FORMS[kind]


def _has_records(annotation: Any) -> bool:
    if isinstance(annotation, type) and issubclass(annotation, Record):
        return True
    return any(_has_records(argument) for argument in typing.get_args(annotation))


for _kind in MESSAGES.values():
    _form_of(_kind)
