"""The checks of one call's arrays that a public call does not reach easily, and overlaps against numpy's own word."""

from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hocket.client import consistency
from hocket.client.consistency import (
    check_apart,
    check_dtype,
    check_gathered,
    check_rows,
    keep_apart,
    parts,
    row_splits,
)
from hocket.protocol.errors import ArgumentError, ArgumentTypeError, UnsupportedError

few_or_many = pytest.mark.parametrize("few", [0, 1000], ids=["by address", "by pairs"])


# --- shared memory ---------------------------------------------------------------------------------------------------

cuts = st.tuples(st.integers(0, 40), st.integers(0, 12)).map(lambda cut: slice(cut[0], cut[0] + cut[1]))
strided_cuts = st.tuples(st.integers(0, 40), st.integers(0, 40), st.sampled_from([1, 2, 3, -1, -2])).map(
    lambda cut: slice(max(cut[:2]), min(cut[:2]), cut[2]) if cut[2] < 0 else slice(min(cut[:2]), max(cut[:2]), cut[2])
)


@few_or_many
@settings(deadline=None)
@given(st.lists(strided_cuts, max_size=5))
def test_outputs_are_refused_exactly_where_two_share_an_element(few: int, slices: list[slice]) -> None:
    memory = np.zeros(48)
    arrays = [memory[cut] for cut in slices]
    shared = any(np.shares_memory(a, b) for i, a in enumerate(arrays) for b in arrays[:i])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(consistency, "_FEW", few)
        try:
            check_apart(arrays, [str(index) for index in range(len(arrays))])
            refused = False
        except ArgumentError as error:
            refused = True
            first, second = int(error.allowed.split("'")[1]), int(error.argument)
            assert first < second
            assert np.shares_memory(arrays[first], arrays[second])
    assert refused == shared


@few_or_many
@settings(deadline=None)
@given(st.lists(cuts, max_size=4), st.lists(st.integers(0, 48), max_size=6, unique=True))
def test_inputs_are_copied_exactly_where_an_output_overlaps(few: int, inputs: list[slice], ends: list[int]) -> None:
    memory = np.arange(64, dtype=np.uint8)
    ends = sorted(ends)
    recvs = [memory[start:stop] for start, stop in zip(ends[::2], ends[1::2], strict=False)]
    sends = [memory[cut] for cut in inputs]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(consistency, "_FEW", few)
        kept = keep_apart(sends, recvs)
    for before, after in zip(sends, kept, strict=True):
        assert (after is not before) == any(np.shares_memory(before, recv) for recv in recvs)
        assert not any(np.shares_memory(after, recv) for recv in recvs)
        assert after.tolist() == before.tolist()


@few_or_many
def test_neighbours_are_apart(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consistency, "_FEW", few)
    memory = np.zeros(9, np.uint8)
    before, between, after = memory[:3], memory[3:6], memory[6:]
    assert keep_apart([between], [after, before])[0] is between
    assert keep_apart([before, after], [between])[0] is before
    check_apart([after, before, between], ["after", "before", "between"])


def test_interleaved_columns_are_apart() -> None:
    table = np.zeros((5, 40))
    check_apart(list(table.T), [str(column) for column in range(40)])


def test_arrays_that_numpy_cannot_tell_apart_in_time_get_the_benefit_of_the_doubt() -> None:
    memory = np.empty(192_163_377, np.int8)  # never touched: the example of numpy's documentation
    first = np.lib.stride_tricks.as_strided(memory, (1049, 1049, 1049), (36674, 61119, 85569))
    second = np.lib.stride_tricks.as_strided(memory[64_023_025:], (1049, 1049, 1), (12223, 12224, 1))
    with pytest.raises(np.exceptions.TooHardError):
        np.shares_memory(first, second, max_work=cast(Any, consistency._OVERLAP_WORK))
    check_apart([first, second], ["first", "second"])


# --- dtypes ----------------------------------------------------------------------------------------------------------


def test_byte_order_makes_no_difference() -> None:
    check_dtype(np.zeros(2, ">f8"), "output", np.zeros(2), "input")
    swapped = np.dtype([("a", ">u8"), ("b", "f4")])
    check_dtype(np.zeros(2, swapped), "output", np.zeros(2, swapped.newbyteorder()), "input")


