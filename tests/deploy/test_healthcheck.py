"""The health check of the container image, against real services."""

import asyncio
import importlib.util
from collections.abc import Callable
from pathlib import Path

import pytest
from harness.service import service

PATH = Path(__file__).resolve().parents[2] / "deploy" / "healthcheck.py"


@pytest.fixture
def run_check(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., int]:
    """Runs the check in a container whose first process has the given arguments, with the given environment."""
    spec = importlib.util.spec_from_file_location("healthcheck", PATH)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "LIMIT_S", 1.0)

    def run(*arguments: str, **env: str) -> int:
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        (tmp_path / "cmdline").write_bytes(b"\0".join(argument.encode() for argument in arguments) + b"\0")
        return int(module.main(tmp_path / "cmdline"))

    return run


async def test_services_that_answer_are_well(run_check: Callable[..., int], caplog: pytest.LogCaptureFixture) -> None:
    async with service() as running:
        port, socket = str(running.coordinator.http_port), running.workers[0].config.socket
        assert await asyncio.to_thread(run_check, "hocket", "coordinator", HOCKET_HTTP_PORT=port) == 0
        assert await asyncio.to_thread(run_check, "hocket", "worker", HOCKET_SOCKET=socket) == 0
        assert [record.message for record in caplog.records if record.levelname == "WARNING"] == []


async def test_an_address_for_everybody_is_asked_on_loopback(run_check: Callable[..., int]) -> None:
    async with service() as running:
        env = {"HOCKET_HTTP_HOST": "0.0.0.0", "HOCKET_HTTP_PORT": str(running.coordinator.http_port)}
        assert await asyncio.to_thread(run_check, "hocket", "coordinator", **env) == 0


@pytest.mark.parametrize("role", ["coordinator", "worker"])
def test_a_service_that_is_not_there_is_not_well(
    run_check: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str], role: str
) -> None:
    assert run_check("hocket", role, HOCKET_HTTP_PORT="1", HOCKET_SOCKET=str(tmp_path / "none.sock")) == 1
    assert capsys.readouterr().out.strip() != ""


async def test_a_service_that_hangs_is_not_well(run_check: Callable[..., int], tmp_path: Path) -> None:
    def say_nothing(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        taken.append(writer)

    taken: list[asyncio.StreamWriter] = []
    web = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    unix = await asyncio.start_unix_server(say_nothing, tmp_path / "worker.sock")
    port = str(web.sockets[0].getsockname()[1])
    async with web, unix:
        assert await asyncio.to_thread(run_check, "hocket", "coordinator", HOCKET_HTTP_PORT=port) == 1
        assert await asyncio.to_thread(run_check, "hocket", "worker", HOCKET_SOCKET=str(tmp_path / "worker.sock")) == 1
        for writer in taken:
            writer.close()
            await asyncio.gather(writer.wait_closed(), return_exceptions=True)


def test_a_rank_is_well(run_check: Callable[..., int]) -> None:
    assert run_check("python", "train.py") == 0
