"""Exchanges between mailboxes: who gets what, in any order of things, up to the end of the epoch."""

from collections.abc import Hashable
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from p2p_wire import (
    GROUP,
    NEVER,
    Pick,
    Wire,
    begin_recv,
    begin_send,
    every_length,
    every_order,
    latest,
    moves_of_a_transfer,
    offer,
    pattern,
    small_limits,
)

from hocket.client.mailbox import Finish, Mailbox, Pending
from hocket.protocol.errors import ClosedError, DeadlineError, Member, MemberLostError, MismatchError, error_to_facts
from hocket.protocol.limits import EAGER_NBYTES
from hocket.protocol.messages import P2PTake

LOST = MemberLostError((Member(0, "a", 12),), "killed")


# --- alone ------------------------------------------------------------------------------------------------------------


def test_what_is_pending_can_be_seen() -> None:
    with small_limits():
        box = Mailbox(GROUP, 0, 3)
        box.send("a", memoryview(pattern(100)), 1, 3, "c", "uint8", 100, NEVER, 2.0)
        box.recv("b", memoryview(bytearray(8)), None, 4, "", "float64", 1, NEVER, 2.5)
        box.handle_message(P2PTake(GROUP, "c", 0, 1, 1, 64))
        assert box.pending() == (
            Pending("send", 1, "c", 3, "uint8", 100, 100, 64, 2.0),
            Pending("recv", None, "", 4, "float64", 1, 8, 0, 2.5),
        )


def test_a_handle_cannot_be_used_twice_at_once() -> None:
    box = Mailbox(GROUP, 0, 2)
    begin_recv(box, "h", 3, src=1)
    with pytest.raises(AssertionError, match="in use"):
        begin_recv(box, "h", 3, src=1)


SIZES = (0, 3, 8, 9, 16, 40, 64, 65, 200)


def test_what_is_not_pending_cannot_be_cancelled() -> None:
    assert Mailbox(GROUP, 0, 2).cancel("h", ClosedError("")) == []


# --- order ------------------------------------------------------------------------------------------------------------


SIZES = (0, 3, 8, 9, 16, 40, 64, 65, 200)


@settings(max_examples=60, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(2, 3), st.booleans())
def test_messages_never_overtake_however_they_interleave(random: Random, size: int, any_source: bool) -> None:
    with small_limits():
        wire = Wire(size)
        routes = [(src, dst, tag) for src in range(size) for dst in range(size) for tag in (0, 1)]
        traffic = [random.choice(routes) for _ in range(random.randint(1, 14))]
        sizes_here = [random.choice(SIZES)] if any_source else SIZES
        todo = [("send", i) for i in range(len(traffic))] + [("recv", i) for i in range(len(traffic))]
        random.shuffle(todo)
        numbers: dict[tuple[str, tuple[int, int, int]], int] = {}
        posted: list[tuple[tuple[str, tuple[int, int, int], int], int]] = []
        sizes: dict[tuple[tuple[int, int, int], int], int] = {}
        for kind, i in todo:
            for _ in range(random.randint(0, 4)):
                wire.move(random.choice)
            route = src, dst, tag = traffic[i]
            number = numbers[kind, route] = numbers.get((kind, route), -1) + 1
            length = sizes.setdefault((route, number), random.choice(sizes_here))
            if kind == "send":
                wire.send(src, ("send", route, number), pattern(length, 10 * src + number), dst, tag)
            else:
                posted.append((("recv", route, number), dst))
                array = np.full(length, 255, np.uint8)
                wire.recv(dst, ("recv", route, number), array, None if any_source else src, tag)
        wire.run(random.choice)
        assert len(wire.finished) == 2 * len(traffic)
        assert all(box.pending() == () for box in wire.boxes)
        heard: dict[tuple[int, int, int], int] = {}
        for handle, dst in posted:
            _, (src, _, tag), number = handle
            got = wire.source(handle)
            assert got is not None and (any_source or got == src)
            number = heard[got, dst, tag] = heard.get((got, dst, tag), -1) + 1
            assert wire.arrays[handle].tobytes() == pattern(wire.arrays[handle].size, 10 * got + number).tobytes()


