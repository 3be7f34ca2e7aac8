from types import SimpleNamespace
from typing import cast

import pytest

from hocket.cli.bench_plan import Settings
from hocket.cli.bench_rank import Rank
from hocket.client.client import Client
from hocket.protocol.errors import ArgumentError


def old_client() -> Client:
    """One of a version that gives no memory."""
    return cast(Client, SimpleNamespace(rank=0, size=2))


def test_what_this_version_cannot_do_is_refused_before_anything_is_measured() -> None:
    with pytest.raises(ArgumentError) as refused:
        Rank(old_client(), Settings(board_memory=True), lambda _event: None)
    assert refused.value.argument == "--board-memory"


def test_settings_that_do_not_go_with_the_world_are_refused() -> None:
    with pytest.raises(ArgumentError, match="'-r' is 2, allowed is 0 to 1 with 2 ranks"):
        Rank(old_client(), Settings(root=2), lambda _event: None)
