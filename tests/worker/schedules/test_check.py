"""The checker: what it computes, and that it finds every broken rule."""

from collections.abc import Iterator, Mapping, Sequence

import pytest

from hocket.worker.schedules.check import Outcome, ScheduleError, Tally, Value, simulate
from hocket.worker.schedules.schedule import Action, Round

A, B, C = Value.of(0), Value.of(1), Value.of(2)
SEND = Round(1, (0,), None, ())
TAKE = Round(None, (), 0, (0,))
ADD = Round(None, (), 0, (0,), Action.REDUCE)


def play(
    schedules: Sequence[Sequence[Round]], initial: Sequence[Mapping[int, Value]], *, buffered: bool = True
) -> Outcome:
    return simulate(map(iter, schedules), initial, buffered=buffered)


def test_sums_are_equal_however_their_terms_are_swapped() -> None:
    assert A.plus(B) == B.plus(A)
    assert A.plus(B).plus(C) == C.plus(B.plus(A))


def test_sums_differ_when_their_terms_are_grouped_otherwise() -> None:
    assert A.plus(B).plus(C) != A.plus(B.plus(C))
    assert A.plus(B).plus(C).contributions == A.plus(B.plus(C)).contributions


def test_a_contribution_added_twice_is_found() -> None:
    with pytest.raises(ScheduleError, match=r"contributions \[1\] used twice in \(0\+1\) \+ \(1\+2\)"):
        A.plus(B).plus(B.plus(C))


def test_stored_chunks_replace_and_reduced_ones_add_up() -> None:
    stored, added = play([[SEND], [TAKE]], [{0: A}, {0: B}]), play([[SEND], [ADD]], [{0: A}, {0: B}])
    assert stored.contents == ({0: A}, {0: A})
    assert added.contents == ({0: A}, {0: A.plus(B)})


def test_counts_are_kept_for_each_host() -> None:
    outcome = play([[Round(1, (0, 1), None, ()), SEND], [Round(None, (), 0, (0, 1)), TAKE]], [{0: A, 1: B}, {}])
    assert outcome.tallies == (Tally(2, 3, 0), Tally(2, 0, 3))


def test_messages_carry_what_chunks_held_at_the_start_of_the_round() -> None:
    swap = [Round(other, (0,), other, (0,)) for other in (1, 0)]
    assert play([swap[:1], swap[1:]], [{0: A}, {0: B}]).contents == ({0: B}, {0: A})


def test_messages_of_one_sender_arrive_in_order() -> None:
    sender = [Round(1, (0,), None, ()), Round(1, (1,), None, ())]
    receiver = [Round(None, (), 0, (1,)), Round(None, (), 0, (0,))]
    with pytest.raises(ScheduleError, match=r"host 1, round 1: expects \(1,\) from host 0, gets \(0,\)"):
        play([sender, receiver], [{0: A, 1: B}, {}])


def test_messages_of_different_senders_are_taken_as_the_receiver_likes() -> None:
    receiver = [Round(None, (), 1, (1,)), Round(None, (), 0, (0,))]
    outcome = play([[Round(2, (0,), None, ())], [Round(2, (1,), None, ())], receiver], [{0: A}, {1: B}, {}])
    assert outcome.contents[2] == {0: A, 1: B}


def test_chunks_in_another_order_are_a_mismatch() -> None:
    with pytest.raises(ScheduleError, match=r"expects \(1, 0\) from host 0, gets \(0, 1\)"):
        play([[Round(1, (0, 1), None, ())], [Round(None, (), 0, (1, 0))]], [{0: A, 1: B}, {}])


def test_hosts_that_wait_for_each_other_are_a_deadlock() -> None:
    with pytest.raises(
        ScheduleError, match=r"deadlock: host 0, round 1, waits in .*source=1.*; host 1, round 1, waits"
    ):
        play([[Round(None, (), 1, (0,)), SEND], [TAKE, Round(0, (0,), None, ())]], [{0: A}, {0: B}])


def test_a_host_that_waits_for_one_that_is_done_is_a_deadlock() -> None:
    with pytest.raises(ScheduleError, match="deadlock: host 1, round 2, waits"):
        play([[SEND], [TAKE, TAKE]], [{0: A}, {}])


