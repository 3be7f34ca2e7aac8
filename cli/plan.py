"""What a run is to be: its ranks, and on which hosts they are."""

import os
from dataclasses import dataclass

from hocket.protocol.addresses import parse_address
from hocket.protocol.errors import ArgumentError


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run. ``hosts`` is a number to emulate, or addresses of workers that exist; none: that of this host."""

    command: tuple[str, ...]
    ranks: int
    hosts: int | tuple[str, ...]
    job: str | None = None
    timeout_s: float | None = None
    http_port: int = 0
    prefix: bool = True
    verbose: bool = False
    name: str = "hocket run"
    """the command, as it speaks of itself"""


def read_hosts(text: str | None, ranks: int) -> int | tuple[str, ...]:
    """``--hosts``: a number, or addresses; where it is not given, what ``HOCKET_WORKER`` says.

    Raises:
        ArgumentError: more hosts than ranks, or no address.
    """
    if text is None:
        configured = os.environ.get("HOCKET_WORKER")
        return (configured,) if configured else 1
    if text.isdecimal():
        found: int | tuple[str, ...] = int(text)
        number = int(text)
    else:
        found = tuple(str(parse_address(part.strip(), "--hosts")) for part in text.split(","))
        number = len(found)
    if not 1 <= number <= ranks:
        raise ArgumentError("--hosts", f"{text} with {ranks} ranks", "from one host up to one for each rank")
    return found


def deal(ranks: int, hosts: int) -> list[int]:
    """Each rank's host: blocks of equal size, the first ones larger by one where it does not divide.

    >>> deal(5, 2)
    [0, 0, 0, 1, 1]
    """
    size, larger = divmod(ranks, hosts)
    return [host for host in range(hosts) for _ in range(size + (host < larger))]
