"""What the two daemons do alike: a log on standard error, uvloop where there is one, one line for a refusal."""

import asyncio
import importlib
import logging
import sys
from collections.abc import Callable, Coroutine
from typing import Any

from hocket.protocol.errors import HocketError


def run_daemon(name: str, serve: Callable[[], Coroutine[Any, Any, None]]) -> int:
    """Runs ``serve()`` to its end. Returns the exit status: 0, or 1 where it raised an error of hocket's."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s")
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(serve())
    except HocketError as refused:
        print(f"hocket {name}: {refused}", file=sys.stderr)
        return 1
    return 0


def _loop_factory() -> Any:
    """uvloop's where it is installed, else asyncio's own."""
    try:
        return importlib.import_module("uvloop").new_event_loop
    except ImportError:
        return None
