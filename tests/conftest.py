"""What all tests share: which of the marked ones this machine can run, said at the top and for each that is skipped.

Leaks need nothing here: warnings are errors (see pyproject.toml), so a transport, file or coroutine that is left open
fails the test in which it is collected.
"""

import functools
import os
import shutil
import signal
import subprocess

import pytest

COMMANDS = {
    "hosts": ("ip", "nft", "unshare"),
    "systemd": ("systemd-nspawn", "nsenter"),
    "containers": ("docker", "dockerd"),
}
SEARCH_PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])


@functools.cache
def why_not(mark: str) -> str:
    """Why tests of this mark cannot run here; empty where they can."""
    if os.geteuid() != 0:
        return "needs root"
    missing = [command for command in COMMANDS[mark] if shutil.which(command, path=SEARCH_PATH) is None]
    if missing:
        return f"needs {', '.join(missing)}"
    namespaces = ["unshare", "--net", "--mount", "true"]
    if subprocess.run(namespaces, stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode != 0:
        return "needs the right to make namespaces"
    return ""


def pytest_report_header() -> list[str]:
    """One line for each mark that depends on the machine."""
    return [f"{mark}: {'will be SKIPPED, ' + why_not(mark) if why_not(mark) else 'can run'}" for mark in COMMANDS]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips what the machine cannot run, with the reason."""
    for item in items:
        for mark in COMMANDS:
            if item.get_closest_marker(mark) is not None and why_not(mark):
                item.add_marker(pytest.mark.skip(reason=f"{mark}: {why_not(mark)}"))


def pytest_configure() -> None:
    """A run that was put into the background ignores interrupts, and all that it starts would inherit that."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
