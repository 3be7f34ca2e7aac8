import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from click.testing import Result
from fake_workers import FREE_PORTS, FakeWorker, run, world_of
from typer.testing import CliRunner

from hocket.cli.status import app
from hocket.cli.tables import duration
from hocket.coordinator import server
from hocket.coordinator.config import CoordinatorConfig
from hocket.coordinator.server import Coordinator
from hocket.protocol.messages import (
    AskOperations,
    BarrierArrive,
    OperationInfo,
    OperationsReport,
    SessionEnds,
    SessionJoins,
)

Ask = Callable[..., Awaitable[Result]]


def call(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(app, list(arguments), env=environment)


@asynccontextmanager
async def cluster(config: CoordinatorConfig = FREE_PORTS) -> AsyncIterator[tuple[Ask, list[FakeWorker]]]:
    """Two workers, and the command line beside them in a thread."""
    async with Coordinator(config) as coordinator:
        workers = [await FakeWorker.connect(coordinator, name, token=config.token) for name in ("alpha", "beta")]

        async def ask(*arguments: str, **environment: str) -> Result:
            where = {"HOCKET_HTTP": f"127.0.0.1:{coordinator.http_port}", **environment}
            return await asyncio.to_thread(call, *arguments, **where)

        yield ask, workers
        for worker in workers:
            worker.close()


def words(result: Result) -> str:
    assert result.exit_code == 0, result.output
    assert max(map(len, result.output.splitlines())) <= 120
    return " ".join(result.output.split())


def test_each_command_shows_its_part_of_a_cluster() -> None:
    async def main() -> None:
        async with cluster() as (ask, workers):
            info = await world_of(*workers)
            workers[0].say(SessionJoins(2, 2, "y", 1, 2, "late", 200, 60.0))
            workers[0].say(BarrierArrive(info.group, "", 3, (0,), False, False, 0.0))
            await workers[0].settle()
            shown = words(await ask("status"))
            assert "2 workers, 2 jobs, 3 sessions, 1 groups" in shown
            assert "waiting for 1 of 2: rank 0" in shown and "late (alpha, pid 200)" in shown
            assert "alpha" in (shown := words(await ask("workers"))) and "127.0.0.1:5000" in shown
            assert "epoch 1, 2 members, live" in words(await ask("jobs"))
            assert "alpha, beta" in words(await ask("groups"))
            assert "waiting for 1 of 2" not in words(await ask("groups", "--job", "x"))
            assert "group 'world' of job 'x', epoch 1, live" in words(await ask("group", "world"))
            shown = words(await ask("barriers"))
            assert "barrier #3" in shown and "rank 1 missing for" in shown and "(beta, pid 101)" in shown

    run(main)


def test_lost_members_are_named_with_their_cause() -> None:
    async def main() -> None:
        async with cluster() as (ask, workers):
            await world_of(*workers)
            workers[1].say(SessionEnds(1, "killed", "signal 9"))
            await workers[1].settle()
            shown = words(await ask("status"))
            assert "client 1 (beta, pid 101)" in shown and "killed" in shown and "signal 9" in shown
            assert "lost rank 1 (host beta, pid 101): killed" in words(await ask("group", "world"))

    run(main)


def test_a_stuck_operation_says_who_is_missing_and_since_when() -> None:
    async def main() -> None:
        async with cluster() as (ask, workers):
            info = await world_of(*workers)
            asking = asyncio.create_task(ask("ops"))
            operation = OperationInfo("x", info.group, "world", 1, "grads", 17, "all_reduce", (0,), (1,), 3.1, (3.1,))
            for worker, operations in zip(workers, ((operation,), ()), strict=True):
                question = await worker.hear(AskOperations)
                worker.say(OperationsReport(question.request, operations))
            shown = words(await asking)
            assert "all_reduce #17" in shown
            assert "rank 0 3.1 s ago" in shown
            assert "rank 1 missing for 3.1 s (beta, pid 101)" in shown
            for part in ("epoch 1, job x", "channel grads", f"number {info.group}"):
                assert part in shown

    run(main)


def test_workers_that_do_not_answer_are_named_and_an_empty_list_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "OPERATIONS_LIMIT_S", 0.05)

    async def main() -> None:
        async with cluster() as (ask, _):
            shown = words(await ask("ops"))
            assert shown == "no operations no answer from alpha, beta: what is under way there is not shown"

    run(main)


def test_json_is_the_api_s_answer() -> None:
    async def main() -> None:
        async with cluster() as (ask, _):
            answer = json.loads((await ask("workers", "--json")).output)
            assert [worker["name"] for worker in answer["workers"]] == ["alpha", "beta"]

    run(main)


def test_an_unknown_group_is_an_error() -> None:
    async def main() -> None:
        async with cluster() as (ask, _):
            result = await ask("group", "nothing/1.2#3")
            assert (result.exit_code, result.stderr) == (1, "hocket: no group 'nothing/1.2#3' is known\n")

    run(main)


def test_the_token_is_sent_where_one_is_set(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("schlüssel\n")

    async def main() -> None:
        async with cluster(replace(FREE_PORTS, http_host="0.0.0.0", token="schlüssel".encode())) as (ask, _):
            assert (await ask("status")).exit_code == 1
            assert "HOCKET_TOKEN_FILE" in (await ask("status")).stderr
            assert "2 workers" in words(await ask("status", HOCKET_TOKEN_FILE=str(file)))
            missing = await ask("status", "--token-file", str(tmp_path / "absent"))
            assert (missing.exit_code, "No such file" in missing.stderr) == (1, True)

    run(main)


def test_a_coordinator_that_is_away_is_named_with_the_setting() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    result = call("status", "--http", f"127.0.0.1:{port}")
    assert result.exit_code == 1
    assert result.stderr == (
        f"hocket: cannot use 127.0.0.1:{port}: the coordinator does not answer there: Connection refused "
        "(set by --http or HOCKET_HTTP)\n"
    )


def test_an_address_that_is_none_is_refused() -> None:
    result = call("status", "--http", "::1:80")
    assert (result.exit_code, "in brackets" in result.stderr) == (1, True)


class SomethingElse(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"<html>hello</html>")

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


def test_another_service_at_the_address_is_told_apart() -> None:
    with HTTPServer(("127.0.0.1", 0), SomethingElse) as something:
        thread = threading.Thread(target=something.handle_request)
        thread.start()
        result = call("status", "--http", f"127.0.0.1:{something.server_port}")
        thread.join()
    assert (result.exit_code, "is no coordinator of hocket's" in result.stderr) == (1, True)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0 ms"), (0.9, "900 ms"), (59.94, "59.9 s"), (59.96, "1 min 0 s"), (61, "1 min 1 s"), (3660, "1 h 1 min")],
)
def test_times_are_short(seconds: float, text: str) -> None:
    assert duration(seconds) == text