def test_a_receive_from_any_source_gets_what_arrived_first() -> None:
    wire, got = Wire(3), np.zeros(3)
    for i, src in enumerate((2, 1, 2)):
        wire.send(src, ("send", i), np.array([10.0 * src + i]), 0)
        wire.run()
    for i in range(3):
        wire.recv(0, i, got[i : i + 1], None)
    assert got.tolist() == [20.0, 11.0, 22.0]
    assert [wire.source(i) for i in range(3)] == [2, 1, 2]


def test_the_earliest_receive_gets_a_message_whether_it_names_the_sender_or_nobody() -> None:
    for sources in ([None, 1], [1, None]):
        wire = Wire(2)
        for i, src in enumerate(sources):
            wire.recv(0, i, np.zeros(1), src)
        wire.send(1, "send", np.array([1.0]), 0)
        wire.run()
        assert list(wire.finished) == ["send", 0]


def test_channels_are_apart() -> None:
    wire, got = Wire(2), np.zeros(1)
    wire.recv(1, "recv", got, 0, channel="b")
    wire.send(0, "send a", np.array([1.0]), 1, channel="a")
    wire.send(0, "send b", np.array([2.0]), 1, channel="b")
    wire.run()
    assert (wire.source("recv"), got[0]) == (0, 2.0)


@every_order
def test_a_small_message_stays_behind_a_large_one_that_was_sent_before(pick: Pick) -> None:
    wire, large, small = Wire(2), np.zeros(EAGER_NBYTES + 1, np.uint8), np.zeros(1, np.uint8)
    wire.send(0, "send large", pattern(large.size), 1)
    wire.send(0, "send small", np.array([5], np.uint8), 1)
    wire.run(pick)
    wire.recv(1, "large", large, 0)
    wire.recv(1, "small", small, 0)
    wire.run(pick)
    assert (wire.source("large"), wire.source("small")) == (0, 0)
    assert small[0] == 5 and large.tobytes() == pattern(large.size).tobytes()


# --- exchanges --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("elements", [1, 16 << 20])
@pytest.mark.parametrize("receive_first", [False, True])
def test_both_may_send_first(elements: int, receive_first: bool) -> None:
    wire, got = Wire(2), [np.zeros(elements, np.float32) for _ in range(2)]
    for step in range(2):
        for rank in range(2):
            if (step == 0) == receive_first:
                wire.recv(rank, ("recv", rank), got[rank], 1 - rank)
            else:
                wire.send(rank, ("send", rank), np.full(elements, rank + 1, np.float32), 1 - rank)
    wire.run(latest)
    assert len(wire.finished) == 4 and not any(finish.error for finish in wire.finished.values())
    assert (got[0] == 2).all() and (got[1] == 1).all()


@every_order
@pytest.mark.parametrize("elements", [1, 40_000])
def test_sends_and_receives_of_one_direction_mix_freely(elements: int, pick: Pick) -> None:
    wire = Wire(2)
    got = {name: np.zeros(elements) for name in ("0a", "0b", "1a", "1b")}
    wire.send(0, "send A", np.full(elements, 1.0), 1)
    wire.recv(0, "0a", got["0a"], 1)
    wire.send(0, "send B", np.full(elements, 2.0), 1)
    wire.recv(0, "0b", got["0b"], 1)
    wire.recv(1, "1a", got["1a"], 0)
    wire.recv(1, "1b", got["1b"], 0)
    wire.send(1, "send C", np.full(elements, 3.0), 0)
    wire.send(1, "send D", np.full(elements, 4.0), 0)
    wire.run(pick)
    assert [array[0] for array in got.values()] == [array[-1] for array in got.values()] == [3.0, 4.0, 1.0, 2.0]
    assert len(wire.finished) == 8


