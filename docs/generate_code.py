"""Pages made from the SDK and the protocol: operations, errors, messages."""

import dataclasses
import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any

import hocket
from hocket.client import sync
from hocket.client.client import Client, connect
from hocket.client.group import Group
from hocket.client.work import Work
from hocket.protocol import auth, frames, messages
from hocket.protocol.compression import Compression
from hocket.protocol.dtypes import DTYPES, check_reduce
from hocket.protocol.errors import (
    AbortedError,
    ArgumentError,
    ArgumentTypeError,
    AuthError,
    ClosedError,
    ConnectError,
    CoordinatorUnavailableError,
    DeadlineAbortedError,
    DeadlineError,
    EpochEndedError,
    HocketError,
    Member,
    MemberLostError,
    MismatchError,
    SerialiseError,
    UnsupportedError,
    UsageError,
    Where,
    WireError,
)
from hocket.protocol.limits import PROTOCOL_VERSIONS
from hocket.protocol.reduce_ops import NAMES, ReduceOp

OPERATIONS = {
    "Reductions": (
        "all_reduce",
        "reduce",
        "reduce_scatter",
        "reduce_scatter_tensor",
        "scan",
        "exscan",
        "all_reduce_coalesced",
    ),
    "Moving data": (
        "broadcast",
        "all_gather",
        "all_gather_into_tensor",
        "all_gather_coalesced",
        "gather",
        "scatter",
        "all_to_all",
        "all_to_all_single",
    ),
    "Synchronising": ("barrier", "monitored_barrier"),
    "Objects": ("broadcast_object_list", "all_gather_object", "gather_object", "scatter_object_list"),
    "Point to point": (
        "send",
        "recv",
        "isend",
        "irecv",
        "batch_isend_irecv",
        "send_object_list",
        "recv_object_list",
    ),
}
GROUPS = ("new_group", "split", "join", "leave")


# --- text ------------------------------------------------------------------------------------------------------------


def prose(docstring: str | None) -> str:
    """A docstring as Markdown: its sections as lists, its code as code."""
    text = re.sub(r"``([^`]+)``", r"`\1`", inspect.cleandoc(docstring or ""))
    lines, in_section = [], False
    for line in text.splitlines():
        section = re.fullmatch(r"(Args|Raises|Returns|Source):", line)
        if section:
            lines += [f"**{section[1]}**", ""]
            in_section = True
        elif in_section and re.match(r"    \S", line):
            lines.append(_entry(line.strip()))
        elif in_section and line.startswith("        "):
            lines.append(f"  {line.strip()}")
        elif re.match(r"    \S", line) and not in_section:
            lines.append(line)
        else:
            in_section = in_section and not line.strip()
            lines.append(line)
    return "\n".join(lines)


def _entry(line: str) -> str:
    named = re.match(r"(\w+): (.*)", line)
    return f"- `{named[1]}`: {named[2]}" if named else f"- {line}"


def summary(function: Callable[..., Any]) -> str:
    """The first paragraph of what a function says about itself, in one line."""
    return prose(function.__doc__).partition("\n\n")[0].replace("\n", " ")


def call(name: str, function: Callable[..., Any]) -> str:
    """A call's spelling: parameters with their defaults, without types."""
    parts, starred = [], False
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            parts.append("*")
            starred = True
        default = "" if parameter.default is parameter.empty else f"={parameter.default!r}"
        parts.append(f"{parameter.name}{default}")
    return f"{name}({', '.join(parts)})"


