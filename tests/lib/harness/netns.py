"""Several hosts on one machine: a network namespace for each, joined by a bridge in a namespace of its own.

Needs root and ip(8). Namespaces are named by our process id, so that several runs do not meet; they go with `network`,
and with them whatever still runs in them.

    with network(3) as net, real_service([net.host(0), net.host(1), net.host(2)], net.coordinator_options()) as service:
        ranks = service.start(body, (0, 1, 2))
"""

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.processes import Host

LISTEN_PORT = 7423
TOKEN = "only these hosts know it"


def _ip(*arguments: str) -> str:
    """Runs ip(8). Raises `subprocess.CalledProcessError` where that fails."""
    done = subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    return done.stdout


@dataclass(frozen=True, slots=True)
class Network:
    """Hosts 0 to ``hosts`` - 1, each with an address of its own, and a file with a token for a service on them."""

    hosts: int
    token_file: str

    @property
    def switch(self) -> str:
        """The namespace that holds the bridge; host h's port there is ``p<h>``."""
        return f"hk{os.getpid()}sw"

    def name(self, host: int) -> str:
        """A host's namespace."""
        return f"hk{os.getpid()}h{host}"

    def address(self, host: int) -> str:
        """A host's address."""
        return f"10.77.0.{host + 1}"

    def prefix(self, host: int) -> tuple[str, ...]:
        """A command that runs another one on the host."""
        return ("ip", "netns", "exec", self.name(host))

    def host(self, host: int) -> Host:
        """The host for `harness.processes.real_service`; its worker serves ranks over TCP, too."""
        listen = f"{self.address(host)}:{LISTEN_PORT}"
        return Host(self.prefix(host), ("--token-file", self.token_file, "--listen", listen))

    def coordinator_options(self) -> list[str]:
        """What lets workers on other hosts reach a coordinator on host 0."""
        return ["--host", self.address(0), "--token-file", self.token_file]

    def through(self, host: int) -> dict[str, str]:
        """Environment of a rank, on any host, that comes over TCP to the worker of ``host``."""
        return {"HOCKET_WORKER": f"{self.address(host)}:{LISTEN_PORT}", "HOCKET_TOKEN_FILE": self.token_file}

    def cut(self, host: int) -> None:
        """Takes a host's cable out: what it sends and what is sent to it is lost."""
        _ip("-n", self.switch, "link", "set", f"p{host}", "down")

    def mend(self, host: int) -> None:
        """Puts the cable back."""
        _ip("-n", self.switch, "link", "set", f"p{host}", "up")

    def _build(self) -> None:
        _ip("netns", "add", self.switch)
        _ip("-n", self.switch, "link", "add", "bridge", "type", "bridge")
        _ip("-n", self.switch, "link", "set", "bridge", "up")
        for host in range(self.hosts):
            name, port = self.name(host), f"p{host}"
            _ip("netns", "add", name)
            _ip("link", "add", port, "netns", self.switch, "type", "veth", "peer", "name", "e0", "netns", name)
            _ip("-n", self.switch, "link", "set", port, "master", "bridge", "up")
            _ip("-n", name, "address", "add", f"{self.address(host)}/24", "dev", "e0")
            _ip("-n", name, "link", "set", "e0", "up")
            _ip("-n", name, "link", "set", "lo", "up")

    def _remove(self) -> None:
        for name in (*map(self.name, range(self.hosts)), self.switch):
            with contextlib.suppress(subprocess.CalledProcessError):  # it was not made
                for pid in _ip("netns", "pids", name).split():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(int(pid), signal.SIGKILL)
                _ip("netns", "del", name)


@contextlib.contextmanager
def network(hosts: int) -> Iterator[Network]:
    """Makes a network of hosts; at the end all that runs on them is killed, and they are removed."""
    with tempfile.TemporaryDirectory(prefix="hk") as folder:
        token_file = Path(folder, "token")
        token_file.write_text(TOKEN)
        found = Network(hosts, str(token_file))
        try:
            found._build()
            yield found
        finally:
            found._remove()
