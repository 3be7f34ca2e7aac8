"""Settings of a worker, from the command line or the environment."""

import os
import re
from dataclasses import dataclass, field
from socket import gethostname

from hocket.protocol.addresses import Address, parse_address
from hocket.protocol.environment import default_socket, read_token
from hocket.protocol.errors import ArgumentError
from hocket.protocol.limits import COORDINATOR_HOST, COORDINATOR_PORT, DATA_PORT, SOCKET_MODE


@dataclass(slots=True)
class WorkerConfig:
    """What a worker needs to know.

    Args:
        coordinator: where the coordinator listens.
        socket: Unix socket for the ranks of this host.
        socket_mode: its permissions; the default lets only the worker's own user connect.
        listen: TCP address for ranks without this host's memory; None: nobody may come that way.
        data_address: address (and port) for other workers; None: our own address on the route to the coordinator.
        data_port: port for other workers where ``data_address`` names none.
        name: of this host, as people see it.
        token: shared secret of the service; empty where everything is on loopback.
    """

    coordinator: Address = field(default_factory=lambda: Address(COORDINATOR_HOST, COORDINATOR_PORT))
    socket: str = field(default_factory=default_socket)
    socket_mode: int = SOCKET_MODE
    listen: Address | None = None
    data_address: Address | None = None
    data_port: int = DATA_PORT
    name: str = field(default_factory=gethostname)
    token: bytes = b""

    def check(self) -> None:
        """Raises `ArgumentError` for an address that strangers could reach while no token is set."""
        for setting, address in (("--listen", self.listen), ("--data-address", self.data_address)):
            if address is not None and not address.is_loopback and not self.token:
                raise ArgumentError(setting, str(address), "a loopback address, unless a token is set (--token-file)")

    @classmethod
    def from_environment(cls, environ: dict[str, str] | None = None) -> "WorkerConfig":
        """Settings from ``HOCKET_*`` variables; what is not set keeps its default."""
        env = dict(os.environ) if environ is None else environ
        config = cls()
        if "HOCKET_COORDINATOR" in env:
            config.coordinator = parse_address(env["HOCKET_COORDINATOR"], "HOCKET_COORDINATOR", COORDINATOR_PORT)
        if "HOCKET_SOCKET" in env:
            config.socket = env["HOCKET_SOCKET"]
        if "HOCKET_SOCKET_MODE" in env:
            config.socket_mode = read_socket_mode(env["HOCKET_SOCKET_MODE"])
        if "HOCKET_LISTEN" in env:
            config.listen = parse_address(env["HOCKET_LISTEN"], "HOCKET_LISTEN")
        if "HOCKET_DATA_ADDRESS" in env:
            config.data_address = parse_address(env["HOCKET_DATA_ADDRESS"], "HOCKET_DATA_ADDRESS", DATA_PORT)
        if "HOCKET_HOST_NAME" in env:
            config.name = env["HOCKET_HOST_NAME"]
        if "HOCKET_TOKEN_FILE" in env:
            config.token = read_token(env["HOCKET_TOKEN_FILE"])
        return config


def read_socket_mode(text: str) -> int:
    """Permissions in octal, as chmod takes them: ``0660`` lets the group of the socket connect.

    Raises:
        ArgumentError: the text is no such number, or would shut out the worker's own user.
    """
    digits = text.removeprefix("0o")
    mode = int(digits, 8) if re.fullmatch("[0-7]{3,4}", digits) else -1
    if mode & ~0o066 != 0o600:
        raise ArgumentError("HOCKET_SOCKET_MODE", repr(text), "0600, or 0660 for a group, or 0666 for everybody")
    return mode
