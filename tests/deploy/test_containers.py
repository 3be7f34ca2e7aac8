"""The image and the compose file: built and run by a Docker engine of the test's own."""

import faulthandler
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.docker_engine import Engine, base_archive, docker_engine, why_not

pytestmark = [pytest.mark.containers, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
BASE, IMAGE, USER = "python:3.13-slim", "hocket", 10001
SERVICES = ("coordinator", "worker-a", "worker-b")
RANKS = ("rank-0", "rank-1", "rank-2", "rank-3")
BUILD_S, UP_S = 300.0, 100.0


@pytest.fixture(scope="module")
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """An engine that has the image, built as ``deploy/README.md`` says."""
    if why_not():
        pytest.skip(f"containers: {why_not()}")
    faulthandler.cancel_dump_traceback_later()  # pytest's for one test: every command below has a limit of its own
    archive = base_archive(Path(request.config.cache.mkdir("base-image")))
    with tempfile.TemporaryDirectory(prefix="hocket-docker-", dir="/dev/shm") as folder:
        with docker_engine(Path(folder), outside=True) as builder:
            builder.import_base(archive, BASE)
            where = ("--network", "host", "--build-arg", f"PYTHON={BASE}", "-f", str(DEPLOY / "Dockerfile"))
            builder.docker("build", *where, "-t", IMAGE, str(ROOT), timeout_s=BUILD_S)
        with docker_engine(Path(folder)) as running:
            yield running


def run(engine: Engine, *arguments: str, check: bool = True) -> str:
    """Runs a container that has no network and is gone afterwards."""
    return engine.docker("run", "--rm", "--network", "none", *arguments, check=check)


def test_the_image_runs_as_a_user_who_may_change_nothing_in_it(engine: Engine) -> None:
    config: Any = engine.inspect(IMAGE)["Config"]
    assert config["User"] == f"{USER}:{USER}"
    program = "import os, hocket; print(os.getuid(), os.access('/opt/hocket', os.W_OK), os.access('/etc', os.W_OK))"
    assert run(engine, "--entrypoint", "python", IMAGE, "-c", program).split() == [str(USER), "False", "False"]


def test_the_image_holds_the_command_and_nothing_of_how_it_was_made(engine: Engine) -> None:
    assert run(engine, IMAGE, "version").startswith("hocket ")
    program = "import importlib.util as u, os; print(u.find_spec('pip'), os.path.exists('/source'), os.listdir('/tmp'))"
    assert run(engine, "--entrypoint", "python", IMAGE, "-c", program).strip() == "None False []"


def test_the_image_has_the_native_core(engine: Engine) -> None:
    program = "from hocket.fabric.core import describe; print(describe())"
    assert run(engine, "--entrypoint", "python", IMAGE, "-c", program).startswith("native (")


def test_a_container_open_to_the_network_needs_a_token(engine: Engine) -> None:
    said = run(engine, "-e", "HOCKET_COORDINATOR_HOST=0.0.0.0", IMAGE, "coordinator", check=False)
    assert "without a token" in said


def container(engine: Engine, service: str, token: Path) -> Any:
    name = engine.compose(DEPLOY / "compose.yaml", "ps", "-a", "-q", service, HOCKET_TOKEN=str(token)).strip()
    return engine.inspect(name)


@pytest.fixture
def composed(engine: Engine, tmp_path: Path) -> Iterator[dict[str, dict[str, Any]]]:
    """All containers of the compose file, once the ranks have ended."""
    faulthandler.cancel_dump_traceback_later()  # as above
    token = tmp_path / "token"
    token.write_text("a token for tests\n", encoding="ascii")
    os.chown(token, USER, USER)
    token.chmod(0o400)
    file = DEPLOY / "compose.yaml"
    try:
        engine.compose(file, "up", "-d", timeout_s=UP_S, HOCKET_TOKEN=str(token))
        names = [str(container(engine, rank, token)["Id"]) for rank in RANKS]
        engine.docker("wait", *names, timeout_s=UP_S)
        yield {name: container(engine, name, token) for name in (*SERVICES, *RANKS)}
    finally:
        engine.compose(file, "down", "--volumes", "--timeout", "10", HOCKET_TOKEN=str(token))


def test_four_ranks_in_four_containers_on_two_workers_get_right_results(
    engine: Engine, composed: dict[str, dict[str, Any]]
) -> None:
    said = {rank: engine.docker("logs", composed[rank]["Id"]).strip() for rank in RANKS}
    expected = "rank {} of 4: all_reduce and all_gather are right"
    assert said == {rank: expected.format(number) for number, rank in enumerate(RANKS)}
    assert {rank: composed[rank]["State"]["ExitCode"] for rank in RANKS} == dict.fromkeys(RANKS, 0)
    assert {composed[rank]["HostConfig"]["NetworkMode"] for rank in RANKS} == {"none"}
    assert {name: composed[name]["State"]["Health"]["Status"] for name in SERVICES} == dict.fromkeys(
        SERVICES, "healthy"
    )
    for name in SERVICES:
        _, *processes = engine.docker("top", composed[name]["Id"], "-o", "pid,uid,args").splitlines()
        assert {line.split()[1] for line in processes} == {str(USER)}
        assert "WARNING" not in engine.docker("logs", composed[name]["Id"])
    services = [composed[name]["Id"] for name in SERVICES]
    engine.docker("stop", "--time", "10", *services)
    assert [engine.inspect(name)["State"]["ExitCode"] for name in services] == [0, 0, 0]
