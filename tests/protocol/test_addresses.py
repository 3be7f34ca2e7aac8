"""Addresses as people write them."""

import pytest

from hocket.protocol.addresses import Address, is_loopback, parse_address
from hocket.protocol.errors import ArgumentError


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:7420", Address("127.0.0.1", 7420)),
        ("[::1]:7420", Address("::1", 7420)),
        ("[fd00::2]:1", Address("fd00::2", 1)),
        ("localhost:0", Address("localhost", 0)),
        ("unix:/run/x.sock", Address(path="/run/x.sock")),
        ("/run/x.sock", Address(path="/run/x.sock")),
    ],
)
def test_an_address_reads_and_writes_the_same(text: str, address: Address) -> None:
    assert parse_address(text, "worker") == address
    assert parse_address(str(address), "worker") == address


@pytest.mark.parametrize("text", ["host", "[::1]", "host:"])
def test_a_default_port_fills_in_where_none_is_given(text: str) -> None:
    assert parse_address(text, "worker", 7420).port == 7420


def test_an_ipv6_number_without_brackets_is_refused_with_the_way_to_write_it() -> None:
    with pytest.raises(ArgumentError, match="brackets") as caught:
        parse_address("::1:5000", "worker")
    assert caught.value.argument == "worker"


@pytest.mark.parametrize("text", ["", ":1", "host:x", "host:70000", "host:-1", "[::1", "[::1]x", "unix:", "host:²"])
def test_what_is_no_address_is_an_argument_error(text: str) -> None:
    with pytest.raises(ArgumentError):
        parse_address(text, "worker")


def test_loopback_is_told_by_its_form() -> None:
    assert all(map(is_loopback, ["127.0.0.1", "127.3.2.1", "::1", "localhost"]))
    assert not any(map(is_loopback, ["0.0.0.0", "::", "10.0.0.1", "example"]))
    assert Address(path="/x").is_loopback
