"""What a rank may say to its worker, and what becomes of one that says something else: over real sockets."""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest
from harness.service import Service, clients, service
from raw_ranks import LIMIT_S, RawRank, raw_world

import hocket
from hocket.fabric import bells
from hocket.protocol.errors import AbortedError, ClosedError, EpochEndedError, error_from_facts, error_to_facts
from hocket.protocol.frames import encode_frame
from hocket.protocol.limits import IDENTITY_NBYTES, PIECE_NBYTES
from hocket.protocol.messages import (
    AskGroup,
    Contest,
    Done,
    Failed,
    Goodbye,
    GroupEnded,
    Header,
    Heartbeat,
    Join,
    Leave,
    Message,
    MonitoredArrive,
    MonitoredEnds,
    NewGroup,
    OpenChannel,
    P2PData,
    P2POffer,
    P2PRefuse,
    P2PTake,
    P2PWithdraw,
    Submit,
    Verdict,
    Welcome,
)
from hocket.protocol.signature import Signature, encode_signature

NOT_HERE = 4_000_000_000
"""A group's number that no coordinator has given."""
FACTS = error_to_facts(AbortedError(0, "by the test"))
BARRIER = encode_signature(Signature("barrier"))


def offer(group: int, src: int, dst: int, nbytes: int = 4, number: int = 1) -> P2POffer:
    return P2POffer(group, "", src, dst, 0, number, "uint8", nbytes, nbytes, True)


def about(group: int) -> dict[str, tuple[Message, bytes]]:
    """Everything that a rank can say of a group, as rank 0 of it."""
    return {
        "offer": (offer(group, 0, 1), b"1234"),
        "take": (P2PTake(group, "", 1, 0, 1, 8), b""),
        "data": (P2PData(group, "", 0, 1, 1, 0), b"1234"),
        "refuse": (P2PRefuse(group, "", 1, 0, 1, FACTS), b""),
        "withdraw": (P2PWithdraw(group, "", 0, 1, 1), b""),
        "contest": (Contest(group, "", 1, 0, FACTS), b""),
        "submit": (Submit(group, "", 1, BARRIER, (), (), 5.0), b""),
        "submit with data": (Submit(group, "", 1, BARRIER, (4,), (), 5.0), b"1234"),
        "monitored": (MonitoredArrive(group, "", 1, 0, False, 5.0), b""),
        "leave": (Leave(group), b""),
    }


ABOUT = tuple(about(0))


@asynccontextmanager
async def at_work(hosts: int = 1) -> AsyncIterator[tuple[Service, list[hocket.Client]]]:
    """A service with a world of three on its hosts, which must be able to go on afterwards."""
    placement = [rank % hosts for rank in range(3)]
    async with service(hosts) as running, clients(running, placement, job="at work") as found:
        await sum_up(found)
        async with asyncio.timeout(LIMIT_S):
            yield running, found
            await sum_up(found)


async def sum_up(found: list[hocket.Client]) -> None:
    async def one(client: hocket.Client) -> Any:
        return await client.all_reduce(np.ones(2))

    assert [list(x) for x in await asyncio.gather(*map(one, found))] == [[len(found)] * 2] * len(found)


def group_of(client: hocket.Client) -> int:
    assert client.world_membership is not None
    return client.world_membership.info.group


def path(running: Service, host: int = 0) -> str:
    return running.workers[host].config.socket


# --- before and besides joining --------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ABOUT)
async def test_who_speaks_of_a_group_before_joining_is_hung_up_on(what: str) -> None:
    async with at_work() as (running, found):
        rank = await RawRank.connect(path(running))
        rank.say(*about(group_of(found[0]))[what])
        await rank.hangs_up()


@pytest.mark.parametrize("what", ABOUT)
async def test_who_speaks_of_a_group_of_others_is_hung_up_on_and_they_go_on(what: str) -> None:
    async with at_work(2) as (running, found):
        rank = await RawRank.connect(path(running))
        rank.join("another job")
        await rank.joined()
        rank.say(*about(group_of(found[0]))[what])
        await rank.hangs_up()


async def test_a_board_of_others_is_not_handed_out() -> None:
    async with at_work() as (running, found):
        rank = await RawRank.connect(path(running))
        rank.join("another job", shared=True)
        await rank.joined()
        rank.say(OpenChannel(2, group_of(found[0]), ""))
        failed = await rank.hear(Failed)
        assert failed.request == 2 and isinstance(error_from_facts(failed.error), ClosedError)
        rank.say(NewGroup(3, group_of(found[0]), (0,), 1, "", 5.0))
        assert (await rank.hear(Failed)).request == 3
        rank.close()


async def test_who_joins_twice_is_hung_up_on() -> None:
    async with at_work() as (running, _):
        rank = await RawRank.connect(path(running))
        rank.join()
        await rank.joined()
        rank.join()
        await rank.hangs_up()


