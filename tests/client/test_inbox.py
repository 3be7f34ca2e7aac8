"""Receives: where bytes go, what is taken, what does not fit, what is given up, and junk."""

import numpy as np
import pytest
from p2p_wire import (
    GROUP,
    LENGTHS,
    NEVER,
    Pick,
    Wire,
    begin_recv,
    begin_send,
    deliver,
    every_length,
    every_order,
    exchange,
    latest,
    moves_of_a_transfer,
    offer,
    pattern,
    small_limits,
)

from hocket.client.mailbox import Finish, Mailbox, Send
from hocket.client.transfer import own
from hocket.protocol.errors import (
    AbortedError,
    ClosedError,
    DeadlineAbortedError,
    DeadlineError,
    HocketError,
    MismatchError,
    Where,
    WireError,
    error_from_facts,
    error_to_facts,
)
from hocket.protocol.limits import EAGER_NBYTES, EAGER_OVERHEAD_NBYTES, EAGER_WINDOW_NBYTES, GRANT_NBYTES
from hocket.protocol.messages import Heartbeat, Message, P2PData, P2POffer, P2PRefuse, P2PTake, P2PWithdraw

# --- what comes -------------------------------------------------------------------------------------------------------


def test_the_receiver_of_a_small_message_acknowledges_it() -> None:
    box = Mailbox(GROUP, 1, 2)
    assert begin_recv(box, "h", 3) == []
    assert deliver(box, offer(1, 3, True), b"abc") == [
        Finish("h", None, 0),
        Send(P2PTake(GROUP, "c", 0, 1, 1, 3), None, None),
    ]


def test_a_small_message_goes_straight_into_the_buffer_that_waits_for_it() -> None:
    box, buffer = Mailbox(GROUP, 1, 2), np.zeros(3, np.uint8)
    box.recv("h", memoryview(buffer), 0, 3, "c", "uint8", 3, NEVER, 0.0)
    targets = box.sink(offer(1, 3, True), 3)
    assert targets is not None
    targets[0][:] = b"abc"
    assert buffer.tobytes() == b"abc"


def test_a_receiver_grants_in_steps_of_half_a_window() -> None:
    with small_limits():
        box = Mailbox(GROUP, 1, 2)
        assert deliver(box, offer(1, 160, False)) == []
        assert begin_recv(box, "h", 160) == [Send(P2PTake(GROUP, "c", 0, 1, 1, 64), None, None)]
        granted = []
        for offset in range(0, 160, 16):
            for effect in deliver(box, P2PData(GROUP, "c", 0, 1, 1, offset), bytes(16)):
                granted.append((offset + 16, effect.message.granted if isinstance(effect, Send) else effect))
        assert granted == [(32, 96), (64, 128), (96, 160), (160, Finish("h", None, 0))]


def test_bytes_of_a_large_message_under_way_are_bounded() -> None:
    wire, nbytes = Wire(2), 5 * GRANT_NBYTES
    wire.recv(1, "recv", np.zeros(nbytes, np.uint8), 0)
    wire.send(0, "send", pattern(nbytes), 1)
    most = 0
    while wire.move(latest):  # writes go first
        most = max(most, sum(len(data) for _, data in wire.links[0, 1]))
    assert most == GRANT_NBYTES
    assert wire.source("recv") == 0


# --- buffers that do not fit ------------------------------------------------------------------------------------------


@every_order
@pytest.mark.parametrize("elements", [6, 60_000], ids=["small", "large"])
@pytest.mark.parametrize("receiver_first", [False, True])
@pytest.mark.parametrize(
    ("dtype", "change"),
    [("float32", -2), ("float32", 2), ("int32", 0), ("uint8", 0)],
    ids=["short", "long", "int", "u8"],
)
def test_a_buffer_that_does_not_fit_is_left_alone_and_both_learn_why(
    elements: int, receiver_first: bool, dtype: str, change: int, pick: Pick
) -> None:
    wire, got = Wire(2), np.full(elements + change, 77, dtype)
    if receiver_first:
        wire.recv(1, "recv", got, 0)
    wire.send(0, "send", np.arange(elements, dtype=np.float32), 1)
    wire.run(pick)
    if not receiver_first:
        wire.recv(1, "recv", got, 0)
        wire.run(pick)
    error = wire.error("recv")
    assert isinstance(error, MismatchError) and error.array_intact
    assert str(error) == (
        f"rank 0 called send(float32[{elements}], {4 * elements} bytes), "
        f"rank 1 called recv({dtype}[{elements + change}], {got.nbytes} bytes)"
    )
    assert (got == 77).all()
    if 4 * elements > EAGER_NBYTES:
        sent = wire.error("send")
        assert isinstance(sent, MismatchError) and sent.calls == error.calls
    else:
        assert wire.source("send") is None
    proper = np.zeros(1, np.float32)
    wire.recv(1, "next", proper, 0)
    wire.send(0, "send next", np.array([9], np.float32), 1)
    wire.run(pick)
    assert (wire.source("next"), proper[0]) == (0, 9)


