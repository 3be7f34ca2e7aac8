"""Collective communication for Python programs that are not one rigid job.

    async with hocket.connect() as client:
        await client.all_reduce(gradients)

The names below are loaded at their first use, so that the coordinator, which needs no arrays, loads no numpy.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hocket.client.client import Client as Client
    from hocket.client.client import connect as connect
    from hocket.client.group import Group as Group
    from hocket.client.messaging import P2POp as P2POp
    from hocket.client.work import Work as Work
    from hocket.protocol.compression import Compression as Compression
    from hocket.protocol.errors import AbortedError as AbortedError
    from hocket.protocol.errors import ArgumentError as ArgumentError
    from hocket.protocol.errors import ArgumentTypeError as ArgumentTypeError
    from hocket.protocol.errors import AuthError as AuthError
    from hocket.protocol.errors import ClosedError as ClosedError
    from hocket.protocol.errors import ConnectError as ConnectError
    from hocket.protocol.errors import CoordinatorUnavailableError as CoordinatorUnavailableError
    from hocket.protocol.errors import DeadlineAbortedError as DeadlineAbortedError
    from hocket.protocol.errors import DeadlineError as DeadlineError
    from hocket.protocol.errors import EpochEndedError as EpochEndedError
    from hocket.protocol.errors import HocketError as HocketError
    from hocket.protocol.errors import MemberLostError as MemberLostError
    from hocket.protocol.errors import MismatchError as MismatchError
    from hocket.protocol.errors import SerialiseError as SerialiseError
    from hocket.protocol.errors import UnsupportedError as UnsupportedError
    from hocket.protocol.errors import UsageError as UsageError
    from hocket.protocol.errors import WireError as WireError
    from hocket.protocol.reduce_ops import ReduceOp as ReduceOp

_HOMES = {
    "Client": "client.client",
    "connect": "client.client",
    "P2POp": "client.messaging",
    "Group": "client.group",
    "Work": "client.work",
    "Compression": "protocol.compression",
    "ReduceOp": "protocol.reduce_ops",
} | dict.fromkeys(
    (
        "AbortedError",
        "ArgumentError",
        "ArgumentTypeError",
        "AuthError",
        "ClosedError",
        "ConnectError",
        "CoordinatorUnavailableError",
        "DeadlineAbortedError",
        "DeadlineError",
        "EpochEndedError",
        "HocketError",
        "MemberLostError",
        "MismatchError",
        "SerialiseError",
        "UnsupportedError",
        "UsageError",
        "WireError",
    ),
    "protocol.errors",
)

__all__ = sorted(_HOMES)  # noqa: PLE0605 - spelt out above for the tools


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'hocket' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"hocket.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
