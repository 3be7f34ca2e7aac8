"""The codec takes exactly what it gives: unknown, missing, extra and wrongly typed fields are wire errors."""

import dataclasses
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from message_examples import example_of

from hocket.protocol.codec import decode, encode
from hocket.protocol.errors import WireError
from hocket.protocol.limits import MESSAGE_NBYTES
from hocket.protocol.messages import MESSAGES, BarrierEnds, Credit, Heartbeat, Message

KINDS = sorted(MESSAGES.values(), key=lambda kind: kind.code)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_message_comes_back_as_it_was(kind: type[Message]) -> None:
    message = example_of(kind)
    assert decode(encode(message)) == message


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_field_too_few_or_too_many_is_refused(kind: type[Message]) -> None:
    values = msgpack.unpackb(encode(example_of(kind)))
    for wrong in (values[:-1], [*values, 1]):
        with pytest.raises(WireError, match=kind.__name__ if len(wrong) > 0 else None):
            decode(msgpack.packb(wrong))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_field_refuses_a_value_of_another_type(kind: type[Message]) -> None:
    values = msgpack.unpackb(encode(example_of(kind)))
    for index, field in enumerate(dataclasses.fields(kind), 1):
        wrong = [*values]
        wrong[index] = msgpack.ExtType(5, b"x")
        with pytest.raises(WireError, match=field.name):
            decode(msgpack.packb(wrong))


@pytest.mark.parametrize(
    ("value", "why"),
    [(True, "bool for int"), ("1", "text for int"), (1.0, "float for int"), (None, "nothing for int"), (2**64 - 1, "")],
)
def test_numbers_are_checked_to_the_type(value: Any, why: str) -> None:
    data = msgpack.packb([Credit.code, 1, "c", value, 2])
    with pytest.raises(WireError):
        decode(data)


def test_an_int_is_no_float() -> None:
    with pytest.raises(WireError):
        decode(msgpack.packb([Heartbeat.code, 1]))


def test_an_optional_field_is_there_or_none() -> None:
    assert decode(encode(BarrierEnds(1, "", 2, None))) == BarrierEnds(1, "", 2, None)
    with pytest.raises(WireError):
        decode(msgpack.packb([BarrierEnds.code, 1, "", 2, {1: 2}]))


@pytest.mark.parametrize("data", [b"", b"\xc1", msgpack.packb([]), msgpack.packb({}), msgpack.packb(["x"]), b"\x91"])
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(WireError):
        decode(data)


def test_an_unknown_code_is_refused_by_its_number() -> None:
    with pytest.raises(WireError, match="9999"):
        decode(msgpack.packb([9999]))


def test_a_message_beyond_the_limit_is_not_even_unpacked() -> None:
    with pytest.raises(WireError, match=str(MESSAGE_NBYTES)):
        decode(bytes(MESSAGE_NBYTES + 1))


def test_trailing_bytes_are_refused() -> None:
    with pytest.raises(WireError):
        decode(encode(Heartbeat(1.0)) + b"\x00")


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(KINDS), st.data())
def test_mutated_messages_raise_nothing_but_wire_errors(kind: type[Message], data: st.DataObject) -> None:
    raw = bytearray(encode(example_of(kind)))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        again = decode(bytes(raw))
    except WireError:
        return
    assert isinstance(again, Message)
