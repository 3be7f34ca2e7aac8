import functools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from hocket.cli.bench_data import PERIOD, contributed, fill, reduced, sent, tolerance, wrong
from hocket.cli.bench_plan import REDUCE_OPS
from hocket.fabric.compression import decode, encode
from hocket.fabric.dtypes import numpy_dtype
from hocket.protocol.compression import CODECS
from hocket.protocol.dtypes import DTYPES

FLOAT = np.dtype(np.float32)


def filled(length: int, period: Any) -> Any:
    array = np.empty(length, period.dtype)
    fill(array, period)
    return array


@pytest.mark.parametrize("length", [0, 1, PERIOD - 1, PERIOD, PERIOD + 1, 300 * PERIOD + 7])
def test_what_was_filled_is_right_and_repeats_with_the_period(length: int) -> None:
    period = sent(1, FLOAT)
    array = filled(length, period)
    assert array.tolist() == np.resize(period, length).tolist()
    assert wrong(array, period) == 0


@pytest.mark.parametrize(
    "places", [[0], [PERIOD - 1], [PERIOD], [299 * PERIOD + 3], [300 * PERIOD + 6], [1, 5000, 70000]]
)
def test_every_wrong_element_is_counted_wherever_it_is(places: list[int]) -> None:
    period = sent(0, FLOAT)
    array = filled(300 * PERIOD + 7, period)
    array[places] += 1
    assert wrong(array, period) == len(places)


def test_an_element_that_is_no_number_is_wrong_also_where_rounding_is_tolerated() -> None:
    period = sent(0, FLOAT)
    array = filled(2 * PERIOD, period)
    array[3] = np.nan
    assert wrong(array, period) == wrong(array, period, 0.5) == 1


def test_only_differences_beyond_the_tolerance_are_wrong() -> None:
    period = sent(0, FLOAT)
    array = filled(2 * PERIOD, period)
    array[3] += 0.25
    array[PERIOD + 4] -= 0.75
    assert wrong(array, period, 0.5) == 1


@pytest.mark.parametrize("offset", [1, 16, 1024, 4096, 65536, 1 << 20])
def test_data_that_land_in_a_wrong_place_are_noticed(offset: int) -> None:
    period = sent(0, FLOAT)
    moved = np.roll(period, offset % PERIOD)
    assert offset % PERIOD and wrong(moved, period) > PERIOD / 2


def test_ranks_and_parts_send_different_data() -> None:
    periods = [sent(rank, FLOAT, part) for rank in range(4) for part in range(4)]
    for number, one in enumerate(periods):
        for other in periods[number + 1 :]:
            assert wrong(one, other) > PERIOD / 2


@pytest.mark.parametrize("name", sorted(DTYPES))
def test_every_dtype_holds_the_elements_exactly(name: str) -> None:
    moved = sent(1, numpy_dtype(name)).astype(np.complex128)
    assert set(moved.real.tolist()) == ({0, 1} if name == "bool" else set(range(8)))


@pytest.mark.parametrize("ranks", [1, 2, 3, 8, 60, 127])
@pytest.mark.parametrize("name", ["int8", "bfloat16", "float16", "uint8"])
def test_sums_do_not_leave_the_range_in_which_a_dtype_is_exact(name: str, ranks: int) -> None:
    dtype = numpy_dtype(name)
    exact = sum(contributed(rank, ranks, dtype, "SUM").astype(np.int64) for rank in range(ranks))
    assert reduced(ranks, dtype, "SUM").astype(np.int64).tolist() == np.asarray(exact).tolist()


FOLDS: dict[str, Any] = {
    "SUM": np.add,
    "PRODUCT": np.multiply,
    "MIN": np.minimum,
    "MAX": np.maximum,
    "BAND": np.bitwise_and,
    "BOR": np.bitwise_or,
    "BXOR": np.bitwise_xor,
    "LAND": np.logical_and,
    "LOR": np.logical_or,
    "LXOR": np.logical_xor,
}


@pytest.mark.parametrize("ranks", [2, 3, 8, 16])
@pytest.mark.parametrize("op", sorted(FOLDS))
def test_a_reduction_without_one_of_the_ranks_would_be_noticed(op: str, ranks: int) -> None:
    dtype = np.dtype(np.int32)
    whole = reduced(ranks, dtype, op)
    for missing in range(ranks):
        others = [contributed(rank, ranks, dtype, op) for rank in range(ranks) if rank != missing]
        assert wrong(functools.reduce(FOLDS[op], others).astype(dtype), whole) > 0


def test_every_reduce_op_but_the_average_is_one_of_those() -> None:
    assert set(REDUCE_OPS) == {*FOLDS, "AVG"}


def test_an_average_may_be_rounded_and_a_sum_may_not() -> None:
    assert tolerance("SUM", FLOAT, 3, None) == 0
    assert 0 < tolerance("AVG", FLOAT, 3, None) < 1e-5
    assert 0 < tolerance("AVG", np.dtype(ml_dtypes.bfloat16), 3, None) < 0.2


@pytest.mark.parametrize("ranks", [2, 3, 8, 16])
@pytest.mark.parametrize("codec", CODECS)
def test_a_compressed_sum_may_be_rounded_twice_and_a_missing_rank_is_still_noticed(codec: str, ranks: int) -> None:
    whole = reduced(ranks, FLOAT, "SUM")
    tolerated = tolerance("SUM", FLOAT, ranks, codec)
    assert wrong(rounded(codec, rounded(codec, whole)), whole, tolerated) == 0
    for missing in range(ranks):
        assert wrong(whole - contributed(missing, ranks, FLOAT, "SUM"), whole, tolerated) > PERIOD / 3


def rounded(codec: str, array: Any) -> Any:
    out = np.empty_like(array)
    decode(codec, encode(codec, array), out)
    return out
