import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import aiohttp
import pytest
from fake_workers import FREE_PORTS, LOOPS, FakeWorker, run, world_of

from hocket.coordinator import server
from hocket.coordinator.config import CoordinatorConfig
from hocket.coordinator.server import Coordinator
from hocket.protocol.messages import (
    AskOperations,
    BarrierArrive,
    LeaveGroup,
    OperationInfo,
    OperationsReport,
    SessionJoins,
)


@asynccontextmanager
async def served(config: CoordinatorConfig = FREE_PORTS) -> AsyncIterator[tuple[Coordinator, aiohttp.ClientSession]]:
    async with Coordinator(config) as coordinator:
        base = f"http://127.0.0.1:{coordinator.http_port}"
        async with aiohttp.ClientSession(base, connector=aiohttp.TCPConnector(force_close=True)) as session:
            yield coordinator, session


async def get(session: aiohttp.ClientSession, path: str, status: int = 200, **headers: str) -> dict[str, Any]:
    async with session.get(path, headers=headers) as response:
        assert response.status == status
        answer: dict[str, Any] = await response.json()
        return answer


@pytest.mark.parametrize("loop", LOOPS)
def test_the_api_shows_a_cluster(loop: str) -> None:
    async def main() -> None:
        async with served() as (coordinator, session):
            workers = [await FakeWorker.connect(coordinator, name) for name in ("a", "b")]
            info = await world_of(*workers)
            workers[0].say(SessionJoins(2, 2, "y", 1, 2, "late", 200, 60.0))
            workers[0].say(BarrierArrive(info.group, "", 3, (0,), False, False, 0.0))
            await workers[0].settle()
            status = await get(session, "/api/status")
            assert [status[name] for name in ("workers", "sessions", "jobs", "groups", "joins")] == [2, 3, 2, 1, 3]
            assert [entry["reason"] for entry in status["waiting"]] == ["waiting for 1 of 2: rank 0"]
            shown = (await get(session, "/api/workers"))["workers"]
            assert [(entry["name"], entry["address"], entry["sessions"]) for entry in shown] == [
                ("a", "127.0.0.1", 2),
                ("b", "127.0.0.1", 1),
            ]
            jobs = (await get(session, "/api/jobs"))["jobs"]
            assert [(job["name"], len(job["sessions"]), job["waiting"]) for job in jobs] == [
                ("x", 2, None),
                ("y", 1, "waiting for 1 of 2: rank 0"),
            ]
            assert jobs[0]["world"] == {"group": info.group, "epoch": 1, "size": 2, "state": "live"}
            barriers = (await get(session, "/api/barriers"))["barriers"]
            assert [(entry["number"], entry["reason"]) for entry in barriers] == [(3, "waiting for 1 of 2: rank 1")]
            groups = await get(session, "/api/groups")
            assert [entry["name"] for entry in groups["groups"]] == ["world"]
            assert [entry["job"] for entry in groups["forming"]] == ["y"]
            assert await get(session, "/api/groups?job=z") == {"groups": [], "forming": []}
            assert await get(session, "/healthz") == {"status": "ok"}
            for worker in workers:
                worker.close()

    run(main, loop)


def test_a_group_is_found_by_name_or_number_also_when_it_has_ended() -> None:
    async def main() -> None:
        async with served() as (coordinator, session):
            workers = [await FakeWorker.connect(coordinator, name) for name in ("a", "b")]
            info = await world_of(*workers)
            workers[1].say(LeaveGroup(1, info.group))
            await workers[1].settle()
            for wanted in ("world", str(info.group), "world?job=x"):
                (found,) = (await get(session, f"/api/groups/{wanted}"))["groups"]
                assert (found["state"], found["epoch"], len(found["members"])) == ("ended", 1, 2)
                assert "lost rank 1 (host b, pid 101): left" in found["error"]
            answer = await get(session, "/api/groups/world?job=y", status=404)
            assert answer == {"error": "no group 'world' of job 'y' is known"}
            for worker in workers:
                worker.close()

    run(main)


def test_operations_are_asked_of_the_workers_and_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with served() as (coordinator, session):
            workers = [await FakeWorker.connect(coordinator, name) for name in ("a", "b")]
            info = await world_of(*workers)
            asking = asyncio.create_task(get(session, "/api/ops"))
            operation = OperationInfo("x", info.group, "world", 1, "", 17, "all_reduce", (0,), (1,), 3.0, (3.0,))
            for worker, operations in zip(workers, ((operation,), ()), strict=True):
                question = await worker.hear(AskOperations)
                worker.say(OperationsReport(question.request, operations))
            answer = await asking
            (shown,) = answer["operations"]
            assert (shown["operation"], shown["number"], shown["reason"]) == (
                "all_reduce",
                17,
                "waiting for 1 of 2: rank 1",
            )
            assert shown["missing"] == [{"rank": 1, "host": "b", "pid": 101, "missing_s": 3.0}]
            assert answer["silent"] == []
            monkeypatch.setattr(server, "OPERATIONS_LIMIT_S", 0.05)
            assert (await get(session, "/api/ops"))["silent"] == ["a", "b"]
            for worker in workers:
                worker.close()

    run(main)


def test_metrics_are_prometheus_text() -> None:
    async def main() -> None:
        async with served() as (coordinator, session):
            worker = await FakeWorker.connect(coordinator)
            await world_of(worker)
            async with session.get("/metrics") as response:
                text = await response.text()
                assert response.content_type == "text/plain"
            for line in ("hocket_workers 1.0", "hocket_groups 1.0", "hocket_joins_total 1.0"):
                assert line in text.splitlines()
            worker.close()

    run(main)


def test_beyond_loopback_everything_but_the_health_needs_the_token() -> None:
    async def main() -> None:
        async with served(replace(FREE_PORTS, http_host="0.0.0.0", token=b"secret")) as (_, session):
            assert await get(session, "/healthz") == {"status": "ok"}
            for headers in ({}, {"Authorization": "Bearer guess"}, {"Authorization": "Bearer schlüssel"}):
                assert "HOCKET_TOKEN_FILE" in (await get(session, "/api/status", 401, **headers))["error"]
            assert (await get(session, "/api/status", Authorization="Bearer secret"))["workers"] == 0

    run(main)
