"""Several hosts on one machine: a network namespace for each, joined by a switch in a namespace of its own.

    with network(hosts=2, rate_mbit=1000, delay_us=1000) as net:
        subprocess.run([*net.prefix(0), "ping", "-c", "1", net.address(1)])

Needs root and ip(8); a rate needs tbf in the kernel, a delay a C compiler (see `delayline.c`). Nothing is made in, or
changed of, the machine's own network. Connections between the hosts use cubic, as is the default of most machines,
whatever this machine's is. Namespaces carry the process id of who made them: they go with the block, with all that
still runs in them, and what a killed run left goes when the next one begins.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

DELAYLINE = Path(__file__).resolve().with_name("delayline.c")
INTERFACE = "e0"
SUBNET = "10.79.0"
_NAMES = re.compile(r"^hb(\d+)-(?:h\d+|sw)\b", re.MULTILINE)
_GRACE_S = 2.0
_BURST_NBYTES, _QUEUE_NBYTES = 128 << 10, 1 << 20
"""Of a link with a rate: it sends so much at once, and holds so much before it loses frames."""


class NetworkError(Exception):
    """The hosts cannot be made here. Its text says why."""


@dataclass(frozen=True, slots=True)
class Network:
    """Hosts 0 to ``hosts`` - 1; each has its own loopback and one interface to the switch."""

    hosts: int
    switch_pid: int = 0
    """of the switch in user space; 0 where the kernel's bridge does"""

    def switch_s(self) -> float:
        """Processor time that the switch has used, which is no system's and no other program's."""
        if not self.switch_pid:
            return 0.0
        words = Path(f"/proc/{self.switch_pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    def prefix(self, host: int) -> list[str]:
        """What makes a command run on the host."""
        return ["ip", "netns", "exec", _name(f"h{host}")]

    def address(self, host: int) -> str:
        """A host's address on the network."""
        return f"{SUBNET}.{host + 1}"


def why_not(delay: bool = False) -> str:
    """Why networks (with a delay) cannot be made here; empty where they can."""
    if os.geteuid():
        return "it takes root to make hosts"
    if not shutil.which("ip"):
        return "there is no ip(8)"
    if delay and not shutil.which("cc"):
        return "there is no C compiler for the delay"
    return ""


@contextlib.contextmanager
def network(hosts: int, rate_mbit: int = 0, delay_us: int = 0) -> Iterator[Network]:
    """Makes hosts; each one's link carries ``rate_mbit`` either way, and a frame takes ``delay_us`` from host to host.

    Zero means no limit and no delay.

    Raises:
        NetworkError: something is missing here.
    """
    if reason := why_not(delay_us > 0):
        raise NetworkError(reason)
    _sweep()
    switches: list[subprocess.Popen[str]] = []
    try:
        _add(_name("sw"))
        for host in range(hosts):
            _add_host(host)
            if rate_mbit:
                _limit(_name(f"h{host}"), INTERFACE, rate_mbit)
                _limit(_name("sw"), f"p{host}", rate_mbit)
        if delay_us:
            switches.append(_start_delayline(hosts, delay_us))
            yield Network(hosts, switches[0].pid)
        else:
            _add_bridge(hosts)
            yield Network(hosts)
    finally:
        for process in switches:
            process.terminate()
            process.communicate()
        _remove(os.getpid())


def _name(what: str) -> str:
    return f"hb{os.getpid()}-{what}"


def _ip(*arguments: str) -> str:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if done.returncode:
        raise NetworkError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def _add(namespace: str) -> None:
    _ip("netns", "add", namespace)
    _ip("-n", namespace, "link", "set", "lo", "up")
    # neighbour discovery and the like would be traffic of its own
    silent = ["sh", "-c", "echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6"]
    subprocess.run(["ip", "netns", "exec", namespace, *silent], capture_output=True, check=False)


def _add_host(host: int) -> None:
    switch, namespace, port = _name("sw"), _name(f"h{host}"), f"p{host}"
    _add(namespace)
    ends = ("type", "veth", "peer", "name", INTERFACE, "address", f"02:00:00:00:00:{host:02x}", "netns", namespace)
    _ip("link", "add", port, "netns", switch, *ends)
    _ip("-n", namespace, "address", "add", f"{SUBNET}.{host + 1}/24", "dev", INTERFACE, "noprefixroute")
    _ip("-n", namespace, "link", "set", INTERFACE, "up")
    _ip("-n", namespace, "route", "add", f"{SUBNET}.0/24", "dev", INTERFACE, "congctl", "cubic")
    _ip("-n", switch, "link", "set", port, "up")


def _add_bridge(hosts: int) -> None:
    switch = _name("sw")
    _ip("-n", switch, "link", "add", "bridge", "type", "bridge")
    _ip("-n", switch, "link", "set", "bridge", "up")
    for host in range(hosts):
        _ip("-n", switch, "link", "set", f"p{host}", "master", "bridge")


def _limit(namespace: str, interface: str, rate_mbit: int) -> None:
    shape = ("tbf", "rate", f"{rate_mbit}mbit", "burst", str(_BURST_NBYTES), "limit", str(_QUEUE_NBYTES))
    command = ["tc", "-n", namespace, "qdisc", "add", "dev", interface, "root", *shape]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NetworkError(f"no rate can be set: {done.stderr.strip()}")


def _start_delayline(hosts: int, delay_us: int) -> "subprocess.Popen[str]":
    with tempfile.TemporaryDirectory(prefix="hb") as folder:
        program = str(Path(folder, "delayline"))
        made = subprocess.run(["cc", "-O2", "-o", program, DELAYLINE], capture_output=True, text=True, check=False)
        if made.returncode:
            raise NetworkError(f"{DELAYLINE.name} does not compile: {made.stderr.strip()[:200]}")
        command = ["ip", "netns", "exec", _name("sw"), program, str(delay_us), *(f"p{host}" for host in range(hosts))]
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True)
        assert process.stdout is not None
        if process.stdout.readline().strip() != "ready":  # it has ended
            raise NetworkError(f"{DELAYLINE.name}: {process.communicate()[1].strip()}")
    return process


# --- the end ---------------------------------------------------------------------------------------------------------


def _remove(maker: int) -> None:
    for namespace in _made_by(maker):
        with contextlib.suppress(NetworkError):  # it has gone meanwhile
            _end_all_in(namespace)
            _ip("netns", "del", namespace)


def _made_by(maker: int) -> list[str]:
    with contextlib.suppress(NetworkError):
        return [found[0] for found in _NAMES.finditer(_ip("netns", "list")) if int(found[1]) == maker]
    return []


def _end_all_in(namespace: str) -> None:
    """Ends the processes of one of our namespaces: politely, and after a while without asking."""
    end_s, number = time.monotonic() + _GRACE_S, signal.SIGTERM
    while pids := _ip("netns", "pids", namespace).split():
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), number)
        time.sleep(0.05)
        if time.monotonic() > end_s:
            if number == signal.SIGKILL:
                return
            end_s, number = time.monotonic() + _GRACE_S, signal.SIGKILL


def _sweep() -> None:
    """Removes what runs that are no more have left."""
    with contextlib.suppress(NetworkError):
        for maker in {int(found[1]) for found in _NAMES.finditer(_ip("netns", "list"))}:
            if not Path(f"/proc/{maker}").exists():
                _remove(maker)
