"""Bridges of several hosts in one process: what their members get, and what happens where an operation does not end."""

import asyncio
import dataclasses
from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from lanes import KINDS, UNFINISHED, Call, operation

from hocket.fabric.arena import PAGE_NBYTES, Arena
from hocket.fabric.bells import Bells
from hocket.fabric.board import Board, stage
from hocket.fabric.lane import Lane
from hocket.fabric.seat import Seat
from hocket.protocol.errors import AbortedError, HocketError, MemberLostError, MismatchError, WireError
from hocket.protocol.limits import BLOCK_WINDOW, SMALL_NBYTES
from hocket.protocol.messages import Chunk, Credit, Header, Message, Posted
from hocket.worker.bridge import Bridge

BLOCK_NBYTES = 512
PLACEMENTS = [((0,), (1,)), ((0, 1, 2), (3,)), ((0, 2), (1, 3)), ((3,), (0, 4), (1, 2))]


class OneHost:
    """One host of a `Hosts`: its board, its members' lanes, its bridge, and the bridge's surroundings."""

    def __init__(self, hosts: "Hosts", me: int) -> None:
        self.group, self.channel = 1, ""
        self._hosts, self.me = hosts, me
        self.members = hosts.members[me]
        self._bells = Bells(Arena.create("bells", PAGE_NBYTES))
        self.board = Board.create("test", hosts.size, hosts.block_nbytes)
        seats = [Seat(self.board, rank, self.members, True, self._bells, ()) for rank in self.members]
        self.asked: list[tuple[int, int, HocketError | None]] = []
        self.lanes = {seat.member: self._lane(seat) for seat in seats}
        self.bridge = Bridge(self.board, self, tuple(range(len(hosts.members))), hosts.members, me)
        self.over: set[int] = set()
        self.failures: list[tuple[int, HocketError]] = []
        self.barriers: list[tuple[str, int]] = []
        self.rings = 0
        self.task = asyncio.create_task(self.bridge.run())

    def _lane(self, seat: Seat) -> Lane:
        def ask(number: int, error: HocketError | None) -> None:
            self.asked.append((seat.member, number, error))

        return Lane(seat, "world", 1, "", ask, lambda *_late: None)

    def poll(self) -> bool:
        """Lets the members go on. Returns whether anything changed on the board."""
        before = bytes(self.board.arena.buffer[: self.board.layout.texts])
        for lane in self.lanes.values():
            lane.poll()
        if bytes(self.board.arena.buffer[: self.board.layout.texts]) == before:
            return False
        self.bridge.pulse()
        return True

    async def close(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        self.board.close()
        self._bells.close()

    # --- what the bridge needs of its surroundings -------------------------------------------------------------------

    def send(self, host: int, message: Message, payload: Iterable[memoryview] = ()) -> None:
        self._hosts.wire.append((self.me, host, message, b"".join(payload)))

    async def sent(self, host: int) -> None:
        await asyncio.sleep(0)

    def is_over(self, number: int) -> bool:
        return number in self.over

    def failed(self, number: int, error: HocketError) -> None:
        self.failures.append((number, error))

    def barrier_entered(self, number: int) -> None:
        self.barriers.append(("entered", number))

    def barrier_left(self, number: int) -> None:
        self.barriers.append(("left", number))

    def ring(self) -> None:
        self.rings += 1


class Hosts:
    """Several hosts and the wire between them, which the test moves along."""

    def __init__(self, members: tuple[tuple[int, ...], ...], block_nbytes: int = BLOCK_NBYTES) -> None:
        self.members, self.size, self.block_nbytes = members, sum(map(len, members)), block_nbytes
        self.wire: deque[tuple[int, int, Message, bytes]] = deque()
        self.carried: list[tuple[int, int, Message]] = []
        self.cut: set[int] = set()
        self.each = [OneHost(self, me) for me in range(len(members))]

    def host_of(self, rank: int) -> OneHost:
        return next(host for host in self.each if rank in host.members)

    def submit(self, calls: list[tuple[Call, Any]], ranks: Iterable[int] | None = None) -> None:
        for rank in range(self.size) if ranks is None else ranks:
            self.host_of(rank).lanes[rank].submit(calls[rank][0].op)

    def _carry(self) -> None:
        sender, receiver, message, data = self.wire.popleft()
        self.carried.append((sender, receiver, message))
        bridge = self.each[receiver].bridge
        if isinstance(message, Chunk):
            views = bridge.inbox.sink(sender, message, len(data))
            if views is None:
                return
            assert sum(map(len, views)) == len(data), "a chunk of another length than its receiver waits for"
            for view in views:
                view[:], data = data[: len(view)], data[len(view) :]
        bridge.heard(sender, message, len(data))

    async def settle(self) -> None:
        """Goes on until nothing moves: no member, no bridge, nothing on the wire."""
        quiet = 0
        while quiet < 20:
            moved = sum(host.poll() for host in self.each if host.me not in self.cut) > 0
            waiting = [entry for entry in self.wire if not {entry[0], entry[1]} & self.cut]
            if waiting:
                self.wire = deque([*waiting, *(entry for entry in self.wire if {entry[0], entry[1]} & self.cut)])
                self._carry()
                moved = True
            quiet = 0 if moved else quiet + 1
            await asyncio.sleep(0)

    def sent(self, kind: type[Message], sender: int | None = None) -> list[Any]:
        """Messages of a kind that have been carried."""
        return [m for s, _, m in self.carried if isinstance(m, kind) and sender in (None, s)]


@asynccontextmanager
async def hosts(members: tuple[tuple[int, ...], ...], block_nbytes: int = BLOCK_NBYTES) -> AsyncIterator[Hosts]:
    found = Hosts(members, block_nbytes)
    try:
        yield found
        assert [host.task.done() for host in found.each] == [False] * len(members)
    finally:
        for host in found.each:
            await host.close()


def check(calls: list[tuple[Call, Any]]) -> None:
    for mine, expected in calls:
        assert mine.outcome is None
        assert [recv.tobytes() for recv in mine.recvs] == [one.tobytes() for one in expected]


@pytest.fixture(autouse=True)
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hosts say who has entered only when all of them have: time does not pass in these tests."""
    monkeypatch.setattr("hocket.worker.bridge.PARTIAL_AFTER_S", 1000.0)


# --- what members get ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("members", PLACEMENTS, ids=str)
@pytest.mark.parametrize("kind", KINDS)
async def test_members_on_any_host_get_what_they_must(kind: str, members: tuple[tuple[int, ...], ...]) -> None:
    async with hosts(members) as together:
        rounds = [
            operation(kind, together.size, nbytes, root, salt)
            for salt, (nbytes, root) in enumerate(
                [(0, 0), (1, 1), (700, 2), (100, 3), (9 * BLOCK_NBYTES + 3, 1), (64, 0)]
            )
        ]
        for calls in rounds:
            together.submit(calls)
        await together.settle()
        for calls in rounds:
            check(calls)


async def test_one_chunk_may_hold_the_blocks_of_all_members_of_a_host_though_nobody_waits_for_it_yet() -> None:
    async with hosts(((0, 1, 2), (3,))) as together:
        inbox = together.each[1].bridge.inbox
        assert inbox.sink(0, Chunk(1, "", 1, 0, 1), 3 * BLOCK_NBYTES) is not None
        with pytest.raises(WireError):
            inbox.sink(0, Chunk(1, "", 1, 0, 2), 4 * BLOCK_NBYTES + 1)
        inbox.host_gone(0, MemberLostError((), "unreachable", "cut"))


# --- entering --------------------------------------------------------------------------------------------------------


async def test_a_host_tells_of_its_members_once_and_all_together() -> None:
    async with hosts(((0, 1), (2,))) as together:
        calls = operation("barrier", 3, 0, 0, 0)
        together.submit(calls, [0, 2])
        await together.settle()
        assert [header.ranks for header in together.sent(Header)] == [(2,)]
        together.submit(calls, [1])
        await together.settle()
        assert [header.ranks for header in together.sent(Header)] == [(2,), (0, 1)]
        check(calls)


async def test_a_host_whose_members_do_not_all_come_says_who_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hocket.worker.bridge.PARTIAL_AFTER_S", 0.0)
    async with hosts(((0, 1), (2,))) as together:
        calls = operation("barrier", 3, 0, 0, 0)
        together.submit(calls, [0, 2])
        await together.settle()
        assert {header.ranks for header in together.sent(Header, 0)} == {(0,)}
        assert together.each[1].lanes[2].missing() == (1,)
        together.submit(calls, [1])
        await together.settle()
        assert [header.ranks for header in together.sent(Header, 0)] == [(0,), (1,)]
        check(calls)


async def test_a_host_may_not_sign_for_members_elsewhere() -> None:
    async with hosts(((0,), (1,), (2,))) as together:
        calls = operation("barrier", 3, 0, 0, 0)
        forged = Header(1, "", 1, (2,), (calls[2][0].op.text,), None)
        together.each[0].bridge.heard(1, forged, 0)
        together.submit(calls, [0, 1])
        await together.settle()
        assert together.each[0].board.signed(2) == 0
        assert calls[0][0].outcome is UNFINISHED


async def test_members_are_woken_once_those_elsewhere_have_signed_though_there_are_no_data_yet() -> None:
    async with hosts(((0,), (1,)), 2 * SMALL_NBYTES) as together:
        together.submit(operation("all_reduce", 2, SMALL_NBYTES + 1, 0, 0))
        for host in together.each:
            host.poll()
            host.poll = lambda: False  # type: ignore[method-assign]  # they sleep: nothing is reduced before they wake
        await together.settle()
        assert all(host.board.all_signed(1) and host.board.result == 0 for host in together.each)
        assert [host.rings for host in together.each] == [1, 1]


async def test_barriers_are_reported_when_all_here_have_entered_and_when_they_are_over() -> None:
    async with hosts(((0, 1), (2,))) as together:
        calls = operation("barrier", 3, 0, 0, 0)
        together.submit(calls, [0, 1])
        await together.settle()
        assert together.each[0].barriers == [("entered", 1)]
        together.submit(calls, [2])
        await together.settle()
        assert together.each[0].barriers == [("entered", 1), ("left", 1)]


async def test_calls_that_do_not_match_are_everybody_s_error_and_the_next_ones_go_on() -> None:
    async with hosts(((0, 1), (2,))) as together:
        wrong = operation("all_gather", 3, 600, 0, 0)
        wrong[2] = operation("barrier", 3, 0, 0, 0)[2]
        right = operation("all_reduce", 3, 600, 0, 1)
        together.submit(wrong)
        together.submit(right)
        await together.settle()
        assert all(isinstance(mine.outcome, MismatchError) for mine, _ in wrong)
        check(right)


# --- between entering and the end ------------------------------------------------------------------------------------


async def test_a_host_is_at_most_the_window_ahead_of_the_others() -> None:
    async with hosts(((0,), (1,))) as together:
        calls = operation("broadcast", 2, 20 * BLOCK_NBYTES, 0, 0)
        together.submit(calls)
        slow = together.each[1]
        poll, slow.poll = slow.poll, lambda: False  # type: ignore[method-assign]
        poll()
        await together.settle()  # its member has entered, and reads nothing
        chunks = together.sent(Chunk, 0)
        assert 0 < len({chunk.block for chunk in chunks}) <= 2 + BLOCK_WINDOW
        slow.poll = poll  # type: ignore[method-assign]
        await together.settle()
        check(calls)
        assert len(together.sent(Credit, 1)) == 20


@pytest.mark.parametrize("nbytes", [100, SMALL_NBYTES + 1])
async def test_nobody_completes_a_gather_before_all_hosts_have_posted(nbytes: int) -> None:
    async with hosts(((0,), (1,), (2,)), 2 * SMALL_NBYTES) as together:
        calls = operation("gather", 3, nbytes, 0, 0)
        together.submit(calls)
        together.cut = {2}
        await together.settle()
        assert [mine.outcome for mine, _ in calls] == [UNFINISHED] * 3
        together.cut = set()
        await together.settle()
        check(calls)
        assert len(together.sent(Posted)) == (6 if nbytes > SMALL_NBYTES else 0)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_small_operation_is_one_message_from_each_host_to_each_other_one(kind: str) -> None:
    async with hosts(((0, 1), (2,), (3, 4))) as together:
        calls = operation(kind, 5, 64, 1, 0)
        together.submit(calls)
        await together.settle()
        check(calls)
        assert sorted((s, r) for s, r, _ in together.carried) == [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)]
        assert {type(message) for _, _, message in together.carried} == {Header}


async def test_of_an_uneven_operation_that_is_small_on_some_hosts_only_everything_goes_in_blocks() -> None:
    async with hosts(((0,), (1,)), 2 * SMALL_NBYTES) as together:
        calls = operation("all_gather", 2, SMALL_NBYTES + 8, 0, 0)  # rank 0 has half of it
        assert [sum(map(len, mine.op.sends)) > SMALL_NBYTES for mine, _ in calls] == [False, True]
        together.submit(calls)
        await together.settle()
        check(calls)
        assert [header.carried is None for header in together.sent(Header)] == [False, True]
        assert len(together.sent(Chunk)) == 2


async def test_a_host_that_carries_other_than_it_owes_fails_the_operation_and_the_next_one_goes_on() -> None:
    async with hosts(((0,), (1,))) as together:
        calls, following = operation("all_reduce", 2, 64, 0, 0), operation("all_reduce", 2, 64, 0, 1)
        together.submit(calls)
        for host in together.each:
            host.poll()
        await asyncio.sleep(0)
        [(at, header)] = [(i, entry[2]) for i, entry in enumerate(together.wire) if entry[0] == 1]
        assert isinstance(header, Header) and header.carried is not None
        together.wire[at] = (1, 0, dataclasses.replace(header, carried=header.carried[:-1]), b"")
        await together.settle()
        [(number, error)] = together.each[0].failures
        assert number == 1 and isinstance(error, WireError)
        assert calls[0][0].outcome is UNFINISHED
        together.each[0].lanes[0].verdict(1, error)
        together.submit(following)
        await together.settle()
        check(following)


async def test_what_members_post_after_others_have_lost_patience_follows_their_signatures(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hocket.worker.bridge.PARTIAL_AFTER_S", 0.0)
    async with hosts(((0,), (1,))) as together:
        calls = operation("all_reduce", 2, 64, 0, 0)
        host, (mine, _) = together.each[0], calls[0]
        host.board.sign(0, 1, mine.op.text, 0)  # and does not post yet
        host.bridge.pulse()
        await together.settle()
        [header] = together.sent(Header)
        assert header.ranks == (0,) and header.carried is None
        slot = host.board.slot(0, 1)
        slot[: len(mine.op.sends[0])] = mine.op.sends[0]
        host.board.set_posted(0, stage(1, 1))
        host.bridge.pulse()
        together.submit(calls, [1])
        await together.settle()
        assert [header.ranks for header in together.sent(Header, 0)] == [(0,), ()]
        assert calls[1][0].outcome is None
        assert calls[1][0].recvs[0].tobytes() == calls[1][1][0].tobytes()


# --- ends that are none ----------------------------------------------------------------------------------------------


async def test_an_operation_that_a_verdict_ends_is_left_and_the_next_one_goes_on() -> None:
    async with hosts(((0, 1), (2,))) as together:
        aborted, following = operation("all_gather", 3, 1500, 0, 0), operation("all_to_all", 3, 1500, 0, 1)
        together.submit(aborted, [0, 2])
        await together.settle()
        error = AbortedError(2, "cancelled")
        for host in together.each:
            host.board.contest(1)
            host.over.add(1)
            host.bridge.verdict(1, error)
            for lane in host.lanes.values():
                lane.verdict(1, error)
        together.submit(aborted, [1])
        await together.settle()
        for lane in together.each[0].lanes.values():
            lane.verdict(1, error)
        together.submit(following)
        await together.settle()
        assert all(isinstance(mine.outcome, AbortedError) for mine, _ in aborted)
        check(following)
        assert [host.bridge.number for host in together.each] == [3, 3]


async def test_what_a_lost_host_still_owes_fails_the_operation_here() -> None:
    async with hosts(((0,), (1,))) as together:
        calls = operation("all_to_all", 2, 20 * BLOCK_NBYTES, 0, 0)
        together.submit(calls)
        for host in together.each:
            host.poll()
        while not together.sent(Chunk, 1):
            for host in together.each:
                host.poll()
            if together.wire:
                together._carry()
            await asyncio.sleep(0)
        together.cut = {1}
        together.each[0].bridge.host_gone(1, MemberLostError((), "unreachable", "cut"))
        await together.settle()
        assert calls[0][0].outcome is UNFINISHED
        [(number, error)] = together.each[0].failures
        assert number == 1 and isinstance(error, MemberLostError)


async def test_members_slow_to_read_what_was_completed_find_its_signatures() -> None:
    """The bridge, too, writes over no signature that a member of its host may still have to read."""
    async with hosts(((0, 1), (2,))) as together:
        first, second, third = (operation("all_gather", 3, 100, 0, salt) for salt in range(3))
        together.submit(first)
        host, error = together.each[0], AbortedError(2, "cancelled")
        slow = host.lanes[1]
        slow.poll()
        poll = slow.poll
        slow.poll = lambda: False  # type: ignore[method-assign]
        await together.settle()
        assert [mine.outcome for mine, _ in first] == [None, UNFINISHED, None]
        together.submit(second, [2])
        await together.settle()
        for each in together.each:
            each.over.add(2)
            each.bridge.verdict(2, error)
            each.board.contest(2)
        together.each[1].lanes[2].verdict(2, error)
        together.submit(third, [2])
        await together.settle()
        assert host.board.signed(2) == 2
        slow.poll = poll  # type: ignore[method-assign]
        slow.verdict(1, None)
        await together.settle()
        check(first)
        assert host.board.signed(2) == 3
