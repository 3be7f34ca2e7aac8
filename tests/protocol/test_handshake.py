"""The handshake over real sockets, with those who mean it and with strangers."""

import asyncio
import socket
from typing import Any

import pytest

from hocket.protocol import handshake
from hocket.protocol.connection import Connection
from hocket.protocol.errors import AuthError, WireError
from hocket.protocol.frames import encode_frame
from hocket.protocol.handshake import admit, introduce
from hocket.protocol.limits import PROTOCOL_VERSIONS
from hocket.protocol.messages import Challenge, Heartbeat, Hello


def run(main: Any) -> None:
    asyncio.run(asyncio.wait_for(main, 20))


def ends() -> tuple[Connection, Connection]:
    left, right = socket.socketpair()
    return Connection(left), Connection(right)


def test_two_with_one_token_trust_each_other_and_know_the_role() -> None:
    async def main() -> None:
        left, right = ends()
        hello, _ = await asyncio.gather(admit(right, ("client",), b"t"), introduce(left, "client", "job", b"t"))
        assert (hello.role, hello.job) == ("client", "job")
        left.send(Heartbeat(1.0))
        assert await right.receive() == Heartbeat(1.0)
        left.close()
        right.close()

    run(main())


@pytest.mark.parametrize(("mine", "theirs"), [(b"", b"t"), (b"t", b""), (b"a", b"b")])
def test_a_wrong_token_is_refused_and_both_sides_say_so(mine: bytes, theirs: bytes) -> None:
    async def main() -> None:
        left, right = ends()
        found = await asyncio.gather(
            admit(right, ("client",), theirs), introduce(left, "client", "", mine), return_exceptions=True
        )
        assert all(isinstance(error, AuthError) for error in found)
        assert left.closed and right.closed

    run(main())


def test_a_role_that_is_not_served_is_refused_by_name() -> None:
    async def main() -> None:
        left, right = ends()
        found = await asyncio.gather(
            admit(right, ("peer",), b""), introduce(left, "client", "", b""), return_exceptions=True
        )
        assert all("client is not served here, only peer" in str(error) for error in found)

    run(main())


def test_versions_that_do_not_meet_are_a_clear_refusal_on_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        left, right = ends()
        admitting = asyncio.ensure_future(admit(right, ("client",), b""))
        newest = PROTOCOL_VERSIONS[1]
        monkeypatch.setattr(handshake, "PROTOCOL_VERSIONS", (newest + 1, newest + 2))
        with pytest.raises(WireError, match=f"versions {newest + 1}-{newest + 2}"):
            await introduce(left, "client", "", b"")
        with pytest.raises(WireError, match="same release"):
            await admitting

    run(main())


def test_a_listener_that_is_not_ours_is_not_believed() -> None:
    async def main() -> None:
        left, right = ends()
        introducing = asyncio.ensure_future(introduce(left, "client", "", b"t"))
        assert isinstance(await right.receive(), Hello)
        right.send(Challenge(PROTOCOL_VERSIONS[1], b"n" * 32))
        await right.receive()
        right.send(Heartbeat(1.0))
        with pytest.raises(WireError, match="expected Welcome"):
            await introducing
        right.close()

    run(main())


@pytest.mark.parametrize("start", [b"", encode_frame(Hello(1, 1, "client", "", b"n" * 32))], ids=["silence", "half"])
def test_whoever_stays_silent_is_closed_when_its_time_is_up(start: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake, "HANDSHAKE_TIMEOUT_S", 0.05)

    async def main() -> None:
        stranger, mine = socket.socketpair()
        stranger.sendall(start)
        with pytest.raises(WireError, match="no handshake"):
            await admit(Connection(mine), ("client",), b"t")
        stranger.setblocking(True)
        while stranger.recv(4096):
            pass
        stranger.close()

    run(main())
