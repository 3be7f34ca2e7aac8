"""The arithmetic of reductions, against plain numpy and Python."""

import functools
import math
import operator
import tracemalloc
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hocket.fabric.dtypes import numpy_dtype
from hocket.fabric.kernels import combine, finish, reduce_into
from hocket.protocol.dtypes import DTYPES, accumulator, check_reduce, real_part
from hocket.protocol.errors import UnsupportedError
from hocket.protocol.reduce_ops import LOCATING, NAMES, ReduceOp

Array = npt.NDArray[Any]

OPS = {name: ReduceOp(name, 0.3 if name == "PREMUL_SUM" else None) for name in sorted(NAMES)}
SIZES = (0, 1, 7, 4097)
PAIR_SIZES = (0, 2, 14, 8194)
REAL_FLOATS = [name for name, row in DTYPES.items() if row.kind == "float"]
FLOATS = [name for name, row in DTYPES.items() if row.kind in ("float", "complex")]


def reduces(dtype: str, op: str) -> bool:
    try:
        check_reduce(dtype, OPS[op])
    except UnsupportedError:
        return False
    return True


EVERYTHING = [(dtype, op) for dtype in DTYPES for op in OPS]
SUPPORTED = [pair for pair in EVERYTHING if reduces(*pair)]


def wide(dtype: str, op: str) -> np.dtype[Any]:
    return numpy_dtype(accumulator(dtype, OPS[op]))


def folded(inputs: Sequence[Array], dtype: str, op: str) -> Array:
    acc = np.empty(len(inputs[0]), wide(dtype, op))
    reduce_into(acc, inputs, OPS[op])
    return acc


def reduced(inputs: Sequence[Array], dtype: str, op: str) -> Array:
    """What a group of ``inputs`` on one host gets."""
    out = np.empty(len(inputs[0]), numpy_dtype(dtype))
    finish(out, folded(inputs, dtype, op), OPS[op], len(inputs))
    return out


def numbers(dtype: str, length: int, count: int = 3, seed: int = 0) -> list[Array]:
    """Arrays of ordinary numbers, many of them zero; of integers the whole range."""
    random, kind = np.random.default_rng(seed), DTYPES[dtype].kind
    target = numpy_dtype(dtype)
    if kind in ("bool", "int", "uint"):
        return [_integers(random, target, length) for _ in range(count)]
    arrays = [random.standard_normal(length) * random.integers(0, 3, length) for _ in range(count)]
    if kind == "complex":
        return [(array + 1j * random.standard_normal(length)).astype(target) for array in arrays]
    return [array.astype(target) for array in arrays]


def _integers(random: np.random.Generator, target: np.dtype[Any], length: int) -> Array:
    if target == np.bool_:
        return random.integers(0, 2, length).astype(target)
    values = np.frombuffer(random.bytes(length * target.itemsize), target).copy()
    values[random.integers(0, 4, length) == 0] = 0
    return values


# --- against a reference ---------------------------------------------------------------------------------------------

LOGIC: dict[str, Callable[[bool, bool], bool]] = {"LAND": operator.and_, "LOR": operator.or_, "LXOR": operator.xor}
INTEGER: dict[str, Callable[[int, int], int]] = {
    "SUM": operator.add,
    "PRODUCT": operator.mul,
    "MIN": min,
    "MAX": max,
    "BAND": operator.and_,
    "BOR": operator.or_,
    "BXOR": operator.xor,
}
FLOAT: dict[str, Callable[[Array, Array], Array]] = {
    **dict.fromkeys(("SUM", "AVG", "PREMUL_SUM"), np.add),
    "PRODUCT": np.multiply,
    "MIN": np.minimum,
    "MAX": np.maximum,
}
BOOL = {"SUM": "LOR", "MAX": "LOR", "BOR": "LOR", "PRODUCT": "LAND", "MIN": "LAND", "BAND": "LAND", "BXOR": "LXOR"}


