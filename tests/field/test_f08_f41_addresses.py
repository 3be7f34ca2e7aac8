"""F08, F41: hosts find each other by the address of their route, whatever names stand for; IPv6 as it is written."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness.netns import network
from harness.processes import Host, Rank, real_service

import hocket
from hocket.protocol.addresses import parse_address

hosts = pytest.mark.hosts
CAN_MAKE_HOSTS = os.geteuid() == 0 and shutil.which("ip") is not None
needs_hosts = pytest.mark.skipif(not CAN_MAKE_HOSTS, reason="hosts: needs root and the ip command")


async def reduces(rank: Rank) -> Any:
    """One all_reduce of rank + 1."""
    async with rank.connect(timeout=20) as client:
        x = np.array([rank.number + 1.0])
        await client.all_reduce(x)
        return float(x[0])


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@hosts
@needs_hosts
def test_f08_a_host_name_that_stands_for_loopback_misleads_nobody() -> None:
    with network(2) as net:
        placed = []
        for number in range(2):
            names = Path(net.token_file).with_name(f"hosts{number}")
            names.write_text(f"127.0.1.1 {os.uname().nodename}\n127.0.0.1 localhost\n")
            ip("-n", net.name(number), "address", "add", "172.17.0.1/32", "dev", "lo")
            inside = ("unshare", "-m", "sh", "-c", f'mount --bind {names} /etc/hosts; exec "$@"', "sh")
            placed.append(Host((*net.prefix(number), *inside), ("--token-file", net.token_file)))
        with real_service(placed, net.coordinator_options()) as service:
            assert [rank.result() for rank in service.start(reduces, (0, 1))] == [3.0, 3.0]
            addresses = [line for worker in service.workers for line in worker.log if "127.0.1.1" in line]
            assert addresses == []


@hosts
@needs_hosts
def test_f08_a_loopback_address_that_was_asked_for_is_refused_when_the_coordinator_is_elsewhere() -> None:
    with network(2) as net:
        wrong = Host(net.prefix(1), ("--token-file", net.token_file, "--data-address", "127.0.0.1:0"))
        right = Host(net.prefix(0), ("--token-file", net.token_file))
        with pytest.raises(AssertionError) as failed, real_service([right, wrong], net.coordinator_options()):
            pass
        said = str(failed.value)
        assert "127.0.0.1" in said and "HOCKET_DATA_ADDRESS" in said


@pytest.mark.parametrize("where", ["::1", "127.0.0.1"])
def test_f41_a_coordinator_on_loopback_is_found_by_either_family(where: str) -> None:
    data = "[::1]:0" if ":" in where else "127.0.0.1:0"
    placed = [Host(options=("--data-address", data)), Host(options=("--data-address", data))]
    with real_service(placed, ["--host", where]) as service:
        assert [rank.result() for rank in service.start(reduces, (0, 1))] == [3.0, 3.0]


def test_f41_a_name_that_gives_ipv6_first_falls_back_to_where_the_coordinator_listens() -> None:
    with real_service() as coordinator:
        port = coordinator.port
        with real_service([Host(options=("--coordinator", f"localhost:{port}"))]) as service:
            assert [rank.result() for rank in service.start(reduces, (0, 0))] == [3.0, 3.0]


def test_f41_an_address_that_could_mean_two_things_is_refused_with_the_way_to_write_it() -> None:
    with pytest.raises(hocket.ArgumentError, match="brackets"):
        parse_address("::1:5000", "worker")
    with pytest.raises(hocket.ArgumentError, match="brackets"):
        hocket.connect("::1:5000")
