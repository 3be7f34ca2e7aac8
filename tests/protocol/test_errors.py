"""Errors keep their facts, say them in one sentence, and survive the trip."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.protocol import errors as e

EXAMPLES = [
    e.HocketError("anything"),
    e.UsageError("wrong"),
    e.ArgumentError("dst", "0", "[1, 2]"),
    e.ArgumentTypeError("tensor", "1.0 (float)", "an array"),
    e.MismatchError((((0, 1), "all_reduce(float32[1000])"), ((2,), "all_reduce(float64[1000])")), "why"),
    e.UnsupportedError("int64", "reduce op AVG", "use SUM"),
    e.SerialiseError(1, "function", "no"),
    e.MemberLostError((e.Member(2, "h1", 77), e.Member(3, "h1")), "killed", "SIGKILL"),
    e.EpochEndedError("over"),
    e.AbortedError(2, "cancelled"),
    e.DeadlineAbortedError(1, 2.5, (2, 3)),
    e.DeadlineError(1.0, (1,), "detail"),
    e.ConnectError("127.0.0.1:7420", "--coordinator", "refused"),
    e.AuthError("wrong token"),
    e.CoordinatorUnavailableError("away"),
    e.WireError("junk"),
    e.ClosedError("closed"),
]


def test_there_is_an_example_of_every_error() -> None:
    assert {type(example) for example in EXAMPLES} == set(e.BY_CODE.values())


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: error.code)
def test_every_error_comes_back_with_all_its_facts_and_its_sentence(error: e.HocketError) -> None:
    error.at(e.Where("all_reduce", 17, "train", 4, "side"))
    error.array_intact = False
    again = e.error_from_facts(e.error_to_facts(error))
    assert type(again) is type(error)
    assert {name: getattr(again, name) for name in error.facts} == {name: getattr(error, name) for name in error.facts}
    assert (str(again), again.where, again.array_intact) == (str(error), error.where, False)


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: error.code)
def test_every_error_can_be_pickled_between_processes_of_one_program(error: e.HocketError) -> None:
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_a_mismatch_reads_as_who_called_what() -> None:
    error = e.MismatchError((((2,), "all_reduce(float64[1000])"), ((0, 1), "all_reduce(float32[1000])")))
    error.at(e.Where("all_reduce", 17, "world", 4))
    assert str(error) == (
        "all_reduce #17 in group 'world' (epoch 4): rank 2 called all_reduce(float64[1000]), "
        "ranks 0, 1 called all_reduce(float32[1000])"
    )


def test_a_deadline_names_the_limit_and_who_is_missing() -> None:
    error = e.DeadlineError(1.5, (1, 2, 3, 7)).at(e.Where("barrier", 1, "world", 1))
    assert str(error) == "barrier #1 in group 'world' (epoch 1): no end within 1.5 s: ranks 1-3, 7 did not arrive"
    assert isinstance(error, TimeoutError)


def test_whoever_did_not_set_the_deadline_still_catches_a_timeout() -> None:
    error = e.DeadlineAbortedError(0, 1.0, (2,))
    assert isinstance(error, TimeoutError) and isinstance(error, e.AbortedError)
    assert (error.rank, error.limit_s, error.missing) == (0, 1.0, (2,))
    assert str(error) == "aborted by rank 0: no end within 1 s: rank 2 did not arrive"


def test_a_lost_member_is_named_with_host_and_process() -> None:
    error = e.MemberLostError((e.Member(2, "h1", 77),), "killed")
    assert (error.rank, error.host, error.pid, error.ranks, error.cause) == (2, "h1", 77, (2,), "killed")
    assert "rank 2 (host h1, pid 77): killed" in str(error)


def test_the_first_note_of_the_place_stays() -> None:
    error = e.WireError("x").at(e.Where("a", 1, "g", 1)).at(e.Where("b", 2, "g", 1))
    assert error.operation == "a" and error.number == 1 and error.group == "g" and error.epoch == 1


def test_usage_errors_are_value_errors_and_wrong_types_type_errors_as_well() -> None:
    assert issubclass(e.UsageError, ValueError)
    assert issubclass(e.ArgumentTypeError, TypeError) and issubclass(e.ArgumentTypeError, e.ArgumentError)


@given(st.dictionaries(st.sampled_from(["code", "facts", "where", "intact"]), st.none() | st.text() | st.integers()))
def test_what_is_not_an_error_is_a_wire_error(data: dict[str, object]) -> None:
    with pytest.raises(e.WireError):
        e.error_from_facts(data)


@pytest.mark.parametrize(
    ("ranks", "text"), [((1,), "rank 1"), ((0, 1), "ranks 0, 1"), ((4, 0, 1, 2), "ranks 0-2, 4"), ((), "ranks ")]
)
def test_ranks_are_named_in_runs(ranks: tuple[int, ...], text: str) -> None:
    assert e.name_ranks(ranks) == text
