"""The native kernels under sanitizers: nothing is touched beyond an array, no address is odd enough to matter."""

import shutil
import subprocess
from pathlib import Path

import pytest

from hocket.protocol.dtypes import DTYPES, check_reduce
from hocket.protocol.errors import UnsupportedError
from hocket.protocol.reduce_ops import NAMES, ReduceOp

NATIVE = Path(__file__).resolve().parents[2] / "fabric" / "native"
SOURCES = (Path(__file__).parent / "native" / "kernels_test.c", NATIVE / "kernels.c")
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
FLAGS = ("-g", "-O1", "-std=gnu11", "-ffp-contract=off", "-DHK_ALL_SETS", *SANITIZERS)

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no compiler")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("native") / "kernels_test"
    command = ["cc", *FLAGS, f"-I{NATIVE}", *map(str, SOURCES), "-o", str(made), "-lm"]
    child = subprocess.run(command, capture_output=True, text=True, check=False)
    if "cannot find" in child.stderr and "san" in child.stderr:
        pytest.skip("no libraries for the sanitizers")
    assert child.returncode == 0, child.stderr
    return made


def reduces(dtype: str, name: str) -> bool:
    try:
        check_reduce(dtype, ReduceOp.PREMUL_SUM(2) if name == "PREMUL_SUM" else ReduceOp(name))
    except UnsupportedError:
        return False
    return True


@pytest.mark.parametrize("instructions", ["baseline", "avx2", "avx512"])
def test_every_kernel_keeps_to_its_memory_wherever_that_is(program: Path, instructions: str) -> None:
    child = subprocess.run([program, "1", instructions], capture_output=True, text=True, check=False)
    if child.stdout == "no such instructions\n":
        pytest.skip(f"the processor has no {instructions}")
    expected = sum(reduces(dtype, name) for dtype in DTYPES for name in NAMES)
    assert child.stdout == f"{expected} kernels: right\n", child.stderr[:4000]
