"""Every error that hocket raises, with the facts it keeps and the code it travels under.

    HocketError
    ├── UsageError (ValueError)          you must change the call
    │   ├── ArgumentError                one argument is wrong
    │   │   └── ArgumentTypeError (TypeError)
    │   ├── MismatchError                the members called different things
    │   ├── UnsupportedError             the dtype cannot do that
    │   └── SerialiseError               an object cannot travel
    ├── MemberLostError                  a member is gone; reform the group
    ├── EpochEndedError                  the group went on without this handle
    ├── AbortedError                     another member gave up on the operation; call again if it makes sense
    │   └── DeadlineAbortedError (DeadlineError)
    ├── DeadlineError (TimeoutError)     not everybody arrived in time
    ├── ConnectError                     nobody answers at an address
    ├── AuthError                        the token is missing or wrong
    ├── CoordinatorUnavailableError      the coordinator is away; try again
    ├── WireError                        the other side does not speak our protocol
    └── ClosedError                      you closed it

An error is built from facts alone and composes its sentence from them, so that it reads the same after a trip.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

Ranks = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Where:
    """The operation that an error speaks of: which call, in which group, epoch and channel."""

    operation: str
    number: int
    group: str
    epoch: int
    channel: str = ""

    def __str__(self) -> str:
        channel = f", channel {self.channel!r}" if self.channel else ""
        return f"{self.operation} #{self.number} in group {self.group!r} (epoch {self.epoch}{channel})"


def name_ranks(ranks: Ranks) -> str:
    """Names ranks in a sentence, runs shortened.

    >>> name_ranks((2,)), name_ranks((0, 1, 2, 5))
    ('rank 2', 'ranks 0-2, 5')
    """
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    text = ", ".join(str(a) if a == b else f"{a}-{b}" if b > a + 1 else f"{a}, {b}" for a, b in runs)
    return f"rank {text}" if len(ranks) == 1 else f"ranks {text}"


class HocketError(Exception):
    """Base of all errors of hocket. ``facts`` names the attributes that an error keeps and takes with it."""

    code: ClassVar[str] = "error"
    facts: ClassVar[tuple[str, ...]] = ("detail",)
    where: Where | None = None
    array_intact: bool = True
    """False where an in-place operation was cut midway, so that its array is undefined."""

    def __init__(self, detail: str = "") -> None:
        super().__init__()
        self.detail = detail

    def sentence(self) -> str:
        """The error without its place; subclasses compose it from their facts."""
        return self.detail

    @property
    def operation(self) -> str | None:
        """Name of the operation, where the error belongs to one."""
        return self.where.operation if self.where else None

    @property
    def number(self) -> int | None:
        """Number of the operation in its channel."""
        return self.where.number if self.where else None

    @property
    def group(self) -> str | None:
        """Name of the group."""
        return self.where.group if self.where else None

    @property
    def epoch(self) -> int | None:
        """Epoch of the group in which it happened."""
        return self.where.epoch if self.where else None

    @property
    def channel(self) -> str | None:
        """Channel of the operation."""
        return self.where.channel if self.where else None

    def at(self, where: Where) -> "HocketError":
        """The same error with its place noted (the first note stays)."""
        if self.where is None:
            self.where = where
        return self

    def __str__(self) -> str:
        text = self.sentence()
        if self.where is not None:
            text = f"{self.where}: {text}"
        if not self.array_intact:
            text += " (the operation was cut midway: its array is undefined)"
        return text

    def __reduce__(self) -> Any:
        return error_from_facts, (error_to_facts(self),)


class UsageError(HocketError, ValueError):
    """The call cannot mean anything: change it."""

    code = "usage"


class ArgumentError(UsageError):
    """One argument is wrong. Raised on the caller at once; the other members get `AbortedError`."""

    code = "argument"
    facts = ("argument", "given", "allowed")

    def __init__(self, argument: str, given: str, allowed: str) -> None:
        super().__init__()
        self.argument, self.given, self.allowed = argument, given, allowed

    def sentence(self) -> str:
        return f"argument {self.argument!r} is {self.given}, allowed is {self.allowed}"


class ArgumentTypeError(ArgumentError, TypeError):
    """One argument is of a type that cannot serve, such as a Python number where an array must be filled in place."""

    code = "argument_type"


class MismatchError(UsageError):
    """Members called different things under one number. Nothing was written; the channel stays in step.

    ``calls`` pairs each differing set of ranks with what that set called; ``why`` is set where sizes do not fit.
    """

    code = "mismatch"
    facts = ("calls", "why")

    def __init__(self, calls: tuple[tuple[Ranks, str], ...], why: str = "") -> None:
        super().__init__()
        self.calls = tuple((tuple(ranks), str(call)) for ranks, call in calls)
        self.why = why

    def sentence(self) -> str:
        calls = ", ".join(f"{name_ranks(ranks)} called {call}" for ranks, call in self.calls)
        return f"{self.why}: {calls}" if self.why else calls


class UnsupportedError(UsageError):
    """The dtype cannot do that operation or reduction, on any rank."""

    code = "unsupported"
    facts = ("dtype", "does_not", "hint")

    def __init__(self, dtype: str, does_not: str, hint: str = "") -> None:
        super().__init__()
        self.dtype, self.does_not, self.hint = dtype, does_not, hint

    def sentence(self) -> str:
        return f"{self.dtype} does not support {self.does_not}" + (f"; {self.hint}" if self.hint else "")


class SerialiseError(UsageError):
    """An object cannot travel: ``rank`` holds it, ``type_name`` is its type."""

    code = "serialise"
    facts = ("rank", "type_name", "detail")

    def __init__(self, rank: int, type_name: str, detail: str = "") -> None:
        super().__init__(detail)
        self.rank, self.type_name = rank, type_name

    def sentence(self) -> str:
        return f"rank {self.rank}: object of type {self.type_name} cannot be exchanged: {self.detail}"


@dataclass(frozen=True, slots=True)
class Member:
    """Who a lost member was: its rank, host and process id (0 where unknown)."""

    rank: int
    host: str
    pid: int = 0

    def __str__(self) -> str:
        return f"rank {self.rank} (host {self.host}{f', pid {self.pid}' if self.pid else ''})"


class MemberLostError(HocketError):
    """Members are gone and the epoch has ended: make a new group of the survivors.

    ``cause`` is one of ``killed``, ``exited``, ``left``, ``unreachable``, ``worker lost``.
    """

    code = "member_lost"
    facts = ("members", "cause", "detail")

    def __init__(self, members: tuple[Member, ...], cause: str, detail: str = "") -> None:
        super().__init__(detail)
        self.members, self.cause = members, cause

    @property
    def ranks(self) -> Ranks:
        """The lost ranks, in this group."""
        return tuple(member.rank for member in self.members)

    @property
    def rank(self) -> int:
        """The first lost rank."""
        return self.members[0].rank

    @property
    def host(self) -> str:
        """Host of the first lost rank."""
        return self.members[0].host

    @property
    def pid(self) -> int:
        """Process id of the first lost rank, 0 where unknown."""
        return self.members[0].pid

    def sentence(self) -> str:
        who = ", ".join(str(member) for member in self.members)
        detail = f" ({self.detail})" if self.detail else ""
        return f"lost {who}: {self.cause}{detail}; this epoch has ended, make a new group of the survivors"


class EpochEndedError(HocketError):
    """The group's epoch ended, so that this handle serves no more."""

    code = "epoch_ended"


