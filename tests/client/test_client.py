import asyncio
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness.service import clients, service, world

import hocket
from hocket.client.client import Connecting
from hocket.protocol.limits import IDENTITY_NBYTES, OPERATION_TIMEOUT_S

VARIABLES = ("HOCKET_WORKER", "HOCKET_JOB", "HOCKET_TOKEN_FILE", "HOCKET_SHARED", "RANK", "WORLD_SIZE")


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def settings(connecting: Connecting) -> Any:
    return connecting._settings


# --- settings --------------------------------------------------------------------------------------------------------


def test_without_arguments_the_environment_says_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text("secret\n")
    told = {"HOCKET_WORKER": "unix:/there", "HOCKET_JOB": "train", "HOCKET_TOKEN_FILE": str(secret)}
    for name, value in (told | {"HOCKET_SHARED": "0", "RANK": "2", "WORLD_SIZE": "4"}).items():
        monkeypatch.setenv(name, value)
    found = settings(hocket.connect())
    assert (str(found.worker), found.job, found.rank, found.world_size) == ("unix:/there", "train", 2, 4)
    assert (found.token, found.shared) == (b"secret", False)


def test_arguments_come_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"HOCKET_WORKER": "unix:/there", "RANK": "2", "WORLD_SIZE": "4", "HOCKET_SHARED": "0"}.items():
        monkeypatch.setenv(name, value)
    found = settings(hocket.connect("[::1]:7000", job="mine", rank=0, world_size=1, token="s", shared=True, timeout=2))
    assert (str(found.worker), found.job, found.rank, found.world_size) == ("[::1]:7000", "mine", 0, 1)
    assert (found.token, found.shared, found.timeout_s) == (b"s", True, 2.0)


def test_with_nothing_set_there_are_defaults_and_no_world() -> None:
    found = settings(hocket.connect())
    assert (found.job, found.rank, found.world_size, found.token, found.shared) == ("default", -1, -1, b"", True)
    assert found.worker.path.endswith("hocket/worker.sock")
    assert found.timeout_s == OPERATION_TIMEOUT_S
    assert found.name.endswith(f":{os.getpid()}")


def test_a_rank_in_the_environment_means_nothing_without_a_world(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "2")
    assert settings(hocket.connect()).rank == -1


def test_a_world_of_nobody_is_none_whatever_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "4")
    found = settings(hocket.connect(world_size=0))
    assert (found.rank, found.world_size) == (-1, -1)


