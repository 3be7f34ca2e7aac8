import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from hocket.protocol.notify import feed_watchdog, notify, watchdog_interval_s


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """The socket that systemd would read."""
    path = str(tmp_path / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(path)
        sock.settimeout(5)
        yield sock


def test_the_state_goes_to_the_socket(systemd: socket.socket) -> None:
    notify("READY=1")
    assert systemd.recv(100) == b"READY=1"


def test_an_abstract_socket_is_one_too(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"hocket-test-{os.getpid()}"
    monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(f"\0{name}")
        sock.settimeout(5)
        notify("STOPPING=1")
        assert sock.recv(100) == b"STOPPING=1"


def test_without_systemd_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    monkeypatch.delenv("WATCHDOG_USEC", raising=False)
    notify("READY=1")
    asyncio.run(asyncio.wait_for(feed_watchdog(), 5))


def test_the_watchdog_is_fed_at_half_of_what_it_asks(systemd: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "3000000")
    monkeypatch.delenv("WATCHDOG_PID", raising=False)
    assert watchdog_interval_s() == 1.5
    monkeypatch.setenv("WATCHDOG_PID", "1")
    assert watchdog_interval_s() is None
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))

    async def main() -> None:
        feeding = asyncio.create_task(feed_watchdog())
        await asyncio.sleep(0)
        feeding.cancel()

    asyncio.run(main())
    assert systemd.recv(100) == b"WATCHDOG=1"


def test_a_manager_that_is_gone_is_logged_and_stops_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", "/nonexistent/notify.sock")
    notify("READY=1")
    assert "READY=1 did not reach the service manager" in caplog.text
