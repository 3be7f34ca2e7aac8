"""What is shipped: the wheel holds hocket and nothing else, the sdist holds real files, and both install alike."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("protocol", "fabric", "coordinator", "worker", "client", "cli")
SHIPPED_DATA = {".html", ".css", ".js", ".json"}
DATA_OF = {"coordinator": SHIPPED_DATA, "cli": SHIPPED_DATA, "fabric": {".pyi"}}


@dataclass(frozen=True)
class Built:
    """The wheel and sdist made from the tree, and the wheel made from that sdist."""

    wheel: Path
    sdist: Path
    wheel_of_sdist: Path


def expected_files() -> set[str]:
    """Every file of the packages that an installation must hold, as a path below site-packages."""
    files = {"hocket/__init__.py", "hocket/py.typed"}
    for package in PACKAGES:
        suffixes = {".py", *(DATA_OF.get(package, ()))}
        files |= {
            f"hocket/{path.relative_to(ROOT).as_posix()}"
            for path in (ROOT / package).rglob("*")
            if path.suffix in suffixes
        }
    return files


def build(tree: Path, out: Path, *what: str, environ: dict[str, str] | None = None) -> None:
    command = [sys.executable, "-m", "build", "--no-isolation", *what, "--outdir", str(out), str(tree)]
    child = subprocess.run(command, capture_output=True, text=True, check=False, env=environ)
    assert child.returncode == 0, child.stdout + child.stderr


def copy_of_the_tree(tree: Path) -> Path:
    """A build leaves folders behind, and would take up files that an earlier one left: it gets a copy."""
    tree.mkdir(exist_ok=True)
    for folder in ("src", *PACKAGES):
        skip = shutil.ignore_patterns("__pycache__", "*.egg-info", "*.so")
        shutil.copytree(ROOT / folder, tree / folder, symlinks=True, ignore=skip)
    for file in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE"):
        if (ROOT / file).exists():
            shutil.copy(ROOT / file, tree)
    return tree


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Builds a copy."""
    tree = copy_of_the_tree(tmp_path_factory.mktemp("tree"))
    direct, chained = tmp_path_factory.mktemp("direct"), tmp_path_factory.mktemp("chained")
    build(tree, direct, "--wheel")
    build(tree, chained)
    return Built(next(direct.glob("*.whl")), next(chained.glob("*.tar.gz")), next(chained.glob("*.whl")))


def wheel_files(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {info.filename for info in archive.infolist() if not info.is_dir()}


def hocket_files(wheel: Path) -> set[str]:
    return {path for path in wheel_files(wheel) if path.startswith("hocket/") and not path.endswith(".so")}


def test_the_wheel_has_no_top_level_name_but_hocket(built: Built) -> None:
    tops = {path.split("/")[0] for path in wheel_files(built.wheel)}
    version = built.wheel.name.split("-")[1]
    assert tops == {"hocket", f"hocket-{version}.dist-info"}


def test_the_wheel_holds_every_file_of_each_package(built: Built) -> None:
    assert hocket_files(built.wheel) == expected_files()


@pytest.mark.skipif(shutil.which("cc") is None, reason="no compiler")
def test_one_wheel_with_the_native_core_serves_every_python(built: Built) -> None:
    for wheel in (built.wheel, built.wheel_of_sdist):
        assert "hocket/fabric/_core.abi3.so" in wheel_files(wheel)
        assert "-cp311-abi3-linux" in wheel.name


def test_without_a_compiler_it_is_built_all_the_same_and_works(tmp_path: Path) -> None:
    tree = copy_of_the_tree(tmp_path / "tree")
    environ = {**os.environ, "CC": str(tmp_path / "no-such-compiler")}
    build(tree, tmp_path / "out", "--wheel", environ=environ)
    [wheel] = (tmp_path / "out").glob("*.whl")
    assert not [path for path in wheel_files(wheel) if path.endswith(".so")]
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import numpy as np\n"
        "from hocket.fabric.core import describe\n"
        "from hocket.fabric.kernels import reduce_into\n"
        "from hocket.protocol.reduce_ops import ReduceOp\n"
        "x = np.ones(3, np.float32)\n"
        "reduce_into(x, [x, x], ReduceOp.SUM)\n"
        "print(describe(), x.tolist())\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "site")]
    child = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert child.stdout == "python [2.0, 2.0, 2.0]\n", child.stderr


def test_the_sdist_makes_the_same_wheel(built: Built) -> None:
    assert hocket_files(built.wheel_of_sdist) == hocket_files(built.wheel)


def test_the_sdist_holds_files_where_the_tree_has_symlinks(built: Built) -> None:
    with tarfile.open(built.sdist) as archive:
        members = archive.getmembers()
    assert [member.name for member in members if member.issym() or member.islnk()] == []
    below_src = {member.name.split("/src/", 1)[1] for member in members if "/src/" in member.name and member.isfile()}
    assert expected_files() <= below_src


def test_the_wheel_declares_the_command_and_its_licence(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as archive:
        info = next(path for path in archive.namelist() if path.endswith(".dist-info/METADATA")).rsplit("/", 1)[0]
        scripts = archive.read(f"{info}/entry_points.txt").decode()
        metadata = archive.read(f"{info}/METADATA").decode()
        assert f"{info}/licenses/LICENSE" in archive.namelist()
    assert "hocket = hocket.cli.__main__:main" in scripts.splitlines()
    assert "License-Expression: Apache-2.0" in metadata.splitlines()


def test_the_sdk_of_the_wheel_imports_without_the_checkout(built: Built, tmp_path: Path) -> None:
    with zipfile.ZipFile(built.wheel) as archive:
        archive.extractall(tmp_path / "site")
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import hocket.protocol.errors, hocket.fabric, hocket.client\n"
        "print(hocket.__file__, hocket.protocol.__file__, hocket.client.__file__, sep='\\n')\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "site")]
    child = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert child.returncode == 0, child.stderr
    assert [path for path in child.stdout.split() if not path.startswith(str(tmp_path / "site"))] == []
