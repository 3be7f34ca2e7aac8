"""The native core, where there is one: the same steps as in Python, without the interpreter in between.

It is compiled when hocket is installed, where there is a compiler. Without it, and with ``HOCKET_CORE=python`` in the
environment, everything is done in Python: right, and several times slower for small operations.
"""

import os
from typing import Any

CORE_VARIABLE = "HOCKET_CORE"


def _load() -> Any:
    if os.environ.get(CORE_VARIABLE) == "python":
        return None
    try:
        from hocket.fabric import _core
    except ImportError:
        return None
    return _core


native: Any = _load()
"""The module (see `_core.pyi`), or None."""


def describe() -> str:
    """What carries operations out: ``"native (avx2)"`` or ``"python"``."""
    return "python" if native is None else f"native ({native.kernels_describe()})"
