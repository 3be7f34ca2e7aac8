"""One example of every message, made from its field types, always the same."""

import dataclasses
import types
import typing
from typing import Any

from hocket.protocol.messages import Message, Record


def example_of(kind: type[Message] | type[Record]) -> Any:
    """An instance whose fields all differ from one another."""
    hints = typing.get_type_hints(kind)
    return kind(*(_value(hints[field.name], index) for index, field in enumerate(dataclasses.fields(kind), 1)))


def _value(annotation: Any, index: int) -> Any:
    simple: dict[Any, Any] = {
        int: 1000 + index,
        float: index + 0.5,
        str: f"text {index}",
        bytes: bytes([index, 0, 255]),
        bool: index % 2 == 1,
    }
    if annotation in simple:
        return simple[annotation]
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is dict:
        return {"code": "wire", "facts": {"detail": "junk"}, "where": None, "intact": True}
    if origin is tuple:
        return (_value(arguments[0], index), _value(arguments[0], index + 1))
    if origin is types.UnionType:
        return _value(next(inner for inner in arguments if inner is not type(None)), index)
    return example_of(annotation)
