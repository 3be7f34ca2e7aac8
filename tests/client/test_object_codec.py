"""Objects to bytes and back: exactly the same after the trip, and whatever the bytes are, only documented errors."""

import contextlib
import datetime
import math
import pickle
import struct
import tracemalloc
import zoneinfo
from collections.abc import Callable
from typing import Any

import ml_dtypes
import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.client.objects import dumps, loads
from hocket.protocol.errors import SerialiseError, WireError
from hocket.protocol.limits import OBJECT_INLINE_NBYTES

RANK = 3


def roundtrip(value: object) -> Any:
    return loads(dumps(value, rank=RANK), rank=RANK)


def shape_of(value: object) -> object:
    """Everything of a value that must survive, as something that compares by equality, down to the bits of a float."""
    kind = type(value)
    match value:
        case np.ndarray():
            return kind, dtype_of(value.dtype), value.shape, value.tobytes()
        case np.generic():
            return kind, dtype_of(value.dtype), value.tobytes(), len(value) if isinstance(value, str) else None
        case float():
            return kind, struct.pack("<d", value)
        case complex():
            return kind, struct.pack("<dd", value.real, value.imag)
        case list() | tuple():
            return kind, [shape_of(item) for item in value]
        case dict():
            return kind, [(shape_of(key), shape_of(item)) for key, item in value.items()]
        case set() | frozenset():
            return kind, sorted(repr(shape_of(item)) for item in value)
        case datetime.datetime() | datetime.time():
            return kind, value.replace(tzinfo=None), value.fold, shape_of(value.tzinfo)
        case datetime.timezone():
            return kind, pickle.dumps(value)
        case _:
            return kind, value


def dtype_of(dtype: np.dtype) -> object:
    if dtype.subdtype is not None:
        return dtype_of(dtype.subdtype[0]), dtype.subdtype[1]
    if dtype.names is None:
        return dtype.type, dtype.byteorder, dtype.str
    fields = [(name, *dtype.fields[name][1:], dtype_of(dtype.fields[name][0])) for name in dtype.names]
    return dtype.type, dtype.itemsize, fields


def assert_same(before: object, after: object) -> None:
    assert shape_of(after) == shape_of(before)


# --- exact round trips -----------------------------------------------------------------------------------------------

BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")
EAST = datetime.timezone(datetime.timedelta(hours=5, minutes=45, microseconds=1))
NAMED = datetime.timezone(datetime.timedelta(hours=-3), "Somewhere")
MOMENT = datetime.datetime(2024, 10, 27, 2, 30, 1, 999999, fold=1)

VALUES: dict[str, object] = {
    "none": None,
    "bools": [True, False],
    "small ints": [0, 1, -1, 255, -128, 2**63 - 1, -(2**63), 2**64 - 1],
    "big ints": [2**64, -(2**63) - 1, 10**5000, -(10**5000), 2**1000 - 1, -(2**1000)],
    "one big int": 2**64,
    "floats": [0.0, -0.0, math.inf, -math.inf, math.nan, -math.nan, 5e-324, 1.1],
    "a nan with a payload": struct.unpack("<d", b"\x01\x00\x00\x00\x00\x00\xf4\xff")[0],
    "complex": [complex(-0.0, math.nan), complex(math.inf, -0.0), 1j],
    "texts": ["", "ab", "\0", "äöü€😀", "\ud800", "\ud83d\ude00", "x" * 100_000],
    "bytes": [b"", b"\x00\xff", bytes(OBJECT_INLINE_NBYTES), b"x" * (OBJECT_INLINE_NBYTES + 1)],
    "bytearrays": [bytearray(), bytearray(b"ab"), bytearray(b"y" * (OBJECT_INLINE_NBYTES + 1))],
    "tuples and lists": [(), [], ((),), [[]], (1, [2, (3,)]), ([],)],
    "dict": {"b": 1, "a": [2], "": {}},
    "dict with any keys": {(1, ("x", None)): 1, 2: "two", None: 3, True: 4, 0.5: 5, b"k": 6, frozenset({1, 2}): (7,)},
    "dict with array scalars": {np.float32(1.5): np.int8(3), np.str_("k"): {}},
    "dict with long keys": {b"k" * 70_000: np.arange(3), (b"l" * 70_000,): b"v" * 70_000},
    "dict with two nans": {math.nan: 1, float("nan"): 2},
    "sets": [set(), {1, "a", (2, 3)}, frozenset(), frozenset({frozenset({1}), None})],
    "dates": [datetime.date(1, 1, 1), datetime.date.max],
    "times": [datetime.time(), datetime.time(23, 59, 59, 999999, fold=1), datetime.time(1, tzinfo=EAST)],
    "moments": [MOMENT, datetime.datetime.min, MOMENT.replace(tzinfo=datetime.UTC), MOMENT.replace(tzinfo=EAST)],
    "moments with zones": [MOMENT.replace(tzinfo=BERLIN), MOMENT.replace(tzinfo=BERLIN, fold=0)],
    "durations": [datetime.timedelta(), datetime.timedelta.min, datetime.timedelta(days=-1, microseconds=7)],
    "zones": [datetime.UTC, EAST, NAMED, datetime.timezone(datetime.timedelta(0), "UTC"), BERLIN],
    "array scalars": [np.float64(-0.0), np.float32(math.nan), np.bool_(True), np.uint64(2**64 - 1), np.complex64(1j)],
    "scalars of other kinds": [np.datetime64("2024-02-29", "25s"), np.datetime64("NaT"), np.timedelta64(3, "us")],
    "texts and bytes of numpy": [np.str_("a\0"), np.str_(""), np.str_("\ud800"), np.bytes_(b"a\0"), np.bytes_(b"")],
    "longdouble": [np.longdouble("0.1"), np.array([0.1, 2], np.clongdouble)],
    "small floats": [ml_dtypes.bfloat16(1.5), ml_dtypes.float8_e4m3fn(2)],
    "void scalars": [np.void(b"abc"), np.void(b"")],
    "shared": [[MOMENT]] * 2,
}


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES.keys())
def test_a_value_comes_back_exactly(value: object) -> None:
    assert_same(value, roundtrip(value))


