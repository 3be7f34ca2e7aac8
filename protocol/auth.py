"""Mutual challenge and response: both sides prove that they know the token, and it never crosses the wire.

    connector -> Hello(nonce_c)        listener -> Challenge(nonce_s)
    connector -> Proof(mac)            listener -> Welcome(mac)

The MACs are HMAC-SHA256 (RFC 2104) over a label for the direction, both nonces and what was agreed, so that neither can
be reflected or replayed. Without a token the key is empty: that is for loopback, where the kernel vouches.
"""

import hmac
from hashlib import sha256

from hocket.protocol.errors import AuthError, WireError
from hocket.protocol.limits import IDENTITY_NBYTES, PROTOCOL_VERSIONS
from hocket.protocol.messages import Challenge, Hello, Proof, Welcome

NONCE_NBYTES = 32
ROLES = ("client", "worker", "peer")


def _mac(token: bytes, label: bytes, hello: Hello, challenge: Challenge) -> bytes:
    text = repr((hello, challenge)).encode()
    return hmac.new(token, label + b"\0" + text, sha256).digest()


def agree_version(hello: Hello) -> int:
    """The newest version that both sides speak. Raises `WireError`, naming both ranges, where there is none."""
    oldest, newest = PROTOCOL_VERSIONS
    version = min(newest, hello.version_max)
    if version < max(oldest, hello.version_min):
        raise WireError(
            f"it speaks versions {hello.version_min}-{hello.version_max} of the protocol, "
            f"this build {oldest}-{newest}: bring both to the same release of hocket"
        )
    return version


def answer_hello(hello: Hello, nonce: bytes) -> Challenge:
    """The listener's challenge. Raises `WireError` for a version, role or name that it cannot serve."""
    if hello.role not in ROLES or len(hello.nonce) != NONCE_NBYTES or len(hello.job.encode()) > IDENTITY_NBYTES:
        raise WireError(f"not a hello of hocket's: role {hello.role[:32]!r}")
    return Challenge(agree_version(hello), nonce)


def prove(token: bytes, hello: Hello, challenge: Challenge) -> Proof:
    """The connector's proof. Raises `WireError` where the listener chose a version that was not offered."""
    if not hello.version_min <= challenge.version <= hello.version_max or len(challenge.nonce) != NONCE_NBYTES:
        raise WireError(f"the listener chose version {challenge.version}, which was not offered")
    return Proof(_mac(token, b"connector", hello, challenge))


def check_proof(token: bytes, hello: Hello, challenge: Challenge, proof: Proof) -> Welcome:
    """Checks the connector's proof and gives the listener's. Raises `AuthError`."""
    if not hmac.compare_digest(proof.mac, _mac(token, b"connector", hello, challenge)):
        raise AuthError("the token is missing or wrong (set HOCKET_TOKEN_FILE or token= to the service's token)")
    return Welcome(_mac(token, b"listener", hello, challenge))


def check_welcome(token: bytes, hello: Hello, challenge: Challenge, welcome: Welcome) -> None:
    """Checks the listener's proof. Raises `AuthError`: whoever listens there does not know the token."""
    if not hmac.compare_digest(welcome.mac, _mac(token, b"listener", hello, challenge)):
        raise AuthError("the service could not prove that it knows the token")
