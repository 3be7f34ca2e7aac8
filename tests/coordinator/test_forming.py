from hypothesis import given
from hypothesis import strategies as st

from hocket.coordinator.forming import Ask, Forming, Kind, generate_name
from hocket.coordinator.records import Session, SessionState
from hocket.protocol.limits import IDENTITY_NBYTES
from hocket.protocol.messages import NOBODY, HostInfo

HOST = HostInfo(1, "a", "127.0.0.1", 1, 1, "i")


def forming(size: int, *seats: int) -> Forming:
    made = Forming((Kind.WORLD, "x"), Kind.WORLD, "x", "world", size, ranks=tuple(range(size)))
    for number, seat in enumerate(seats):
        session = Session(HOST, number, "x", "", 1, 0.0, SessionState.WAITING)
        made.add(Ask(session, 1, made, seat, 1.0, 0.0))
    return made


def test_claimed_seats_go_first_and_the_rest_by_arrival() -> None:
    seats = forming(4, NOBODY, 1, NOBODY).seats()
    assert {seat: ask.session.number for seat, ask in sorted(seats.items())} == {0: 0, 1: 1, 2: 2}


def test_the_reason_names_the_seats_that_wait() -> None:
    assert forming(4, NOBODY, 1, NOBODY).reason() == "waiting for 1 of 4: rank 3"
    assert forming(5, 0, 4).reason() == "waiting for 3 of 5: ranks 1-3"
    assert forming(1, 0).reason() == "all have asked; waiting for the epoch before it to end"


def test_a_seat_is_free_again_when_its_ask_is_gone() -> None:
    made = forming(2, 0, NOBODY)
    made.remove(made.asks[0])
    assert made.missing() == (1,)
    assert not made.claims


@given(st.sets(st.tuples(*[st.integers(0, 40)] * 3), min_size=2, max_size=20), st.integers(1, 3))
def test_different_lists_of_ranks_make_different_names(lists: set[tuple[int, ...]], call: int) -> None:
    assert len({generate_name("world", ranks, call, 1) for ranks in lists}) == len(lists)


def test_names_stay_short_and_distinct_for_long_lists_and_deep_nests() -> None:
    every_other = tuple(range(0, 4096, 2))
    assert generate_name("world", every_other, 1, 5) != generate_name("world", every_other, 1, 6)
    for number in (5, 6):
        assert len(generate_name("world", every_other, 1, number)) < 100
    assert generate_name("w" * IDENTITY_NBYTES, (0,), 1, 5) == "group@5"