RECORD = np.dtype(
    [("a", ">u8"), ("b", "<f4"), ("c", ml_dtypes.bfloat16, (2, 2)), ("d", [("e", ">M8[ms]"), ("f", "U2")])]
)
GAPS: Any = {"names": ["x", "y"], "formats": ["<i2", ">i4"], "offsets": [8, 1], "itemsize": 20, "titles": ["t", None]}
ODD_DTYPES = [RECORD, np.dtype(GAPS), np.dtype([]), np.dtype((np.record, [("a", "i4")])), np.dtype([("s", "S0")])]
NUMBERS = [*"?bBhHiIlLqQefdgFDG", *(f">{char}" for char in "hHiIlLqQefdgFDG")]
OTHERS = [">S3", "S0", "U5", ">U5", "V7", "V0", "M8", "M8[ns]", ">M8[25s]", "m8[Y]", ">m8"]
EXTENSIONS = [np.dtype(getattr(ml_dtypes, name)) for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2", "int4")]
DTYPES = [
    *(np.dtype(name) for name in NUMBERS + OTHERS),
    *EXTENSIONS,
    np.dtype(ml_dtypes.bfloat16).newbyteorder(">"),
    *ODD_DTYPES,
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_an_array_of_any_dtype_comes_back_exactly(dtype: np.dtype) -> None:
    for shape in ((), (3,), (0, 2), (2, 1, 2)):
        array: np.ndarray = np.ndarray(shape, dtype)
        if array.nbytes:
            array.reshape(-1).view("u1")[:] = np.arange(array.nbytes) % 4 == 1
        assert_same(array, roundtrip(array))
        for scalar in array.reshape(-1)[:1]:
            if isinstance(scalar, np.generic):
                assert_same(scalar, roundtrip(scalar))


def test_a_record_keeps_its_layout_names_and_titles() -> None:
    for dtype in ODD_DTYPES:
        back = roundtrip(np.zeros(2, dtype)).dtype
        assert (back, back.fields, back.itemsize, back.type) == (dtype, dtype.fields, dtype.itemsize, dtype.type)
    assert type(roundtrip(np.zeros(2, RECORD)[0])) is np.void
    assert type(roundtrip(np.zeros(2, np.dtype((np.record, RECORD)))[0])) is np.record


@pytest.mark.parametrize("dtype", ["<f8", ">i4", ml_dtypes.bfloat16, RECORD, "U3"], ids=str)
def test_strided_arrays_come_back_contiguous_with_the_same_values(dtype: Any) -> None:
    base = np.zeros((4, 6), dtype)
    base.reshape(-1).view("u1")[:] = np.arange(base.nbytes) % 4 == 1
    for array in (base[::2, ::-3], base.T, np.asfortranarray(base), base[1:1], np.broadcast_to(base[0], (3, 6))):
        back = roundtrip(array)
        assert (back.dtype, back.shape, back.tobytes()) == (array.dtype, array.shape, array.tobytes())
        assert back.flags.c_contiguous


def test_arrays_are_new_writable_and_own_their_memory() -> None:
    frozen = np.arange(3.0)
    frozen.flags.writeable = False
    data = dumps([frozen, frozen], rank=RANK)
    first, second = loads(data, rank=RANK)
    for array in (first, second):
        assert (array.flags.writeable, array.flags.owndata) == (True, True)
    first[:] = 9
    assert (second.tolist(), loads(data, rank=RANK)[0].tolist()) == ([0, 1, 2], [0, 1, 2])


def test_a_record_scalar_can_be_written_without_changing_the_message() -> None:
    data = dumps(np.ones(1, "i4,i4")[0], rank=RANK)
    loads(data, rank=RANK)["f0"] = 5
    assert loads(data, rank=RANK)["f0"] == 1


def test_the_order_of_a_dict_is_kept() -> None:
    for keys in (["z", "a", "m"], [3, "a", None, 1]):
        assert list(roundtrip(dict.fromkeys(keys))) == keys


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview, lambda data: memoryview(data).cast("b")])
def test_any_buffer_of_bytes_is_read(wrap: Callable[[bytes], Any]) -> None:
    value = {"a": np.arange(3), "b": b"x" * 100_000}
    assert_same(value, loads(wrap(dumps(value, rank=RANK)), rank=RANK))