def table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """A Markdown table."""
    lines = [header, ("---",) * len(header), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |" for line in lines)


# --- operations ------------------------------------------------------------------------------------------------------


def operations() -> str:
    """reference/operations.md."""
    _check_complete()
    parts = [
        "# Operations\n",
        f"{prose(inspect.getdoc(inspect.getmodule(Client.all_reduce)))}\n",
        "The blocking twin `hocket.client.sync` has a function of the same name and arguments for each of them, which "
        "waits unless it is called with `async_op=True`.\n",
    ]
    for title, names in OPERATIONS.items():
        parts.append(f"## {title}\n")
        for name in names:
            method = getattr(Client, name)
            parts += [f"### {name}\n", f"```text\n{call(name, method)}\n```\n", f"{prose(method.__doc__)}\n"]
    parts += [_connecting(), _groups(), _work(), _reductions(), _compression(), _twin()]
    return "\n".join(parts)


def _check_complete() -> None:
    """Fails where the SDK has an operation that the page would leave out."""
    listed = {name for names in OPERATIONS.values() for name in names}
    returns = {
        name
        for name, method in inspect.getmembers(Client, inspect.isfunction)
        if not name.startswith("_") and inspect.signature(method).return_annotation in (Work, list[Work])
    }
    assert returns == listed, f"operations and page differ: {sorted(returns ^ listed)}"


def _connecting() -> str:
    properties = [
        (f"`{name}`", prose(member.__doc__))
        for name, member in vars(Client).items()
        if isinstance(member, property) and not name.startswith("_") and name != "world_membership"
    ]
    return "\n".join(
        [
            "## Connecting\n",
            f"```text\n{call('hocket.connect', connect)}\n```\n",
            f"{prose(connect.__doc__)}\n",
            "A `Client` has, besides the operations:\n",
            table(
                ("attribute", "meaning"), [("`world`", "The group of the whole world; None without one."), *properties]
            ),
            f"\n`close()`: {prose(Client.close.__doc__)}\n",
        ]
    )


def _groups() -> str:
    parts = ["## Groups\n", f"{prose(Group.__doc__)}\n"]
    for name in GROUPS:
        method = getattr(Group, name, None) or getattr(Client, name)
        owner = " / ".join(kind.__name__.lower() for kind in (Client, Group) if hasattr(kind, name))
        parts += [f"### {name}\n", f"```text\n{owner}.{call(name, method)}\n```\n", f"{prose(method.__doc__)}\n"]
    return "\n".join(parts)


def _work() -> str:
    shown = [
        (f"`{call(name, member)}`", summary(member))
        for name, member in vars(Work).items()
        if inspect.isfunction(member) and not name.startswith("_") and name != "complete"
    ]
    source = "The rank of the sender, once a receive is done."
    return f"## Work\n\n{prose(Work.__doc__)}\n\n{table(('member', 'meaning'), [*shown, ('`source`', source)])}\n"


_OPS = ("SUM AVG PREMUL_SUM PRODUCT MIN MAX", "BAND BOR BXOR LAND LOR LXOR MINLOC MAXLOC")


def _reductions() -> str:
    ops = [name for line in _OPS for name in line.split()]
    assert set(ops) == set(NAMES)
    kinds: dict[str, list[str]] = {}
    for row in DTYPES.values():
        kinds.setdefault(row.kind, []).append(row.name)
    rows = []
    for kind, dtypes in kinds.items():
        can = [name for name in ops if _reduces(dtypes[0], name)]
        rows.append((", ".join(f"`{name}`" for name in dtypes), ", ".join(can) or f"none: {kind} moves only"))
    return "\n".join(
        [
            "## Reduce operations and dtypes\n",
            f"{prose(ReduceOp.__doc__)}\n",
            table(("dtype", "reduces by"), rows),
            "\nSums and products of float16 and bfloat16 are accumulated in float32 and rounded once. "
            "NaN propagates in MIN and MAX. Other dtypes (records, strings, dates) move between ranks and do not "
            "reduce.\n",
        ]
    )


def _compression() -> str:
    return "\n".join(
        [
            "## Compression\n",
            f"```text\n{call('hocket.Compression', Compression)}\n```\n",
            f"{prose(Compression.__doc__)}\n",
            '`compression="int8"` is short for `compression=hocket.Compression("int8")`. What it does to the numbers, '
            "and when it pays, is in docs/how-to/compression.md.\n",
        ]
    )


def _reduces(dtype: str, name: str) -> bool:
    try:
        check_reduce(dtype, ReduceOp(name, 0.5 if name == "PREMUL_SUM" else None))
    except UnsupportedError:
        return False
    return True


def _twin() -> str:
    own = [
        (f"`{call(name, getattr(sync, name))}`", summary(getattr(sync, name)))
        for name in sync.__all__
        if inspect.isfunction(getattr(sync, name)) and not hasattr(Client, name)
    ]
    return f"## The blocking twin\n\n{_demoted(prose(sync.__doc__))}\n\n{table(('function', 'meaning'), own)}\n"


def _demoted(text: str) -> str:
    """The indented example of a docstring as a block."""
    return re.sub(
        r"(?:^    .*\n|^\n(?=    ))+",
        lambda found: "\n```text\n" + inspect.cleandoc(found[0]) + "\n```\n",
        text,
        flags=re.MULTILINE,
    )


# --- errors ----------------------------------------------------------------------------------------------------------

_AT = Where("all_reduce", 17, "train", 4)
EXAMPLES: dict[type[HocketError], HocketError] = {
    ArgumentError: ArgumentError("dst", "7", "the world rank of a member, one of [0, 1]"),
    ArgumentTypeError: ArgumentTypeError("tensor", "of type float (3.5)", "an array in CPU memory"),
    MismatchError: MismatchError(
        (((2,), "all_reduce(float64[1000], op=SUM)"), ((0, 1), "all_reduce(float32[1000], op=SUM)"))
    ),
    UnsupportedError: UnsupportedError("int32", "reduce op AVG", "use SUM, or convert it to a floating point dtype"),
    SerialiseError: SerialiseError(1, "shop.Order", "call connect(allow_pickle=True) on every rank"),
    MemberLostError: MemberLostError((Member(2, "node7", 4711),), "killed"),
    EpochEndedError: EpochEndedError("this epoch has ended"),
    DeadlineError: DeadlineError(30.0, (3,)),
    AbortedError: AbortedError(1, "cancelled by its caller"),
    DeadlineAbortedError: DeadlineAbortedError(0, 30.0, (3,)),
    ConnectError: ConnectError("unix:/run/hocket/worker.sock", "HOCKET_WORKER", "No such file or directory"),
    AuthError: AuthError("the token is missing or wrong"),
    CoordinatorUnavailableError: CoordinatorUnavailableError("no answer within 35 s"),
    WireError: WireError("not hocket's protocol: b'GET '"),
    ClosedError: ClosedError("the client was closed"),
}
"""One of each, as it reads. `HocketError` and `UsageError` are raised as their subclasses."""
_PLACED = (MismatchError, MemberLostError, AbortedError, DeadlineError)
"""Raised by an operation that has begun."""


def errors() -> str:
    """reference/errors.md."""
    kinds = list(dict.fromkeys(_kinds(HocketError)))
    missing = set(kinds) - set(EXAMPLES) - {HocketError, UsageError}
    assert not missing, f"errors without an example: {missing}"
    assert all(getattr(hocket, kind.__name__, None) is kind for kind in kinds), "an error is missing from hocket itself"
    parts = [
        "# Errors\n",
        "All are attributes of `hocket`, and subclasses of `HocketError`. An error keeps its facts as attributes, and "
        "composes its sentence from them. Those of an operation also have `operation`, `number`, `group`, `epoch` and "
        "`channel`; `array_intact` is False where an operation in place was cut midway: its array is undefined.\n",
        table(("error", "also a", "attributes", "wire code"), [_row(kind) for kind in kinds]),
        "",
    ]
    for kind in kinds:
        parts += [f"\n## {kind.__name__}\n", prose(kind.__doc__)]
        if kind in EXAMPLES:
            example = EXAMPLES[kind]
            shown = example.at(_AT) if issubclass(kind, _PLACED) else example
            parts.append(f"\n```text\n{shown}\n```")
    return "\n".join(parts) + "\n"


def _kinds(kind: type[HocketError]) -> list[type[HocketError]]:
    below = [name for child in kind.__subclasses__() for name in _kinds(child)]
    return [kind, *below]


def _row(kind: type[HocketError]) -> tuple[str, ...]:
    bases = ", ".join(f"`{base.__name__}`" for base in kind.__bases__)
    link = f"[{kind.__name__}](#{kind.__name__.lower()})"
    return link, bases, ", ".join(f"`{fact}`" for fact in kind.facts), f"`{kind.code}`"


# --- protocol --------------------------------------------------------------------------------------------------------


def protocol() -> str:
    """reference/protocol.md."""
    oldest, newest = PROTOCOL_VERSIONS
    versions = f"version {newest}" if oldest == newest else f"versions {oldest} to {newest}"
    parts = [
        "# Wire protocol\n",
        f"This build speaks {versions}. Peers of different builds agree on one that both speak, "
        "or refuse each other.\n",
        "## Frames\n",
        f"{_demoted(prose(frames.__doc__))}\n",
        "## Handshake\n",
        f"{_demoted(prose(auth.__doc__))}\n",
        "## Messages\n",
        f"{prose(messages.__doc__)}\n",
    ]
    source = inspect.getsource(messages)
    titles = {found.start(): found[1] for found in re.finditer(r"^# --- (.+?) -+$", source, re.MULTILINE)}
    shown = ""
    for kind in [*_records(), *messages.MESSAGES.values()]:
        found = re.search(rf"^class {kind.__name__}\(", source, re.MULTILINE)
        assert found is not None
        title = titles[max(start for start in titles if start < found.start())]
        if title != shown:
            parts.append(f"### {title[0].upper()}{title[1:]}\n")
            shown = title
        number = f"{kind.code}: " if issubclass(kind, messages.Message) else ""
        parts += [f"#### {number}{kind.__name__}\n", f"{prose(kind.__doc__)}\n", _fields(kind)]
    return "\n".join(parts)


def _records() -> list[type[messages.Record]]:
    found = vars(messages).values()
    return [kind for kind in found if inspect.isclass(kind) and issubclass(kind, messages.Record)][1:]


def _fields(kind: type[Any]) -> str:
    rows = [(f"`{field.name}`", f"`{_type(field.type)}`") for field in dataclasses.fields(kind)]
    return table(("field", "type"), rows) + "\n"


def _type(annotation: Any) -> str:
    if annotation == messages.Facts:
        return "Facts"
    if annotation == messages.Facts | None:
        return "Facts | None"
    plain = isinstance(annotation, type) and not hasattr(annotation, "__args__")
    return (annotation.__name__ if plain else str(annotation)).replace("hocket.protocol.messages.", "")


PAGES: dict[str, Callable[[], str]] = {
    "reference/operations.md": operations,
    "reference/errors.md": errors,
    "reference/protocol.md": protocol,
}