@pytest.mark.parametrize("job", ["", "x" * (IDENTITY_NBYTES + 1)], ids=["empty", "long"])
async def test_names_of_jobs_are_bounded(job: str) -> None:
    async with at_work() as (running, _):
        rank = await RawRank.connect(path(running))
        rank.join(job)
        await rank.hangs_up()


@pytest.mark.parametrize(
    "message",
    [Heartbeat(1.0), Welcome(b""), AskGroup(1, 1, 1, (0,), 1, "", 1.0), Header(1, "", 1, (), (), None)],
    ids=repr,
)
async def test_who_says_what_ranks_do_not_say_is_hung_up_on(message: Message) -> None:
    async with at_work() as (running, _):
        rank = await RawRank.connect(path(running))
        rank.join()
        await rank.joined()
        rank.say(message)
        await rank.hangs_up()


@pytest.mark.parametrize("joined", [False, True], ids=["before joining", "after it"])
@pytest.mark.parametrize(
    "message",
    [Submit(NOT_HERE, "", 1, BARRIER, (2**40,), (), 5.0), offer(NOT_HERE, 0, 1), Goodbye("with a payload")],
    ids=lambda message: type(message).__name__,
)
async def test_a_payload_of_a_tebibyte_is_given_no_memory(message: Message, joined: bool) -> None:
    async with at_work() as (running, _):
        rank = await RawRank.connect(path(running))
        if joined:
            rank.join()
            await rank.joined()
        head = encode_frame(message, 2**40)
        rank.connection._socket.send(head)
        if joined and isinstance(message, Submit):  # of a group that may have been forgotten: received and dropped
            rank.close()
        else:
            await rank.hangs_up()


@pytest.mark.parametrize(
    ("sends", "recvs", "nbytes"),
    [((), (2**60,), 0), ((), (-1,), 0), ((-1,), (), 0), ((-1, 5), (), 4), ((5,), (), 0), ((5,), (), 4), ((), (), 4)],
)
async def test_a_member_that_announces_sizes_that_cannot_be_is_hung_up_on(
    sends: tuple[int, ...], recvs: tuple[int, ...], nbytes: int
) -> None:
    async with at_work() as (running, _):
        (rank,), group = await raw_world([path(running)])
        rank.say(Submit(group, "", 1, BARRIER, sends, recvs, 5.0), bytes(nbytes))
        await rank.hangs_up()


# --- point to point --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hosts", [1, 2])
@pytest.mark.parametrize("spoof", ["offer", "data", "withdraw", "take", "refuse"])
async def test_a_member_that_speaks_in_the_name_of_another_is_hung_up_on(spoof: str, hosts: int) -> None:
    async with at_work(hosts) as (running, _):
        (first, second, third), group = await raw_world([path(running, rank % hosts) for rank in range(3)])
        said = about(group)[spoof]  # as rank 0, which the third one is not
        third.say(*said)
        await third.hangs_up()
        for victim in (first, second):
            ended = await victim.hear(GroupEnded)
            lost = error_from_facts(ended.error)
            assert isinstance(lost, hocket.MemberLostError) and lost.rank == 2
            assert not any(isinstance(heard, type(said[0])) for heard in victim.heard)
            victim.close()


@pytest.mark.parametrize("hosts", [1, 2])
async def test_a_message_reaches_its_receiver_with_its_bytes_and_a_receiver_that_is_none_nobody(hosts: int) -> None:
    async with at_work(hosts) as (running, _):
        (first, second), group = await raw_world([path(running), path(running, hosts - 1)])
        for dst in (-1, 2, 10**9):
            first.say(offer(group, 0, dst), b"lost")
        first.say(offer(group, 0, 1, 5), b"hello")
        assert await second.hear(P2POffer) == offer(group, 0, 1, 5)
        assert second.payloads == [bytearray(b"hello")]
        second.say(P2PTake(group, "", 0, 1, 1, 5))
        assert await first.hear(P2PTake) == P2PTake(group, "", 0, 1, 1, 5)
        first.say(offer(group, 0, 0, 2), b"me")
        assert await first.hear(P2POffer) == offer(group, 0, 0, 2)
        for rank in (first, second):
            rank.close()


async def test_a_piece_beyond_the_limit_is_refused() -> None:
    async with at_work() as (running, _):
        (first, _second), group = await raw_world([path(running)] * 2)
        head = encode_frame(P2PData(group, "", 0, 1, 1, 0), PIECE_NBYTES + 1)
        first.connection._socket.send(head)
        await first.hangs_up()


# --- groups that ended long ago --------------------------------------------------------------------------------------