def test_two_that_wait_for_each_other_to_receive_are_late_and_say_what_is_open() -> None:
    wire = Wire(2)
    for rank in range(2):
        wire.send(rank, ("send", rank), pattern(EAGER_NBYTES + 1), 1 - rank, limit_s=5.0)
    wire.run()
    assert wire.boxes[0].deadline == 5.0 and wire.finished == {}
    wire.tick(4.9)
    assert wire.finished == {}
    wire.tick(5.0)
    for rank in range(2):
        error = wire.error(("send", rank))
        assert isinstance(error, DeadlineError) and (error.limit_s, error.missing) == (5.0, (1 - rank,))
        assert f"send to {1 - rank} (tag 0) was not received" in str(error)
    wire.run()
    assert all(box.deadline is None for box in wire.boxes)


@pytest.mark.parametrize("elements", [0, 2, 3_000_000])
@pytest.mark.parametrize("receive_first", [False, True])
def test_a_message_to_oneself_needs_no_wire(elements: int, receive_first: bool) -> None:
    wire, got = Wire(1), np.zeros(elements, np.float32)
    if receive_first:
        wire.recv(0, "recv", got, 0)
    wire.send(0, "send", np.arange(elements, dtype=np.float32), 0)
    if not receive_first:
        assert ("send" in wire.finished) == (got.nbytes <= EAGER_NBYTES)
        wire.recv(0, "recv", got, None)
    assert wire.moves() == []
    assert (wire.source("send"), wire.source("recv")) == (None, 0)
    assert (got == np.arange(elements)).all()


def test_a_message_to_oneself_that_does_not_fit_fails_like_any_other() -> None:
    wire = Wire(1)
    wire.send(0, "send", pattern(EAGER_NBYTES + 1), 0)
    wire.recv(0, "recv", np.zeros(3, np.uint8), 0)
    assert str(wire.error("send")) == str(wire.error("recv"))
    assert "rank 0 called send(uint8[65537], 65537 bytes), rank 0 called recv(uint8[3]" in str(wire.error("recv"))


@every_order
@pytest.mark.parametrize("elements", [1, 20_000])
def test_an_all_to_all_of_sends_and_receives(elements: int, pick: Pick) -> None:
    wire = Wire(4)
    got = [[np.zeros(elements) for _ in range(4)] for _ in range(4)]
    for rank in range(4):
        for other in range(4):
            wire.send(rank, ("send", rank, other), np.full(elements, 10.0 * rank + other), other)
            wire.recv(rank, ("recv", rank, other), got[rank][other], other)
    wire.run(pick)
    assert len(wire.finished) == 32
    for rank in range(4):
        assert [(array == 10 * j + rank).all() for j, array in enumerate(got[rank])] == [True] * 4


@every_order
@pytest.mark.parametrize("elements", [1, 40_000])
def test_tags_may_be_received_in_the_other_order(elements: int, pick: Pick) -> None:
    wire, one, two = Wire(2), np.zeros(elements), np.zeros(elements)
    wire.send(0, "send 1", np.full(elements, 1.0), 1, tag=1)
    wire.send(0, "send 2", np.full(elements, 2.0), 1, tag=2)
    wire.run(pick)
    wire.recv(1, "two", two, 0, tag=2)
    wire.run(pick)
    assert "one" not in wire.finished and (two == 2).all()
    wire.recv(1, "one", one, 0, tag=1)
    wire.run(pick)
    assert (one == 1).all()


# --- anything at any time ---------------------------------------------------------------------------------------------


