"""F01: a rank, or its host's worker, is killed. The survivors hear who it was, at once, and go on without it."""

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from harness.processes import Rank, RankProcess, RealService, facts_of, idle, real_service

import hocket

LARGE = 8 << 20
"""Elements of a 64 MiB array."""


@pytest.fixture(scope="module")
def hosts() -> Iterator[RealService]:
    """Two hosts that serve all tests here: only ranks are killed, each test is a job of its own."""
    with real_service(2) as service:
        yield service


async def loops(rank: Rank) -> Any:
    """Reduces until a member is lost; says how many rounds were right, then goes on with the survivors."""
    client = await rank.connect(timeout=60)
    count = 1 if rank.hear() == "small" else LARGE
    rounds, error = 0, None
    while error is None:
        x = np.ones(count)
        try:
            await client.all_reduce(x)
        except hocket.MemberLostError as lost:
            error = lost
        else:
            assert (x == client.size).all()
            rounds += 1
            if rounds == 20 or (count == LARGE and rounds == 3):
                rank.say("warm")
    intact = bool((x == 1).all()) or not error.array_intact
    rank.say("error", rounds=rounds, intact=intact, locked=not x.flags.writeable, **facts_of(error))
    await goes_on(rank, client, error)
    return "done"


async def goes_on(rank: Rank, client: hocket.Client, error: hocket.MemberLostError) -> None:
    """A new group of the survivors works; the old one goes on saying who is lost."""
    survivors = [r for r in range(client.size) if r not in error.ranks]
    group = await client.new_group(survivors, timeout=20)
    x = np.ones(1)
    await group.all_reduce(x)
    try:
        await client.barrier()
    except hocket.MemberLostError as again:
        rank.say("survived", total=float(x[0]), ranks=group.ranks, again=again.ranks)
    named = await client.join("rest", len(survivors), timeout=20)
    await named.all_reduce(x)
    rank.say("joined", total=float(x[0]))
    await client.close()


