"""Settings of a worker from its environment and its command line."""

from pathlib import Path

import pytest

from hocket.protocol.addresses import Address
from hocket.protocol.errors import ArgumentError
from hocket.protocol.limits import COORDINATOR_HOST, COORDINATOR_PORT, DATA_PORT, SOCKET_MODE
from hocket.worker.__main__ import OPTIONS, read_arguments
from hocket.worker.config import WorkerConfig


@pytest.fixture
def token_file(tmp_path: Path) -> str:
    path = tmp_path / "token"
    path.write_bytes(b"  secret\n")
    return str(path)


def test_nothing_set_gives_the_defaults() -> None:
    config = WorkerConfig.from_environment({})
    assert config == WorkerConfig()
    assert config.coordinator == Address(COORDINATOR_HOST, COORDINATOR_PORT)
    assert (config.listen, config.data_address, config.data_port) == (None, None, DATA_PORT)
    assert (config.token, config.socket_mode) == (b"", SOCKET_MODE)
    assert config.name


def test_every_variable_is_read(token_file: str) -> None:
    config = WorkerConfig.from_environment(
        {
            "HOCKET_COORDINATOR": "head:7000",
            "HOCKET_SOCKET": "/somewhere/w.sock",
            "HOCKET_SOCKET_MODE": "0660",
            "HOCKET_LISTEN": "0.0.0.0:7100",
            "HOCKET_DATA_ADDRESS": "[fd00::7]:7200",
            "HOCKET_HOST_NAME": "seven",
            "HOCKET_TOKEN_FILE": token_file,
        }
    )
    assert config == WorkerConfig(
        Address("head", 7000),
        "/somewhere/w.sock",
        0o660,
        Address("0.0.0.0", 7100),
        Address("fd00::7", 7200),
        DATA_PORT,
        "seven",
        b"secret",
    )
    config.check()


def test_addresses_without_a_port_get_the_default_one_where_there_is_one() -> None:
    config = WorkerConfig.from_environment({"HOCKET_COORDINATOR": "head", "HOCKET_DATA_ADDRESS": "127.0.0.3"})
    assert config.coordinator == Address("head", COORDINATOR_PORT)
    assert config.data_address == Address("127.0.0.3", DATA_PORT)


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("HOCKET_COORDINATOR", "head:port"),
        ("HOCKET_COORDINATOR", "fd00::1"),
        ("HOCKET_COORDINATOR", ""),
        ("HOCKET_LISTEN", "0.0.0.0"),
        ("HOCKET_LISTEN", "0.0.0.0:70000"),
        ("HOCKET_DATA_ADDRESS", ":7422"),
        ("HOCKET_TOKEN_FILE", "/nowhere/token"),
    ],
)
def test_what_cannot_be_read_is_refused_by_the_name_of_its_variable(variable: str, text: str) -> None:
    with pytest.raises(ArgumentError) as refused:
        WorkerConfig.from_environment({variable: text})
    assert refused.value.argument == variable


def test_an_empty_token_file_is_no_token(tmp_path: Path) -> None:
    (tmp_path / "token").write_bytes(b" \n")
    with pytest.raises(ArgumentError, match="empty"):
        WorkerConfig.from_environment({"HOCKET_TOKEN_FILE": str(tmp_path / "token")})


@pytest.mark.parametrize("setting", ["listen", "data_address"])
def test_an_address_that_strangers_reach_needs_a_token(setting: str) -> None:
    open_config, closed_config = WorkerConfig(), WorkerConfig(token=b"secret")
    for config in (open_config, closed_config):
        setattr(config, setting, Address("0.0.0.0", 0))
    with pytest.raises(ArgumentError) as refused:
        open_config.check()
    assert refused.value.argument == f"--{setting.replace('_', '-')}" and "token" in refused.value.allowed
    closed_config.check()


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "localhost", "::1"])
def test_a_loopback_address_needs_none(host: str) -> None:
    WorkerConfig(listen=Address(host, 0), data_address=Address(host, 0)).check()


def test_options_are_stronger_than_the_environment_and_both_reach_every_setting(
    monkeypatch: pytest.MonkeyPatch, token_file: str
) -> None:
    for variable, _, _ in OPTIONS.values():
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOCKET_HOST_NAME", "from the environment")
    monkeypatch.setenv("HOCKET_COORDINATOR", "head:1")
    more = [f"--token-file={token_file}"]
    given = read_arguments(
        ["--coordinator=head:2", "--socket=/s", "--listen=localhost:3", "--data-address", "localhost:4", *more]
    )
    assert given.name == "from the environment"
    assert given.coordinator == Address("head", 2)
    assert (given.socket, given.listen) == ("/s", Address("localhost", 3))
    assert (given.data_address, given.token) == (Address("localhost", 4), b"secret")
