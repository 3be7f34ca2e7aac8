"""The core's own program, in C and under sanitizers: members as threads on one board."""

import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NATIVE = ROOT / "fabric" / "native"
SOURCES = (
    Path(__file__).parent / "native" / "board_test.c",
    NATIVE / "advance.c",
    NATIVE / "direct.c",
    NATIVE / "kernels.c",
)
FLAGS = ("-g", "-O1", "-std=gnu11", "-fno-sanitize-recover=all", "-Wno-tsan", "-DPy_LIMITED_API=0x030b0000")

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no compiler")


@pytest.fixture(scope="module", params=["address,undefined", "thread"])
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("native") / "board_test"
    headers = [f"-I{NATIVE}", f"-I{sysconfig.get_paths()['include']}"]
    command = ["cc", *FLAGS, f"-fsanitize={request.param}", *headers, *map(str, SOURCES), "-o", str(made), "-lpthread"]
    child = subprocess.run(command, capture_output=True, text=True, check=False)
    if "cannot find" in child.stderr and "san" in child.stderr:
        pytest.skip(f"no libraries for -fsanitize={request.param}")
    assert child.returncode == 0, child.stderr
    return made


@pytest.mark.parametrize("members", [1, 2, 3, 5, 8])
def test_whatever_members_do_at_the_same_time_nothing_is_read_before_it_is_announced(
    program: Path, members: int
) -> None:
    child = subprocess.run([program, str(members), "400", str(members)], capture_output=True, text=True, check=False)
    assert child.stdout == f"{members} members, 400 operations: right\n", child.stderr[:4000]
