"""The rules of the tree that no other tool knows: what pure files may import, sizes, docstrings, sleeps, loose ends."""

import ast
import asyncio
import builtins
import collections.abc
import functools
import json
import logging
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("protocol", "fabric", "coordinator", "worker", "client", "cli")

PURE = (
    "protocol/*.py",
    "fabric/compression.py",
    "fabric/plan.py",
    "coordinator/membership.py",
    "coordinator/barrier.py",
    "worker/compression.py",
    "worker/schedules/*.py",
    "client/mailbox.py",
    "client/inbox.py",
    "client/outbox.py",
    "client/matching.py",
    "client/transfer.py",
)
SHELLS_AMONG_THEM = {
    "protocol/connection.py",
    "protocol/daemon.py",
    "protocol/doorway.py",
    "protocol/environment.py",
    "protocol/handshake.py",
    "protocol/notify.py",
}
TABLES = {"protocol/messages.py"}
"""Long by design: every message stands in one file."""
IMPURE_MODULES = {"asyncio", "socket", "time", "random", "os"}

FILE_LINES = 450
FUNCTION_LINES = 60
LOOSE_END = re.compile(r"\b(TODO|FIXME|XXX|NotImplementedError)\b")
POLLING_HELPER = "# polls an event"

Function = ast.FunctionDef | ast.AsyncFunctionDef


def python_files(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py") if path.is_file())


def product_files() -> list[Path]:
    return [*python_files(*PACKAGES), *sorted((ROOT / "src" / "hocket").glob("*.py"))]


def all_files() -> list[Path]:
    return [*product_files(), *python_files("tests", "examples", "benchmarks", "docs", "deploy")]


def pure_files() -> list[Path]:
    found = [path for pattern in PURE for path in ROOT.glob(pattern)]
    return sorted(path for path in found if name(path) not in SHELLS_AMONG_THEM)


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@functools.cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def imported_modules(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and full name of everything that is imported, at whatever depth; relative imports begin with a dot."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, "." * node.level + (node.module or "")


# --- imports ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", PURE)
def test_every_pattern_of_pure_files_still_names_a_file(pattern: str) -> None:
    assert [path for path in ROOT.glob(pattern) if path.name != "__init__.py"]


def test_pure_files_import_neither_time_nor_the_world() -> None:
    assert [
        f"{name(path)}:{line} imports {module}"
        for path in pure_files()
        for line, module in imported_modules(parse(path))
        if module.split(".")[0] in IMPURE_MODULES
    ] == []


def test_nothing_imports_a_package_by_its_bare_name_or_relatively() -> None:
    assert [
        f"{name(path)}:{line} imports {module}"
        for path in all_files()
        for line, module in imported_modules(parse(path))
        if module.split(".")[0] in {*PACKAGES, ""}
    ] == []


def test_nothing_imports_everything() -> None:
    assert [
        f"{name(path)}:{node.lineno}"
        for path in all_files()
        for node in ast.walk(parse(path))
        if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names)
    ] == []


IMPORT_ALL = """
import importlib, pkgutil, sys
package = importlib.import_module(sys.argv[1])
for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
print(*(name for name in ("numpy", "ml_dtypes") if name in sys.modules))
"""


@pytest.mark.parametrize("package", ["hocket.coordinator", "hocket.protocol"])
def test_importing_every_module_of_a_package_without_tensors_loads_no_numpy(package: str) -> None:
    child = subprocess.run([sys.executable, "-c", IMPORT_ALL, package], capture_output=True, text=True, check=False)
    assert (child.returncode, child.stdout.strip()) == (0, ""), child.stderr


def test_importing_hocket_loads_no_numpy() -> None:
    program = "import hocket, sys; print('numpy' in sys.modules)"
    child = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert child.stdout.strip() == "False", child.stderr


# --- files -----------------------------------------------------------------------------------------------------------


def test_src_holds_one_relative_symlink_for_each_package() -> None:
    links = {path.name: path.readlink().as_posix() for path in (ROOT / "src" / "hocket").iterdir() if path.is_symlink()}
    assert links == {package: f"../../{package}" for package in PACKAGES}


def test_every_folder_with_modules_is_a_package() -> None:
    folders = {path.parent for path in python_files(*PACKAGES)}
    assert [name(folder) for folder in sorted(folders) if not (folder / "__init__.py").is_file()] == []


def test_tests_are_no_package_and_no_file_is_called_utils() -> None:
    assert [name(path) for path in python_files("tests") if path.name == "__init__.py"] == []
    assert [name(path) for path in all_files() if path.stem in {"utils", "util", "helpers", "misc"}] == []


def test_no_product_file_is_too_long() -> None:
    lengths = {name(path): len(path.read_text(encoding="utf-8").splitlines()) for path in product_files()}
    assert {path: lines for path, lines in lengths.items() if lines > FILE_LINES and path not in TABLES} == {}


def test_no_product_function_is_too_long() -> None:
    lengths = {
        f"{name(path)}:{node.lineno} {node.name}": (node.end_lineno or node.lineno) - node.lineno + 1
        for path in product_files()
        for node in ast.walk(parse(path))
        if isinstance(node, Function)
    }
    assert {function: lines for function, lines in lengths.items() if lines > FUNCTION_LINES} == {}


def test_nothing_is_left_to_be_done() -> None:
    front_end = [
        path for package in PACKAGES for kind in ("html", "css", "js") for path in (ROOT / package).rglob(f"*.{kind}")
    ]
    assert [
        f"{name(path)}:{number} {line.strip()}"
        for path in [*all_files(), *front_end]
        if path != Path(__file__).resolve()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if LOOSE_END.search(line)
    ] == []


# --- sleeps ----------------------------------------------------------------------------------------------------------


def sleeps(source: str) -> list[int]:
    """Lines that call time.sleep, or asyncio.sleep with anything but a plain 0, under whatever name it was imported."""
    tree = ast.parse(source)
    modules, functions = {}, {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {
                alias.asname or alias.name: alias.name for alias in node.names if alias.name in {"time", "asyncio"}
            }
        elif isinstance(node, ast.ImportFrom) and node.module in {"time", "asyncio"}:
            functions |= {alias.asname or alias.name: node.module for alias in node.names if alias.name == "sleep"}
    found = []
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=module), attr="sleep")) if module in modules:
                origin = modules[module]
            case ast.Call(func=ast.Name(id=function)) if function in functions:
                origin = functions[function]
            case _:
                continue
        yields_only = origin == "asyncio" and [ast.unparse(argument) for argument in node.args] == ["0"]
        if not yields_only:
            found.append(node.lineno)
    return found


