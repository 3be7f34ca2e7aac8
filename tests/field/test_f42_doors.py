"""F42: strangers at every door of a busy service with a token: coordinator, workers' TCP and data ports and sockets."""

import os
import pickle
import secrets
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness.processes import PYTHON_PATH, Host, Process, Rank, RealService, real_service

import hocket
from hocket.protocol.frames import encode_frame
from hocket.protocol.messages import Hello

GROWTH_NBYTES = 20 << 20
TURNED_AWAY_S = 10.0


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealService]:
    """Two hosts with every kind of listener."""
    token = tmp_path_factory.mktemp("token") / "token"
    token.write_text("a secret of the service\n")
    options = ("--listen", "127.0.0.1:0", "--token-file", str(token))
    with real_service([Host(options=options), Host(options=options)], ["--token-file", str(token)]) as service:
        yield service


async def loops(rank: Rank) -> list[float]:
    """Reduces until it is told to end; gives the slowest round in seconds and the number of rounds."""
    client = await rank.connect(timeout=30)
    told = rank.hear_later() if rank.number == 0 else None
    slowest_s, rounds, over = 0.0, 0, np.zeros(1)
    while not over[0]:
        x = np.array([rank.number + 1.0])
        begun_s = time.monotonic()
        await client.all_reduce(x)
        assert x[0] == 3
        slowest_s = max(slowest_s, time.monotonic() - begun_s)
        rounds += 1
        if rounds == 20:
            rank.say("warm")
        over[0] = told is not None and told.done()
        await client.monitored_barrier()  # the coordinator serves, too
        await client.broadcast(over, src=0)
    return [slowest_s, rounds]


def tcp_listeners(process: Process) -> set[tuple[str, int]]:
    inodes = set()
    for entry in Path(f"/proc/{process.pid}/fd").iterdir():
        link = os.readlink(entry)
        if link.startswith("socket:["):
            inodes.add(link[8:-1])
    found = set()
    for row in Path(f"/proc/{process.pid}/net/tcp").read_text().splitlines()[1:]:
        columns = row.split()
        if columns[3] == "0A" and columns[9] in inodes:
            address, port = columns[1].split(":")
            found.add((socket.inet_ntoa(struct.pack("<I", int(address, 16))), int(port, 16)))
    return found


def test_f42a_every_listener_is_on_loopback_unless_asked_otherwise(hosts: RealService) -> None:
    ranks = hosts.start(loops, (0, 1), job="listeners")
    for rank in ranks:
        rank.wait_for("warm")
    coordinator = {host for host, _ in tcp_listeners(hosts.coordinator)}
    assert coordinator == {"127.0.0.1"} and len(tcp_listeners(hosts.coordinator)) == 2
    assert {host for host, _ in tcp_listeners(hosts.workers[0])} == {"127.0.0.1"}
    assert {host for host, _ in tcp_listeners(hosts.workers[1])} == {"127.0.0.1", "127.0.0.2"}
    for rank in ranks:
        assert tcp_listeners(rank) == set()
    for process in (hosts.coordinator, *hosts.workers, *ranks):
        assert process.listens_on().isdisjoint({"0" * 8, "0" * 32})
    ranks[0].tell("end")
    assert [rank.result()[1] >= 20 for rank in ranks] == [True, True]


def run_service(module: str, options: list[str], env: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", f"hocket.{module}", *options]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=20, check=False)


@pytest.mark.parametrize("module", ["coordinator", "worker"])
@pytest.mark.parametrize("address", ["0.0.0.0", "::"])
def test_f42a_all_interfaces_are_not_opened_without_a_token(module: str, address: str, tmp_path: Path) -> None:
    wide = f"[{address}]:0" if ":" in address else f"{address}:0"
    options = {
        "coordinator": ["--host", address, "--port", "0", "--http-port", "0"],
        "worker": ["--socket", str(tmp_path / "w.sock"), "--listen", wide],
    }[module]
    env = {key: value for key, value in os.environ.items() if not key.startswith("HOCKET_")}
    done = run_service(module, options, env | {"PYTHONPATH": PYTHON_PATH})
    assert done.returncode == 1 and "token" in done.stderr and address in done.stderr, done.stderr
    assert "Traceback" not in done.stderr


def test_f42_a_worker_without_the_token_does_not_get_in(hosts: RealService) -> None:
    options = ["--coordinator", hosts.address, "--socket", f"{hosts.folder}/s.sock", "--data-address", "127.0.0.3:0"]
    done = run_service("worker", options, hosts.env)
    assert done.returncode == 1 and "token" in done.stderr and "Traceback" not in done.stderr, done.stderr


class Doors:
    """The places that strangers can knock at."""

    def __init__(self, service: RealService) -> None:
        first, second = (sorted(tcp_listeners(worker)) for worker in service.workers)
        self.tcp = {"coordinator": ("127.0.0.1", service.port)}
        for number, (host, port) in enumerate([*first, *second]):
            self.tcp[f"worker-{number}"] = (host, port)
        self.unix = {"socket-0": service.socket(0), "socket-1": service.socket(1)}

    def __len__(self) -> int:
        return len(self.tcp) + len(self.unix)

    def open(self) -> list[tuple[str, socket.socket]]:
        """A fresh connection to each."""
        found = [(name, socket.create_connection(address, 5)) for name, address in self.tcp.items()]
        for name, path in self.unix.items():
            knock = socket.socket(socket.AF_UNIX)
            knock.settimeout(5)
            knock.connect(path)
            found.append((name, knock))
        return found


def junk(trap: Path) -> dict[str, bytes]:
    """What strangers send."""

    class Trap:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(trap),)

    hello = encode_frame(Hello(1, 1, "client", "", secrets.token_bytes(32)))
    pickled = pickle.dumps(Trap())
    return {
        "random": secrets.token_bytes(64),
        "http": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "payload-of-2^40": struct.pack("<4sIQ", b"HKT1", 16, 1 << 40) + bytes(16),
        "message-of-2^31": struct.pack("<4sIQ", b"HKT1", (1 << 31) - 1, 0),
        "msgpack-bomb": struct.pack("<4sIQ", b"HKT1", 5, 0) + b"\xdd\xff\xff\xff\xff",
        "pickle": struct.pack("<4sIQ", b"HKT1", len(pickled), 0) + pickled,
        "bare-pickle": pickled,
        "unknown-version": encode_frame(Hello(99, 99, "client", "", secrets.token_bytes(32))),
        "unknown-role": encode_frame(Hello(1, 1, "emperor", "", secrets.token_bytes(32))),
        "short-nonce": encode_frame(Hello(1, 1, "client", "", b"")),
        "hello-twice": hello + hello,
        "zeros": bytes(4096),
    }


