"""Where ranks are placed: on one host, or on several that are emulated, with or without a limit on their links."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from netns import INTERFACE, Network, network, why_not

KINDS = {
    "host": "one host",
    "veth": "hosts joined by veth, no limit",
    "slow": "hosts joined by 1 Gbit/s, 1 ms each way",
}
SLOW_RATE_MBIT, SLOW_DELAY_US = 1000, 1000


@dataclass(frozen=True, slots=True)
class Place:
    """So many hosts, so many ranks on each; ranks count up host by host."""

    kind: str
    hosts: int
    per_host: int

    @property
    def size(self) -> int:
        """Number of ranks."""
        return self.hosts * self.per_host

    @property
    def label(self) -> str:
        """What stands in a row: ``host``, ``veth-2x1``, ``slow-2x2``."""
        return self.kind if self.kind == "host" else f"{self.kind}-{self.hosts}x{self.per_host}"

    def host_of(self, rank: int) -> int:
        """The host that a rank is on."""
        return rank // self.per_host

    def why_not(self) -> str:
        """Why it cannot be made here; empty where it can."""
        return "" if self.kind == "host" else why_not(self.kind == "slow")


def title_of(label: str, size: int) -> str:
    """A place in words, from what stands in a row: ``2 hosts × 2 ranks, 1 Gbit/s + 1 ms``."""
    if label == "host":
        return f"one host, n = {size}"
    kind, _, counts = label.partition("-")
    hosts, per_host = counts.split("x")
    limit = ", 1 Gbit/s + 1 ms" if kind == "slow" else ", veth"
    return f"{hosts} hosts × {per_host} rank{'s' * (per_host != '1')}{limit}"


def places_for(kinds: Sequence[str], ns: Sequence[int], layouts: Sequence[tuple[int, int]]) -> tuple[Place, ...]:
    """The places of each kind: for ``host`` one for each of ``ns``, for the others one for each of ``layouts``."""
    found = []
    for kind in kinds:
        if kind == "host":
            found += [Place(kind, 1, n) for n in ns]
        else:
            found += [Place(kind, hosts, per_host) for hosts, per_host in layouts]
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Site:
    """A place that has been made."""

    place: Place
    network: Network | None

    def prefix(self, host: int) -> list[str]:
        """What makes a command run on a host."""
        return self.network.prefix(host) if self.network else []

    def prefix_of_rank(self, rank: int) -> list[str]:
        """What makes a command run on a rank's host."""
        return self.prefix(self.place.host_of(rank))

    def address(self, host: int) -> str:
        """The address that a host has for the others."""
        return self.network.address(host) if self.network else "127.0.0.1"

    def switch_s(self) -> float:
        """Processor time that has gone into emulating the network."""
        return self.network.switch_s() if self.network else 0.0

    @property
    def interface(self) -> str:
        """The interface that the ranks talk through."""
        return INTERFACE if self.network else "lo"


@contextlib.contextmanager
def made(place: Place) -> Iterator[Site]:
    """Makes the hosts of a place, and removes them afterwards.

    Raises:
        NetworkError: they cannot be made here.
    """
    if place.kind == "host":
        yield Site(place, None)
        return
    rate, delay = (SLOW_RATE_MBIT, SLOW_DELAY_US) if place.kind == "slow" else (0, 0)
    with network(place.hosts, rate, delay) as found:
        yield Site(place, found)
