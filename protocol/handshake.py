"""The handshake over a `Connection`, for whoever connects and whoever listens."""

import asyncio
import secrets
from typing import TypeVar

from hocket.protocol.auth import NONCE_NBYTES, answer_hello, check_proof, check_welcome, prove
from hocket.protocol.connection import Connection
from hocket.protocol.errors import AuthError, HocketError, WireError, error_from_facts, error_to_facts
from hocket.protocol.limits import HANDSHAKE_TIMEOUT_S, PROTOCOL_VERSIONS
from hocket.protocol.messages import Challenge, Hello, Message, Proof, Refused, Welcome

M = TypeVar("M", bound=Message)


async def introduce(connection: Connection, role: str, job: str, token: bytes) -> None:
    """Connector's side. The connection is trusted afterwards; on an error it is closed.

    Raises:
        AuthError: the token is wrong on either side.
        WireError: the other side is no hocket service, or of a version that this build does not speak.
    """
    hello = Hello(*PROTOCOL_VERSIONS, role, job, secrets.token_bytes(NONCE_NBYTES))
    try:
        async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
            connection.send(hello)
            challenge = _expect(await connection.receive(), Challenge)
            connection.send(prove(token, hello, challenge))
            check_welcome(token, hello, challenge, _expect(await connection.receive(), Welcome))
    except TimeoutError:
        late = WireError(f"no handshake from {connection.peer} within {HANDSHAKE_TIMEOUT_S:g} s")
        connection.close(late)
        raise late from None
    except BaseException as broken:
        connection.close(broken if isinstance(broken, HocketError) else None)
        raise
    connection.trust()


async def admit(connection: Connection, roles: tuple[str, ...], token: bytes) -> Hello:
    """Listener's side: lets in who speaks the protocol, has one of the roles and knows the token.

    Raises:
        HocketError: the stranger was told why and the connection is closed; log it with ``connection.peer``.
    """
    try:
        async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
            hello = _expect(await connection.receive(), Hello)
            challenge = answer_hello(hello, secrets.token_bytes(NONCE_NBYTES))
            if hello.role not in roles:
                raise AuthError(f"a {hello.role} is not served here, only {', '.join(roles)}")
            connection.send(challenge)
            proof = _expect(await connection.receive(), Proof)
            connection.send(check_proof(token, hello, challenge, proof))
    except TimeoutError:
        late = WireError(f"no handshake within {HANDSHAKE_TIMEOUT_S:g} s")
        connection.close(late)
        raise late from None
    except HocketError as broken:
        connection.send(Refused(error_to_facts(broken)))
        connection.close(broken)
        raise
    except BaseException:
        connection.close()
        raise
    connection.trust()
    return hello


def _expect(message: Message, kind: type[M]) -> M:
    if isinstance(message, Refused):
        raise error_from_facts(message.error)
    if not isinstance(message, kind):
        raise WireError(f"expected {kind.__name__} in the handshake, found {type(message).__name__}")
    return message
