"""Sends: what leaves when, how much may be under way, and how they are given up."""

import mmap
import re
from collections import deque

import numpy as np
import pytest
from p2p_wire import (
    GROUP,
    NEVER,
    Pick,
    Wire,
    begin_recv,
    begin_send,
    deliver,
    every_length,
    every_order,
    exchange,
    moves_of_a_transfer,
    offer,
    pattern,
    small_limits,
)

from hocket.client.mailbox import Finish, Mailbox, Send
from hocket.protocol.errors import AbortedError, ClosedError, WireError, error_to_facts
from hocket.protocol.limits import EAGER_NBYTES, EAGER_OVERHEAD_NBYTES, EAGER_WINDOW_NBYTES, GRANT_NBYTES, PIECE_NBYTES
from hocket.protocol.messages import P2PData, P2PRefuse, P2PTake, P2PWithdraw

# --- what leaves ------------------------------------------------------------------------------------------------------


def test_a_small_message_leaves_as_a_copy_and_its_send_is_over() -> None:
    box, data = Mailbox(GROUP, 0, 2), np.array([1, 2, 3], np.uint8)
    effects = box.send("h", memoryview(data), 1, 3, "c", "uint8", 3, NEVER, 0.0)
    data[:] = 9
    assert effects == [Send(offer(1, 3, True), memoryview(b"\1\2\3"), None), Finish("h", None, None)]
    assert box.pending() == ()


def test_bytes_which_nobody_can_change_are_not_copied_again() -> None:
    data = bytes(3)
    send, _ = Mailbox(GROUP, 0, 2).send("h", memoryview(data), 1, 3, "c", "uint8", 3, NEVER, 0.0)
    assert isinstance(send, Send) and send.payload is not None and send.payload.obj is data


def test_a_large_message_moves_as_far_as_it_is_granted() -> None:
    with small_limits():
        box = Mailbox(GROUP, 0, 2)
        data = pattern(40)
        assert begin_send(box, "h", 40) == [Send(offer(1, 40, False), None, None)]
        first, second = box.handle_message(P2PTake(GROUP, "c", 0, 1, 1, 20))
        assert isinstance(first, Send) and isinstance(second, Send)
        assert (first.message, first.payload) == (P2PData(GROUP, "c", 0, 1, 1, 0), memoryview(data)[:16])
        assert (second.message, second.payload) == (P2PData(GROUP, "c", 0, 1, 1, 16), memoryview(data)[16:20])
        assert first.ticket is not None and second.ticket is not None and first.ticket != second.ticket
        rest = box.handle_message(P2PTake(GROUP, "c", 0, 1, 1, 40))
        assert [effect.payload for effect in rest if isinstance(effect, Send)] == [
            memoryview(data)[20:36],
            memoryview(data)[36:40],
        ]
        for ticket in (first.ticket, second.ticket, rest[0].ticket):
            assert box.written(ticket) == []
        assert box.written(rest[1].ticket) == [Finish("h", None, None)]


