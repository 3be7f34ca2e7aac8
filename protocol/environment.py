"""What clients, workers and the command line take from their surroundings alike: the socket's place, the token."""

import os
from pathlib import Path

from hocket.protocol.errors import ArgumentError
from hocket.protocol.limits import SOCKET_NAME


def default_socket() -> str:
    """Where a worker listens for the ranks of its host when nothing else is said."""
    home = "/run" if os.geteuid() == 0 else os.environ.get("XDG_RUNTIME_DIR") or f"/tmp/hocket-{os.getuid()}"
    return str(Path(home) / "hocket" / SOCKET_NAME)


def read_token(path: str) -> bytes:
    """The token in a file, white space around it dropped. Raises `ArgumentError` where there is none."""
    try:
        token = Path(path).read_bytes().strip()
    except OSError as broken:
        raise ArgumentError("HOCKET_TOKEN_FILE", f"{path} ({broken.strerror})", "a file with the token") from broken
    if not token:
        raise ArgumentError("HOCKET_TOKEN_FILE", f"{path} (empty)", "a file with the token")
    return token