def test_sending_first_on_both_sides_is_a_deadlock_only_without_buffers() -> None:
    schedules = [[SEND, Round(None, (), 1, (0,))], [Round(0, (0,), None, ()), TAKE]]
    assert play(schedules, [{0: A}, {0: B}]).contents == ({0: B}, {0: A})
    with pytest.raises(ScheduleError, match=r"deadlock: host 0, round 1, waits in .*; host 1, round 1, waits"):
        play(schedules, [{0: A}, {0: B}], buffered=False)


def test_exchanging_in_one_round_needs_no_buffers() -> None:
    schedules = [[Round(1, (0,), 1, (0,), Action.REDUCE)], [Round(0, (0,), 0, (0,), Action.REDUCE)]]
    assert play(schedules, [{0: A}, {0: B}], buffered=False).contents == ({0: A.plus(B)}, {0: A.plus(B)})


def test_a_message_that_nobody_receives_is_found() -> None:
    with pytest.raises(ScheduleError, match=r"messages that nobody received: 0 to 1: \(0,\)"):
        play([[SEND], []], [{0: A}, {}])


@pytest.mark.parametrize(
    ("turn", "complaint"),
    [
        (Round(1, (7,), None, ()), r"sends chunks \[7\] that it does not hold"),
        (Round(0, (0,), None, ()), "no such peer"),
        (Round(2, (0,), None, ()), "no such peer"),
        (Round(None, (), -1, ()), "no such peer"),
        (Round(None, (), None, ()), "idle, which takes no round"),
        (Round(None, (0,), 1, ()), "chunks without a peer"),
        (Round(1, (0,), None, (0,)), "chunks without a peer"),
        (Round(1, (0, 0), None, ()), "a chunk twice in one message"),
        (Round(None, (), 1, (0, 0)), "a chunk twice in one message"),
    ],
)
def test_a_round_without_sense_is_found(turn: Round, complaint: str) -> None:
    with pytest.raises(ScheduleError, match=f"host 0, round 1: {complaint}"):
        play([[turn], []], [{0: A}, {}])


def test_reducing_into_a_chunk_that_is_not_there_is_found() -> None:
    with pytest.raises(ScheduleError, match="host 1, round 1: reduces into chunk 0 that it does not hold"):
        play([[SEND], [ADD]], [{0: A}, {}])


def test_word_of_hosts_spreads_through_others_but_only_forwards_in_time() -> None:
    first, second = Round(1, (), None, ()), Round(None, (), 0, ())
    third = [Round(2, (), None, ()), Round(None, (), 1, ())]
    outcome = play([[first], [second, third[0]], [third[1]]], [{}, {}, {}])
    assert outcome.heard == (frozenset({0}), frozenset({0, 1}), frozenset({0, 1, 2}))
    hasty = play([[first], [third[0], second], [third[1]]], [{}, {}, {}])
    assert hasty.heard[2] == {1, 2}


def test_elapsed_is_the_longest_chain_of_messages_that_wait_for_each_other() -> None:
    relay: list[list[Round]] = [[SEND], [TAKE, Round(2, (0,), None, ())], [Round(None, (), 1, (0,))]]
    assert play(relay, [{0: A}, {}, {}]).elapsed == 2
    side_by_side = [[SEND], [TAKE], [Round(3, (0,), None, ())], [Round(None, (), 2, (0,))]]
    assert play(side_by_side, [{0: A}, {}, {0: C}, {}]).elapsed == 1


def test_elapsed_counts_by_the_duration_given() -> None:
    def schedules() -> Iterator[Iterator[Round]]:
        yield iter([Round(1, (0, 1, 2), None, ())])
        yield iter([Round(None, (), 0, (0, 1, 2))])

    outcome = simulate(schedules(), [{0: A, 1: B, 2: C}, {}], duration=lambda chunks: 10 + chunks)
    assert outcome.elapsed == 13


def test_every_host_needs_both_a_schedule_and_contents() -> None:
    with pytest.raises(ValueError, match="zip"):
        play([[SEND], [TAKE]], [{0: A}])
