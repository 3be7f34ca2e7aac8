"""F08: what a worker advertises is its address on its route to the coordinator, whatever its name resolves to."""

import json
import sys
import time
from collections.abc import Iterator

import numpy as np
import pytest
from harness.pair_of_hosts import SHARED_ADDRESS, Pair, pair, run_on
from harness.processes import Rank, real_service

ADDRESSES = ("10.77.0.1", "10.77.0.2")


@pytest.fixture(scope="module")
def hosts() -> Iterator[Pair]:
    """Two hosts whose names are 127.0.1.1, and that share one more address."""
    with pair(*ADDRESSES) as made:
        yield made


async def adds(rank: Rank) -> float:
    async with rank.connect(timeout=20) as client:
        x = np.array([rank.number + 1.0])
        await client.all_reduce(x)
        return float(x[0])


@pytest.mark.hosts
def test_f08_the_route_to_the_coordinator_decides_without_any_address_configured(hosts: Pair) -> None:
    options = ["--host", ADDRESSES[0], "--token-file", hosts.token_file]
    with real_service([hosts.host(0), hosts.host(1)], options) as service:
        assert [rank.result() for rank in service.start(adds, (0, 1))] == [3, 3]
        command = [sys.executable, "-m", "hocket.cli", "workers", "--json", "--http", f"127.0.0.1:{service.http_port}"]
        shown = run_on(hosts.prefix(0), [*command, "--token-file", hosts.token_file], service.env)
        assert shown.returncode == 0, shown.stderr
        workers = json.loads(shown.stdout)
        text = json.dumps(workers)
        assert all(address in text for address in ADDRESSES) and SHARED_ADDRESS not in text and "127." not in text


@pytest.mark.hosts
def test_f08_forced_loopback_is_an_error_that_names_host_address_and_setting(hosts: Pair) -> None:
    options = ["--host", ADDRESSES[0], "--token-file", hosts.token_file]
    with real_service([hosts.host(0)], options) as service:
        command = [sys.executable, "-m", "hocket.worker", "--coordinator", service.address, "--name", "stray"]
        command += ["--socket", f"{service.folder}/stray.sock", "--data-address", "127.0.0.1:0"]
        begun_s = time.monotonic()
        done = run_on(hosts.prefix(1), [*command, "--token-file", hosts.token_file], service.env)
        assert done.returncode == 1 and time.monotonic() - begun_s < 10
        assert all(word in done.stderr for word in ("stray", "127.0.0.1", "--data-address", "HOCKET_DATA_ADDRESS"))
        assert "Traceback" not in done.stderr


@pytest.mark.hosts
def test_f08_a_group_with_a_host_that_only_loopback_leads_to_is_refused_at_once(hosts: Pair) -> None:
    """The worker beside the coordinator reaches it over loopback: nobody elsewhere can reach that worker."""
    options = ["--host", "0.0.0.0", "--token-file", hosts.token_file]
    near = hosts.host(0, "--coordinator", "127.0.0.1:7420")
    far = hosts.host(1, "--coordinator", f"{ADDRESSES[0]}:7420")
    with real_service([near, far], [*options, "--port", "7420"]) as service:
        begun_s = time.monotonic()
        for rank in service.start(fails, (0, 1)):
            kinds, text = rank.result()
            assert "ConnectError" in kinds and "127.0.0.1" in text and "HOCKET_DATA_ADDRESS" in text
        assert time.monotonic() - begun_s < 10


async def fails(rank: Rank) -> list[object]:
    import hocket

    try:
        await adds(rank)
    except hocket.HocketError as error:
        return [[kind.__name__ for kind in type(error).__mro__], str(error)]
    return [[], "it worked"]