@pytest.mark.parametrize(
    "source",
    [
        "import time\ntime.sleep(1)",
        "import time as t\nt.sleep(0)",
        "from time import sleep as nap\nnap(0.1)",
        "import asyncio\nasync def f():\n    await asyncio.sleep(0.01)",
        "from asyncio import sleep\nsleep(delay)",
    ],
)
def test_a_sleep_is_seen_under_any_name(source: str) -> None:
    assert sleeps(source) == [len(source.splitlines())]


def test_giving_way_once_is_no_sleep() -> None:
    assert sleeps("import asyncio\nasync def f():\n    await asyncio.sleep(0)") == []


def test_no_test_sleeps() -> None:
    found = []
    for path in python_files("tests"):
        source = path.read_text(encoding="utf-8")
        lines = source.splitlines()
        for line in sleeps(source):
            allowed = "tests/lib/" in path.as_posix() and POLLING_HELPER in lines[line - 1]
            if not allowed:
                found.append(f"{name(path)}:{line} {lines[line - 1].strip()}")
    assert found == []


# --- docstrings ------------------------------------------------------------------------------------------------------

OUTSIDE = (asyncio, builtins, collections.abc, json, logging, threading)


def base_names(node: ast.ClassDef) -> list[str]:
    """Last names of a class's bases: ``Protocol`` for ``asyncio.Protocol``, ``Queue`` for ``Queue[int]``."""
    bare = [base.value if isinstance(base, ast.Subscript) else base for base in node.bases]
    return [ast.unparse(base).split(".")[-1] for base in bare]


@functools.cache
def product_classes() -> dict[str, list[ast.ClassDef]]:
    found: dict[str, list[ast.ClassDef]] = {}
    for path in product_files():
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(node)
    return found


def documents(node: ast.ClassDef, method: str) -> bool:
    return any(isinstance(item, Function) and item.name == method and ast.get_docstring(item) for item in node.body)


def inherits_docstring(node: ast.ClassDef, method: str) -> bool:
    """Whether a class above documents the method, or the standard library defines it."""
    waiting, seen = base_names(node), set()
    while waiting:
        base = waiting.pop()
        if base in seen:
            continue
        seen.add(base)
        parents = product_classes().get(base, [])
        if any(documents(parent, method) for parent in parents):
            return True
        if any(hasattr(getattr(module, base, None), method) for module in OUTSIDE):
            return True
        waiting += [name for parent in parents for name in base_names(parent)]
    return False


def needs_no_docstring(node: Function) -> bool:
    decorators = {ast.unparse(decorator).split(".")[-1] for decorator in node.decorator_list}
    return node.name.startswith("_") or bool(decorators & {"overload", "setter", "deleter"})


def undocumented(body: list[ast.stmt], owner: ast.ClassDef | None = None) -> Iterator[tuple[int, str]]:
    """Public functions, classes and methods without a docstring of their own or of a class above."""
    for node in body:
        if isinstance(node, Function):
            inherited = owner is not None and inherits_docstring(owner, node.name)
            if not (needs_no_docstring(node) or ast.get_docstring(node) or inherited):
                yield node.lineno, node.name
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            if not ast.get_docstring(node):
                yield node.lineno, node.name
            yield from undocumented(node.body, node)
        elif isinstance(node, ast.If | ast.Try):
            yield from undocumented([*node.body, *node.orelse], owner)


def test_every_module_says_what_it_is_for() -> None:
    assert [name(path) for path in product_files() if not ast.get_docstring(parse(path))] == []


def test_everything_public_has_a_docstring() -> None:
    assert [
        f"{name(path)}:{line} {what}" for path in product_files() for line, what in undocumented(parse(path).body)
    ] == []
