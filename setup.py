"""The one thing that pyproject.toml cannot say yet: the native core, which is optional.

Without a compiler, or where compiling fails, hocket installs all the same and does everything in Python. The limited
API makes one binary serve Python 3.11 and newer.
"""

import sysconfig

from setuptools import Extension, setup

SOURCES = ("module", "arguments", "seat", "plan", "advance", "direct", "words", "kernels", "kernels_module")
FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
"""Such an interpreter has no limited API."""

core = Extension(
    "hocket.fabric._core",
    sources=[f"fabric/native/{name}.c" for name in SOURCES],
    depends=[f"fabric/native/{name}.h" for name in ("core", "kernels", "folds", "kernel_loops", "kernel_table")],
    # No contraction: a product that is not rounded before it is added to would give other bits than numpy's.
    extra_compile_args=["-std=gnu11", "-O3", "-fvisibility=hidden", "-ffp-contract=off", "-Wall", "-Wextra"],
    define_macros=[] if FREE_THREADED else [("Py_LIMITED_API", "0x030b0000")],
    py_limited_api=not FREE_THREADED,
    optional=True,
)

setup(ext_modules=[core], options={} if FREE_THREADED else {"bdist_wheel": {"py_limited_api": "cp311"}})
