"""What all programs take from their surroundings: where the socket is, and the token."""

from pathlib import Path

import pytest

from hocket.protocol.environment import default_socket, read_token
from hocket.protocol.errors import ArgumentError


def as_user(monkeypatch: pytest.MonkeyPatch, uid: int) -> None:
    monkeypatch.setattr("os.geteuid", lambda: uid)
    monkeypatch.setattr("os.getuid", lambda: uid)


def test_roots_socket_is_the_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    as_user(monkeypatch, 0)
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/0")
    assert default_socket() == "/run/hocket/worker.sock"


def test_a_users_socket_is_in_its_runtime_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    as_user(monkeypatch, 1234)
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/1234")
    assert default_socket() == "/run/user/1234/hocket/worker.sock"


def test_a_user_without_a_runtime_folder_has_a_place_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    as_user(monkeypatch, 1234)
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    assert default_socket() == "/tmp/hocket-1234/hocket/worker.sock"
    monkeypatch.setenv("XDG_RUNTIME_DIR", "")
    assert default_socket() == "/tmp/hocket-1234/hocket/worker.sock"


@pytest.mark.parametrize("content", [b"secret", b"secret\n", b"\t secret \r\n"])
def test_white_space_around_a_token_does_not_count(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "token").write_bytes(content)
    assert read_token(str(tmp_path / "token")) == b"secret"


def test_white_space_within_a_token_and_bytes_of_any_value_do(tmp_path: Path) -> None:
    (tmp_path / "token").write_bytes(b"two words \xff\x00\x01\n")
    assert read_token(str(tmp_path / "token")) == b"two words \xff\x00\x01"


@pytest.mark.parametrize("content", [b"", b" \n\t"])
def test_an_empty_token_is_refused_and_the_file_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "token"
    path.write_bytes(content)
    with pytest.raises(ArgumentError) as refused:
        read_token(str(path))
    assert refused.value.argument == "HOCKET_TOKEN_FILE"
    assert str(path) in refused.value.given and "empty" in refused.value.given


def test_a_file_that_cannot_be_read_is_refused_with_the_reason(tmp_path: Path) -> None:
    for path, reason in ((tmp_path / "none", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(ArgumentError) as refused:
            read_token(str(path))
        assert str(path) in refused.value.given and reason in refused.value.given
