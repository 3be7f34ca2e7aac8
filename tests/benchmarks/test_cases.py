"""What the benchmarks move, against a plain numpy reference for all ranks at once."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
OPS = ("all_reduce", "all_reduce_bf16", "broadcast", "all_gather", "reduce_scatter", "all_to_all")
SIZES = (4, 20, 4096, 4 * 1009 * 6)


@pytest.fixture
def cases(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return __import__("cases")


def carry_out(op: str, made: list[Any]) -> None:
    """The operation on all ranks' arrays, as its definition has it."""
    size, inputs = len(made), [case.source.copy() for case in made]
    for rank, case in enumerate(made):
        if op in ("all_reduce", "all_reduce_bf16"):
            case.target[:] = np.sum(inputs, axis=0)
        elif op == "broadcast":
            case.target[:] = inputs[0]
        elif op == "all_gather":
            case.target[:] = np.concatenate(inputs)
        elif op == "reduce_scatter":
            case.target[:] = np.split(np.sum(inputs, axis=0), size)[rank]
        else:
            case.target[:] = np.concatenate([np.split(given, size)[rank] for given in inputs])


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("nbytes", SIZES)
def test_a_right_result_is_taken_for_right_and_one_wrong_element_for_wrong(
    cases: Any, op: str, size: int, nbytes: int
) -> None:
    made = [cases.make_case(op, nbytes, rank, size) for rank in range(size)]
    wrong_before = [not case.is_right() for case in made]
    carry_out(op, made)
    assert [case.is_right() for case in made] == [True] * size
    assert all(wrong_before[1:])
    for case in made:
        case.target[len(case.target) // 2] += 1
        assert not case.is_right()


def test_every_rank_has_an_element_however_small_the_size(cases: Any) -> None:
    assert [cases.elements(op, 4, 4) for op in cases.OPS] == [
        (1, 1), (1, 1), (1, 4), (4, 1), (4, 4), (2, 2), (0, 0),
    ]  # fmt: skip


def test_zeroes_stay_what_sums_are_made_of(cases: Any) -> None:
    case = cases.make_case("all_reduce", 4096, 1, 2)
    case.settle()
    assert not case.source.any()


def test_sizes_are_read_as_they_are_written(cases: Any) -> None:
    assert [cases.parse_size(cases.size_text(nbytes)) for nbytes in cases.SIZES] == list(cases.SIZES)
    for wrong in ("", "3", "-4", "1GiB", "4 kB", "x"):
        with pytest.raises(ValueError, match="is no size"):
            cases.parse_size(wrong)