def reference(inputs: Sequence[Array], dtype: str, op: str) -> Array:
    """The same in the most straightforward way: integers one by one in Python, floats array by array in numpy."""
    target = numpy_dtype(dtype)
    kind = DTYPES[dtype].kind
    if kind == "bool" or op in LOGIC:
        truths = [[bool(element) for element in array] for array in inputs]
        logic = LOGIC[BOOL.get(op, op)]
        return np.array([functools.reduce(logic, column) for column in zip(*truths, strict=True)], bool).astype(target)
    if op in LOCATING:
        return located(inputs, op)
    if kind in ("int", "uint"):
        columns = zip(*(array.tolist() for array in inputs), strict=True)
        values = [functools.reduce(INTEGER[op], column) % 2 ** (8 * target.itemsize) for column in columns]
        return np.array(values, f"u{target.itemsize}").view(target)
    widened = [array.astype(wide(dtype, op)) for array in inputs]
    if op == "PREMUL_SUM":
        widened = [array * widened[0].real.dtype.type(0.3) for array in widened]
    result = functools.reduce(FLOAT[op], widened)
    if op == "AVG":
        reals = result.view(result.real.dtype)
        result = (reals / reals.dtype.type(len(inputs))).view(result.dtype)
    return result.astype(target)


def located(inputs: Sequence[Array], op: str) -> Array:
    sign = 1 if op == "MINLOC" else -1
    rows = zip(*(array.reshape(-1, 2).tolist() for array in inputs), strict=True)
    best = [min(pairs, key=lambda pair: (sign * pair[0], pair[1])) for pairs in rows]
    return np.array(best, inputs[0].dtype).ravel()


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize(("dtype", "op"), SUPPORTED)
def test_a_reduction_is_what_plain_numpy_makes_of_it(dtype: str, op: str, count: int) -> None:
    for length in PAIR_SIZES if op in LOCATING else SIZES:
        inputs = numbers(dtype, length, count)
        before = [array.tobytes() for array in inputs]
        found, expected = reduced(inputs, dtype, op), reference(inputs, dtype, op)
        assert found.dtype == expected.dtype
        if DTYPES[dtype].kind == "complex" and op == "PRODUCT":
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
        else:
            assert (found == expected).all()
        assert [array.tobytes() for array in inputs] == before


@pytest.mark.parametrize(("dtype", "op"), [(d, op) for d, op in SUPPORTED if accumulator(d, OPS[op]) == d])
def test_the_output_may_be_the_first_input(dtype: str, op: str) -> None:
    for length in (14, 40_000):
        inputs = numbers(dtype, length)
        expected = reduced(inputs, dtype, op)
        reduce_into(inputs[0], [inputs[0][:], *inputs[1:]], OPS[op])
        finish(inputs[0], inputs[0], OPS[op], 3)
        assert inputs[0].tobytes() == expected.tobytes()


@pytest.mark.parametrize(("dtype", "op"), SUPPORTED)
def test_two_hosts_come_to_what_one_does(dtype: str, op: str) -> None:
    inputs = numbers(dtype, 40_000, 4)
    acc, other = folded(inputs[:2], dtype, op), folded(inputs[2:], dtype, op)
    kept = other.tobytes()
    combine(acc, other, OPS[op])
    assert other.tobytes() == kept
    out, before = np.empty(40_000, numpy_dtype(dtype)), acc.tobytes()
    finish(out, acc, OPS[op], 4)
    assert acc.tobytes() == before
    expected = reduced(inputs, dtype, op)
    if DTYPES[dtype].kind in ("float", "complex") and op in FLOAT:
        # Added in another order.
        tolerance = {"float16": 2e-3, "bfloat16": 2e-2, "float64": 1e-12, "complex128": 1e-12}.get(dtype, 1e-4)
        kind = np.complex128 if DTYPES[dtype].kind == "complex" else np.float64
        np.testing.assert_allclose(out.astype(kind), expected.astype(kind), rtol=tolerance, atol=tolerance)
    else:
        assert out.tobytes() == expected.tobytes()


@pytest.mark.parametrize(("dtype", "op"), [pair for pair in EVERYTHING if pair not in SUPPORTED])
def test_what_the_table_refuses_no_kernel_does(dtype: str, op: str) -> None:
    array = np.zeros(2, numpy_dtype(dtype))
    with pytest.raises(UnsupportedError):
        reduce_into(array, [array], OPS[op])
    with pytest.raises(UnsupportedError):
        finish(array, array, OPS[op], 1)


@pytest.mark.parametrize("code", ["U3", "M8[s]", "V4", [("a", "f4")]])
def test_dtypes_outside_the_table_do_not_reduce(code: Any) -> None:
    array = np.zeros(2, np.dtype(code))
    with pytest.raises(UnsupportedError, match="moves between ranks but does not reduce"):
        reduce_into(array, [array], ReduceOp.SUM)