KEYS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary()
    | st.dates()
    | st.complex_numbers(),
    lambda inner: st.lists(inner, max_size=3).map(tuple) | st.frozensets(inner, max_size=3),
    max_leaves=6,
)
LEAVES = KEYS | st.datetimes(timezones=st.none() | st.just(EAST) | st.just(BERLIN)) | st.timedeltas() | st.times()
ARRAYS = st.builds(
    lambda shape, dtype: np.ones(shape, dtype), st.lists(st.integers(0, 3), max_size=3), st.sampled_from(DTYPES[:20])
)
OBJECTS = st.recursive(
    LEAVES | ARRAYS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(max_size=5), inner, max_size=4)
        | st.dictionaries(KEYS, inner, max_size=4)
        | st.sets(KEYS, max_size=4)
    ),
    max_leaves=12,
)


@given(value=OBJECTS)
def test_whatever_is_built_of_these_types_comes_back_exactly(value: object) -> None:
    assert_same(value, roundtrip(value))


# --- corrupt data ----------------------------------------------------------------------------------------------------

HEAD = struct.Struct("<BQ")


def message(tree: object, contents: bytes = b"", packing: int = 0) -> bytes:
    packed = tree if isinstance(tree, bytes) else msgpack.packb(tree)
    return HEAD.pack(packing, len(packed)) + packed + contents


def mark(code: int, *items: object) -> list[object]:
    return [msgpack.ExtType(code, b""), *items]


CORRUPT = {
    "nothing": b"",
    "half a head": bytes(8),
    "no tree": message(b""),
    "another packing": message(1, packing=2),
    "a tree longer than the data": HEAD.pack(0, 2) + b"\xc0",
    "a length of 2**63": HEAD.pack(0, 2**63) + b"\xc0",
    "more than one value": message(b"\xc0\xc0"),
    "contents that nobody asks for": message(None, b"x"),
    "an unknown mark": message(mark(99)),
    "a mark with data": message([msgpack.ExtType(5, b"x")]),
    "a mark by itself": message(msgpack.ExtType(5, b"")),
    "a mark at the end": message([1, msgpack.ExtType(5, b"")]),
    "a mark as a value": message({"a": msgpack.ExtType(5, b"")}),
    "two marks": message(mark(5, msgpack.ExtType(5, b""))),
    "text that is no utf-8": message(b"\xa2\xff\xff"),
    "a key that is no text": message(b"\x81\x01\x01"),
    "an unhashable item of a set": message(mark(6, [1])),
    "an unhashable key": message(mark(8, [[1]], [1])),
    "a key without a value": message(mark(8, [1, 2], [1])),
    "bytes of a negative length": message(mark(3, -1), b"xyz"),
    "bytes that are not there": message(mark(3, 4), b"xyz"),
    "a bytearray of a length": message(mark(4, 10**12)),
    "bytes of numpy of a length": message(mark(18, 10**12)),
    "a month 13": message(mark(9, 2024, 13, 1)),
    "a time zone that is a number": message(mark(10, 1, 2, 3, 4, 5, 0)),
    "a time zone of 25 hours": message(mark(13, mark(12, 1, 3600, 0))),
    "a duration beyond measure": message(mark(12, 10**12, 0, 0)),
    "a zone outside of its folder": message(mark(14, "../../etc/passwd")),
    "an array of objects": message(mark(15, "<O", [1]), bytes(8)),
    "an array of named objects": message(mark(15, "<object", [1]), bytes(8)),
    "an array of text of any length": message(mark(15, "<StringDType()", [1]), bytes(16)),
    "an array of literals": message(mark(15, "<{'names': ['a'], 'formats': ['O']}", [1]), bytes(8)),
    "an array that is longer than its contents": message(mark(15, "<float64", [2**40]), bytes(8)),
    "an array of a negative size": message(mark(15, "<float64", [-1, -1]), bytes(8)),
    "an array of half a size": message(mark(15, "<float64", [0.5]), bytes(4)),
    "an array of 65 dimensions": message(mark(15, "<float64", [1] * 65), bytes(8)),
    "an array beyond the address space": message(mark(15, "<float64", [0, 2**62, 2**62])),
    "an array without byte order": message(mark(15, "float64", [1]), bytes(8)),
    "an array of elements of 2 GB": message(mark(15, "<V2147483647", [1]), bytes(8)),
    "dates in units of no length": message(mark(15, "<M8[0s]", [1]), bytes(8)),
    "durations in units of no length": message(mark(15, ">m8[00s]", [1]), bytes(8)),
    "a longdouble of another machine": message(mark(15, "<g112", [1]), bytes(16)),
    "a longdouble in other words": message(mark(15, "<g063", [1]), bytes(16)),
    "a scalar of too few bytes": message(mark(16, "<float64", bytes(7))),
    "a scalar that is a number": message(mark(16, "<float64", 8)),
    "a record with objects": message(mark(15, mark(19, ["a"], ["O"], [0], [None], 8, False), [1]), bytes(8)),
    "a record beyond its size": message(mark(15, mark(19, ["a"], ["<float64"], [4], [None], 8, False), [1]), bytes(8)),
    "a record before its start": message(
        mark(15, mark(19, ["a"], ["<float64"], [-8], [None], 8, False), [1]), bytes(8)
    ),
    "a record of one name twice": message(mark(19, ["a", "a"], ["<int8"] * 2, [0, 1], [None] * 2, 2, False)),
    "a pickle whose name is a number": message(5, pickle.dumps(1), packing=1),
}


