"""What the conformance tests share: a service of three hosts for each file, small blocks, and the count of cases."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio
from harness.service import Service, service

SMALL_BLOCK_NBYTES = 4096
_checked = 0


class Count:
    """How many single cases have been checked: operations of a whole group, with all results compared."""

    def add(self, cases: int) -> None:
        global _checked
        _checked += cases


@pytest.fixture
def count() -> Count:
    return Count()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if _checked:
        terminalreporter.write_line(f"conformance: {_checked} cases")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running() -> AsyncIterator[Service]:
    """Three hosts; each test makes a world of its own there."""
    async with service(3) as found:
        yield found


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Boards that are made meanwhile have small blocks, so that short arrays take many of them."""
    monkeypatch.setattr("hocket.worker.group.BLOCK_NBYTES", SMALL_BLOCK_NBYTES)
    yield SMALL_BLOCK_NBYTES