def test_arrays_of_different_lengths_are_a_broken_invariant() -> None:
    with pytest.raises(AssertionError, match="different lengths"):
        reduce_into(np.zeros(3), [np.zeros(3), np.zeros(1)], ReduceOp.SUM)


@pytest.mark.parametrize("op", sorted(LOCATING))
def test_an_odd_number_of_elements_is_no_pairs(op: str) -> None:
    with pytest.raises(AssertionError, match="not pairs"):
        reduce_into(np.zeros(3), [np.zeros(3), np.zeros(3)], OPS[op])


# --- rounding and overflow -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "large", "exact"), [("float16", 2048, 2050), ("bfloat16", 256, 258)])
def test_halves_are_added_in_float32_and_rounded_once(dtype: str, large: int, exact: int) -> None:
    inputs = [np.full(9, value, numpy_dtype(dtype)) for value in (large, 1, 1)]
    assert float((inputs[0] + inputs[1] + inputs[2])[0]) == large, "added one by one, the small ones get lost"
    assert (reduced(inputs, dtype, "SUM") == exact).all()


def test_hosts_exchange_sums_that_are_not_rounded_yet() -> None:
    one, other = (folded([np.full(5, value, np.float16)] * 2, "float16", "SUM") for value in (1024, 0.5))
    combine(one, other, ReduceOp.SUM)
    combine(one, other, ReduceOp.SUM)
    out = np.empty(5, np.float16)
    finish(out, one, ReduceOp.SUM, 6)
    assert (out == 2050).all()


def test_an_average_of_halves_does_not_overflow_on_its_way() -> None:
    inputs = [np.full(5, 60_000, np.float16)] * 3
    assert (reduced(inputs, "float16", "AVG") == inputs[0]).all()
    assert np.isinf(reduced(inputs, "float16", "SUM")).all()


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_float_that_grows_too_large_is_infinite_without_a_warning(dtype: str) -> None:
    largest = np.finfo(numpy_dtype(dtype)).max if "bfloat" not in dtype else 3e38
    inputs = [np.full(40, largest, numpy_dtype(dtype))] * 2
    assert np.isinf(reduced(inputs, dtype, "SUM")).all()
    assert np.isinf(reduced(inputs, dtype, "PRODUCT").real).all()
    out = np.empty(40, numpy_dtype(accumulator(dtype, ReduceOp.SUM)))
    reduce_into(out, inputs, ReduceOp.PREMUL_SUM(1e300))
    assert np.isinf(out.real).all()


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_an_infinite_imaginary_part_leaves_the_real_part_alone(dtype: str) -> None:
    inputs = [np.full(3, complex(6, np.inf), dtype)] * 2
    for op in ("AVG", "SUM", "PREMUL_SUM"):
        found = reduced(inputs, dtype, op)
        assert (found.real == {"AVG": 6, "SUM": 12}.get(op, found.real)).all()
        assert np.isfinite(found.real).all()
        assert np.isposinf(found.imag).all()


def test_unsigned_integers_wrap() -> None:
    inputs = [np.full(3, value, np.uint16) for value in (65_535, 2)]
    assert reduced(inputs, "uint16", "SUM").tolist() == [1, 1, 1]
    assert reduced(inputs, "uint16", "PRODUCT").tolist() == [65_534] * 3


def test_a_factor_multiplies_each_element_before_the_sum() -> None:
    inputs = [np.full(4, 3e38, np.float32)] * 2
    out = np.empty(4, np.float32)
    reduce_into(out, inputs, ReduceOp.PREMUL_SUM(0.5))
    assert (out == inputs[0]).all()
    combine(out, np.zeros(4, np.float32), ReduceOp.PREMUL_SUM(0.5))
    assert (out == inputs[0]).all(), "the factor must not be applied to a partial result again"


# --- truth -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", [op for dtype, op in SUPPORTED if dtype == "bool"])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_bool_comes_out_as_the_byte_0_or_1_whatever_byte_went_in(op: str, count: int) -> None:
    random = np.random.default_rng(1)
    raw = [random.choice(np.array([0, 1, 2, 128, 255], np.uint8), 1000) for _ in range(count)]
    found = reduced([array.view(bool) for array in raw], "bool", op)
    expected = reference([array != 0 for array in raw], "bool", op)
    assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("dtype", [dtype for dtype, op in SUPPORTED if op == "LOR"])
