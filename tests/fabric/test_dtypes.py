"""numpy's dtypes as strings, there and back."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from hocket.fabric.dtypes import numpy_dtype, wire_dtype
from hocket.protocol.dtypes import DTYPES
from hocket.protocol.errors import ArgumentTypeError, UnsupportedError, WireError

AnyDtype = np.dtype[Any]

NESTED = np.dtype([("id", ">u4"), ("at", [("x", "f4"), ("y", ">f8", (2, 3))]), ("name", "U7"), ("when", "M8[us]")])
GAPS: Any = {"names": ["a", "b"], "formats": ["i2", ">f8"], "offsets": [6, 16], "itemsize": 40}
OVERLAID: Any = {"names": ["word", "low"], "formats": ["u4", "u2"], "offsets": [0, 0], "itemsize": 4}
TITLED: Any = [(("a title", "a"), "i4"), ("b", "S3")]
FIELDLESS: Any = {"names": [], "formats": [], "offsets": [], "itemsize": 12}
EXTENSION: Any = [("weight", ml_dtypes.bfloat16, (4,)), ("scale", ml_dtypes.float8_e4m3fn)]
RECORDS = [
    *(NESTED, np.dtype(GAPS), np.dtype(OVERLAID), np.dtype(TITLED), np.dtype(FIELDLESS), np.dtype(EXTENSION)),
    *(np.dtype([("a", "u1"), ("b", "f8")], align=True), np.dtype([("a'\"\\\n√", "i1")]), np.dtype([])),
    np.dtype((np.record, [("a", "i4")])),
]


@pytest.mark.parametrize("name", DTYPES)
def test_a_dtype_of_the_table_travels_under_its_canonical_name(name: str) -> None:
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    assert wire_dtype(dtype) == name
    assert numpy_dtype(name) == dtype
    assert (dtype.itemsize, dtype.isnative) == (DTYPES[name].itemsize, True)


@pytest.mark.parametrize("code", ["i2", "u4", "i8", "f2", "f4", "f8", "c8", "c16", "U3", "M8[ms]", "m8[D]"])
def test_byte_order_is_no_part_of_a_name(code: str) -> None:
    assert wire_dtype(np.dtype(">" + code)) == wire_dtype(np.dtype("<" + code))
    assert numpy_dtype(wire_dtype(np.dtype(">" + code))) == np.dtype("=" + code)


@pytest.mark.parametrize("code", ["q", "l", "i", "h", "b", "Q", "L", "I", "H", "B", "?", "e", "f", "d", "F", "D"])
def test_two_names_of_c_for_one_layout_travel_alike(code: str) -> None:
    assert wire_dtype(np.dtype(code)) in DTYPES


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        *(("U5", "U5"), ("S3", "S3"), ("V7", "V7"), ("M8[ns]", "M8[ns]"), ("m8[25s]", "m8[25s]"), ("M8", "M8")),
        *(("M8[1s]", "M8[s]"), ("U0", "U0"), ("V0", "V0"), (ml_dtypes.float8_e3m4, "float8_e3m4")),
        (ml_dtypes.int4, "int4"),
    ],
)
def test_strings_dates_bytes_and_extensions_travel_in_short_form(dtype: Any, name: str) -> None:
    assert wire_dtype(np.dtype(dtype)) == name
    assert numpy_dtype(name) == np.dtype(dtype)


@pytest.mark.parametrize("dtype", RECORDS, ids=str)
def test_a_record_comes_back_with_its_layout_and_in_native_order(dtype: AnyDtype) -> None:
    back = numpy_dtype(wire_dtype(dtype))
    assert back == dtype.newbyteorder("=")
    assert (back.itemsize, back.names, back.isnative) == (dtype.itemsize, dtype.names, True)
    assert [field[1] for field in (back.fields or {}).values()] == [field[1] for field in (dtype.fields or {}).values()]


def test_the_name_of_a_record_can_be_read() -> None:
    dtype = np.dtype([("step", ">i8"), ("loss", "f4", (2,))])
    assert wire_dtype(dtype) == (
        "{'names': ['step', 'loss'], 'formats': ['int64', ('float32', (2,))], 'offsets': [0, 8], 'itemsize': 16}"
    )


def test_the_elements_of_a_swapped_record_survive_the_copy_into_what_travels() -> None:
    swapped = np.zeros(3, NESTED)
    swapped["id"], swapped["at"]["y"][:], swapped["name"] = [1, 2, 3], 0.5, "seven"
    native = np.empty(3, numpy_dtype(wire_dtype(swapped.dtype)))
    native[:] = swapped
    assert native.tobytes() != swapped.tobytes()
    assert (native == swapped).all()


def test_a_title_that_is_no_text_is_left_out() -> None:
    dtype = np.dtype([((("not", "text"), "a"), "i4")])
    assert numpy_dtype(wire_dtype(dtype)) == np.dtype([("a", "i4")])


def test_a_subarray_travels_with_its_shape() -> None:
    dtype = np.dtype((">i4", (2, 3)))
    assert wire_dtype(dtype) == "('int32', (2, 3))"
    assert numpy_dtype("('int32', (2, 3))") == np.dtype(("<i4", (2, 3)))


@given(npst.array_dtypes() | npst.nested_dtypes() | npst.scalar_dtypes())
@settings(max_examples=150, deadline=None)
def test_any_dtype_comes_back(dtype: AnyDtype) -> None:
    assert numpy_dtype(wire_dtype(dtype)) == dtype.newbyteorder("=")


@pytest.mark.parametrize("dtype", ["O", [("a", "i4"), ("b", "O")], [("a", [("b", "O", (2,))])]])
def test_python_objects_are_sent_to_the_object_collectives(dtype: Any) -> None:
    with pytest.raises(ArgumentTypeError, match=r"argument 'output' is of object dtype.*broadcast_object_list"):
        wire_dtype(np.dtype(dtype), "output")


@pytest.mark.parametrize("dtype", ["g", "G", [("a", "g")]])
def test_a_long_double_differs_between_machines_and_stays(dtype: Any) -> None:
    if np.dtype("g").itemsize == np.dtype("d").itemsize:
        pytest.skip("long double is double here")
    with pytest.raises(UnsupportedError, match=r"(float|complex)\d+ does not support moving between ranks"):
        wire_dtype(np.dtype(dtype))


@pytest.mark.parametrize(
    "junk",
    [
        *("", "O", "object", "|O8", "float128", "g", ">f4", "=f4", "<U5", "U", "U05", "U-1", "M8[", "M8[1s]", "M8[xs]"),
        *("U99999999999", "V2147483648", "f4", "float", "int", "i4,i4", "(2,3)i4", "bool ", "__class__", "a", "٣"),
        *("{", "(", "{}", "()", "(1,)*5", "{1: 2}", "{'names': ['a']}", "('int32', (-1,))", "('int32', 2)"),
        *("('int32', (99999, 99999, 9))", "('int32',(2,))", "(" * 5000, "{" * 5000, "(" + "-" * 50000 + "1)"),
        "{'names': ['a'], 'formats': ['O'], 'offsets': [0], 'itemsize': 8}",
        "{'names': ['a'], 'formats': ['int32'], 'offsets': [0], 'itemsize': 2}",
        "{'names': ['a'], 'formats': ['int32'], 'offsets': [-4], 'itemsize': 4}",
        "{'names': ['a', 'a'], 'formats': ['int8', 'int8'], 'offsets': [0, 1], 'itemsize': 2}",
        "{'names': ['a'], 'formats': ['int32'], 'offsets': [0], 'itemsize': 4, 'aligned': True}",
        "{'names': ['a'], 'formats': 7, 'offsets': [0], 'itemsize': 4}",
        "{'names': [1], 'formats': ['int32'], 'offsets': [0], 'itemsize': 4}",
        "(__import__('os').getcwd(), (2,))",
    ],
)
def test_junk_is_no_dtype(junk: str) -> None:
    with pytest.raises(WireError, match="not a dtype"):
        numpy_dtype(junk)


@given(st.text(st.sampled_from("{}()[]':, 0129UVSMm8nsint32float64namesformatsoffsetsitemsize"), max_size=60))
@settings(max_examples=200, deadline=None)
def test_whatever_is_read_is_spelt_the_same(text: str) -> None:
    try:
        dtype = numpy_dtype(text)
    except WireError:
        return
    assert wire_dtype(dtype) == text
