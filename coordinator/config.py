"""Settings of the coordinator: where it listens, who may connect, how long silence is borne.

Each comes from an option, else from the environment, else from `hocket.protocol.limits`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from hocket.protocol import limits
from hocket.protocol.addresses import Address, is_loopback, parse_address
from hocket.protocol.environment import read_token
from hocket.protocol.errors import ArgumentError

VARIABLES = {
    "host": "HOCKET_COORDINATOR_HOST",
    "port": "HOCKET_COORDINATOR_PORT",
    "http_host": "HOCKET_HTTP_HOST",
    "http_port": "HOCKET_HTTP_PORT",
    "token_file": "HOCKET_TOKEN_FILE",
    "liveness_s": "HOCKET_LIVENESS_S",
    "heartbeat_s": "HOCKET_HEARTBEAT_S",
}
"""Setting to environment variable. The options are called the same: ``--http-port``."""


@dataclass(frozen=True, slots=True)
class CoordinatorConfig:
    """Settings. Port 0 takes a free one; ``token`` is the content of ``token_file`` and is read from there if empty."""

    host: str = limits.COORDINATOR_HOST
    port: int = limits.COORDINATOR_PORT
    http_host: str = limits.COORDINATOR_HOST
    http_port: int = limits.HTTP_PORT
    token_file: str = ""
    liveness_s: float = limits.LIVENESS_S
    heartbeat_s: float = limits.HEARTBEAT_S
    token: bytes = b""

    def read_token(self) -> bytes:
        """The token, empty where none is set. Raises `ArgumentError` for a file that cannot be read or is empty."""
        if self.token or not self.token_file:
            return self.token
        return read_token(self.token_file)

    def check(self) -> None:
        """Refuses what would expose the service or make it lose workers that live.

        Raises:
            ArgumentError: an address beyond loopback without a token, or times that do not fit each other.
        """
        for argument, host in (("host", self.host), ("http_host", self.http_host)):
            if not is_loopback(host) and not self.read_token():
                given = f"{host!r} without a token"
                allowed = "a loopback address, or any with a token: set --token-file or HOCKET_TOKEN_FILE"
                raise ArgumentError(argument, given, allowed)
        for argument, port in (("port", self.port), ("http_port", self.http_port)):
            if not 0 <= port <= 65535:
                raise ArgumentError(argument, str(port), "0 to 65535")
        if not 0 < self.heartbeat_s < math.inf:
            raise ArgumentError("heartbeat_s", str(self.heartbeat_s), "a positive number of seconds")
        if not 2 * self.heartbeat_s <= self.liveness_s < math.inf:
            allowed = f"at least two heartbeats: {2 * self.heartbeat_s:g} s"
            raise ArgumentError("liveness_s", str(self.liveness_s), allowed)

    @property
    def address(self) -> Address:
        """Where workers connect."""
        return Address(self.host, self.port)

    @property
    def http_address(self) -> Address:
        """Where the HTTP API is served."""
        return Address(self.http_host, self.http_port)


def read_config(environment: Mapping[str, str], options: Mapping[str, str | None]) -> CoordinatorConfig:
    """Settings from options (by setting name; None or absent: not given) and the environment.

    Raises:
        ArgumentError: a setting is no number where one is needed; it names the variable or the option.
    """
    given: dict[str, str | int | float] = {}
    for setting, variable in VARIABLES.items():
        option = options.get(setting)
        text = option if option is not None else environment.get(variable, "")
        if text:
            given[setting] = _convert(setting, variable if option is None else f"--{setting.replace('_', '-')}", text)
    return CoordinatorConfig(**given)  # type: ignore[arg-type]


def _convert(setting: str, source: str, text: str) -> str | int | float:
    kinds: dict[str, type[int] | type[float]] = {
        "port": int,
        "http_port": int,
        "liveness_s": float,
        "heartbeat_s": float,
    }
    if setting in ("host", "http_host"):
        return parse_address(text, source, default_port=0).host if text.startswith("[") else text
    if setting not in kinds:
        return text
    try:
        return kinds[setting](text)
    except ValueError:
        raise ArgumentError(source, repr(text), "a number") from None
