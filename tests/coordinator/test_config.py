from dataclasses import replace
from pathlib import Path

import pytest

from hocket.coordinator.config import CoordinatorConfig, read_config
from hocket.protocol.errors import ArgumentError


def test_the_defaults_listen_on_loopback_only() -> None:
    config = read_config({}, {})
    assert (str(config.address), str(config.http_address)) == ("127.0.0.1:7420", "127.0.0.1:7421")
    config.check()


def test_an_option_goes_before_the_environment() -> None:
    environment = {"HOCKET_COORDINATOR_PORT": "1", "HOCKET_HTTP_PORT": "2", "HOCKET_LIVENESS_S": "2.5"}
    config = read_config(environment, {"port": "3", "http_port": None})
    assert (config.port, config.http_port, config.liveness_s) == (3, 2, 2.5)


@pytest.mark.parametrize(
    ("environment", "options", "source"),
    [
        ({"HOCKET_COORDINATOR_PORT": "many"}, {}, "HOCKET_COORDINATOR_PORT"),
        ({}, {"heartbeat_s": "often"}, "--heartbeat-s"),
    ],
)
def test_what_is_no_number_is_refused_by_the_name_it_came_under(
    environment: dict[str, str], options: dict[str, str | None], source: str
) -> None:
    with pytest.raises(ArgumentError) as caught:
        read_config(environment, options)
    assert caught.value.argument == source


def test_an_ipv6_host_may_come_in_brackets_or_without() -> None:
    for text in ("::1", "[::1]"):
        config = read_config({"HOCKET_COORDINATOR_HOST": text}, {})
        config.check()
        assert str(config.address) == "[::1]:7420"


@pytest.mark.parametrize(
    ("changes", "argument"),
    [
        ({"port": -1}, "port"),
        ({"http_port": 70000}, "http_port"),
        ({"heartbeat_s": 0.0}, "heartbeat_s"),
        ({"heartbeat_s": float("nan")}, "heartbeat_s"),
        ({"liveness_s": 1.5}, "liveness_s"),
        ({"liveness_s": float("inf")}, "liveness_s"),
        ({"host": "10.0.0.1"}, "host"),
        ({"http_host": "::"}, "http_host"),
    ],
)
def test_settings_that_cannot_serve_are_refused(changes: dict[str, object], argument: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        replace(CoordinatorConfig(), **changes).check()  # type: ignore[arg-type]
    assert caught.value.argument == argument


def test_the_token_is_read_without_the_white_space_around_it(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(" secret\n")
    assert CoordinatorConfig(token_file=str(file)).read_token() == b"secret"
    CoordinatorConfig(host="10.0.0.1", token_file=str(file)).check()


def test_a_token_file_that_is_empty_or_not_there_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "token"
    with pytest.raises(ArgumentError, match="No such file"):
        CoordinatorConfig(token_file=str(file)).read_token()
    file.write_text("\n")
    with pytest.raises(ArgumentError, match="empty"):
        CoordinatorConfig(token_file=str(file)).read_token()