@pytest.mark.parametrize("elements", [6, 60_000], ids=["small", "large"])
def test_the_shape_may_differ(elements: int) -> None:
    wire, got = Wire(2), np.zeros((2, elements // 2), np.float32)
    wire.recv(1, "recv", got, 0)
    wire.send(0, "send", np.arange(elements, dtype=np.float32), 1)
    wire.run()
    assert wire.source("recv") == 0 and (got.reshape(-1) == np.arange(elements)).all()


def test_a_message_that_did_not_fit_makes_room_in_its_window() -> None:
    with small_limits():
        wire = Wire(2)
        for i in range(7):
            wire.send(0, ("send", i), pattern(8), 1)
            wire.recv(1, ("recv", i), np.zeros(3, np.uint8), 0)
            wire.run()
        assert all(isinstance(wire.error(("recv", i)), MismatchError) for i in range(7))
        assert all(wire.source(("send", i)) is None for i in range(7))


# --- giving up --------------------------------------------------------------------------------------------------------


@every_order
@every_length
@pytest.mark.parametrize("late", [False, True], ids=["cancelled", "late"])
def test_a_receive_that_is_given_up_at_any_point_ends_well_on_both_sides(nbytes: int, late: bool, pick: Pick) -> None:
    with small_limits():
        for point in range(moves_of_a_transfer(nbytes) + 1):
            wire, got = Wire(2), np.full(nbytes, 255, np.uint8)
            wire.recv(1, "recv", got, 0, limit_s=5.0)
            wire.send(0, "send", pattern(nbytes), 1)
            for _ in range(point):
                wire.move(pick)
            if late:
                wire.tick(5.0)
            else:
                wire.cancel(1, "recv")
            wire.run(pick)
            if wire.finished["recv"].error is None:
                assert wire.source("send") is None and got.tobytes() == pattern(nbytes).tobytes()
                continue
            assert not wire.error("recv").array_intact or (got == 255).all()
            if "send" not in wire.finished or nbytes == LENGTHS["eager"]:  # the message is still to be had
                other = np.zeros(nbytes, np.uint8)
                wire.recv(1, "recv another", other, 0)
                wire.run(pick)
                assert wire.source("recv another") == 0 and other.tobytes() == pattern(nbytes).tobytes()
                assert wire.source("send") is None
            elif wire.finished["send"].error is not None:
                error = wire.error("send")
                assert type(error) is (DeadlineAbortedError if late else AbortedError) and error.rank == 1
            exchange(wire, pick)


def test_a_receive_that_stalls_says_how_far_it_came() -> None:
    with small_limits():
        box = Mailbox(GROUP, 1, 2)
        begin_recv(box, "recv", 200, deadline_s=9.0)
        deliver(box, offer(1, 200, False))
        for offset in (0, 16):
            deliver(box, P2PData(GROUP, "c", 0, 1, 1, offset), bytes(16))
        finish, refusal = box.tick(9.0)
        assert isinstance(finish, Finish) and isinstance(finish.error, DeadlineError) and not finish.error.array_intact
        assert (finish.error.limit_s, finish.error.missing) == (9.0, (0,))
        assert "only 32 of 200 bytes came from rank 0 (tag 3)" in str(finish.error)
        assert isinstance(refusal, Send) and isinstance(refusal.message, P2PRefuse)
        told = error_from_facts(refusal.message.error)
        assert isinstance(told, DeadlineAbortedError) and (told.rank, told.limit_s) == (1, 9.0)
        for offset in range(32, 96, 16):  # granted before: they come all the same
            assert deliver(box, P2PData(GROUP, "c", 0, 1, 1, offset), bytes(16)) == []
        with pytest.raises(WireError, match="not taken"):
            deliver(box, P2PData(GROUP, "c", 0, 1, 1, 96), bytes(16))


def test_a_receive_that_is_given_up_while_its_buffer_is_written_ends_with_the_frame() -> None:
    wire, got = Wire(2), np.zeros(6, np.uint8)
    wire.recv(1, "recv", got, 0)
    wire.send(0, "send", pattern(6), 1)
    wire.write(0, 0)
    wire.begin(0, 1)
    given = AbortedError(1, "cancelled")
    wire.cancel(1, "recv", given)
    wire.cancel(1, "recv", ClosedError("too late"))
    assert "recv" not in wire.finished
    other = np.zeros(6, np.uint8)
    wire.recv(1, "other", other, 0)
    wire.finish(1, 1)
    assert list(wire.finished) == ["send", "recv", "other"]
    assert str(wire.error("recv")).startswith("aborted by rank 1: cancelled (the operation was cut midway")
    assert given.array_intact, "the caller's own error was changed"
    assert other.tobytes() == pattern(6).tobytes()


def test_a_message_that_is_kept_is_not_the_buffer_it_came_into() -> None:
    wire, got, other = Wire(2), np.zeros(6, np.uint8), np.zeros(6, np.uint8)
    wire.recv(1, "recv", got, 0)
    wire.send(0, "send", pattern(6), 1)
    wire.write(0, 0)
    wire.begin(0, 1)
    wire.cancel(1, "recv")
    wire.finish(1, 1)
    got[:] = 0
    wire.recv(1, "other", other, 0)
    assert wire.source("other") == 0 and other.tobytes() == pattern(6).tobytes()


def test_a_receive_completes_if_it_is_given_up_while_the_last_bytes_of_a_large_message_come_in() -> None:
    with small_limits():
        wire, got = Wire(2), np.zeros(40, np.uint8)
        wire.recv(1, "recv", got, 0)
        wire.send(0, "send", pattern(40), 1)
        while wire.coming[1] is None or wire.coming[1][0] != P2PData(GROUP, "", 0, 1, 1, 32):
            wire.move()
        wire.cancel(1, "recv")
        wire.run()
        assert (wire.source("recv"), wire.source("send")) == (0, None)
        assert got.tobytes() == pattern(40).tobytes()


@pytest.mark.parametrize("kind", [ClosedError("gone"), AbortedError(1, "cancelled")], ids=["closed", "aborted"])
def test_the_sender_hears_who_gave_up_and_why_but_not_where(kind: HocketError) -> None:
    with small_limits():
        wire = Wire(2)
        wire.send(0, "send", pattern(200), 1)
        wire.run()
        wire.recv(1, "recv", np.zeros(200, np.uint8), 0)
        wire.cancel(1, "recv", own(kind).at(Where("recv", 3, "world", 1)))
        wire.run()
        error = wire.error("send")
        causes = {ClosedError: "recv #3 in group 'world' (epoch 1): gone", AbortedError: "cancelled"}
        assert error.where is None and isinstance(error, AbortedError)
        assert (error.rank, error.cause) == (1, causes[type(kind)])


# --- junk -------------------------------------------------------------------------------------------------------------


MISMATCH = error_to_facts(MismatchError((((0,), "a"), ((1,), "b"))))


def busy_box() -> Mailbox:
    """Rank 1 of 3. From rank 0: 1 waits to be taken, 2 is under way. To rank 0: 1 is eager, 2 waits to be taken."""
    box = Mailbox(GROUP, 1, 3)
    deliver(box, P2POffer(GROUP, "c", 0, 1, 9, 1, "uint8", 100_000, 100_000, False))
    deliver(box, offer(2, 100_000, False))
    begin_recv(box, "recv", 100_000)
    deliver(box, P2PData(GROUP, "c", 0, 1, 2, 0), bytes(1000))
    begin_send(box, "eager", 3, dst=0)
    begin_send(box, "send", 100_000, dst=0)
    return box


def sized(dtype: str, count: int, nbytes: int, eager: bool) -> P2POffer:
    return P2POffer(GROUP, "c", 0, 1, 3, 3, dtype, count, nbytes, eager)


JUNK: dict[str, tuple[Message, int]] = {
    "of another kind": (Heartbeat(1.0), 0),
    "for another group": (P2POffer(8, "c", 0, 1, 3, 3, "uint8", 3, 3, True), 3),
    "for another rank": (P2POffer(GROUP, "c", 0, 2, 3, 3, "uint8", 3, 3, True), 3),
    "from a rank that is not there": (P2POffer(GROUP, "c", 3, 1, 3, 1, "uint8", 3, 3, True), 3),
    "from a negative rank": (P2POffer(GROUP, "c", -1, 1, 3, 1, "uint8", 3, 3, True), 3),
    "from ourselves": (P2POffer(GROUP, "c", 1, 1, 3, 1, "uint8", 3, 3, True), 3),
    "an answer for another rank": (P2PTake(GROUP, "c", 0, 1, 2, 10), 0),
    "a number again": (offer(2, 3, True), 3),
    "a number left out": (offer(4, 3, True), 3),
    "fewer bytes than said": (sized("uint8", 3, 3, True), 2),
    "more bytes than said": (sized("uint8", 3, 3, True), 4),
    "no bytes at all": (sized("uint8", 3, 3, True), 0),
    "bytes where there are none": (sized("uint8", 0, 0, True), 1),
    "bytes with an offer": (sized("uint8", 3, 3, False), 3),
    "too much to be eager": (sized("uint8", EAGER_NBYTES + 1, EAGER_NBYTES + 1, True), EAGER_NBYTES + 1),
    "a negative size": (sized("uint8", -3, -3, False), 0),
    "a negative count": (sized("V0", -3, 0, False), 0),
    "more than any memory": (sized("uint8", 2**62, 2**62, False), 0),
    "elements of another size": (sized("float32", 3, 13, False), 0),
    "elements of no whole size": (sized("M8[ns]", 3, 13, False), 0),
    "no elements of some size": (sized("M8[ns]", 0, 8, False), 0),
    "a piece of nothing": (P2PData(GROUP, "c", 0, 1, 3, 0), 10),
    "a piece from nobody": (P2PData(GROUP, "c", 2, 1, 2, 1000), 10),
    "a piece that was not granted": (P2PData(GROUP, "c", 0, 1, 1, 0), 10),
    "a piece of another channel": (P2PData(GROUP, "d", 0, 1, 2, 1000), 10),
    "a piece again": (P2PData(GROUP, "c", 0, 1, 2, 0), 10),
    "a piece left out": (P2PData(GROUP, "c", 0, 1, 2, 2000), 10),
    "a piece before the start": (P2PData(GROUP, "c", 0, 1, 2, -10), 10),
    "a piece beyond the end": (P2PData(GROUP, "c", 0, 1, 2, 1000), 99_001),
    "an empty piece": (P2PData(GROUP, "c", 0, 1, 2, 1000), 0),
    "a take of nothing": (P2PTake(GROUP, "c", 1, 0, 3, 10), 0),
    "a take of number 0": (P2PTake(GROUP, "c", 1, 0, 0, 10), 0),
    "a take of another channel": (P2PTake(GROUP, "d", 1, 0, 2, 10), 0),
    "a take of too much": (P2PTake(GROUP, "c", 1, 0, 2, 100_001), 0),
    "a take of less than nothing": (P2PTake(GROUP, "c", 1, 0, 2, -1), 0),
    "a take with bytes": (P2PTake(GROUP, "c", 1, 0, 2, 10), 1),
    "a take of half an eager one": (P2PTake(GROUP, "c", 1, 0, 1, 2), 0),
    "an eager one taken on another channel": (P2PTake(GROUP, "", 1, 0, 1, 3), 0),
    "a refusal of nothing": (P2PRefuse(GROUP, "c", 1, 2, 1, MISMATCH), 0),
    "a refusal without a reason": (P2PRefuse(GROUP, "c", 1, 0, 2, {"code": "?"}), 0),
    "a refusal with bytes": (P2PRefuse(GROUP, "c", 1, 0, 2, MISMATCH), 5),
    "a withdrawal of nothing": (P2PWithdraw(GROUP, "c", 0, 1, 3), 0),
}


@pytest.mark.parametrize(("message", "nbytes"), JUNK.values(), ids=JUNK.keys())
def test_junk_is_refused_before_anything_changes(message: Message, nbytes: int) -> None:
    box = busy_box()
    before = box.pending()
    with pytest.raises(WireError):
        deliver(box, message, bytes(nbytes))
    assert box.pending() == before
    box.check()
    assert deliver(box, offer(3, 3, True), b"abc") == []  # the honest go on
    assert begin_recv(box, "next", 3)[0] == Finish("next", None, 0)


def test_a_sender_that_ignores_its_window_is_refused() -> None:
    box = Mailbox(GROUP, 1, 2)
    room = EAGER_WINDOW_NBYTES // EAGER_OVERHEAD_NBYTES
    for number in range(1, room + 1):
        assert deliver(box, offer(number, 0, True)) == []
    with pytest.raises(WireError, match="ahead"):
        deliver(box, offer(room + 1, 0, True))
