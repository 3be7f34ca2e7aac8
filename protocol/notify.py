"""Tells systemd how the service is, as sd_notify(3) has it: a datagram to the socket that it names, if it names one."""

import asyncio
import logging
import os
import socket

log = logging.getLogger("hocket.protocol")


def notify(state: str) -> None:
    """Sends a state such as ``READY=1`` or ``STOPPING=1``. A manager that is gone does not stop the service."""
    path = os.environ.get("NOTIFY_SOCKET", "")
    if path.startswith(("/", "@")):
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
                sock.connect(path.replace("@", "\0", 1) if path.startswith("@") else path)
                sock.sendall(state.encode())
        except OSError as broken:
            log.warning("%s did not reach the service manager at %s: %s", state, path, broken.strerror)


def watchdog_interval_s() -> float | None:
    """How often systemd wants to hear from this process, halved to be early; None where it does not ask."""
    wanted_us, pid = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID", "")
    if not wanted_us.isdigit() or int(wanted_us) == 0 or (pid and pid != str(os.getpid())):
        return None
    return int(wanted_us) / 2e6


async def feed_watchdog() -> None:
    """Keeps systemd's watchdog content for as long as the loop runs; returns at once where there is none."""
    interval_s = watchdog_interval_s()
    while interval_s is not None:
        notify("WATCHDOG=1")
        await asyncio.sleep(interval_s)
