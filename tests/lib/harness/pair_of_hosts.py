"""Two hosts on one cable, as badly set up as hosts in the field: names that mean loopback, addresses that both have.

Each is a network namespace with a host name and a hosts file of its own. Needs root, ip(8) and unshare(1).
"""

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.processes import Host

SHARED_ADDRESS = "172.17.0.1"
"""Both hosts have it, as those with a container bridge do."""
ENTER = 'hostname "$1"; mount --bind "$2" /etc/hosts; shift 2; exec "$@"'


@dataclass(frozen=True, slots=True)
class Pair:
    """``addresses`` are those on the cable; ``token_file`` is for a service on both."""

    addresses: tuple[str, str]
    token_file: str
    folder: str

    def name(self, host: int) -> str:
        """A host's name, and that of its namespace."""
        return f"hk{os.getpid()}n{host}"

    def prefix(self, host: int) -> tuple[str, ...]:
        """A command that runs another one on the host."""
        enter = ("unshare", "--mount", "--uts", "sh", "-c", ENTER, "sh")
        hosts_file = f"{self.folder}/hosts{host}"
        return ("ip", "netns", "exec", self.name(host), *enter, self.name(host), hosts_file)

    def host(self, host: int, *options: str) -> Host:
        """The host for `real_service`."""
        return Host(self.prefix(host), ("--token-file", self.token_file, *options))

    def build(self) -> None:
        """Makes both, with the cable between them."""
        for host in (0, 1):
            name = self.name(host)
            Path(f"{self.folder}/hosts{host}").write_text(f"127.0.0.1 localhost\n::1 localhost\n127.0.1.1 {name}\n")
            _ip("netns", "add", name)
            _ip("-n", name, "link", "set", "lo", "up")
        first, second = self.name(0), self.name(1)
        _ip("link", "add", "e0", "netns", first, "type", "veth", "peer", "name", "e0", "netns", second)
        for host, address in enumerate(self.addresses):
            name = self.name(host)
            extra = ("nodad",) if ":" in address else ()
            _ip("-n", name, "address", "add", f"{address}/{64 if extra else 24}", "dev", "e0", *extra)
            _ip("-n", name, "link", "set", "e0", "up")
            _ip("-n", name, "link", "add", "docker0", "type", "bridge")
            _ip("-n", name, "address", "add", f"{SHARED_ADDRESS}/16", "dev", "docker0")
            _ip("-n", name, "link", "set", "docker0", "up")

    def remove(self) -> None:
        """Takes both away."""
        for host in (0, 1):
            with contextlib.suppress(subprocess.CalledProcessError):  # it was not made
                _ip("netns", "del", self.name(host))


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, stdin=subprocess.DEVNULL)


def run_on(prefix: Sequence[str], command: Sequence[str], env: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    """Runs a program on a host to its end."""
    full = [*prefix, *command]
    return subprocess.run(full, env=env, capture_output=True, text=True, timeout=30, check=False)


@contextlib.contextmanager
def pair(*addresses: str) -> Iterator[Pair]:
    """Makes two hosts with these addresses; removes them at the end."""
    first, second = addresses
    with tempfile.TemporaryDirectory(prefix="hk") as folder:
        token_file = Path(folder, "token")
        token_file.write_text("known to both\n")
        made = Pair((first, second), str(token_file), folder)
        try:
            made.build()
            yield made
        finally:
            made.remove()