async def waits(rank: Rank) -> Any:
    """All but rank 2 wait inside an operation that rank 2 never enters."""
    client = await rank.connect(timeout=60)
    await client.barrier()
    if rank.number == 2:
        rank.say("waiting")
        rank.hear()
    what = rank.hear()
    x, big = np.ones(1), np.ones(LARGE // 8)
    calls = {
        "all_reduce": lambda: client.all_reduce(x),
        "large": lambda: client.all_reduce(big),
        "barrier": lambda: client.barrier(),
        "monitored_barrier": lambda: client.monitored_barrier(),
        "recv": lambda: client.recv(x, src=2),
        "send": lambda: client.send(big, dst=2),
        "objects": lambda: client.all_gather_object(None, 1),
        "new_group": lambda: client.new_group([0, 1, 2, 3]),
    }
    rank.say("waiting")
    try:
        await calls[what]()
    except hocket.MemberLostError as error:
        rank.say("error", intact=bool((x == 1).all()), locked=not x.flags.writeable, **facts_of(error))
        await goes_on(rank, client, error)
    return "done"


def check_error(said: Any, lost: RankProcess, killed_s: float, within_s: float, host: str) -> None:
    facts = said["facts"]
    assert "MemberLostError" in said["kinds"]
    assert said.at_s - killed_s < within_s
    assert 2 in facts["ranks"] and facts["host"] == host and f"host {host}" in said["text"]
    assert [2, host, lost.pid] in facts["members"]
    assert facts["group"] == "world" and facts["operation"] and facts["number"] is not None
    assert said["intact"] and not said["locked"]


def check_survivors(ranks: list[RankProcess], lost: tuple[int, ...]) -> None:
    alive = [r for r in range(4) if r not in lost]
    for r in alive:
        survived = ranks[r].wait_for("survived")
        assert survived["total"] == len(alive) and tuple(survived["ranks"]) == tuple(alive)
        assert set(survived["again"]) <= set(lost)
        assert ranks[r].wait_for("joined")["total"] == len(alive) ** 2
        assert ranks[r].result() == "done" and ranks[r].status() == 0


@pytest.mark.parametrize(
    ("placement", "size"),
    [((0, 0, 0, 0), "small"), ((0, 1, 1, 0), "small"), ((0, 1, 1, 0), "large")],
    ids=["one-host", "two-hosts", "two-hosts-large"],
)
def test_f01ac_killed_while_it_takes_part(hosts: RealService, placement: tuple[int, ...], size: str) -> None:
    ranks = hosts.start(loops, placement, job=f"ac{size}{placement}")
    for rank in ranks:
        rank.tell(size)
    for rank in ranks:
        rank.wait_for("warm", within_s=60)
    killed_s = ranks[2].kill()
    for r in (0, 1, 3):
        said = ranks[r].wait_for("error", within_s=10)
        check_error(said, ranks[2], killed_s, 5.0, f"h{placement[2]}")
        assert said["facts"]["cause"] == "killed" and said["rounds"] >= (20 if size == "small" else 3)
    check_survivors(ranks, (2,))


@pytest.mark.parametrize(
    ("placement", "what"),
    [
        ((0, 0, 0, 0), "all_reduce"),
        ((0, 1, 1, 0), "all_reduce"),
        ((0, 1, 1, 0), "large"),
        ((0, 0, 0, 0), "barrier"),
        ((0, 1, 1, 0), "recv"),
    ],
    ids=str,
)
def test_f01b_killed_while_the_others_wait_which_they_do_without_using_a_core(
    hosts: RealService, placement: tuple[int, ...], what: str
) -> None:
    ranks = hosts.start(waits, placement, job=f"b{what}{placement}")
    ranks[2].wait_for("waiting")
    for r in (0, 1, 3):
        ranks[r].tell(what)
    for r in (0, 1, 3):
        ranks[r].wait_for("waiting")
    check_cpu([ranks[r] for r in (0, 1, 3)], 0.5, 0.20)
    killed_s = ranks[2].kill()
    for r in (0, 1, 3):
        check_error(ranks[r].wait_for("error"), ranks[2], killed_s, 1.5, f"h{placement[2]}")
    check_survivors(ranks, (2,))
    hosts.coordinator.wait_for_log(r"lost rank 2 .*killed")


def check_cpu(processes: list[RankProcess], for_s: float, share: float) -> None:
    idle(0.2)  # what happened before does not count
    before, begun_s = [process.cpu_s() for process in processes], time.monotonic()
    idle(for_s)
    took_s = time.monotonic() - begun_s
    used = [(process.cpu_s() - was) / took_s for process, was in zip(processes, before, strict=True)]
    assert max(used) < share, used


@pytest.mark.parametrize("what", ["monitored_barrier", "send", "objects", "new_group"])
def test_f01b_every_kind_of_waiting_ends(hosts: RealService, what: str) -> None:
    placement = (0, 1, 1, 0)
    ranks = hosts.start(waits, placement, job=f"b{what}")
    ranks[2].wait_for("waiting")
    for r in (0, 1, 3):
        ranks[r].tell(what)
    for r in (0, 1, 3):
        ranks[r].wait_for("waiting")
    killed_s = ranks[2].kill()
    for r in (0, 1, 3):
        said = ranks[r].wait_for("error")
        assert said.at_s - killed_s < 1.5 and 2 in said["facts"]["ranks"]
    check_survivors(ranks, (2,))


def test_f01d_the_worker_of_its_host_is_killed() -> None:
    placement = (0, 0, 1, 0)
    with real_service(2) as service:
        ranks = service.start(loops, placement)
        for rank in ranks:
            rank.tell("small")
        for rank in ranks:
            rank.wait_for("warm")
        killed_s = service.workers[1].kill()
        for r in (0, 1, 3):
            said = ranks[r].wait_for("error", within_s=10)
            check_error(said, ranks[2], killed_s, 10.0, "h1")
            assert said["facts"]["cause"] in ("worker lost", "unreachable")
        own = ranks[2].wait_for("error", within_s=10)
        assert own["facts"]["cause"] == "worker lost"
        check_survivors(ranks, (2,))


def test_f01_two_are_killed_at_once(hosts: RealService) -> None:
    placement = (0, 1, 0, 1)
    ranks = hosts.start(loops, placement, job="two")
    for rank in ranks:
        rank.tell("small")
    for rank in ranks:
        rank.wait_for("warm")
    killed_s = ranks[2].kill()
    ranks[1].kill()
    for r in (0, 3):
        said = ranks[r].wait_for("error")
        assert said.at_s - killed_s < 5.0 and set(said["facts"]["ranks"]) <= {1, 2}