@pytest.mark.parametrize("nbytes", [0, 1, EAGER_NBYTES, EAGER_NBYTES + 1, PIECE_NBYTES, 3 * GRANT_NBYTES + 5])
@pytest.mark.parametrize("receiver_first", [False, True])
def test_every_size_arrives_whole(nbytes: int, receiver_first: bool) -> None:
    wire, got = Wire(2), np.full(nbytes, 255, np.uint8)
    if receiver_first:
        wire.recv(1, "recv", got, 0)
    wire.send(0, "send", pattern(nbytes), 1)
    wire.run()
    if not receiver_first:
        assert ("send" in wire.finished) == (nbytes <= EAGER_NBYTES)
        wire.recv(1, "recv", got, 0)
        wire.run()
    assert (wire.source("send"), wire.source("recv")) == (None, 0)
    assert got.tobytes() == pattern(nbytes).tobytes()
    assert wire.count(P2PData) == (0 if nbytes <= EAGER_NBYTES else -(-nbytes // PIECE_NBYTES))


def check_window(nbytes: int, room: int) -> None:
    wire = Wire(2)
    for i in range(room + 2):
        wire.send(0, ("send", i), pattern(nbytes, i), 1)
    wire.run()
    assert len(wire.finished) == room
    for i in range(room + 2):
        got = np.full(nbytes, 255, np.uint8)
        wire.recv(1, ("recv", i), got, 0)
        wire.run()
        assert got.tobytes() == pattern(nbytes, i).tobytes()
    assert len(wire.finished) == 2 * (room + 2)
    wire.send(0, "send again", pattern(nbytes), 1)
    assert "send again" in wire.finished


@pytest.mark.parametrize(("nbytes", "room"), [(0, 6), (1, 4), (2, 4), (4, 3), (8, 2)])
def test_eager_messages_under_way_are_bounded_and_go_on_once_they_are_received(nbytes: int, room: int) -> None:
    with small_limits():
        check_window(nbytes, room)


def test_the_window_holds_63_of_the_largest_eager_messages() -> None:
    check_window(EAGER_NBYTES, EAGER_WINDOW_NBYTES // (EAGER_NBYTES + EAGER_OVERHEAD_NBYTES))


def test_windows_to_different_ranks_are_apart() -> None:
    with small_limits():
        wire = Wire(3)
        for name in ("send a", "send b", "send c"):
            wire.send(0, name, pattern(8), 1)
        wire.send(0, "send d", pattern(8), 2)
        assert set(wire.finished) == {"send a", "send b", "send d"}


def test_offsets_beyond_32_bits_are_right_on_both_sides() -> None:
    nbytes = 2**32 + PIECE_NBYTES + 1
    with mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000) as memory:  # without reserve
        data = memoryview(memory)
        sender, receiver = Mailbox(GROUP, 0, 2), Mailbox(GROUP, 1, 2)
        receiver.recv("r", data, 0, 0, "", "uint8", nbytes, NEVER, 0.0)
        waiting = deque(sender.send("s", data, 1, 0, "", "uint8", nbytes, NEVER, 0.0))
        offsets, ended = [], []
        while waiting:
            effect = waiting.popleft()
            if isinstance(effect, Finish):
                ended.append(effect)
            elif isinstance(effect.message, P2PTake):
                waiting += sender.handle_message(effect.message)
            else:
                if isinstance(effect.message, P2PData):
                    assert effect.payload is not None
                    targets = receiver.sink(effect.message, len(effect.payload))
                    assert targets is not None and len(targets[0]) == len(effect.payload)
                    offsets.append((effect.message.offset, len(effect.payload)))
                waiting += receiver.handle_message(effect.message)
                if effect.ticket is not None:
                    waiting += sender.written(effect.ticket)
        assert {effect.handle: effect.source for effect in ended} == {"r": 0, "s": None}
        assert offsets[-2:] == [(2**32, PIECE_NBYTES), (2**32 + PIECE_NBYTES, 1)]
        assert sum(length for _, length in offsets) == nbytes
        for view in (data, *(target for target in targets or [])):
            view.release()
        del effect, waiting, sender, receiver


# --- giving up --------------------------------------------------------------------------------------------------------


@every_order
@every_length
@pytest.mark.parametrize("late", [False, True], ids=["cancelled", "late"])
def test_a_send_that_is_given_up_at_any_point_ends_well_on_both_sides(nbytes: int, late: bool, pick: Pick) -> None:
    with small_limits():
        for point in range(moves_of_a_transfer(nbytes) + 1):
            wire, got = Wire(2), np.full(nbytes, 255, np.uint8)
            wire.recv(1, "recv", got, 0)
            wire.send(0, "send", pattern(nbytes), 1, limit_s=5.0)
            for _ in range(point):
                wire.move(pick)
            if late:
                wire.tick(5.0)
            else:
                wire.cancel(0, "send")
            wire.run(pick)
            failed = wire.finished["send"].error is not None
            if "recv" not in wire.finished:  # nothing was under way: the receive waits for another message
                assert failed and (got == 255).all()
                wire.send(0, "send another", pattern(nbytes, 2), 1)
                wire.run(pick)
                assert wire.source("recv") == 0 and got.tobytes() == pattern(nbytes, 2).tobytes()
            elif failed:
                error = wire.error("recv")
                assert isinstance(error, AbortedError) and error.rank == 0 and not error.array_intact
                assert re.search(r"gave up its send to 1 \(tag 0\) after \d+ of 200 bytes", str(error))
            else:
                assert wire.source("recv") == 0 and got.tobytes() == pattern(nbytes).tobytes()
            exchange(wire, pick)


def test_a_send_that_stalls_says_how_far_it_came() -> None:
    with small_limits():
        box = Mailbox(GROUP, 0, 2)
        begin_send(box, "send", 200, deadline_s=5.0)
        pieces = box.handle_message(P2PTake(GROUP, "c", 0, 1, 1, 64))
        assert box.tick(5.0) == [Send(P2PWithdraw(GROUP, "c", 0, 1, 1))]
        assert box.cancel("send", ClosedError("too late")) == []
        assert box.handle_message(P2PTake(GROUP, "c", 0, 1, 1, 96)) == []  # crossed with the withdrawal
        ends = [box.written(piece.ticket) for piece in pieces if isinstance(piece, Send) and piece.ticket is not None]
        assert ends[:-1] == [[], [], []], "it ended while its memory was in use"
        [finish] = ends[-1]
        assert isinstance(finish, Finish)
        assert "send to 1 (tag 3) got no further than 64 of 200 bytes" in str(finish.error)


@every_order
def test_a_withdrawn_message_leaves_those_behind_it_in_order(pick: Pick) -> None:
    wire, got = Wire(2), np.zeros(1, np.uint8)
    wire.send(0, "send large", pattern(EAGER_NBYTES + 1), 1)
    wire.send(0, "send small", np.array([5], np.uint8), 1)
    wire.run(pick)
    wire.cancel(0, "send large")
    wire.run(pick)
    wire.recv(1, "recv", got, 0)
    assert (wire.source("recv"), got[0]) == (0, 5)


def crossing(wire: Wire, later: bool) -> None:
    """A withdrawal that meets its take; ``later``: another message was matched in between."""
    wire.send(0, "send", pattern(40), 1)
    if later:
        wire.send(0, "send later", pattern(40, 2), 1)
    wire.run()
    wire.recv(1, "recv", np.full(40, 255, np.uint8), 0)
    if later:
        wire.recv(1, "recv later", np.full(40, 255, np.uint8), 0)
    wire.cancel(0, "send")
    wire.run()


def test_a_receive_whose_take_crossed_with_a_withdrawal_waits_on_at_its_old_place() -> None:
    with small_limits():
        wire = Wire(2)
        crossing(wire, later=False)
        wire.recv(1, "recv behind", np.zeros(40, np.uint8), 0)
        assert "recv" not in wire.finished and not wire.count(P2PData)
        wire.send(0, "send again", pattern(40, 3), 1)
        wire.run()
        assert wire.source("recv") == 0 and wire.arrays["recv"].tobytes() == pattern(40, 3).tobytes()
        assert "recv behind" not in wire.finished


def test_a_receive_that_another_one_passed_meanwhile_does_not_wait_on() -> None:
    with small_limits():
        wire = Wire(2)
        crossing(wire, later=True)
        error = wire.error("recv")
        assert str(error) == "aborted by rank 0: it gave up its send to 1 (tag 0)" and error.array_intact
        assert wire.arrays["recv later"].tobytes() == pattern(40, 2).tobytes()


def test_a_receive_that_comes_back_stands_before_those_called_after_it() -> None:
    with small_limits():
        wire = Wire(2)
        wire.send(0, "send", pattern(40), 1)
        wire.run()
        wire.recv(1, "first", np.zeros(40, np.uint8), 0)
        wire.recv(1, "second", np.zeros(40, np.uint8), 0)
        wire.cancel(0, "send")
        wire.run()
        wire.send(0, "send 1", pattern(40, 1), 1)
        wire.send(0, "send 2", pattern(40, 2), 1)
        wire.run()
        assert wire.arrays["first"].tobytes() == pattern(40, 1).tobytes()
        assert wire.arrays["second"].tobytes() == pattern(40, 2).tobytes()


# --- answers ----------------------------------------------------------------------------------------------------------


def test_a_grant_that_does_not_rise_is_refused() -> None:
    box = Mailbox(GROUP, 0, 2)
    begin_send(box, "h", 100_000)
    box.handle_message(P2PTake(GROUP, "c", 0, 1, 1, 50_000))
    for granted in (50_000, 49_999):
        with pytest.raises(WireError, match="granted"):
            box.handle_message(P2PTake(GROUP, "c", 0, 1, 1, granted))


def test_answers_to_what_is_over_are_ignored() -> None:
    box = Mailbox(GROUP, 0, 2)
    begin_send(box, "eager", 3)
    begin_send(box, "offer", 100_000)
    box.cancel("offer", ClosedError(""))
    box.handle_message(P2PTake(GROUP, "c", 0, 1, 1, 3))
    for message in (
        P2PTake(GROUP, "c", 0, 1, 1, 3),
        P2PTake(GROUP, "c", 0, 1, 2, 100_000),
        P2PRefuse(GROUP, "c", 0, 1, 2, error_to_facts(ClosedError(""))),
    ):
        assert box.handle_message(message) == []
    box.check()
    other = Mailbox(GROUP, 1, 2)
    deliver(other, offer(1, 3, True), b"abc")
    assert other.handle_message(P2PWithdraw(GROUP, "c", 0, 1, 1)) == []
    assert begin_recv(other, "recv", 3)[0] == Finish("recv", None, 0)