@pytest.mark.parametrize(
    ("how", "argument"),
    [
        ({"worker": "::1:5000"}, "worker"),
        ({"job": "x" * (IDENTITY_NBYTES + 1)}, "job"),
        ({"rank": 2, "world_size": 2}, "rank"),
        ({"rank": -1, "world_size": 2}, "rank"),
        ({"world_size": -1}, "world_size"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": float("nan")}, "timeout"),
        ({"name": "x" * (IDENTITY_NBYTES + 1)}, "name"),
    ],
)
def test_an_argument_that_cannot_be_is_refused_at_once(how: dict[str, Any], argument: str) -> None:
    with pytest.raises(hocket.ArgumentError) as refused:
        hocket.connect(**how)
    assert refused.value.argument == argument


@pytest.mark.parametrize(
    "how", [{"rank": "1", "world_size": 2}, {"rank": True, "world_size": 2}, {"world_size": 2.0}, {"timeout": "5"}]
)
def test_an_argument_of_the_wrong_type_is_a_type_error(how: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=next(iter(how))):
        hocket.connect(**how)


@pytest.mark.parametrize(("variable", "text"), [("RANK", "one"), ("WORLD_SIZE", "-1")])
def test_a_number_that_the_environment_has_wrong_is_named_with_its_variable(
    variable: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv(variable, text)
    with pytest.raises(hocket.ArgumentError, match=f"'{text}' \\(from {variable}\\)"):
        hocket.connect()


# --- joining ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["unix:/nowhere/worker.sock", "127.0.0.1:1"])
async def test_nobody_at_the_address_is_a_connect_error_that_names_it(where: str) -> None:
    with pytest.raises(hocket.ConnectError, match="HOCKET_WORKER") as refused:
        await hocket.connect(where)
    assert refused.value.address == where


async def test_a_client_knows_its_place() -> None:
    async with service() as running, clients(running, (0, 0, 0), name="me") as found:
        assert [(client.rank, client.size, client.ranks) for client in found] == [(r, 3, (0, 1, 2)) for r in range(3)]
        assert {client.epoch for client in found} == {1}
        assert {(client.name, client.host, client.job) for client in found} == {("me", "h0", "test")}
        assert repr(found[1]).startswith("<Client 'me' of job 'test': <Group 'world' epoch 1: rank 1 of [0, 1, 2]>>")
        assert not found[0].closed


async def test_ranks_that_are_not_given_are_dealt() -> None:
    async with service() as running:

        async def join() -> int:
            async with hocket.connect(running.socket(0), world_size=3, timeout=20) as client:
                await client.barrier()
                return client.rank

        assert sorted(await asyncio.gather(join(), join(), join())) == [0, 1, 2]


async def test_a_client_can_be_awaited_and_closed_by_hand() -> None:
    async with service() as running:
        client = await hocket.connect(running.socket(0), world_size=1, timeout=20)
        await client.barrier()
        await client.close()
        await client.close()
        assert client.closed
        async with await hocket.connect(running.socket(0), world_size=1, timeout=20) as client:
            await client.barrier()
        assert client.closed


async def test_a_world_that_does_not_fill_names_who_is_missing_and_leaves_nothing_behind() -> None:
    async with service() as running:
        with pytest.raises(hocket.DeadlineError) as late:
            await hocket.connect(running.socket(0), rank=1, world_size=3, timeout=0.2)
        assert late.value.missing == (0, 2)

        async def one(client: hocket.Client) -> int:
            await client.barrier()
            return client.size

        assert await world(running, (0, 0, 0), one, job="default") == [3, 3, 3]


async def test_a_rank_that_is_taken_is_refused_and_the_world_forms_all_the_same() -> None:
    async with service() as running:
        how: dict[str, Any] = {"job": "test", "world_size": 2, "timeout": 20}
        first = asyncio.ensure_future(_open(hocket.connect(running.socket(0), rank=0, **how)))
        await asyncio.wait({first}, timeout=0.2)
        with pytest.raises(hocket.ArgumentError, match="rank"):
            await hocket.connect(running.socket(0), rank=0, **how)
        async with hocket.connect(running.socket(0), rank=1, **how) as second:
            assert second.size == 2
            await (await first).close()


async def test_a_cancelled_connect_gives_its_place_back() -> None:
    async with service() as running:
        how: dict[str, Any] = {"job": "test", "world_size": 2, "timeout": 20}
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await hocket.connect(running.socket(0), rank=0, **how)
        async with clients(running, (0, 0)) as found:
            await asyncio.gather(*(client.barrier() for client in found))


# --- the end ---------------------------------------------------------------------------------------------------------


async def test_after_its_end_every_call_says_that_the_client_was_closed() -> None:
    async with service() as running:
        async with hocket.connect(running.socket(0), world_size=1, timeout=20) as client:
            group = await client.new_group()
        calls = (lambda: client.barrier(), lambda: client.isend(np.ones(1), 0), lambda: group.barrier())
        for call in calls:
            with pytest.raises(hocket.ClosedError):
                await call()
        for asking in (client.new_group(), client.join("a", 1), client.split(0)):
            with pytest.raises(hocket.ClosedError):
                await asking


@pytest.mark.parametrize(("fails", "cause"), [(False, "left"), (True, "exited")])
async def test_the_others_learn_whether_a_member_left_or_failed(fails: bool, cause: str) -> None:
    async with service() as running:

        async def one(client: hocket.Client) -> Any:
            await client.barrier()
            if client.rank == 1:
                if fails:
                    raise ZeroDivisionError
                return None
            with pytest.raises(hocket.MemberLostError) as lost:
                await client.barrier()
            return lost.value.rank, lost.value.cause, lost.value.pid

        how: dict[str, Any] = {"job": "test", "world_size": 2, "timeout": 20}

        async def rank(number: int) -> Any:
            async with hocket.connect(running.socket(0), rank=number, **how) as client:
                return await one(client)

        found = await asyncio.gather(rank(0), rank(1), return_exceptions=True)
        assert found[0] == (1, cause, os.getpid())
        assert isinstance(found[1], ZeroDivisionError) is fails


async def test_what_is_under_way_ends_when_the_client_is_closed() -> None:
    async with service() as running, clients(running, (0, 0)) as found:
        x = np.ones(3)
        works = [found[0].all_reduce(x), found[0].irecv(np.zeros(1), 1), found[0].monitored_barrier()]
        await found[0].close()
        for work in works:
            with pytest.raises(hocket.ClosedError):
                await work
        assert x.flags.writeable
        assert x.tolist() == [1.0] * 3


async def test_a_worker_that_goes_ends_everything_with_its_name() -> None:
    async with service() as running:
        client = await hocket.connect(running.socket(0), world_size=1, timeout=20)
        waiting = client.irecv(np.zeros(1), 0)
        await running.workers.pop(0).stop()
        with pytest.raises(hocket.MemberLostError, match="worker lost"):
            await waiting
        assert client.closed
        with pytest.raises(hocket.MemberLostError, match="worker lost"):
            await client.barrier()
        await client.close()


# --- groups and time limits ------------------------------------------------------------------------------------------


async def test_a_client_without_a_world_has_groups_by_name_alone() -> None:
    async with service() as running:
        two = [await hocket.connect(running.socket(0), timeout=20) for _ in range(2)]
        for client in two:
            assert (client.world, client.rank, client.size, client.ranks, client.epoch) == (None, -1, 0, (), -1)
            assert client.timeout == 20
            with pytest.raises(hocket.ArgumentError, match="has no world"):
                await client.barrier()
            with pytest.raises(hocket.ArgumentError, match="has no world"):
                await client.new_group()
        groups = await asyncio.gather(*(client.join("meeting", 2, rank) for rank, client in enumerate(two)))
        x = [np.array([1.0]), np.array([2.0])]
        await asyncio.gather(*(c.all_reduce(a, group=g) for c, a, g in zip(two, x, groups, strict=True)))
        assert [a.tolist() for a in x] == [[3.0], [3.0]]
        for client in two:
            await client.close()


async def test_a_group_of_another_client_or_no_group_at_all_is_refused() -> None:
    async with service() as running, clients(running, (0, 0)) as (first, second):
        with pytest.raises(hocket.ArgumentError, match="a group of this client"):
            await first.barrier(second.world)
        with pytest.raises(TypeError, match="a Group"):
            await first.barrier("world")
        assert first.world is not None
        with pytest.raises(hocket.ArgumentError, match="nothing, on a Group's own methods"):
            await first.world.barrier(second.world)


@pytest.mark.parametrize(("how", "argument"), [(("", 2), "name"), (("a", 0), "size"), (("a", 2, 2), "rank")])
async def test_a_meeting_that_cannot_be_is_refused(how: tuple[Any, ...], argument: str) -> None:
    async with service() as running, clients(running, (0,)) as (client,):
        with pytest.raises(hocket.ArgumentError) as refused:
            await client.join(*how)
        assert refused.value.argument == argument


async def test_time_limits_come_from_the_call_then_the_group_then_the_client() -> None:
    async with service() as running, clients(running, (0, 0), timeout=0.3) as (first, second):
        group, _ = await asyncio.gather(first.new_group(timeout=20), second.new_group(timeout=20))
        assert (first.timeout, group.timeout) == (0.3, 20)
        for call, limit_s in ((lambda: first.barrier(), 0.3), (lambda: first.barrier(timeout=0.1), 0.1)):
            with pytest.raises(hocket.DeadlineError) as late:
                await call()
            assert (late.value.limit_s, late.value.missing) == (limit_s, (1,))
        group.timeout, first.timeout = 0.2, 0.4
        assert first.timeout == 0.4
        with pytest.raises(hocket.DeadlineError) as late:
            await first.barrier(group)
        assert late.value.limit_s == 0.2
        with pytest.raises(hocket.ArgumentError, match="timeout"):
            first.timeout = 0


async def test_groups_that_are_made_at_the_same_time_match_by_their_names() -> None:
    async with service() as running, clients(running, (0, 0)) as found:
        orders = (("a", "b"), ("b", "a"))
        made: list[dict[str, hocket.Group]] = [{}, {}]

        async def make(rank: int, name: str) -> None:
            made[rank][name] = await found[rank].new_group([0, 1], timeout=20, name=name)

        await asyncio.gather(*(make(rank, name) for rank, names in enumerate(orders) for name in names))
        x = {name: [np.array([value]), np.array([value])] for name, value in (("a", 1), ("b", 10))}
        await asyncio.gather(*(made[rank][name].all_reduce(x[name][rank]) for name in x for rank in (0, 1)))
        assert {name: [int(a[0]) for a in arrays] for name, arrays in x.items()} == {"a": [2, 2], "b": [20, 20]}


async def _open(connecting: Connecting) -> hocket.Client:
    return await connecting
