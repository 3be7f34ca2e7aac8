import pytest

from hocket.cli.bench_plan import (
    OPERATIONS,
    Settings,
    bandwidths,
    check_settings,
    counts,
    iterations_for,
    parse_dtype,
    parse_op,
    parse_operations,
    parse_size,
    percentile,
    size_of,
    sizes,
)
from hocket.protocol.errors import ArgumentError, UnsupportedError


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("4", 4),
        ("8K", 8192),
        ("64M", 64 << 20),
        ("1G", 1 << 30),
        ("1.5k", 1536),
        ("2KiB", 2048),
        ("0", 0),
        ("1T", 1 << 40),
    ],
)
def test_sizes_are_bytes_in_powers_of_1024(text: str, nbytes: int) -> None:
    assert parse_size(text, "-b") == nbytes


@pytest.mark.parametrize("text", ["", "-1", "8X", "1.3", "K", "2T", "1e3", "٣"])
def test_what_is_no_size_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ArgumentError, match="such as 4, 8K, 64M or 1G"):
        parse_size(text, "-e")


def test_operations_are_found_however_they_are_spelt() -> None:
    assert parse_operations("all") == tuple(OPERATIONS)
    assert parse_operations("allreduce, all-gather,ALL_TO_ALL,all_reduce") == ("all_reduce", "all_gather", "all_to_all")
    with pytest.raises(ArgumentError, match=r"'all_redcue', allowed is one of all_reduce, .*, or all"):
        parse_operations("all_redcue")


def test_dtypes_and_reduce_ops_have_short_names() -> None:
    assert [parse_dtype(name) for name in ("float", "half", "BF16", "int8")] == [
        "float32",
        "float16",
        "bfloat16",
        "int8",
    ]
    assert [parse_op(name) for name in ("sum", "prod", "MAX")] == ["SUM", "PRODUCT", "MAX"]
    with pytest.raises(ArgumentError, match="'float7', allowed is one of bool, "):
        parse_dtype("float7")
    with pytest.raises(ArgumentError, match="'minloc', allowed is one of SUM, "):
        parse_op("minloc")


def test_sizes_grow_by_a_factor_or_by_a_step() -> None:
    assert list(sizes(Settings(smallest_nbytes=4, largest_nbytes=64))) == [4, 8, 16, 32, 64]
    assert list(sizes(Settings(smallest_nbytes=3, largest_nbytes=100, factor=10))) == [3, 30]
    stepped = Settings(smallest_nbytes=10, largest_nbytes=40, factor=None, step_nbytes=15)
    assert list(sizes(stepped)) == [10, 25, 40]


def test_small_sizes_come_to_the_same_whole_elements_once() -> None:
    settings = Settings(smallest_nbytes=1, largest_nbytes=64)
    assert counts(OPERATIONS["all_reduce"], settings, 4) == [1, 2, 4, 8, 16]
    assert counts(OPERATIONS["all_gather"], settings, 4) == [1, 2, 4]
    assert counts(OPERATIONS["barrier"], settings, 4) == [0]


def test_the_size_is_that_of_the_larger_buffer() -> None:
    for name in ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"):
        assert size_of(OPERATIONS[name], 5, 4, 3) == 60, name
    for name in ("all_reduce", "reduce", "broadcast", "sendrecv"):
        assert size_of(OPERATIONS[name], 5, 4, 3) == 20, name


@pytest.mark.parametrize(
    ("name", "factor"),
    [
        ("all_reduce", 1.5),
        ("reduce", 1),
        ("broadcast", 1),
        ("all_gather", 0.75),
        ("reduce_scatter", 0.75),
        ("all_to_all", 0.75),
        ("gather", 0.75),
        ("scatter", 0.75),
        ("sendrecv", 1),
    ],
)
def test_busbw_is_algbw_by_the_factor_of_nccl_tests(name: str, factor: float) -> None:
    assert bandwidths(OPERATIONS[name], 1000, 0.5, 4) == (2000, 2000 * factor)


def test_a_world_of_one_needs_no_bus() -> None:
    assert bandwidths(OPERATIONS["all_reduce"], 1000, 0.5, 1) == (2000, 0)


def test_iterations_fill_the_time_within_limits() -> None:
    assert iterations_for(Settings(), 1e-6) == 10_000
    assert iterations_for(Settings(), 1e-3) == 100
    assert iterations_for(Settings(), 1.0) == 20
    assert iterations_for(Settings(), float("inf")) == 20
    assert iterations_for(Settings(iterations=7), 1e-6) == 7


def test_percentiles_are_values_that_occurred() -> None:
    assert [percentile([5.0], share) for share in (0.5, 0.99)] == [5, 5]
    hundred = [float(value) for value in range(1, 101)]
    assert [percentile(hundred, share) for share in (0.5, 0.99)] == [50, 99]


@pytest.mark.parametrize(
    ("settings", "option"),
    [
        (Settings(smallest_nbytes=0), "-b"),
        (Settings(smallest_nbytes=8, largest_nbytes=4), "-e"),
        (Settings(factor=1), "-f"),
        (Settings(factor=None, step_nbytes=0), "-i"),
        (Settings(root=2), "-r"),
        (Settings(root=-1), "-r"),
        (Settings(compression="zip"), "--compression"),
        (Settings(operations=("broadcast",), compression="int8"), "--compression"),
    ],
)
def test_settings_that_cannot_be_measured_name_the_option(settings: Settings, option: str) -> None:
    with pytest.raises(ArgumentError) as refused:
        check_settings(settings, 2)
    assert refused.value.argument == option


def test_a_dtype_that_does_not_reduce_is_refused_only_where_it_would_be_reduced() -> None:
    check_settings(Settings(operations=("all_gather",), dtype="float8_e5m2"), 2)
    with pytest.raises(UnsupportedError, match="float8_e5m2 does not support reduce op SUM"):
        check_settings(Settings(operations=("all_gather", "reduce"), dtype="float8_e5m2"), 2)


def test_what_cannot_be_compressed_is_refused_before_ranks_are_started() -> None:
    check_settings(Settings(compression="int8", op="AVG"), 2)
    with pytest.raises(UnsupportedError, match="int32 does not support compression int8"):
        check_settings(Settings(compression="int8", dtype="int32"), 2)
    with pytest.raises(UnsupportedError, match="float32 does not support reduce op MAX with compression bf16"):
        check_settings(Settings(compression="bf16", op="MAX"), 2)


def test_settings_survive_the_way_to_a_rank() -> None:
    settings = Settings(operations=("gather", "barrier"), iterations=3, step_nbytes=4, factor=None, check=False)
    assert Settings.from_json(settings.to_json()) == settings
