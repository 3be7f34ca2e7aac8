import heapq

from hypothesis import given
from hypothesis import strategies as st

from hocket.coordinator.deadlines import Deadlines


def test_items_come_out_when_due_and_in_order() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for due_s, item in ((3.0, "c"), (1.0, "a"), (2.0, "b")):
        deadlines.add(due_s, item)
    assert deadlines.first == 1.0
    assert [deadlines.pop_due(2.0) for _ in range(3)] == ["a", "b", None]
    assert deadlines.first == 3.0


def test_what_is_discarded_never_comes() -> None:
    deadlines: Deadlines[str] = Deadlines()
    token = deadlines.add(1.0, "a")
    deadlines.discard(token)
    deadlines.discard(token)
    assert deadlines.first is None
    assert deadlines.pop_due(9.0) is None


def test_settled_items_do_not_pile_up() -> None:
    deadlines: Deadlines[int] = Deadlines()
    for item in range(10_000):
        deadlines.discard(deadlines.add(300.0, item))
    assert len(deadlines._heap) <= 65


@given(st.lists(st.tuples(st.floats(0, 9), st.booleans())))
def test_it_is_a_queue_by_time_of_what_was_not_discarded(entries: list[tuple[float, bool]]) -> None:
    deadlines: Deadlines[float] = Deadlines()
    kept: list[float] = []
    for due_s, keep in entries:
        token = deadlines.add(due_s, due_s)
        if keep:
            heapq.heappush(kept, due_s)
        else:
            deadlines.discard(token)
    assert len(deadlines) == len(kept)
    assert [deadlines.pop_due(9.0) for _ in range(len(kept) + 1)] == [*sorted(kept), None]
