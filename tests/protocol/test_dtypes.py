"""The table of dtypes, and which of them reduce how."""

import pytest

from hocket.protocol.dtypes import DTYPES, accumulator, check_reduce, real_part
from hocket.protocol.errors import UnsupportedError
from hocket.protocol.reduce_ops import NAMES, ReduceOp

OPS = {name: ReduceOp(name, 0.5 if name == "PREMUL_SUM" else None) for name in sorted(NAMES)}

INTEGERS = "SUM PRODUCT MIN MAX BAND BOR BXOR LAND LOR LXOR MINLOC MAXLOC"
FLOATS = "SUM AVG PREMUL_SUM PRODUCT MIN MAX LAND LOR LXOR MINLOC MAXLOC"
ALLOWED = {
    "bool": "SUM PRODUCT MIN MAX BAND BOR BXOR LAND LOR LXOR",
    **dict.fromkeys(("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"), INTEGERS),
    **dict.fromkeys(("float16", "bfloat16", "float32", "float64"), FLOATS),
    **dict.fromkeys(("complex64", "complex128"), "SUM AVG PREMUL_SUM PRODUCT LAND LOR LXOR"),
    **dict.fromkeys(("float8_e4m3fn", "float8_e5m2"), ""),
    **dict.fromkeys(("U5", "M8[ns]", "V16", "{'names': ['a']}", "float8_e3m4", "object"), ""),
}


def test_the_table_holds_the_dtypes_of_the_contract() -> None:
    by_itemsize = {
        1: "bool int8 uint8 float8_e4m3fn float8_e5m2",
        2: "int16 uint16 float16 bfloat16",
        4: "int32 uint32 float32",
        8: "int64 uint64 float64 complex64",
        16: "complex128",
    }
    expected = {name: itemsize for itemsize, names in by_itemsize.items() for name in names.split()}
    assert {name: row.itemsize for name, row in DTYPES.items()} == expected


@pytest.mark.parametrize("name", DTYPES)
def test_a_row_stands_under_its_own_name_and_the_name_begins_with_its_kind(name: str) -> None:
    assert DTYPES[name].name == name
    assert name.removeprefix("b").startswith(DTYPES[name].kind.removeprefix("b"))


def test_the_table_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        DTYPES["int7"] = DTYPES["int8"]  # type: ignore[index]


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", ALLOWED)
def test_a_dtype_reduces_by_just_these_operations(dtype: str, op: str) -> None:
    if op in ALLOWED[dtype].split():
        check_reduce(dtype, OPS[op])
        return
    with pytest.raises(UnsupportedError) as caught:
        check_reduce(dtype, OPS[op])
    assert (caught.value.dtype, caught.value.does_not) == (dtype, f"reduce op {op}")
    assert caught.value.hint


def test_every_dtype_of_the_table_is_among_those_checked_here() -> None:
    assert set(DTYPES) <= set(ALLOWED)


@pytest.mark.parametrize(
    ("dtype", "op", "sentence"),
    [
        ("int64", "AVG", "int64 does not support reduce op AVG; use SUM, or convert it to a floating point dtype"),
        (
            "float8_e5m2",
            "SUM",
            "float8_e5m2 does not support reduce op SUM; "
            "it moves between ranks but does not reduce, convert it to bfloat16 or float32",
        ),
        ("M8[ns]", "MAX", "M8[ns] does not support reduce op MAX; it moves between ranks but does not reduce"),
    ],
)
def test_a_refusal_says_what_to_do_instead(dtype: str, op: str, sentence: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        check_reduce(dtype, OPS[op])
    assert str(caught.value) == sentence


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_sums_and_products_of_halves_alone_have_a_wider_accumulator(dtype: str, op: str) -> None:
    widened = dtype in ("float16", "bfloat16") and op in ("SUM", "AVG", "PREMUL_SUM", "PRODUCT")
    assert accumulator(dtype, OPS[op]) == ("float32" if widened else dtype)


def test_a_complex_dtype_has_real_parts_of_half_its_size_and_any_other_is_its_own() -> None:
    for name, row in DTYPES.items():
        part = DTYPES[real_part(name)]
        if row.kind == "complex":
            assert (part.kind, part.itemsize) == ("float", row.itemsize // 2)
        else:
            assert part == row
