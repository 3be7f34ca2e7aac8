"""What was compressed comes back within the bounds that the module promises, whatever the numbers are."""

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from hocket.fabric.compression import BLOCK_ELEMENTS, SLAB_ELEMENTS, Floats, decode, encode, encoded_nbytes
from hocket.protocol.compression import CODECS

DTYPES = ("float32", "float64")
LARGEST = np.finfo(np.float32).max
BF16_END = 3.3961775e38
"""Beyond it bfloat16 has only infinity."""


def there_and_back(codec: str, array: Floats) -> Floats:
    data = encode(codec, array)
    assert len(data) == encoded_nbytes(codec, len(array), array.itemsize)
    found = np.empty_like(array)
    decode(codec, data, found)
    return found


def bound(codec: str, array: Floats) -> "np.ndarray[Any, np.dtype[np.float64]]":
    """By how much each finite element may be off, as `hocket.fabric.compression` has it."""
    wide = array.astype(np.float64)
    if codec == "bf16":
        return 2.0**-8 * (1 + 2.0**-16) * np.abs(wide) + 2.0**-134
    limits = np.empty(len(wide))
    for start in range(0, len(wide), BLOCK_ELEMENTS):
        block = wide[start : start + BLOCK_ELEMENTS]
        finite = np.isfinite(block)
        largest = np.abs(block[finite]).max(initial=0.0)
        limits[start : start + BLOCK_ELEMENTS] = largest / (253 if finite.all() else 247) + 2.0**-142
    return limits


def check(codec: str, array: Floats) -> None:
    found, limits = there_and_back(codec, array), bound(codec, array)
    finite = np.isfinite(array)
    np.testing.assert_array_equal(found[~finite], array[~finite])
    kept = finite & (np.abs(array) < BF16_END) if codec == "bf16" else finite
    difference = np.abs(found[kept].astype(np.longdouble) - array[kept].astype(np.longdouble))
    assert (difference <= limits[kept]).all()
    if codec == "bf16":
        beyond = finite & ~kept
        assert (found[beyond & (array > 0)] >= LARGEST * 0.99).all()
        assert (found[beyond & (array < 0)] <= -LARGEST * 0.99).all()


@st.composite
def numbers(draw: st.DrawFn) -> Floats:
    """Arrays of a few magnitudes, or of any, with ends that are not whole blocks."""
    dtype = draw(st.sampled_from(DTYPES))
    length = draw(st.sampled_from([0, 1, 2, 255, 256, 257, 600]))
    anything = st.floats(width=32 if dtype == "float32" else 64)
    array: Floats = draw(arrays.arrays(dtype, length, elements=anything, fill=st.nothing() if length < 9 else None))
    if draw(st.booleans()):
        seed = draw(st.integers(0, 2**32 - 1))
        array = np.random.default_rng(seed).standard_normal(length).astype(dtype)
        array *= array.dtype.type(2.0 ** draw(st.integers(-149, 120)))
    return array


@pytest.mark.parametrize("codec", CODECS)
@settings(deadline=None)
@given(array=numbers())
@example(array=np.full(300, LARGEST))
@example(array=np.array([np.finfo(np.float64).max, -np.finfo(np.float64).max, 1.0]))
@example(array=np.array([1e-45, 1e-43, -1.4e-43, 9e-44], np.float32))
@example(array=np.array([5e-324, 1e-322], np.float64))
@example(array=np.array([1e38] + [1e-38] * 255, np.float32))
@example(array=np.array([np.nan, np.inf, -np.inf, LARGEST, -LARGEST, 1e-45, 0.0], np.float32))
@example(array=np.array([1 + 2.0**-8 + 2.0**-40, 1 + 2.0**-8 - 2.0**-40]))
def test_what_comes_back_is_within_the_documented_bounds(codec: str, array: Floats) -> None:
    check(codec, array)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("codec", CODECS)
def test_long_arrays_are_cut_into_slabs_that_nobody_sees(codec: str, dtype: str) -> None:
    array = np.random.default_rng(1).standard_normal(3 * SLAB_ELEMENTS + 77).astype(dtype)
    array[5], array[SLAB_ELEMENTS + 300], array[-1] = np.nan, np.inf, -np.inf
    check(codec, array)
    whole = there_and_back(codec, array)
    start = SLAB_ELEMENTS - BLOCK_ELEMENTS
    part = there_and_back(codec, np.ascontiguousarray(array[start : start + 2 * BLOCK_ELEMENTS]))
    assert part.tobytes() == whole[start : start + 2 * BLOCK_ELEMENTS].tobytes()


@pytest.mark.parametrize("codec", CODECS)
def test_what_has_been_rounded_once_is_not_rounded_again(codec: str) -> None:
    """A host may send on what it has decoded: nothing more is lost."""
    once = there_and_back(codec, np.random.default_rng(2).standard_normal(5000).astype(np.float32))
    twice = there_and_back(codec, once)
    assert np.abs(twice - once).max() <= np.abs(once).max() * 2.0**-22


@pytest.mark.parametrize("codec", CODECS)
def test_what_is_decoded_may_be_added_to_what_is_there(codec: str) -> None:
    array = np.random.default_rng(4).standard_normal(SLAB_ELEMENTS + 700).astype(np.float32)
    array[9] = np.inf
    found = np.linspace(0, 1, len(array), dtype=np.float32)
    expected = found + there_and_back(codec, array)
    decode(codec, encode(codec, array), found, add=True)
    assert found.tobytes() == expected.tobytes()


def test_bf16_rounds_to_the_nearest_and_ties_to_even() -> None:
    words = np.array([0x3F808000, 0x3F818000, 0x3F808001, 0x3F807FFF, 0x80000001, 0x7F800001], np.uint32)
    found = there_and_back("bf16", words.view(np.float32)).view(np.uint32) >> 16
    assert [hex(word) for word in found[:5]] == ["0x3f80", "0x3f82", "0x3f81", "0x3f80", "0x8000"]
    assert np.isnan((found[5:] << 16).astype(np.uint32).view(np.float32)).all()


def test_int8_takes_half_a_level_off_at_most_and_gives_the_largest_back() -> None:
    array = np.linspace(-1.0, 1.0, 256, dtype=np.float32) * np.float32(127.0)
    found = there_and_back("int8", array)
    assert found.tolist() == np.rint(array).tolist()


def test_sizes_are_those_that_the_documentation_tells() -> None:
    assert encoded_nbytes("bf16", 1000, 4) == 2000
    assert encoded_nbytes("int8", 1024, 4) == 1024 + 4 * 4
    assert encoded_nbytes("int8", 1025, 8) == 1025 + 8 * 5
    assert encoded_nbytes("int8", 0, 4) == 0


@pytest.mark.parametrize("codec", CODECS)
def test_encoding_leaves_its_input_alone_and_takes_the_room_it_is_given(codec: str) -> None:
    array = np.random.default_rng(3).standard_normal(700).astype(np.float32)
    before, room = array.copy(), np.empty(encoded_nbytes(codec, 700, 4), np.uint8)
    assert encode(codec, array, room) is room
    assert array.tobytes() == before.tobytes()
    assert room.tobytes() == encode(codec, array).tobytes()
