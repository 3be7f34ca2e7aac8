"""The Python of the documentation, run the way a comment above each block says, and what the text says it prints.

<!-- run: NAME.py, ranks N -->      a program, run by hocket run -n N
<!-- run: inside, ranks N -->       the inside of a coroutine with a `client`, on N ranks
<!-- run: service, clients N -->    the inside of a coroutine, N times at once, where a service runs
<!-- prints -->                     above the block with the output, lines in any order
"""

import ast
import asyncio
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness.commands import environment
from harness.service import service, world

import hocket

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"])
LIMIT_S = 60
BLOCK = re.compile(
    r"(?:<!-- run: (?P<how>[^\n]*?) -->\n)?```python\n(?P<code>.*?)^```$"
    r"(?:(?:(?!```python).)*?<!-- prints -->\n```text\n(?P<prints>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """A block of Python: where it is, how to run it, and what it prints (None: the text does not say)."""

    where: str
    how: str
    number: int
    code: str
    prints: list[str] | None


def blocks() -> list[Block]:
    """All of them, in all pages."""
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for match in BLOCK.finditer(text):
            where = f"{page.relative_to(ROOT)}:{text[: match.start('code')].count(chr(10)) + 1}"
            assert match["how"], f"{where}: the text does not say how to run this block"
            how = re.fullmatch(r"(\S+), (?:ranks|clients) (\d+)", match["how"])
            assert how is not None, f"{where}: {match['how']!r} is no way to run a block"
            prints = None if match["prints"] is None else sorted(match["prints"].splitlines())
            found.append(Block(where, how[1], int(how[2]), match["code"], prints))
    return found


BLOCKS = blocks()


def of(*ways: str) -> pytest.MarkDecorator:
    """The blocks to run in one of these ways (``program``: those with a file's name)."""
    chosen = [block for block in BLOCKS if (block.how if block.how in ("inside", "service") else "program") in ways]
    return pytest.mark.parametrize("block", chosen, ids=lambda block: block.where)


def coroutine(block: Block, *arguments: str) -> Any:
    """The block as the body of a coroutine function with these arguments."""
    body = ast.parse(block.code, block.where).body
    wrapper = ast.parse(f"async def body({', '.join(arguments)}): pass")
    made = wrapper.body[0]
    assert isinstance(made, ast.AsyncFunctionDef)
    made.body = body
    names: dict[str, Any] = {"asyncio": asyncio, "np": np, "hocket": hocket, "__name__": "example"}
    exec(compile(ast.fix_missing_locations(wrapper), block.where, "exec"), names)
    return names["body"]


def test_the_documentation_has_blocks_of_each_kind() -> None:
    assert {block.how for block in BLOCKS} >= {"inside", "service", "sum.py"}
    assert any(block.prints for block in BLOCKS)


@of("inside")
async def test_what_is_shown_runs_inside_a_rank(block: Block, capsys: pytest.CaptureFixture[str]) -> None:
    async with service() as running:
        await world(running, [0] * block.number, coroutine(block, "client"))
    assert block.prints is None or sorted(capsys.readouterr().out.splitlines()) == block.prints


@of("service")
async def test_what_is_shown_runs_where_a_service_does(block: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    async with service() as running:
        monkeypatch.setenv("HOCKET_WORKER", running.socket(0))
        body = coroutine(block)
        async with asyncio.timeout(LIMIT_S):
            await asyncio.gather(*(body() for _ in range(block.number)))


@of("program")
def test_what_is_shown_runs_as_a_program(block: Block, tmp_path: Path) -> None:
    program = tmp_path / block.how
    program.write_text(block.code, encoding="utf-8")
    launcher = [sys.executable, "-m", "hocket.cli", "run", "--timeout", str(LIMIT_S), "-n", str(block.number)]
    done = subprocess.run(
        [*launcher, sys.executable, str(program)], env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert block.prints is None or sorted(done.stdout.splitlines()) == block.prints