def test_a_lone_input_of_a_logical_op_becomes_0_or_1(dtype: str) -> None:
    values = np.array([0, 1, 5, 0], numpy_dtype(dtype))
    for op in ("LAND", "LOR", "LXOR"):
        out = np.empty_like(values)
        finish(out, values, OPS[op], 1)
        assert out.tobytes() == np.array([0, 1, 1, 0], numpy_dtype(dtype)).tobytes()
        finish(values_too := values.copy(), values_too, OPS[op], 1)
        assert values_too.tobytes() == out.tobytes()


@pytest.mark.parametrize("dtype", FLOATS)
def test_nan_is_true_and_minus_zero_is_not(dtype: str) -> None:
    values = np.array([np.nan, -0.0], numpy_dtype(dtype))
    assert reduced([values, values], dtype, "LAND").astype(complex).tolist() == [1, 0]


# --- NaN, zeros, ties ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["MIN", "MAX", "SUM", "AVG", "PRODUCT", "PREMUL_SUM"])
@pytest.mark.parametrize("dtype", REAL_FLOATS)
def test_a_nan_of_any_rank_at_any_place_goes_through(dtype: str, op: str) -> None:
    for rank in range(3):
        for place in range(37):
            inputs = numbers(dtype, 37)
            inputs[rank][place] = -np.nan if place % 2 else np.nan
            assert np.flatnonzero(np.isnan(reduced(inputs, dtype, op))).tolist() == [place]


@pytest.mark.parametrize("dtype", REAL_FLOATS)
def test_infinities_are_ordered_like_numbers(dtype: str) -> None:
    inputs = [np.array(row, numpy_dtype(dtype)) for row in ([np.inf, -np.inf, np.inf], [1, 1, -np.inf])]
    assert reduced(inputs, dtype, "MIN").tolist() == [1, -np.inf, -np.inf]
    assert reduced(inputs, dtype, "MAX").tolist() == [np.inf, 1, np.inf]


@pytest.mark.parametrize("dtype", REAL_FLOATS)
def test_minus_zero_is_smaller_than_zero(dtype: str) -> None:
    for zeros in ([0.0, -0.0], [-0.0, 0.0]):
        inputs = [np.full(70, zero, numpy_dtype(dtype)) for zero in zeros]
        assert np.signbit(reduced(inputs, dtype, "MIN")).all()
        assert not np.signbit(reduced(inputs, dtype, "MAX")).any()
    inputs = [np.full(70, -0.0, numpy_dtype(dtype))] * 2
    assert np.signbit(reduced(inputs, dtype, "MAX")).all()


@pytest.mark.parametrize("dtype", [dtype for dtype, op in SUPPORTED if op == "MINLOC"])
def test_of_equal_values_the_smaller_index_wins(dtype: str) -> None:
    inputs = [np.array(pairs, numpy_dtype(dtype)) for pairs in ([5, 7, 5, 1], [5, 2, 6, 0], [5, 3, 5, 4])]
    assert reduced(inputs, dtype, "MINLOC").tolist() == [5, 2, 5, 1]
    assert reduced(inputs, dtype, "MAXLOC").tolist() == [5, 2, 6, 0]


@pytest.mark.parametrize("op", sorted(LOCATING))
@pytest.mark.parametrize("dtype", REAL_FLOATS)
def test_a_nan_wins_and_brings_its_index(dtype: str, op: str) -> None:
    rows = ([-np.inf, 0, np.nan, 9], [np.nan, 4, np.inf, 1], [np.nan, 3, np.nan, 8])
    found = reduced([np.array(row, numpy_dtype(dtype)) for row in rows], dtype, op).astype(float)
    assert np.isnan(found[::2]).all()
    assert found[1::2].tolist() == [3, 8]


# --- the same bits everywhere ----------------------------------------------------------------------------------------

SPECIAL = {
    2: [0, 0x8000, 0x7C00, 0xFC00, 0x7C01, 0xFC01, 0x7E00, 0x7F80, 0xFF80, 0x7F81, 0xFF81, 0x7FC0, 0x7FFF, 0xFFFF],
    4: [0x00000000, 0x80000000, 0x7F800000, 0xFF800000, 0x7F800001, 0x7FC00000, 0xFFC00001, 0x7FFFFFFF, 0x3F800000],
    8: [
        0,
        1 << 63,
        0x7FF << 52,
        0xFFF << 52,
        (0x7FF << 52) + 1,
        0xFFF8 << 48,
        0x7FF8 << 48,
        (1 << 64) - 1,
        0x3FF << 52,
    ],
}


