import pytest

from hocket.cli.failures import Failure, describe, exit_status, first_failure, last_words

CULPRIT = (
    "Traceback (most recent call last):",
    '  File "train.py", line 3, in <module>',
    "ValueError: bad batch",
)
FOLLOWER = (
    "a warning: before",
    "Traceback (most recent call last):",
    '  File "train.py", line 9, in <module>',
    "hocket.protocol.errors.MemberLostError: all_reduce #2 in group 'world' (epoch 1): lost rank 1 (host a): exited",
)
IN_A_TASK_GROUP = (
    "  + Exception Group Traceback (most recent call last):",
    '  |   File "train.py", line 9, in <module>',
    "  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)",
    "  +-+---------------- 1 ----------------",
    "    | Traceback (most recent call last):",
    "    | hocket.protocol.errors.AbortedError: all_reduce #2 in group 'world' (epoch 1): aborted by rank 1: cancelled",
    "    +------------------------------------",
)


def test_statuses_read_as_a_shell_has_them() -> None:
    assert (exit_status(0), exit_status(7), exit_status(-15)) == (0, 7, 143)
    assert (describe(7), describe(-11)) == ("exit 7", "SIGSEGV")


@pytest.mark.parametrize("follower", [FOLLOWER, IN_A_TASK_GROUP], ids=["alone", "in a task group"])
def test_a_rank_that_lost_another_one_is_not_the_first_although_it_ended_first(follower: tuple[str, ...]) -> None:
    failures = [Failure(0, 1, follower), Failure(1, 1, CULPRIT), Failure(2, 1, follower)]
    assert first_failure(failures).rank == 1


def test_a_rank_that_a_signal_ended_is_the_first_whatever_it_had_printed() -> None:
    assert first_failure([Failure(0, 1, FOLLOWER), Failure(2, -9, FOLLOWER)]).rank == 2


def test_where_all_lost_another_one_the_one_that_ended_first_is_named() -> None:
    assert first_failure([Failure(3, 1, FOLLOWER), Failure(0, 1, FOLLOWER)]).rank == 3


def test_an_error_that_was_only_reported_on_the_way_does_not_excuse_a_rank() -> None:
    recovered = (*FOLLOWER, "going on with the survivors", *CULPRIT)
    assert first_failure([Failure(0, 1, recovered), Failure(1, 1, CULPRIT)]).rank == 0


def test_the_last_words_are_the_last_traceback() -> None:
    assert last_words((*FOLLOWER, "going on", *CULPRIT)) == list(CULPRIT)


@pytest.mark.parametrize(
    "link",
    [
        "During handling of the above exception, another exception occurred:",
        "The above exception was the direct cause of the following exception:",
    ],
)
def test_a_chain_of_tracebacks_is_shown_whole(link: str) -> None:
    chain = (*CULPRIT, "", link, "", *CULPRIT, "", link, "", *CULPRIT)
    assert last_words(("before", *chain, "after")) == [*chain, "after"]


def test_a_group_of_exceptions_is_shown_from_its_head() -> None:
    assert last_words(("before", *IN_A_TASK_GROUP)) == list(IN_A_TASK_GROUP)


def test_without_a_traceback_the_last_lines_are_shown() -> None:
    lines = [str(number) for number in range(50)]
    assert last_words(lines) == lines[-20:]
    assert last_words([]) == []
