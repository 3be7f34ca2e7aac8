"""F25: somebody is stopped (SIGSTOP) for a while: late, not lost. Who goes on after SIGCONT finds everything right."""

import asyncio
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from harness.processes import Process, Rank, RankProcess, RealService, facts_of, idle, real_service

import hocket

PAUSE_S = 4.0
"""Shorter than the liveness limit (5 s), as the case wants it."""
PLACEMENTS = pytest.mark.parametrize("placement", [(0, 0, 0), (0, 1, 1)], ids=["one-host", "two-hosts"])


@pytest.fixture(scope="module")
def hosts() -> Iterator[RealService]:
    """Two hosts that serve all tests here, each with a job of its own."""
    with real_service(2) as service:
        yield service


async def loops(rank: Rank) -> Any:
    """Reduces in step until the test says to end, and says every round that is not right."""
    client = await rank.connect(timeout=30)
    rounds, over = 0, np.zeros(1)
    told = rank.hear_later() if rank.number == 0 else None
    while not over[0]:
        x = np.array([rank.number + 1.0])
        await client.all_reduce(x)
        if x[0] != 6:
            rank.say("wrong", value=float(x[0]))
        rounds += 1
        if rounds == 20:
            rank.say("warm")
        if rounds % 50 == 0:
            rank.say("round", rounds=rounds)
        over[0] = told is not None and told.done()
        await asyncio.sleep(0)  # for the word to be heard: what completes within a call gives nobody a turn
        await client.broadcast(over, src=0)
    return rounds


async def meets_its_deadline(rank: Rank) -> Any:
    """Like `loops` with T = 2 s; after the deadline the group is used again, by the stopped one, too."""
    client = await rank.connect(timeout=2)
    rounds = 0
    error: hocket.HocketError | None = None
    while error is None:
        x = np.array([rank.number + 1.0])
        try:
            await client.all_reduce(x)
            assert x[0] == 6
            rounds += 1
            if rounds == 20:
                rank.say("warm")
        except hocket.HocketError as raised:
            error = raised
    rank.say("error", intact=x[0] == rank.number + 1, rounds=rounds, **facts_of(error))
    await rank.heard()
    return await later(rank, client, rounds)


async def later(rank: Rank, client: hocket.Client, rounds: int) -> Any:
    """After an abort the channel is in step: the numbers of completed rounds agree, and the next one is right."""
    every = await client.all_gather_object(None, rounds, timeout=20)
    x = np.array([rank.number + 1.0])
    await client.all_reduce(x, timeout=20)
    await client.close()
    return [every, float(x[0])]


@PLACEMENTS
def test_f25a_a_stopped_rank_is_late_and_named_when_time_is_up(hosts: RealService, placement: tuple[int, ...]) -> None:
    ranks = hosts.start(meets_its_deadline, placement, job=f"a{placement}")
    for rank in ranks:
        rank.wait_for("warm")
    stopped_s = ranks[2].stop()
    idle(0.3)
    used = [rank.cpu_s() for rank in ranks[:2]]
    idle(1.0)
    assert max(rank.cpu_s() - was for rank, was in zip(ranks[:2], used, strict=True)) < 0.1
    for rank in ranks[:2]:
        said = rank.wait_for("error")
        assert "DeadlineError" in said["kinds"] and said["facts"]["missing"] == [2] and said["intact"]
        assert 1.9 <= said.at_s - stopped_s < 4.0
    ranks[2].resume()
    assert "AbortedError" in ranks[2].wait_for("error")["kinds"]
    for rank in ranks:
        rank.tell("on")
    results = [rank.result() for rank in ranks]
    assert len({tuple(every) for every, _ in results}) == 1 and [total for _, total in results] == [6, 6, 6]
    assert len(set(results[0][0])) == 1, f"rounds that some completed and others did not: {results[0][0]}"


def check_survives(hosts: RealService, job: str, *placements: tuple[int, ...], stopped: Process | None = None) -> None:
    """Stops a process (None: the last rank of each world) for a while: afterwards everything goes on as before."""
    worlds: list[list[RankProcess]] = [hosts.start(loops, at, job=f"{job}{at}") for at in placements]
    for rank in itertools.chain(*worlds):
        rank.wait_for("warm")
    victims: list[Process] = [stopped] if stopped else [ranks[-1] for ranks in worlds]
    for victim in victims:
        victim.stop()
    idle(PAUSE_S)
    for victim in victims:
        victim.resume()
    for ranks in worlds:
        done = len(ranks[0].out)
        ranks[0].wait_until(lambda first=ranks[0], done=done: len(first.out) > done + 1, "more rounds")
        ranks[0].tell("end")
        rounds = [rank.result() for rank in ranks]
        assert len(set(rounds)) == 1 and rounds[0] > 20
        words = {said.word for rank in ranks for said in rank.said()}
        assert words <= {"warm", "round", "result"}


def test_f25b_a_rank_that_is_stopped_and_continued_is_not_lost(hosts: RealService) -> None:
    check_survives(hosts, "b", (0, 0, 0), (0, 1, 1))


def test_f25c_nor_are_those_of_a_stopped_worker(hosts: RealService) -> None:
    check_survives(hosts, "c", (0, 1, 1), stopped=hosts.workers[1])


def test_f25d_nor_is_anybody_while_the_coordinator_is_stopped(hosts: RealService) -> None:
    check_survives(hosts, "d", (0, 1, 1), stopped=hosts.coordinator)
