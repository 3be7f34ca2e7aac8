"""The core cases between real hosts: daemons and ranks are processes, in network namespaces joined by a bridge."""

import hashlib
import signal
import subprocess
import sys
from typing import Any

import pytest
from harness.netns import network
from harness.operations import COMMON, KINDS, REDUCTIONS, UNEVEN, Case, carry_out_all
from harness.processes import Rank, real_service

LIMIT_S = 100.0
LENGTHS = (0, 1, 1300, 300_001)
CASES = [
    Case(kind, elements, dtype, "SUM" if kind in REDUCTIONS else "", root=turn)
    for kind in KINDS
    for turn, (elements, dtype) in enumerate(zip(LENGTHS, ("int8", "bfloat16", "complex64", "float32"), strict=True))
]
CASES += [Case(kind, 70_001, "int16", "SUM" if kind in REDUCTIONS else "", uneven=True) for kind in sorted(UNEVEN)]
CASES += [Case(kind, 20_000, op="SUM", data="real") for kind in REDUCTIONS]


async def core(rank: Rank) -> list[str]:
    """All cases, as one rank; gives digests of the outputs."""
    async with rank.connect(timeout=60) as client:
        outputs = await carry_out_all(client, CASES, one_host=False, at_once=8)
        await client.barrier()
    return [hashlib.sha256(bits).hexdigest() for bits in outputs]


@pytest.mark.hosts
@pytest.mark.parametrize(
    ("hosts", "placement", "through"),
    [(2, (0, 0, 1), {}), (3, (0, 1, 2, 1), {}), (2, (0, 1, 1), {2: 0})],
    ids=["two hosts", "three hosts", "a rank that comes to another host's worker"],
)
def test_every_operation_works_between_hosts(
    hosts: int, placement: tuple[int, ...], through: dict[int, int], count: Any
) -> None:
    with (
        network(hosts) as net,
        real_service([net.host(host) for host in range(hosts)], net.coordinator_options()) as service,
    ):
        ranks = [
            service.start_one(core, rank, placement, **(net.through(through[rank]) if rank in through else {}))
            for rank in range(len(placement))
        ]
        digests = [rank.result(LIMIT_S) for rank in ranks]
    for case, *found in zip(CASES, *digests, strict=True):
        assert case.kind not in COMMON or len(set(found)) == 1, f"{case}: ranks differ"
    count.add(len(CASES))


# --- the hosts themselves --------------------------------------------------------------------------------------------

PING = "import socket, sys; socket.create_connection((sys.argv[1], 7999), 1).close()"
SERVE = "import socket, sys; s = socket.create_server((sys.argv[1], 7999)); print(flush=True); sys.stdin.read()"


@pytest.mark.hosts
def test_a_host_whose_cable_is_out_is_not_reached_until_it_is_back() -> None:
    with network(2) as net:

        def ping() -> bool:
            command = [*net.prefix(0), sys.executable, "-c", PING, net.address(1)]
            return subprocess.run(command, capture_output=True, check=False).returncode == 0

        command = [*net.prefix(1), sys.executable, "-c", SERVE, net.address(1)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
            assert server.stdout is not None and server.stdout.readline() == b"\n"
            assert ping()
            net.cut(1)
            assert not ping()
            net.mend(1)
            assert ping()
            server.communicate()


@pytest.mark.hosts
def test_nothing_is_left_of_a_network() -> None:
    with network(1) as net:
        command = [*net.prefix(0), sys.executable, "-c", "print(flush=True); input()"]
        left = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert left.stdout is not None and left.stdout.readline() == b"\n"
    left.communicate()
    assert left.returncode == -signal.SIGKILL
    names = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    assert net.name(0) not in names and net.switch not in names