@pytest.mark.parametrize("data", CORRUPT.values(), ids=CORRUPT.keys())
def test_corrupt_data_is_a_wire_error(data: bytes) -> None:
    with pytest.raises(WireError):
        loads(data, rank=RANK)


def test_every_cut_of_a_message_is_a_wire_error() -> None:
    data = dumps({"a": [1.5, (2, b"x")], "b": np.arange(3, dtype="i2"), 3: {MOMENT.replace(tzinfo=EAST)}}, rank=RANK)
    for end in range(len(data)):
        with pytest.raises(WireError):
            loads(data[:end], rank=RANK)
    with pytest.raises(WireError):
        loads(data + b"x", rank=RANK)


def test_a_time_zone_that_is_unknown_here_is_said_to_be_missing() -> None:
    with pytest.raises(SerialiseError, match=r"does not know the time zone 'Mars/Olympus': install .*tzdata"):
        loads(message(mark(14, "Mars/Olympus")), rank=RANK)


@pytest.mark.parametrize(
    "tree",
    [
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\xdb\xff\xff\xff\xff",
        b"\xc9\xff\xff\xff\xff\x05",
        b"\xdd\x00\x0f\x42\x40" * 900,
        b"\xdd\x00\x0f\x42\x40" * 900 + bytes(1_000_000),
        b"\x91" * 1_000_000,
    ],
    ids=["array", "map", "bytes", "text", "ext", "arrays in arrays", "arrays that share their items", "depth"],
)
def test_announced_lengths_cost_no_memory(tree: bytes) -> None:
    data = message(tree)
    tracemalloc.start()
    try:
        with pytest.raises(WireError):
            loads(data, rank=RANK)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 200_000 + 4 * len(data)


def loads_or_refuses(data: bytes) -> None:
    """Anything else that is raised fails the test; memory is not trusted to data either."""
    with contextlib.suppress(WireError, SerialiseError):
        loads(data, rank=RANK)


@given(data=st.binary(max_size=200))
def test_random_bytes_raise_nothing_unexpected(data: bytes) -> None:
    loads_or_refuses(data)
    loads_or_refuses(message(data))


@given(value=OBJECTS, data=st.data())
def test_mutated_messages_raise_nothing_unexpected(value: object, data: st.DataObject) -> None:
    message = bytearray(dumps(value, rank=RANK))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(message) - 1))
        message[place : place + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
        if not message:
            break
    loads_or_refuses(bytes(message))


TREES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=4)
    | st.binary(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.builds(lambda code, items: mark(code, *items), st.integers(0, 21), st.lists(inner, max_size=8))
    ),
    max_leaves=12,
)


@given(tree=TREES, contents=st.binary(max_size=20))
def test_nonsense_in_the_right_form_raises_nothing_unexpected(tree: object, contents: bytes) -> None:
    loads_or_refuses(message(tree, contents))
