"""Messages to bytes and back, strictly: what is unknown, missing, extra or of the wrong type is a `WireError`.

A message is a msgpack array: its code, then its fields in order. Records are arrays of their fields.
"""

import dataclasses
import types
import typing
from collections.abc import Callable
from typing import Any

import msgpack

from hocket.protocol.errors import WireError
from hocket.protocol.limits import MESSAGE_NBYTES
from hocket.protocol.messages import MESSAGES, Message, Record

Check = Callable[[Any], Any]
INT_BOUND = 1 << 63


def encode(message: Message) -> bytes:
    """The bytes of a message."""
    fields = [_plain(getattr(message, name)) for name in _names(type(message))]
    data: bytes = msgpack.packb([message.code, *fields])
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
        return [_plain(getattr(value, name)) for name in _names(type(value))]
    return value


def _names(kind: type) -> tuple[str, ...]:
    return tuple(_CHECKS[kind])


def _build(kind: type, values: list[Any]) -> Any:
    checks = _CHECKS[kind]
    if len(values) != len(checks):
        raise WireError(f"{kind.__name__} has {len(checks)} fields, {len(values)} came")
    made = []
    for (name, check), value in zip(checks.items(), values, strict=True):
        try:
            made.append(check(value))
        except TypeError as broken:
            raise WireError(f"{kind.__name__}.{name}: {broken}") from broken
    return kind(*made)


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


def _tuple_of(item: Check) -> Check:
    def check(value: Any) -> Any:
        if type(value) is not list:
            raise TypeError(f"expected an array, found {type(value).__name__}")
        return tuple(item(entry) for entry in value)

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
        return _tuple_of(_check_for(arguments[0]))
    if origin is types.UnionType or origin is typing.Union:
        inner = [argument for argument in arguments if argument is not type(None)]
        assert len(inner) == 1, f"only a union with None travels: {annotation}"
        return _optional(_check_for(inner[0]))
    assert isinstance(annotation, type) and issubclass(annotation, Record), f"{annotation} does not travel"
    _checks_of(annotation)
    return _record(annotation)


_CHECKS: dict[type, dict[str, Check]] = {}


def _checks_of(kind: type) -> None:
    if kind not in _CHECKS:
        hints = typing.get_type_hints(kind)
        fields = dataclasses.fields(kind)
        _CHECKS[kind] = {field.name: _check_for(hints[field.name]) for field in fields}


for _kind in MESSAGES.values():
    _checks_of(_kind)