def test_a_dtype_that_does_not_travel_is_unsupported_before_it_differs() -> None:
    with pytest.raises(UnsupportedError, match="longdouble|float128"):
        check_dtype(np.zeros(2, np.longdouble), "output", np.zeros(2), "input")


@pytest.mark.parametrize("dtype", ["i4", "f8", "U2", "V4", "M8[s]"])
def test_other_dtypes_of_any_size_differ(dtype: str) -> None:
    with pytest.raises(ArgumentError, match="float32"):
        check_dtype(np.zeros(2, dtype), "output", np.zeros(2, np.float32), "input")


# --- sizes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(8, 3), (4, 2, 3), (24,)])
def test_four_inputs_are_gathered_concatenated_stacked_or_flat(shape: tuple[int, ...]) -> None:
    check_gathered(np.zeros(shape), np.zeros((2, 3)), 4)


@pytest.mark.parametrize("shape", [(2, 12), (3, 8), (8, 3, 1), (4, 3, 2), (23,), (), (0,)])
def test_no_other_shape_is_gathered_into(shape: tuple[int, ...]) -> None:
    with pytest.raises(ArgumentError, match=r"\[8, 3\] or \[4, 2, 3\] or \[24\]") as caught:
        check_gathered(np.zeros(shape), np.zeros((2, 3)), 4)
    assert str(list(shape)) in caught.value.given


def test_a_0_dimensional_array_has_no_rows() -> None:
    for arrays, argument in (((np.zeros(()), np.zeros(2)), "output"), ((np.zeros(2), np.zeros(())), "input")):
        with pytest.raises(ArgumentError, match="0-dimensional") as caught:
            check_rows(*arrays)
        assert caught.value.argument == argument


def test_rows_of_another_shape_are_named() -> None:
    with pytest.raises(ArgumentError, match=r"\[4, 2\].*rows of shape \[3\].*\[4, 3\]"):
        check_rows(np.zeros((4, 2)), np.zeros((4, 3)))
    check_rows(np.zeros((0, 3)), np.zeros((4, 3)))


@pytest.mark.parametrize(
    ("splits", "expected"),
    [
        (None, [2, 2]),
        ([1, 3], [1, 3]),
        ((4, 0), [4, 0]),
        ([np.int64(1), np.uint8(3)], [1, 3]),
        (np.array([3, 1]), [3, 1]),
    ],
)
def test_splits_may_be_any_whole_numbers(splits: object, expected: list[int]) -> None:
    found = row_splits(np.zeros((4, 2)), "input", splits, 2)
    assert found == expected
    assert {type(size) for size in found} == {int}


@pytest.mark.parametrize(
    ("splits", "size", "argument", "words"),
    [
        (None, 3, "input", ["[4, 2]", "4 rows", "3 members", "input_split_sizes"]),
        ([1, 1, 1], 3, "input_split_sizes", ["[1, 1, 1]", "add up to 3", "add up to 4"]),
        ([5, -1], 2, "input_split_sizes", ["-1 in entry 1", "[5, -1]"]),
        ([1, 1, 2], 2, "input_split_sizes", ["3 sizes", "2 sizes"]),
        ([], 2, "input_split_sizes", ["0 sizes", "2 sizes"]),
        ([1] * 99 + [-95], 100, "input_split_sizes", ["-95 in entry 99", "[1, 1,", "...]"]),
    ],
)
def test_splits_that_do_not_fit_are_named(splits: object, size: int, argument: str, words: list[str]) -> None:
    with pytest.raises(ArgumentError) as caught:
        row_splits(np.zeros((4, 2)), "input", splits, size)
    assert caught.value.argument == argument
    assert [word for word in words if word not in str(caught.value)] == []


@pytest.mark.parametrize(
    "splits", [4, "22", {2: 2}, [2.0, 2], [True, 3], ["2", 2], np.array([2.0, 2.0]), np.eye(2, dtype=int)]
)
def test_splits_that_are_no_whole_numbers_are_a_type_error(splits: Any) -> None:
    with pytest.raises(ArgumentTypeError, match="whole numbers"):
        row_splits(np.zeros((4, 2)), "input", splits, 2)


def test_parts_are_consecutive_views() -> None:
    flat = np.arange(6, dtype=np.uint8)
    cut = parts(flat, (2, 0, 4))
    assert [piece.tolist() for piece in cut] == [[0, 1], [], [2, 3, 4, 5]]
    cut[2][0] = 9
    assert flat[2] == 9