@settings(max_examples=120, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 3))
def test_whatever_is_given_up_whenever_the_rest_is_right(random: Random, size: int) -> None:
    with small_limits():
        wire = Wire(size)
        sent: dict[tuple[int, int, int], int] = {}
        posted: list[tuple[Hashable, int, int, int]] = []
        for step in range(random.randint(1, 40)):
            rank, other, tag = random.randrange(size), random.randrange(size), random.randrange(2)
            limit_s = random.choice([NEVER, 1.0, 3.0, 10.0])
            match random.choice(["send", "send", "recv", "recv", "any", "cancel", "tick", "move", "move", "move"]):
                case "send":
                    number = sent[rank, other, tag] = sent.get((rank, other, tag), -1) + 1
                    data = stamped(random.choice([4, 6, 40, 40, 200]), rank, number)
                    wire.send(rank, ("send", step), data, other, tag, limit_s=limit_s)
                case "recv":
                    posted.append((("recv", step), rank, tag, other))
                    buffer = np.full(random.choice([4, 6, 40, 40, 200]), 255, np.uint8)
                    wire.recv(rank, ("recv", step), buffer, other, tag, limit_s=limit_s)
                case "any":
                    posted.append((("recv", step), rank, tag, -1))
                    wire.recv(rank, ("recv", step), np.full(40, 255, np.uint8), None, tag, limit_s=limit_s)
                case "cancel":
                    wire.cancel(rank, (random.choice(["send", "recv"]), random.randint(0, step)))
                case "tick":
                    wire.tick(wire.now + random.random())
                case "move":
                    for _ in range(random.randint(1, 8)):
                        wire.move(random.choice)
        wire.run(random.choice)
        check_what_came(wire, posted)
        drain(wire, random)
        for rank in range(size):
            for other in range(size):  # every window is open again, and pairs are in step
                got = np.zeros(8, np.uint8)
                wire.send(rank, ("send", "last", rank, other), stamped(8, rank, 7), other, 5)
                assert wire.source(("send", "last", rank, other)) is None
                wire.run(random.choice)
                wire.recv(other, ("last", rank, other), got, rank, 5)
                assert got.tobytes() == stamped(8, rank, 7).tobytes()
        wire.run(random.choice)
        assert all(box.pending() == () for box in wire.boxes)


def stamped(nbytes: int, src: int, number: int) -> np.ndarray:
    """A message that says whose it is and which."""
    data = pattern(nbytes, number)
    data[:2] = src, number
    return data


def check_what_came(wire: Wire, posted: list[tuple[Hashable, int, int, int]]) -> None:
    """Each receive holds a whole message or none; those of one sender came in order."""
    latest: dict[tuple[int, int, int], int] = {}
    for handle, rank, tag, src in posted:
        finish, array = wire.finished.get(handle), wire.arrays[handle]
        if finish is None or finish.error is not None:
            intact = finish is None or (finish.error is not None and finish.error.array_intact)
            assert not intact or (array == 255).all()
            continue
        source, number = int(array[0]), int(array[1])
        assert finish.source == source and src in (-1, source)
        assert array.tobytes() == stamped(array.size, source, number).tobytes()
        assert latest.get((source, rank, tag), -1) < number
        latest[source, rank, tag] = number


def drain(wire: Wire, random: Random) -> None:
    """Gives up all that is pending, then receives what is left."""
    for handle in list(wire.arrays):
        for rank in range(len(wire.boxes)):
            if handle not in wire.finished:
                wire.cancel(rank, handle)
    wire.run(random.choice)
    for rank, box in enumerate(wire.boxes):
        for tag in (0, 1):
            for i in range(1000):
                wire.recv(rank, ("drain", rank, tag, i), np.zeros(1, np.uint8), None, tag)
                if box.pending():
                    wire.cancel(rank, ("drain", rank, tag, i))
                    break
    wire.run(random.choice)


# --- the end of the epoch ---------------------------------------------------------------------------------------------


def test_the_end_fails_all_that_is_pending_each_with_an_error_of_its_own() -> None:
    wire = Wire(3)
    wire.recv(1, "recv", np.zeros(1), 0)
    wire.recv(1, "any", np.zeros(1), None)
    wire.send(1, "send", pattern(EAGER_NBYTES + 1), 2)
    wire.run()
    wire.end(1, LOST)
    errors = [wire.error(name) for name in ("recv", "any", "send")]
    assert all(isinstance(error, MemberLostError) and error.members == LOST.members for error in errors)
    assert len({id(error) for error in [*errors, LOST]}) == 4
    assert wire.boxes[1].pending() == () and wire.moves() == []


