"""Addresses as people write them: ``host:port``, ``[::1]:port``, ``unix:/path`` or a path."""

from dataclasses import dataclass

from hocket.protocol.errors import ArgumentError


@dataclass(frozen=True, slots=True)
class Address:
    """A TCP address (``host``, ``port``) or a Unix socket (``path``)."""

    host: str = ""
    port: int = 0
    path: str = ""

    def __str__(self) -> str:
        if self.path:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether it can be reached from this host only."""
        return bool(self.path) or is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Whether a host name or number is a loopback one by its form (names are not looked up)."""
    return host in ("localhost", "::1") or host.startswith("127.")


def parse_address(text: str, argument: str, default_port: int | None = None) -> Address:
    """Reads an address.

    Args:
        text: ``host:port``, ``host`` (with a default port), ``[ipv6]:port``, ``unix:/path`` or an absolute path.
        argument: name of the setting, for the error.
        default_port: used where the text has none.

    Raises:
        ArgumentError: the text is none of these; a bare IPv6 number with a port is ambiguous and needs brackets.
    """
    if text.startswith(("unix:", "/")):
        path = text.removeprefix("unix:").removeprefix("//")
        if not path:
            raise ArgumentError(argument, repr(text), "unix:/path/of/the/socket")
        return Address(path=path)
    host, port_text = _split(text, argument)
    if not host:
        raise ArgumentError(argument, repr(text), "host:port")
    if not port_text and default_port is not None:
        return Address(host, default_port)
    if not port_text.isascii() or not port_text.isdigit() or int(port_text) > 65535:
        raise ArgumentError(argument, repr(text), "host:port with a port from 0 to 65535")
    return Address(host, int(port_text))


def _split(text: str, argument: str) -> tuple[str, str]:
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise ArgumentError(argument, repr(text), "[ipv6]:port")
        return host, rest[1:]
    if text.count(":") > 1:
        raise ArgumentError(argument, repr(text), "an IPv6 address in brackets, as in [::1]:7420")
    host, _, port = text.partition(":")
    return host, port
