"""Cubic for connections that a library has made, as is the default of most machines."""

import contextlib
import os
import socket
from pathlib import Path


def use_cubic() -> str:
    """Sets cubic on the connections that this process has. Returns what they use afterwards.

    Where the default is bbr, gloo is faster with cubic at large sizes; it is measured at its best, as are others that
    leave the choice to the machine.
    """
    used = set()
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if not os.readlink(entry).startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(entry.name))) as link:
                if link.type == socket.SOCK_STREAM and link.family in (socket.AF_INET, socket.AF_INET6):
                    with contextlib.suppress(OSError):
                        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
                    used.add(link.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0").decode())
    return ", ".join(sorted(used)) or "no TCP"
