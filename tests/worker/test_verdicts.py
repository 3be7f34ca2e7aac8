"""What a host remembers of outcomes: the first word stands, and the memory is bounded."""

from hypothesis import given
from hypothesis import strategies as st

from hocket.protocol.errors import AbortedError, DeadlineAbortedError, DeadlineError, HocketError, MemberLostError
from hocket.worker.verdicts import KEPT, Trial, Verdicts, seen_by_others


def test_the_first_outcome_of_an_operation_stands() -> None:
    verdicts = Verdicts()
    first = AbortedError(1, "first")
    assert verdicts.decide(3, first) is first
    assert verdicts.decide(3, None) is first
    assert verdicts.decide(4, None) is None
    assert verdicts.decide(4, AbortedError(1, "late")) is None


def test_a_completed_operation_is_known_and_is_not_over_as_an_aborted_one_is() -> None:
    verdicts = Verdicts()
    verdicts.decide(1, None)
    verdicts.decide(2, AbortedError(0, "x"))
    assert (verdicts.is_over(1), verdicts.is_over(2), verdicts.is_over(3)) == (False, True, False)
    assert set(verdicts.decided) == {1, 2}


def test_an_outcome_ends_the_trial_and_the_question_about_it() -> None:
    verdicts = Verdicts()
    verdicts.trials[5], verdicts.asked[5] = Trial({2}, None), None
    verdicts.trials[6], verdicts.asked[6] = Trial({2}, None), None
    verdicts.decide(5, None)
    assert (list(verdicts.trials), list(verdicts.asked)) == ([6], [6])


def test_the_highest_number_counts_whatever_the_order_of_outcomes() -> None:
    verdicts = Verdicts()
    for number in (7, 2, 9, 1):
        verdicts.decide(number, None)
    assert verdicts.highest == 9


@given(st.lists(st.integers(1, 5 * KEPT), min_size=1, max_size=300), st.integers(1, 4 * KEPT))
def test_the_memory_of_outcomes_is_bounded_and_keeps_the_last_ones(more: list[int], steady: int) -> None:
    verdicts = Verdicts()
    for number in range(1, steady + 1):
        verdicts.decide(number, None)
    for number in more:
        verdicts.decide(number, AbortedError(0, "more"))
        assert len(verdicts.decided) <= KEPT
        assert number in verdicts.decided
    assert verdicts.highest == max(steady, *more)


def test_a_deadline_is_told_to_others_as_an_abort_by_the_member_whose_deadline_it_was() -> None:
    told = seen_by_others(2, DeadlineError(0.5, (1, 3)))
    assert isinstance(told, DeadlineAbortedError)
    assert (told.rank, told.limit_s, told.missing) == (2, 0.5, (1, 3))


def test_other_reasons_are_told_as_they_are() -> None:
    reasons: list[HocketError] = [
        AbortedError(1, "cancelled"),
        DeadlineAbortedError(1, 0.5, (2,)),
        MemberLostError((), "killed"),
    ]
    for reason in reasons:
        assert seen_by_others(2, reason) is reason
