"""Who may connect to a worker's Unix socket."""

import socket
import stat
from pathlib import Path

import pytest

from hocket.protocol.addresses import Address
from hocket.protocol.doorway import listen
from hocket.protocol.errors import ArgumentError
from hocket.protocol.limits import SOCKET_MODE
from hocket.worker.__main__ import read_arguments
from hocket.worker.agent import Worker
from hocket.worker.config import WorkerConfig


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize(("socket_mode", "folder_mode"), [(0o600, 0o700), (0o660, 0o710), (0o666, 0o711)])
def test_a_socket_and_the_folder_made_for_it_let_the_same_users_in(
    tmp_path: Path, socket_mode: int, folder_mode: int
) -> None:
    path = tmp_path / "made" / "worker.sock"
    listen(Address(path=str(path)), "--socket", socket_mode).close()
    assert (mode_of(path), mode_of(path.parent)) == (socket_mode, folder_mode)


def test_a_socket_is_its_own_users_alone_unless_something_else_is_said(tmp_path: Path) -> None:
    listen(Address(path=str(tmp_path / "worker.sock")), "--socket").close()
    assert mode_of(tmp_path / "worker.sock") == 0o600


def test_a_folder_that_is_there_keeps_its_permissions(tmp_path: Path) -> None:
    before = mode_of(tmp_path)
    listen(Address(path=str(tmp_path / "worker.sock")), "--socket", 0o666).close()
    assert mode_of(tmp_path) == before


@pytest.mark.parametrize(("text", "mode"), [("0660", 0o660), ("660", 0o660), ("0o620", 0o620), ("0600", 0o600)])
def test_the_mode_is_read_as_chmod_reads_it(text: str, mode: int) -> None:
    assert WorkerConfig.from_environment({"HOCKET_SOCKET_MODE": text}).socket_mode == mode


@pytest.mark.parametrize("text", ["", "rw-rw----", "0680", "60", "0060", "0770", "4660", "0o", "-660", "00660"])
def test_a_mode_that_means_nothing_or_shuts_out_the_worker_is_refused(text: str) -> None:
    with pytest.raises(ArgumentError, match="HOCKET_SOCKET_MODE"):
        WorkerConfig.from_environment({"HOCKET_SOCKET_MODE": text})


def test_the_option_is_stronger_than_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOCKET_SOCKET_MODE", "0666")
    assert read_arguments(["--socket-mode", "0660"]).socket_mode == 0o660
    assert read_arguments([]).socket_mode == 0o666
    monkeypatch.delenv("HOCKET_SOCKET_MODE")
    assert read_arguments([]).socket_mode == SOCKET_MODE


async def test_a_worker_gives_its_socket_the_mode_that_it_was_told(tmp_path: Path) -> None:
    path = tmp_path / "worker.sock"
    worker = Worker(WorkerConfig(socket=str(path), socket_mode=0o660))
    await worker.start()
    try:
        assert mode_of(path) == 0o660
        with socket.socket(socket.AF_UNIX) as stranger:
            stranger.connect(str(path))
    finally:
        await worker.stop()
