"""Reduce operations as values: equality, spelling, and what is refused."""

import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.protocol.errors import ArgumentError, ArgumentTypeError, WireError
from hocket.protocol.reduce_ops import NAMES, ReduceOp

PLAIN = sorted(NAMES - {"PREMUL_SUM"})
FINITE = st.floats(allow_nan=False, allow_infinity=False)


def test_the_operations_are_those_of_the_contract() -> None:
    contract = "SUM AVG PRODUCT MIN MAX BAND BOR BXOR LAND LOR LXOR MINLOC MAXLOC PREMUL_SUM"
    assert set(contract.split()) == NAMES


@pytest.mark.parametrize("name", PLAIN)
def test_a_plain_operation_is_an_attribute_that_knows_its_name(name: str) -> None:
    op = getattr(ReduceOp, name)
    assert (op.name, op.factor, str(op), repr(op)) == (name, None, name, f"ReduceOp.{name}")
    assert ReduceOp.from_wire(op.to_wire()) == op


def test_a_premultiplied_sum_shows_its_factor() -> None:
    op = ReduceOp.PREMUL_SUM(0.5)
    assert (op.name, op.factor, str(op), repr(op)) == (
        "PREMUL_SUM",
        0.5,
        "PREMUL_SUM(0.5)",
        "ReduceOp.PREMUL_SUM(0.5)",
    )


def test_equal_operations_are_equal_keys() -> None:
    ops = [ReduceOp.SUM, ReduceOp("SUM"), ReduceOp.PREMUL_SUM(2), ReduceOp.PREMUL_SUM(2.0), ReduceOp.PREMUL_SUM(3)]
    assert len(set(ops)) == 3


def test_an_operation_survives_pickling_and_copying() -> None:
    for op in (ReduceOp.MAX, ReduceOp.PREMUL_SUM(1 / 3)):
        assert pickle.loads(pickle.dumps(op)) == copy.deepcopy(op) == op


@given(FINITE)
def test_a_factor_travels_exactly(factor: float) -> None:
    op = ReduceOp.from_wire(ReduceOp.PREMUL_SUM(factor).to_wire())
    assert op.factor is not None
    assert op.factor.hex() == factor.hex()


@given(FINITE, FINITE)
def test_only_equal_operations_are_spelt_alike(one: float, other: float) -> None:
    left, right = ReduceOp.PREMUL_SUM(one), ReduceOp.PREMUL_SUM(other)
    assert (left.to_wire() == right.to_wire()) == (one.hex() == other.hex())


@pytest.mark.parametrize(
    "junk",
    [
        *("", "sum", "SUM ", "PREMUL_SUM", "PREMUL_SUM()", "PREMUL_SUM(x)", "PREMUL_SUM(nan)", "PREMUL_SUM(inf)"),
        *("PREMUL_SUM(1)", "PREMUL_SUM(0.50)", "PREMUL_SUM(1_0.0)", "PREMUL_SUM(٣.0)", "SUM(0.5)", "PREMUL_SUM(0.5)\n"),
        *("PREMUL_SUM(" + "1" * 400 + ".0)", "__init__", "from_wire"),
    ],
)
def test_junk_is_no_operation(junk: str) -> None:
    with pytest.raises(WireError, match="not a reduce op"):
        ReduceOp.from_wire(junk)


@given(st.text())
def test_whatever_is_read_is_spelt_the_same(text: str) -> None:
    try:
        op = ReduceOp.from_wire(text)
    except WireError:
        return
    assert op.to_wire() == text


@pytest.mark.parametrize("junk", [None, 7, b"SUM", ["SUM"]])
def test_what_is_no_text_is_no_operation(junk: object) -> None:
    with pytest.raises(WireError):
        ReduceOp.from_wire(junk)  # type: ignore[arg-type]


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ArgumentError, match=r"'MEAN'.*AVG"):
        ReduceOp("MEAN")


def test_a_factor_belongs_to_the_premultiplied_sum_alone() -> None:
    with pytest.raises(ArgumentError, match="None for SUM"):
        ReduceOp("SUM", 2.0)
    with pytest.raises(ArgumentTypeError):
        ReduceOp("PREMUL_SUM")


@pytest.mark.parametrize("factor", [None, "0.5", b"1", True, 1j, [1.0]])
def test_a_factor_must_be_a_real_number(factor: object) -> None:
    with pytest.raises(ArgumentTypeError, match="a real number"):
        ReduceOp.PREMUL_SUM(factor)  # type: ignore[arg-type]


@pytest.mark.parametrize("factor", [float("nan"), float("inf"), float("-inf")])
def test_a_factor_must_be_finite(factor: float) -> None:
    with pytest.raises(ArgumentError, match="finite"):
        ReduceOp.PREMUL_SUM(factor)
