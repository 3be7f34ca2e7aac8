"""F41: IPv6 addresses as people write them, and hosts without IPv6."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from harness.pair_of_hosts import pair
from harness.processes import PYTHON_PATH, Host, Rank, RealService, real_service

import hocket
from hocket.protocol.addresses import parse_address


async def adds(rank: Rank) -> list[float]:
    begun_s = time.monotonic()
    async with rank.connect(timeout=20) as client:
        x = np.array([rank.number + 1.0])
        took_s = time.monotonic() - begun_s
        await client.all_reduce(x)
        return [float(x[0]), took_s]


def check(service: RealService, placement: tuple[int, ...]) -> None:
    for rank in service.start(adds, placement):
        total, took_s = rank.result()
        assert total == 3 and took_s < 5.0
    processes = (service.coordinator, *service.workers)
    assert [line for process in processes for line in process.log if "WARNING" in line or "ERROR" in line] == []


def free_port(family: int, host: str) -> int:
    with socket.socket(family) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def test_f41ab_coordinator_worker_and_client_on_bracketed_addresses() -> None:
    port, listen = free_port(socket.AF_INET6, "::1"), free_port(socket.AF_INET6, "::1")
    address = f"[::1]:{port}"
    both = [
        Host(options=("--coordinator", address, "--data-address", "[::1]:0", "--listen", f"[::1]:{listen}")),
        Host(options=("--coordinator", address, "--data-address", "[::1]:0")),
    ]
    with real_service(both, ["--host", "::1", "--port", str(port), "--http-host", "::1"]) as service:
        assert service.address == address
        check(service, (0, 1))
        remote = service.start_one(adds, 0, (0, 1), job="remote", HOCKET_WORKER=f"[::1]:{listen}")
        near = service.start_one(adds, 1, (0, 1), job="remote")
        assert [remote.result()[0], near.result()[0]] == [3, 3]
        command = [sys.executable, "-m", "hocket.cli", "workers", "--http", f"[::1]:{service.http_port}"]
        shown = subprocess.run(command, env=service.env, capture_output=True, text=True, timeout=20, check=False)
        assert shown.returncode == 0 and "h0" in shown.stdout and "h1" in shown.stdout, shown.stderr


def test_f41d_a_name_with_several_addresses_of_which_one_is_served() -> None:
    with real_service(0) as service:
        service.hosts.append(Host(options=("--coordinator", f"localhost:{service.port}")))
        begun_s = time.monotonic()
        service.workers.append(service.start_worker(0))
        assert time.monotonic() - begun_s < 5.0
        check(service, (0, 0))


@contextmanager
def namespace(*commands: str) -> Iterator[str]:
    """A network namespace with a loopback interface, in which these shell commands were run."""
    name = f"hk{os.getpid()}x"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        for command in ("ip link set lo up", *commands):
            subprocess.run(["ip", "netns", "exec", name, "sh", "-c", command], check=True, capture_output=True)
        yield name
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)


@pytest.mark.hosts
def test_f41c_a_host_without_ipv6() -> None:
    with namespace("sysctl -w net.ipv6.conf.all.disable_ipv6=1") as name:
        host = Host(("ip", "netns", "exec", name))
        other = Host(("ip", "netns", "exec", name), ("--data-address", "127.0.0.2:0"))
        with real_service([host, other]) as service:
            check(service, (0, 1))
            assert not any("IPv6" in line for process in service.workers for line in process.log)


@pytest.mark.hosts
def test_f41e_hosts_that_have_ipv6_addresses_only() -> None:
    addresses = ("fd00:77::a:1", "fd00:77::b:2")
    with pair(*addresses) as hosts:
        options = ["--host", addresses[0], "--token-file", hosts.token_file]
        with real_service([hosts.host(0), hosts.host(1)], options) as service:
            check(service, (0, 1))


@pytest.mark.parametrize("text", ["::1:5000", "fe80::1:7420", "1:2:3"])
def test_f41f_an_ambiguous_address_asks_for_brackets(text: str) -> None:
    with pytest.raises(hocket.ArgumentError, match="brackets"):
        parse_address(text, "HOCKET_COORDINATOR")
    with pytest.raises(hocket.ArgumentError, match="brackets"):
        hocket.connect(text)
    env = {key: value for key, value in os.environ.items() if not key.startswith("HOCKET_")}
    done = subprocess.run(
        [sys.executable, "-m", "hocket.worker", "--coordinator", text],
        env=env | {"PYTHONPATH": PYTHON_PATH},
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert done.returncode == 1 and "brackets" in done.stderr and "Traceback" not in done.stderr