def any_bits(dtype: str, length: int, seed: int) -> Array:
    """Any bits at all; floats may also be ordinary, or of the kinds that mean something: zeros, infinities, NaNs."""
    random, target = np.random.default_rng(seed), numpy_dtype(dtype)
    array = np.frombuffer(random.bytes(length * target.itemsize), np.uint8).copy()
    if DTYPES[dtype].kind not in ("float", "complex"):
        return array.view(target)
    reals = array.view(numpy_dtype(real_part(dtype)))
    if random.integers(2):
        reals[:] = random.standard_normal(len(reals))
    words = reals.view(f"u{reals.itemsize}")
    special = random.integers(0, 3, len(words)) < random.integers(0, 3)
    words[special] = random.choice(np.array(SPECIAL[words.itemsize], words.dtype), int(special.sum()))
    return array.view(target)


SEEDS = st.integers(0, 2**32)


@given(st.sampled_from(SUPPORTED), SEEDS, st.sampled_from([2, 30, 5000]))
@settings(max_examples=400, deadline=None)
def test_hosts_may_combine_in_either_order(pair: tuple[str, str], seed: int, length: int) -> None:
    a, b = (folded([any_bits(pair[0], length, seed + i)], *pair) for i in range(2))
    ab, ba = a.copy(), b.copy()
    combine(ab, b, OPS[pair[1]])
    combine(ba, a, OPS[pair[1]])
    assert ab.tobytes() == ba.tobytes()


@given(st.sampled_from(SUPPORTED), SEEDS, st.integers(1, 70), st.integers(0, 70))
@settings(max_examples=400, deadline=None)
def test_the_place_in_memory_changes_no_bit(pair: tuple[str, str], seed: int, half: int, skip: int) -> None:
    inputs = [any_bits(pair[0], 2 * half, seed + i) for i in range(3)]
    elsewhere = [np.concatenate([array[:1]] * (skip + i) + [array])[skip + i :] for i, array in enumerate(inputs)]
    out = np.empty(2 * half + skip, wide(*pair))[skip:]
    reduce_into(out, elsewhere, OPS[pair[1]])
    assert out.tobytes() == folded(inputs, *pair).tobytes()


@given(st.sampled_from(SUPPORTED), SEEDS)
@settings(max_examples=200, deadline=None)
def test_pieces_give_what_the_whole_gives(pair: tuple[str, str], seed: int) -> None:
    inputs = [any_bits(pair[0], 300, seed + i) for i in range(3)]
    whole = reduced(inputs, *pair)
    parts = [reduced([array[start : start + 50] for array in inputs], *pair) for start in range(0, 300, 50)]
    assert np.concatenate(parts).tobytes() == whole.tobytes()


@pytest.mark.parametrize("dtype", FLOATS)
def test_results_hold_one_kind_of_nan(dtype: str) -> None:
    target = numpy_dtype(dtype)
    real = numpy_dtype(real_part(dtype))
    words = np.array(SPECIAL[real.itemsize], f"u{real.itemsize}")
    nans = [word for word, value in zip(words, words.view(real), strict=True) if math.isnan(value)]
    assert len(nans) >= 4
    for length in (2, 20_000):
        for nan in nans:
            inputs = [np.zeros(length, target) for _ in range(2)]
            inputs[0].view(f"u{real.itemsize}")[0] = nan
            for op in ("SUM", "AVG", "PRODUCT", "PREMUL_SUM", "MIN", "MAX", "MINLOC", "MAXLOC"):
                if reduces(dtype, op):
                    found = reduced(inputs, dtype, op).view(real)[0]
                    assert found.tobytes() == real.type(np.nan).tobytes(), (op, hex(nan))


# --- memory ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "op"), SUPPORTED)
def test_no_step_allocates_what_grows_with_the_array(dtype: str, op: str) -> None:
    length = (4 << 20) // DTYPES[dtype].itemsize
    inputs = [np.zeros(length, numpy_dtype(dtype))] * 3
    acc, other = np.zeros(length, wide(dtype, op)), np.zeros(length, wide(dtype, op))
    out = np.zeros(length, numpy_dtype(dtype))
    if DTYPES[dtype].kind == "float":
        inputs[0][:2] = np.nan
    tracemalloc.start()
    try:
        reduce_into(acc, inputs, OPS[op])
        combine(acc, other, OPS[op])
        finish(out, acc, OPS[op], 3)
        peak_nbytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_nbytes < 256 << 10