def test_what_was_delivered_before_the_end_can_still_be_received_in_order() -> None:
    wire = Wire(2)
    wire.send(0, "send 1", np.array([1.0]), 1)
    wire.send(0, "send 2", np.array([2.0]), 1, tag=8)
    wire.send(0, "send 3", np.array([3.0]), 1)
    wire.run()
    wire.end(1, LOST)
    got = np.zeros(3)
    wire.recv(1, "first", got[0:1], None)
    wire.recv(1, "other", np.zeros(2), 0, tag=8)
    wire.recv(1, "second", got[1:2], 0)
    wire.recv(1, "none", got[2:3], 0)
    assert got.tolist() == [1.0, 3.0, 0.0]
    assert isinstance(wire.error("other"), MismatchError)
    assert isinstance(wire.error("none"), MemberLostError)
    assert wire.moves() == [], "something was sent after the end"


def test_nothing_of_a_sender_is_received_past_an_offer_that_the_end_cut_off() -> None:
    wire, got = Wire(3), np.zeros(1, np.uint8)
    wire.send(0, "send large", pattern(EAGER_NBYTES + 1), 1)
    wire.send(0, "send small", np.array([1], np.uint8), 1)
    wire.run()
    wire.send(2, "send 2", np.array([2], np.uint8), 1)
    wire.run()
    wire.end(1, LOST)
    wire.recv(1, "behind", np.zeros(1, np.uint8), 0)
    assert isinstance(wire.error("behind"), MemberLostError)
    wire.recv(1, "any", got, None)
    assert (wire.source("any"), got[0]) == (2, 2)


def test_after_the_end_nothing_is_sent_or_taken_and_the_first_error_stays() -> None:
    box = Mailbox(GROUP, 1, 2)
    box.end(LOST)
    assert box.end(ClosedError("later")) == []
    for effects in (begin_recv(box, "r", 3), begin_send(box, "s", 3, dst=0), begin_send(box, "self", 3, dst=1)):
        [finish] = effects
        assert isinstance(finish, Finish) and isinstance(finish.error, MemberLostError) and finish.error is not LOST
    assert box.sink(offer(1, 3, True), 3) is None
    assert box.handle_message(offer(1, 3, True)) == []
    assert box.handle_message(P2PTake(GROUP, "c", 1, 0, 88, 3)) == []


@every_order
@every_length
def test_the_end_at_any_point_lets_go_of_memory_only_when_the_shell_has(nbytes: int, pick: Pick) -> None:
    with small_limits():
        for rank in (0, 1):
            for point in range(moves_of_a_transfer(nbytes) + 1):
                wire, got = Wire(2), np.full(nbytes, 255, np.uint8)
                wire.recv(1, "recv", got, 0)
                wire.send(0, "send", pattern(nbytes), 1)
                for _ in range(point):
                    wire.move(pick)
                wire.end(rank, LOST)
                wire.run(pick)
                assert wire.boxes[rank].pending() == () and wire.boxes[rank].deadline is None
                received = wire.finished.get("recv")
                if received is not None and received.error is None:
                    assert got.tobytes() == pattern(nbytes).tobytes()
                if received is not None and received.error is not None and received.error.array_intact:
                    assert (got == 255).all()


@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("rank", [0, 1])
def test_where_the_connection_is_gone_everything_ends_at_once(rank: int, twice: bool) -> None:
    with small_limits():
        for point in range(moves_of_a_transfer(200) + 1):
            wire = Wire(2)
            wire.recv(1, "recv", np.zeros(200, np.uint8), 0)
            wire.send(0, "send", pattern(200), 1)
            for _ in range(point):
                wire.move(latest)
            tickets = [send.ticket for send in wire.unwritten[rank] if send.ticket is not None]
            if twice:
                wire.end(rank, LOST)
            wire.end(rank, ClosedError("gone"), disconnected=True)
            assert wire.boxes[rank].pending() == ()
            assert ("send", "recv")[rank] in wire.finished
            assert [wire.boxes[rank].written(ticket) for ticket in tickets] == [[] for _ in tickets]
            assert wire.boxes[rank].sink(offer(1, 3, True), 3) is None


MISMATCH = error_to_facts(MismatchError((((0,), "a"), ((1,), "b"))))
