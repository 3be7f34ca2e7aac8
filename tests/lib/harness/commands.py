"""Commands run to their end, in surroundings of which nothing but what a test says is hocket's."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def environment(**settings: str) -> dict[str, str]:
    """The environment of a command: ours without what hocket reads in it, and ``settings``."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("HOCKET_", "RANK", "WORLD"))}
    return kept | {"PYTHONPATH": str(ROOT / "src")} | settings


def finished(command: Sequence[str], limit_s: float, **settings: str) -> "subprocess.CompletedProcess[str]":
    """Runs a command to its end, which comes within ``limit_s``. Its exit status is the test's affair."""
    return subprocess.run(
        command, env=environment(**settings), capture_output=True, text=True, timeout=limit_s, check=False
    )