def half_a_hello() -> bytes:
    whole = encode_frame(Hello(1, 1, "worker", "", secrets.token_bytes(32)))
    return whole[: len(whole) // 2]


def closed_within(knock: socket.socket, limit_s: float, name: str) -> None:
    """The other side says why, perhaps, and hangs up."""
    knock.settimeout(limit_s)
    try:
        while knock.recv(4096):
            pass
    except ConnectionResetError:
        return
    except TimeoutError:
        pytest.fail(f"{name} was not closed within {limit_s} s")


def test_f42b_strangers_at_every_door_of_a_busy_service(hosts: RealService, tmp_path: Path) -> None:
    ranks = hosts.start(loops, (0, 1), job="strangers")
    for rank in ranks:
        rank.wait_for("warm")
    services = [hosts.coordinator, *hosts.workers]
    before = [process.rss_nbytes() for process in services]
    trap, doors = tmp_path / "trapped", Doors(hosts)
    with ExitStack() as stack:
        silent = [stack.enter_context(knock) for _ in range(50 // len(doors)) for _, knock in doors.open()]
        begun_s = time.monotonic()
        for _, knock in doors.open():
            stack.enter_context(knock)
            knock.sendall(half_a_hello())
            silent.append(knock)
        for _ in range(200 // len(doors)):
            for _, knock in doors.open():
                knock.close()
        for text in junk(trap).values():
            for name, knock in doors.open():
                with knock:
                    knock.sendall(text)
                    closed_within(knock, TURNED_AWAY_S, name)
        for knock in silent:
            closed_within(knock, max(0.1, begun_s + TURNED_AWAY_S + 2.0 - time.monotonic()), "silence")
    ranks[0].tell("end")
    for rank in ranks:
        slowest_s, rounds = rank.result(within_s=30)
        assert slowest_s < 2.0 and rounds > 50
    grown = [process.rss_nbytes() - was for process, was in zip(services, before, strict=True)]
    assert max(grown) < GROWTH_NBYTES, grown
    assert all(process.running for process in services) and not trap.exists()
    assert [line for process in services for line in process.log if "Traceback" in line] == []


def test_f42b_each_stranger_is_logged_once_with_its_address(hosts: RealService) -> None:
    for name, address in Doors(hosts).tcp.items():
        with socket.create_connection(address, 5) as knock:
            port = knock.getsockname()[1]
            knock.sendall(b"GET / HTTP/1.1\r\n\r\n")
            closed_within(knock, TURNED_AWAY_S, name)
        owners = [hosts.coordinator] if name == "coordinator" else hosts.workers
        owner = hosts.workers[0] if name in ("worker-0", "worker-1") else hosts.workers[1]
        (hosts.coordinator if name == "coordinator" else owner).wait_for_log(rf"WARNING .*:{port}\b", within_s=5)
        assert len([line for one in owners for line in one.log if f":{port}" in line]) == 1


async def tries_wrong_tokens(rank: Rank) -> list[str]:
    found = []
    for token in ("wrong", "", "a secret of the servicf"):
        try:
            await hocket.connect(rank.hear(), token=token, timeout=5)
        except hocket.AuthError as error:
            found.append(str(error))
    return found


def test_f42b_a_client_with_a_wrong_token_is_refused(hosts: RealService) -> None:
    listen = next(port for host, port in sorted(tcp_listeners(hosts.workers[1])) if host == "127.0.0.1")
    rank = hosts.start_one(tries_wrong_tokens, 0, (0,), job="auth")
    for _ in range(3):
        rank.tell(f"127.0.0.1:{listen}")
    assert len(rank.result()) == 3