class DeadlineError(HocketError, TimeoutError):
    """Not every member arrived within ``limit_s`` seconds. ``missing`` are the ranks that did not."""

    code = "deadline"
    facts: ClassVar[tuple[str, ...]] = ("limit_s", "missing", "detail")

    def __init__(self, limit_s: float, missing: Ranks, detail: str = "") -> None:
        super().__init__(detail)
        self.limit_s, self.missing = limit_s, tuple(missing)

    def sentence(self) -> str:
        if self.missing:
            return f"no end within {self.limit_s:g} s: {name_ranks(self.missing)} did not arrive{self._more()}"
        return f"no end within {self.limit_s:g} s{self._more() or ': all members arrived, the data did not'}"

    def _more(self) -> str:
        return f"; {self.detail}" if self.detail else ""


class AbortedError(HocketError):
    """Rank ``rank`` gave up on the operation; it ended for all. The channel stays in step."""

    code = "aborted"
    facts: ClassVar[tuple[str, ...]] = ("rank", "cause")

    def __init__(self, rank: int, cause: str) -> None:
        super().__init__()
        self.rank, self.cause = rank, cause

    def sentence(self) -> str:
        return f"aborted by rank {self.rank}: {self.cause}"


class DeadlineAbortedError(AbortedError, DeadlineError):
    """Rank ``rank``'s deadline passed, which ended the operation for this member, too."""

    code = "deadline_aborted"
    facts: ClassVar[tuple[str, ...]] = ("rank", "limit_s", "missing")

    def __init__(self, rank: int, limit_s: float, missing: Ranks) -> None:
        DeadlineError.__init__(self, limit_s, missing)
        self.rank = rank
        self.cause = DeadlineError.sentence(self)

    def sentence(self) -> str:
        return AbortedError.sentence(self)


