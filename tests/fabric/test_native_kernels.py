"""The native kernels give the same bits as the numpy ones, whatever bits go in."""

from collections.abc import Iterator

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hocket.fabric import kernels, numpy_kernels
from hocket.fabric.core import native
from hocket.fabric.dtypes import numpy_dtype, wire_dtype
from hocket.protocol.dtypes import DTYPES, accumulator, check_reduce
from hocket.protocol.errors import UnsupportedError
from hocket.protocol.reduce_ops import LOCATING, NAMES, ReduceOp

pytestmark = pytest.mark.skipif(native is None, reason="there is no native core here")

FACTORS = (0.5, -3.7, 1e30)


def op_named(name: str, salt: int = 0) -> ReduceOp:
    return ReduceOp.PREMUL_SUM(FACTORS[salt % len(FACTORS)]) if name == "PREMUL_SUM" else ReduceOp(name)


def reduces(dtype: str, name: str) -> bool:
    try:
        check_reduce(dtype, op_named(name))
    except UnsupportedError:
        return False
    return True


CASES = [(name, dtype) for dtype in DTYPES for name in sorted(NAMES) if reduces(dtype, name)]
SPECIAL = {
    1: [0, 1, 2, 0x7F, 0x80, 0xFF],
    2: [0, 0x8000, 1, 0x8001, 0x03FF, 0x7BFF, 0x7C00, 0xFC00, 0x7C01, 0x7E00, 0xFE01, 0x7F80, 0xFF80, 0x7FC1, 0x3F80],
    4: [0, 0x80000000, 1, 0x807FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00001, 0x7F7FFFFF, 0x3F800000],
    8: [0, 1 << 63, 1, 0x7FF0 << 48, 0xFFF0 << 48, 0x7FF8 << 48, 0xFFF8 << 48 | 1, 0x7FEFFFFFFFFFFFFF, 0x3FF0 << 48],
}


def any_bits(dtype: str, length: int, generator: np.random.Generator) -> "np.ndarray[tuple[int], np.dtype[np.void]]":
    """Elements of any bits, one in three of them special, one in three a small number, so that some are equal."""
    row = DTYPES[dtype]
    unit = row.itemsize // 2 if row.kind == "complex" else row.itemsize
    count = length * row.itemsize // unit
    words = generator.integers(0, 256, count * unit, np.uint8).view(f"u{unit}")
    special = np.array(SPECIAL[unit], f"u{unit}")
    chosen = generator.integers(0, 3, count)
    words = np.where(chosen == 0, special[generator.integers(0, len(special), count)], words).astype(f"u{unit}")
    found = words.view(numpy_dtype(dtype))
    with np.errstate(all="ignore"):
        small = generator.integers(-3, 4, length).astype(np.int8).astype(numpy_dtype(dtype))
    return np.where(np.resize(chosen, length) == 1, small, found).astype(numpy_dtype(dtype))


def both(inputs: "list[np.ndarray[tuple[int], np.dtype[np.void]]]", op: ReduceOp, size: int) -> None:
    """Carries all steps out both ways."""
    dtype = wire_dtype(inputs[0].dtype)
    accs, outs = [], []
    for module in (numpy_kernels, kernels):
        acc = np.empty(len(inputs[0]), numpy_dtype(accumulator(dtype, op)))
        module.reduce_into(acc, inputs, op)
        out = np.empty(len(acc), inputs[0].dtype)
        module.finish(out, acc, op, size)
        accs.append(acc)
        outs.append(out)
    if accs[0].tobytes() != accs[1].tobytes():
        differ = [i for i in range(len(accs[0])) if accs[0][i : i + 1].tobytes() != accs[1][i : i + 1].tobytes()]
        raise AssertionError(f"{op} of {dtype}: {[[x[i] for x in inputs] + [a[i] for a in accs] for i in differ[:4]]}")
    assert outs[0].tobytes() == outs[1].tobytes()
    direct = np.empty_like(outs[0])
    names = (op.name, op.factor, dtype, size)
    native.reduce_finish(direct.view(np.uint8), [one.view(np.uint8) for one in inputs], *names)
    assert direct.tobytes() == outs[0].tobytes()
    for at in range(len(inputs)):  # in place of any of the inputs
        copies = [one.copy() for one in inputs]
        native.reduce_finish(copies[at].view(np.uint8), [one.view(np.uint8) for one in copies], *names)
        assert copies[at].tobytes() == outs[0].tobytes()