async def test_a_group_that_was_forgotten_is_answered_for() -> None:
    async with at_work() as (running, _):
        rank = await RawRank.connect(path(running))
        rank.join()
        await rank.joined()
        for message, payload in about(NOT_HERE).values():
            rank.say(message, payload)
        verdict = await rank.hear(Verdict)
        done, again = await rank.hear(Done), await rank.hear(Done)
        monitored = await rank.hear(MonitoredEnds)
        for answer in (verdict, done, again, monitored):
            assert answer.group == NOT_HERE and answer.number == 1 and answer.error is not None
            assert isinstance(error_from_facts(answer.error), EpochEndedError)
        rank.say(OpenChannel(9, NOT_HERE, ""))
        assert (await rank.hear(Failed)).request == 9
        rank.close()


async def test_a_contest_of_an_operation_that_nobody_has_begun_ends_it_once_for_all() -> None:
    async with at_work() as (running, _):
        (first, second), group = await raw_world([path(running)] * 2)
        late = error_to_facts(AbortedError(1, "later"))
        first.say(Contest(group, "", 3, 0, FACTS))
        assert await first.hear(Verdict) == Verdict(group, "", 3, FACTS)
        second.say(Contest(group, "", 3, 1, late))
        second.say(Contest(group, "", 3, 1, None))
        for _ in range(2):
            assert await second.hear(Verdict) == Verdict(group, "", 3, FACTS)
        for number in (0, -5, 2**63 - 1):
            second.say(Contest(group, "x", number, 1, late))
            assert (await second.hear(Verdict)).error == late
        for rank in (first, second):
            rank.close()


# --- descriptors and bells -------------------------------------------------------------------------------------------


def held() -> int:
    """Descriptors of this process, which is the worker's, too."""
    return len(os.listdir("/proc/self/fd"))


async def test_descriptors_that_a_rank_sends_are_not_kept() -> None:
    async with at_work() as (running, _):
        rank = await RawRank.connect(path(running))
        rank.join()
        await rank.joined()
        with open("/dev/null") as gift:  # noqa: ASYNC230 - it does not block
            before = held()
            for number in range(20):
                rank.say(OpenChannel(number, NOT_HERE, ""), fds=(gift.fileno(),) * 5)
            for number in range(20):
                await rank.hear(Failed, lambda failed, number=number: failed.request == number)  # type: ignore[misc]
            assert held() == before
        rank.close()


async def test_descriptors_that_come_with_a_handshake_or_without_an_end_are_not_kept() -> None:
    async with at_work() as (running, _), asyncio.timeout(LIMIT_S):
        before = held()
        with open("/dev/null") as gift:  # noqa: ASYNC230 - it does not block
            hello = encode_frame(Join(1, "early", 0, 1, "x", 1, 1.0, False))
            for piece in (hello, hello[:10]):  # a whole message that is out of place, and half of one
                ours = await as_stranger(path(running))
                for _ in range(3):
                    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                        socket.send_fds(ours, [piece], [gift.fileno()] * 100)
                ours.close()
            while running.workers[0]._doors._tasks:  # noqa: ASYNC110 - on this very loop
                await asyncio.sleep(0)
        assert held() == before


async def as_stranger(at: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, at)
    return sock


async def test_when_bells_run_out_the_next_rank_is_told_and_a_place_that_is_left_serves_again() -> None:
    async with service() as running:
        worker = running.workers[0]
        async with clients(running, [0, 0], job="first") as found:
            await sum_up(found)
            kept, worker._places[:] = worker._places[:], []
            before = held()
            with pytest.raises(ClosedError, match=f"serves {bells.PLACES - 1} ranks already"):
                await hocket.connect(running.socket(0), job="second", rank=0, world_size=1)
            async with hocket.connect(running.socket(0), job="third", rank=0, world_size=1, shared=False) as remote:
                await sum_up([remote])  # without shared memory no place is needed
            await sum_up(found)
            assert held() <= before
        async with clients(running, [0, 0], job="second") as again:
            await sum_up(again)
        worker._places[:] = [*kept, *(place for place in worker._places if place not in kept)]


async def test_a_worker_without_descriptors_says_so_to_who_joins_and_to_who_opens_a_channel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def none_left(*_how: object) -> int:
        raise OSError(24, "Too many open files")

    async with service() as running, clients(running, [0, 0]) as found:
        await sum_up(found)
        with monkeypatch.context() as out:
            out.setattr("hocket.worker.session.make_bell", none_left)
            with pytest.raises(ClosedError, match="Too many open files"):
                await hocket.connect(running.socket(0), job="second", rank=0, world_size=1)
        with monkeypatch.context() as out:
            out.setattr("hocket.fabric.arena.os.memfd_create", none_left)
            for client in found:
                with pytest.raises(ClosedError, match="Too many open files"):
                    await client.barrier(channel="new")
        await sum_up(found)