class ConnectError(HocketError, ConnectionError):
    """Nobody answers at ``address``; ``setting`` names what changes it."""

    code = "connect"
    facts = ("address", "setting", "detail")

    def __init__(self, address: str, setting: str, detail: str) -> None:
        super().__init__(detail)
        self.address, self.setting = address, setting

    def sentence(self) -> str:
        return f"cannot use {self.address}: {self.detail} (set by {self.setting})"


class AuthError(HocketError):
    """The token is missing or wrong, or the other side could not prove that it knows it."""

    code = "auth"


class CoordinatorUnavailableError(HocketError):
    """The coordinator does not answer; what needs it can be tried again."""

    code = "coordinator_unavailable"


class WireError(HocketError):
    """Bytes that are not hocket's protocol, or not of a version that both sides speak."""

    code = "wire"


class ClosedError(HocketError):
    """The client or group was closed, or was never opened."""

    code = "closed"


def _subclasses(base: type[HocketError]) -> list[type[HocketError]]:
    found = [base]
    for child in base.__subclasses__():
        found += _subclasses(child)
    return found


BY_CODE: dict[str, type[HocketError]] = {}
for _kind in dict.fromkeys(_subclasses(HocketError)):
    assert _kind.code not in BY_CODE, f"error code {_kind.code!r} is used twice"
    BY_CODE[_kind.code] = _kind


def error_to_facts(error: HocketError) -> dict[str, Any]:
    """An error as plain data, all its facts included."""
    facts: dict[str, Any] = {name: _plain(getattr(error, name)) for name in error.facts}
    place = error.where and [getattr(error.where, name) for name in Where.__slots__]
    return {"code": error.code, "facts": facts, "where": place, "intact": error.array_intact}


def error_from_facts(data: Mapping[str, Any]) -> HocketError:
    """The error that `error_to_facts` took apart. Raises `WireError` where the data is not one."""
    try:
        kind = BY_CODE[data["code"]]
        facts = {name: _tuples(value) for name, value in data["facts"].items()}
        if "members" in facts:
            facts["members"] = tuple(Member(*member) for member in facts["members"])
        error = kind(**facts)
        error.where = Where(*data["where"]) if data["where"] else None
        error.array_intact = data["intact"]
    except (KeyError, TypeError, ValueError, AttributeError) as broken:
        raise WireError(f"not an error of hocket: {data!r}") from broken
    return error


def copy_of(error: HocketError) -> HocketError:
    """The same error anew, for another operation or another raise: each gets a place and a traceback of its own."""
    return error_from_facts(error_to_facts(error))


def _plain(value: Any) -> Any:
    if isinstance(value, Member):
        return [value.rank, value.host, value.pid]
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list | tuple) else value