@pytest.fixture(params=["best", "baseline"])
def instructions(request: pytest.FixtureRequest) -> Iterator[str]:
    """Has the kernels use what this processor does best, or what each of its kind has."""
    assert native.kernels_use(None if request.param == "best" else request.param)
    yield request.param
    native.kernels_use(None)


@pytest.mark.usefixtures("instructions")
@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_all_steps_give_the_bits_of_numpys(name: str, dtype: str) -> None:
    generator = np.random.default_rng(CASES.index((name, dtype)))
    for count in (1, 2, 3, 4, 5, 9):
        for length in (0, 1, 2, 3, 7, 8, 16, 31, 64, 70, 1026, 2500):
            length -= length % 2 if name in LOCATING else 0
            inputs = [any_bits(dtype, length, generator) for _ in range(count)]
            both(inputs, op_named(name, count), count)


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(CASES), st.integers(1, 4), st.integers(0, 40), st.integers(0, 15), st.integers(0, 2**32))
def test_elements_may_stand_at_any_address(
    case: tuple[str, str], count: int, pairs: int, offset: int, seed: int
) -> None:
    name, dtype = case
    generator = np.random.default_rng(seed)
    inputs = []
    for index in range(count):
        given_ = any_bits(dtype, 2 * pairs, generator)
        memory = np.zeros(given_.nbytes + 16, np.uint8)
        start = (offset + index) % 16
        memory[start : start + given_.nbytes] = given_.view(np.uint8)
        inputs.append(memory[start : start + given_.nbytes].view(given_.dtype))
    both(inputs, op_named(name, seed), count)


@pytest.mark.usefixtures("instructions")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_every_half_is_read_and_rounded_as_numpy_does(dtype: str) -> None:
    halves = np.arange(1 << 16, dtype=np.uint16).view(numpy_dtype(dtype))
    both([halves], ReduceOp.SUM, 1)
    both([halves, halves[::-1].copy()], ReduceOp.SUM, 2)
    both([halves, np.full(1 << 16, 1.0009765625, halves.dtype)], ReduceOp.PRODUCT, 2)
    both([halves, halves, halves], ReduceOp.AVG, 3)


@pytest.mark.usefixtures("instructions")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sums_between_two_halves_are_rounded_to_the_even_one(dtype: str) -> None:
    generator = np.random.default_rng(0)
    words = generator.integers(0, 1 << 32, 1 << 18, np.uint64).astype(np.uint32)
    words[::3] = words[::3] & np.uint32(0xFFFFE000 if dtype == "float16" else 0xFFFF0000) | np.uint32(
        0x1000 if dtype == "float16" else 0x8000
    )  # halfway
    wide = words.view(np.float32)
    wide = wide[np.isfinite(wide)].copy()
    results = [np.empty(len(wide), numpy_dtype(dtype)) for _ in range(2)]
    numpy_kernels.finish(results[0], wide, ReduceOp.SUM, 1)
    kernels.finish(results[1], wide, ReduceOp.SUM, 1)
    assert results[0].tobytes() == results[1].tobytes()


def test_buffers_of_other_lengths_are_refused() -> None:
    x, y = np.zeros(4, np.float32), np.zeros(5, np.float32)
    with pytest.raises(ValueError, match="20 bytes, where 4 elements are reduced"):
        native.reduce_into(x, [y], "SUM", None, "float32")
    with pytest.raises(ValueError, match="bfloat17 does not reduce by SUM"):
        native.reduce_into(x, [x], "SUM", None, "bfloat17")


def test_there_are_no_instructions_of_another_name() -> None:
    served = native.kernels_describe()
    assert not native.kernels_use("mmx")
    assert native.kernels_describe() == served


def test_numpys_nan_is_the_one_nan_of_every_dtype() -> None:
    for dtype in (np.float16, ml_dtypes.bfloat16, np.float32, np.float64):
        negative = -np.full(3, np.nan, dtype)
        acc = np.empty(3, numpy_dtype(accumulator(wire_dtype(np.dtype(dtype)), ReduceOp.MAX)))
        kernels.reduce_into(acc, [negative, negative], ReduceOp.MAX)
        assert acc.tobytes() == np.full(3, np.nan, acc.dtype).tobytes()
