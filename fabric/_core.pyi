"""The native core (fabric/native), for type checkers. Only `hocket.fabric.core` imports it."""

from typing import Any, Final

MOVE: Final[int]
OWN: Final[int]
SHARED: Final[int]
BROUGHT: Final[int]
DONE: Final[int]
WAIT: Final[int]
MORE: Final[int]
CONTESTED: Final[int]
RESULT: Final[int]
BRIDGE_READ: Final[int]
LINE_WORDS: Final[int]
COUNT_BITS: Final[int]
PAGE_NBYTES: Final[int]
SIGNED: Final[int]
POSTED: Final[int]
READ: Final[int]
REDUCED: Final[int]
SIGNED_AT: Final[int]
CALL: Final[int]
OFFER: Final[int]
NOTHING: Final[int]
DIRECT_DONE: Final[int]
MEMBERS: Final[int]

class Words:
    def __init__(self, buffer: memoryview) -> None: ...
    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> int: ...
    def __setitem__(self, index: int, value: int, /) -> None: ...
    def release(self) -> None: ...

class Plan:
    def __init__(
        self,
        manner: int,
        member: int,
        text: bytes,
        reads: bool,
        kernel: tuple[str, float, str] | None,
        itemsize: int,
        unit: int,
        to: list[int],
        calls: list[int],
        wholes: list[int],
        units: list[int],
        places: list[int],
        owed: list[int],
        origins: list[int],
    ) -> None: ...

class Run:
    def advance(self, sealed: int, patience_ns: int, /) -> int: ...
    @property
    def wrote(self) -> bool: ...
    @property
    def failed(self) -> int: ...

class Seat:
    def __init__(
        self,
        board: Any,
        bells: Any,
        size: int,
        member: int,
        texts: int,
        text_room: int,
        slots: int,
        results: int,
        room: int,
        wake: list[tuple[int, int]],
        crowded: bool,
        pids: list[int],
        bridged: bool,
        locals: list[int],
    ) -> None: ...
    def can_read(self) -> bool: ...
    def attempt(
        self, plan: Plan, number: int, before: int, source: Any, target: Any, patience_ns: int, /
    ) -> bool | tuple[int, int, int, bool, bool] | None: ...
    def begin(
        self,
        type: type[Run],
        plan: Plan,
        number: int,
        before: int,
        sends: list[Any],
        recvs: list[Any],
        posted: int,
        reduced: int,
        read: int,
        offer: int,
        /,
    ) -> Run: ...

def fence() -> None: ...
def reduce_into(acc: Any, inputs: Any, op: str, factor: float | None, dtype: str, /) -> None: ...
def reduce_finish(out: Any, inputs: Any, op: str, factor: float | None, dtype: str, size: int, /) -> None: ...
def finish(out: Any, acc: Any, op: str, factor: float | None, dtype: str, size: int, /) -> None: ...
def kernels_describe() -> str: ...
def kernels_use(name: str | None, /) -> bool: ...
