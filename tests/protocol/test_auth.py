"""Both sides prove that they know the token; it never crosses the wire."""

import dataclasses

import pytest

from hocket.protocol.auth import NONCE_NBYTES, answer_hello, check_proof, check_welcome, prove
from hocket.protocol.codec import encode
from hocket.protocol.errors import AuthError, WireError
from hocket.protocol.limits import PROTOCOL_VERSIONS
from hocket.protocol.messages import Challenge, Hello, Proof, Welcome

HELLO = Hello(*PROTOCOL_VERSIONS, "client", "job", b"c" * NONCE_NBYTES)
CHALLENGE = Challenge(PROTOCOL_VERSIONS[1], b"s" * NONCE_NBYTES)
TOKEN = b"a secret of some length"


def test_two_that_share_the_token_believe_each_other() -> None:
    challenge = answer_hello(HELLO, b"s" * NONCE_NBYTES)
    welcome = check_proof(TOKEN, HELLO, challenge, prove(TOKEN, HELLO, challenge))
    check_welcome(TOKEN, HELLO, challenge, welcome)


def test_the_token_is_in_none_of_the_messages() -> None:
    proof = prove(TOKEN, HELLO, CHALLENGE)
    welcome = check_proof(TOKEN, HELLO, CHALLENGE, proof)
    assert all(TOKEN not in encode(message) for message in (HELLO, CHALLENGE, proof, welcome))


@pytest.mark.parametrize("token", [b"", b"another", TOKEN + b"x"])
def test_a_connector_with_another_token_is_refused(token: bytes) -> None:
    with pytest.raises(AuthError, match="HOCKET_TOKEN_FILE"):
        check_proof(TOKEN, HELLO, CHALLENGE, prove(token, HELLO, CHALLENGE))


def test_a_listener_that_sends_our_own_proof_back_is_not_believed() -> None:
    proof = prove(TOKEN, HELLO, CHALLENGE)
    with pytest.raises(AuthError):
        check_welcome(TOKEN, HELLO, CHALLENGE, Welcome(proof.mac))


@pytest.mark.parametrize(
    "other",
    [
        dataclasses.replace(HELLO, nonce=b"d" * NONCE_NBYTES),
        dataclasses.replace(HELLO, role="peer"),
        dataclasses.replace(HELLO, job="other"),
    ],
)
def test_a_proof_is_good_for_its_own_hello_only(other: Hello) -> None:
    with pytest.raises(AuthError):
        check_proof(TOKEN, other, CHALLENGE, prove(TOKEN, HELLO, CHALLENGE))


def test_an_old_proof_does_not_answer_a_new_challenge() -> None:
    with pytest.raises(AuthError):
        check_proof(TOKEN, HELLO, Challenge(1, b"t" * NONCE_NBYTES), prove(TOKEN, HELLO, CHALLENGE))


def test_versions_that_do_not_meet_are_refused_naming_both_ranges() -> None:
    newest = PROTOCOL_VERSIONS[1]
    with pytest.raises(WireError, match=rf"versions {newest + 1}-{newest + 3}.*{PROTOCOL_VERSIONS[0]}-{newest}"):
        answer_hello(dataclasses.replace(HELLO, version_min=newest + 1, version_max=newest + 3), b"s" * NONCE_NBYTES)


def test_the_newest_common_version_is_chosen() -> None:
    wide = dataclasses.replace(HELLO, version_min=0, version_max=99)
    assert answer_hello(wide, b"s" * NONCE_NBYTES).version == PROTOCOL_VERSIONS[1]


@pytest.mark.parametrize(
    "hello",
    [
        dataclasses.replace(HELLO, role="root"),
        dataclasses.replace(HELLO, nonce=b"short"),
        dataclasses.replace(HELLO, job="j" * 300),
    ],
)
def test_a_hello_that_makes_no_sense_is_refused(hello: Hello) -> None:
    with pytest.raises(WireError):
        answer_hello(hello, b"s" * NONCE_NBYTES)


def test_a_version_that_was_not_offered_is_not_accepted() -> None:
    with pytest.raises(WireError):
        prove(TOKEN, HELLO, Challenge(PROTOCOL_VERSIONS[1] + 1, b"s" * NONCE_NBYTES))
    with pytest.raises(AuthError):
        check_proof(TOKEN, HELLO, CHALLENGE, Proof(b""))
