"""The systemd units, on a host that runs them: readiness, restarts, sandbox, and what ranks notice of all that."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.systemd_host import PYTHON, UNITS, Host, Program, systemd_host

pytestmark = pytest.mark.systemd

COORDINATOR, WORKER = UNITS
EXPOSURE = 15
"""Ten times what ``systemd-analyze security`` may give; without any sandbox it gives 96."""
TOLD_RANK = Path(__file__).with_name("told_rank.py").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    with systemd_host("units") as booted:
        booted.run("systemd-sysusers", "hocket.conf")
        booted.run("systemd-tmpfiles", "--create", "hocket.conf")
        for name, group in (("alice", "hocket"), ("bob", "nogroup")):
            booted.run("useradd", "--no-create-home", "--user-group", "--groups", group, name)
        yield booted


@pytest.fixture
def service(host: Host) -> Iterator[Host]:
    """Both units, freshly started."""
    host.run("systemctl", "start", *UNITS)
    yield host
    host.close_programs()
    host.run("systemctl", "stop", *UNITS)
    host.run("systemctl", "reset-failed", *UNITS, check=False)  # which is an error where nothing has failed


def start_ranks(host: Host, size: int = 2, user: str = "alice") -> list[Program]:
    worker = "unix:/run/hocket/worker.sock"
    command = (PYTHON, "-W", "error", "-c", TOLD_RANK)
    return [
        host.start(*command, user=user, HOCKET_WORKER=worker, RANK=str(rank), WORLD_SIZE=str(size))
        for rank in range(size)
    ]


def ask_all(ranks: list[Program], word: str, answer: str) -> list[str]:
    """Tells every rank a word and waits for every answer."""
    for rank in ranks:
        rank.tell(word)
    return [rank.wait_for(answer) for rank in ranks]


def is_restarted(host: Host, unit: str) -> bool:
    shown = host.show(unit, "NRestarts", "ActiveState")
    return int(shown["NRestarts"]) > 0 and shown["ActiveState"] == "active"


def kill_and_wait_for_restart(host: Host, unit: str, signal: str = "KILL") -> None:
    killed = host.main_pid(unit)
    host.run("kill", f"-{signal}", str(killed))
    host.wait_until(lambda: is_restarted(host, unit), f"{unit} runs again")
    assert host.main_pid(unit) != killed


# --- the files -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", UNITS)
def test_systemd_has_nothing_to_say_about_a_unit(host: Host, unit: str) -> None:
    assert host.run("systemd-analyze", "verify", f"/etc/systemd/system/{unit}") == ""


@pytest.mark.parametrize("unit", UNITS)
def test_a_unit_is_well_sandboxed(host: Host, unit: str) -> None:
    limit = ("--offline=true", f"--threshold={EXPOSURE}")
    host.run("systemd-analyze", "security", "--no-pager", *limit, f"/etc/systemd/system/{unit}")


def test_the_token_is_kept_from_everybody_but_the_service_manager(host: Host) -> None:
    assert host.run("stat", "-c", "%a %U", "/etc/hocket", "/etc/hocket/token").split() == ["750", "root", "600", "root"]


@pytest.mark.parametrize("unit", UNITS)
def test_a_unit_does_not_start_without_a_token(host: Host, unit: str) -> None:
    host.run("mv", "/etc/hocket/token", "/etc/hocket/away")
    try:
        assert "Assertion failed" in host.run("systemctl", "start", unit, check=False)
    finally:
        host.run("mv", "/etc/hocket/away", "/etc/hocket/token")
        host.run("systemctl", "reset-failed", unit, check=False)


# --- start and stop --------------------------------------------------------------------------------------------------


def test_a_worker_is_activating_until_a_coordinator_knows_it(host: Host) -> None:
    try:
        host.run("systemctl", "start", "--no-block", WORKER)
        host.wait_until(lambda: "trying again" in host.run("journalctl", "--no-pager", "-u", WORKER), "it tries")
        assert host.show(WORKER, "ActiveState", "SubState") == {"ActiveState": "activating", "SubState": "start"}
        host.run("systemctl", "start", COORDINATOR)
        host.wait_until(lambda: host.show(WORKER, "ActiveState")["ActiveState"] == "active", "the worker is ready")
        assert host.show(WORKER, "NRestarts") == {"NRestarts": "0"}
        assert len(host.get("/api/workers")["workers"]) == 1
    finally:
        host.run("systemctl", "stop", *UNITS)


def test_the_services_run_as_their_own_user_in_a_sandbox(service: Host) -> None:
    for unit in UNITS:
        pid = service.main_pid(unit)
        assert service.run("stat", "-c", "%U", f"/proc/{pid}").strip() == "hocket"
        status = dict(line.split(":", 1) for line in service.run("cat", f"/proc/{pid}/status").splitlines())
        assert {name: status[name].strip() for name in ("CapBnd", "NoNewPrivs", "Seccomp")} == {
            "CapBnd": "0000000000000000",
            "NoNewPrivs": "1",
            "Seccomp": "2",
        }


def test_the_services_stop_in_good_order(service: Host) -> None:
    ranks = start_ranks(service)
    ask_all(ranks, "join", "joined")
    ask_all(ranks, "wait", "waiting")
    service.run("systemctl", "stop", WORKER, COORDINATOR)
    for unit in UNITS:
        assert service.show(unit, "ActiveState", "Result", "ExecMainStatus") == {
            "ActiveState": "inactive",
            "Result": "success",
            "ExecMainStatus": "0",
        }
    assert [rank.wait_for("lost") for rank in ranks] == ["lost worker lost"] * 2
    assert "No such file" in service.run("ls", "/run/hocket", check=False)


# --- ranks -----------------------------------------------------------------------------------------------------------


def test_users_in_the_group_run_ranks_and_others_cannot_reach_the_socket(service: Host) -> None:
    shown = service.run("stat", "-c", "%a %U %G", "/run/hocket", "/run/hocket/worker.sock").splitlines()
    assert shown == ["750 hocket hocket", "660 hocket hocket"]
    ranks = start_ranks(service)
    ask_all(ranks, "join", "joined")
    assert ask_all(ranks, "sum", "sum") == ["sum 3", "sum 3"]
    [stranger] = start_ranks(service, size=1, user="bob")
    stranger.tell("join")
    assert "Permission denied" in stranger.wait_for("refused")


def test_a_killed_worker_is_restarted_and_its_ranks_are_told_and_may_join_again(service: Host) -> None:
    ranks = start_ranks(service)
    ask_all(ranks, "join", "joined")
    ask_all(ranks, "sum", "sum 3")
    ask_all(ranks, "wait", "waiting")
    folder = service.run("stat", "-c", "%i", "/run/hocket")
    kill_and_wait_for_restart(service, WORKER)
    assert [rank.wait_for("lost") for rank in ranks] == ["lost worker lost"] * 2
    assert service.run("stat", "-c", "%i", "/run/hocket") == folder  # a container may have it mounted
    ask_all(ranks, "join", "joined")
    assert ask_all(ranks, "sum", "sum") == ["sum 3", "sum 3"]


def test_a_killed_coordinator_is_restarted_and_the_worker_registers_again(service: Host) -> None:
    ranks = start_ranks(service)
    ask_all(ranks, "join", "joined")
    before = service.main_pid(WORKER)
    kill_and_wait_for_restart(service, COORDINATOR)
    ask_all(ranks, "sum", "sum 3")
    service.wait_until(lambda: len(service.get("/api/workers")["workers"]) == 1, "the worker is back")
    assert service.main_pid(WORKER) == before
    assert ask_all(ranks, "sum", "sum") == ["sum 3", "sum 3"]


@pytest.mark.parametrize("unit", UNITS)
def test_a_service_that_hangs_is_noticed_by_the_watchdog_and_restarted(service: Host, unit: str) -> None:
    hurry = f"/run/systemd/system/{unit}.d"
    service.run("sh", "-c", f"mkdir -p {hurry} && printf '[Service]\\nWatchdogSec=1\\n' > {hurry}/hurry.conf")
    try:
        service.run("systemctl", "daemon-reload")
        service.run("systemctl", "restart", unit)
        kill_and_wait_for_restart(service, unit, "STOP")
        assert "Watchdog timeout" in service.run("journalctl", "--no-pager", "-u", unit)
    finally:
        service.run("rm", "-r", hurry)
        service.run("systemctl", "daemon-reload")
