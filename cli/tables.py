"""The coordinator's answers as tables that fit a terminal of 80 to 120 columns. Pure: views in, things to print out."""

from collections.abc import Iterable, Sequence
from typing import Any

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

View = dict[str, Any]
SHOWN = 8
"""Members that are listed in a cell before the rest is counted."""


def duration(seconds: float) -> str:
    """A time as people say it.

    >>> duration(0.042), duration(3.14), duration(75), duration(7300)
    ('42 ms', '3.1 s', '1 min 15 s', '2 h 1 min')
    """
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> RenderableType:
    """A table, or a line that says there is nothing. Columns that begin with ``>`` hold numbers."""
    made = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        right = column.startswith(">")
        made.add_column(column.lstrip(">"), justify="right" if right else "left", no_wrap=right, overflow="fold")
    for row in rows:
        made.add_row(*(Text(cell) for cell in row))
    return made if made.row_count else Text(f"no {title}")


def status(view: View) -> list[RenderableType]:
    """The whole in numbers, what waits, and who was lost last."""
    numbers = [f"{view[name]} {name}" for name in ("workers", "jobs", "sessions", "groups")]
    losses = ", ".join(f"{number} {cause}" for cause, number in view["losses"].items()) or "none"
    shown: list[RenderableType] = [
        Text(", ".join(numbers)),
        Text(f"since the start: {view['joins']} joins, {view['groups_formed']} groups formed; losses: {losses}"),
    ]
    if view["waiting"]:
        shown.append(forming(view["waiting"]))
    if view["barriers"]:
        shown.append(barriers(view["barriers"]))
    if view["last_losses"]:
        rows = [
            (
                loss["job"],
                _who(loss),
                _ranks_lost(loss),
                loss["cause"],
                f"{duration(loss['age_s'])} ago",
                loss["detail"],
            )
            for loss in view["last_losses"]
        ]
        shown.append(table("lost members", ("job", "who", "ranks", "cause", "when", "detail"), rows))
    return shown


def _who(view: View) -> str:
    place = f"{view['host']}, pid {view['pid']}"
    return f"{view['name']} ({place})" if view.get("name") else place


def _ranks_lost(loss: View) -> str:
    return ", ".join(f"{entry['rank']} of {entry['group']} (epoch {entry['epoch']})" for entry in loss["ranks"])


def workers(view: View) -> list[RenderableType]:
    """The workers: where they are, and when they were heard."""
    rows = [
        (
            entry["name"],
            str(entry["host"]),
            f"{entry['address']}:{entry['port']}",
            str(entry["pid"]),
            str(entry["sessions"]),
            duration(entry["age_s"]),
            f"{duration(entry['silent_s'])} ago",
        )
        for entry in view["workers"]
    ]
    return [table("workers", ("name", ">host", "data address", ">pid", ">sessions", ">up", ">heard"), rows)]


def jobs(view: View) -> list[RenderableType]:
    """The jobs: their worlds and what these wait for."""
    rows = [
        (
            entry["name"],
            str(len(entry["sessions"])),
            str(entry["groups"]),
            _world(entry["world"]),
            entry["waiting"] or "",
        )
        for entry in view["jobs"]
    ]
    return [table("jobs", ("job", ">sessions", ">groups", "world", "next world"), rows)]


def _world(world: View | None) -> str:
    return f"epoch {world['epoch']}, {world['size']} members, {world['state']}" if world else "none"


def groups(view: View) -> list[RenderableType]:
    """The groups that live, and those that wait for members."""
    rows = [
        (
            entry["name"],
            entry["job"],
            str(entry["epoch"]),
            str(entry["size"]),
            _some(entry["hosts"]),
            duration(entry["age_s"]),
            str(entry["group"]),
        )
        for entry in view["groups"]
    ]
    shown = [table("groups", ("group", "job", ">epoch", ">size", "hosts", ">age", ">number"), rows)]
    return [*shown, forming(view["forming"])] if view["forming"] else shown


def _some(names: Sequence[str]) -> str:
    more = f", ... {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def forming(entries: Sequence[View]) -> RenderableType:
    """Groups that wait for members: who waits, and for whom."""
    rows = []
    for entry in entries:
        waiting = [f"{_seat(ask)}: {_who(ask)}, for {duration(ask['age_s'])}" for ask in entry["waiting"]]
        rows.append((entry["title"], entry["reason"], _lines(waiting)))
    return table("groups that wait for members", ("group", "reason", "who waits"), rows)


def _seat(ask: View) -> str:
    return "any rank" if ask["rank"] is None else f"rank {ask['rank']}"


def group(view: View) -> list[RenderableType]:
    """One group, each epoch of it that is known, with its members."""
    shown = []
    for entry in view["groups"]:
        title = f"group {entry['name']!r} of job {entry['job']!r}, epoch {entry['epoch']}, {entry['state']}"
        rows = [
            (
                str(member["rank"]),
                "-" if member["world_rank"] is None else str(member["world_rank"]),
                member["host"],
                str(member["pid"]),
                member["name"],
            )
            for member in entry["members"]
        ]
        shown.append(table(title, (">rank", ">world rank", "host", ">pid", "name"), rows))
        if entry["error"]:
            shown.append(Text(f"ended {duration(entry['ended_s'])} ago: {entry['error']}"))
    return shown


def barriers(entries: Sequence[View]) -> RenderableType:
    """The barriers that somebody waits in."""
    rows = [
        (
            f"{'monitored_barrier' if entry['monitored'] else 'barrier'} #{entry['number']}",
            _place(entry),
            _arrived(entry),
            _missing(entry),
        )
        for entry in entries
    ]
    return table("barriers", ("barrier", "group", "arrived", "missing"), rows)


def operations(view: View) -> list[RenderableType]:
    """The operations under way: who arrived and when, who is missing and since when."""
    rows = [
        (f"{entry['operation']} #{entry['number']}", _place(entry), _arrived(entry), _missing(entry))
        for entry in view["operations"]
    ]
    shown = [table("operations", ("operation", "group", "arrived", "missing"), rows)]
    if view["silent"]:
        shown.append(Text(f"no answer from {', '.join(view['silent'])}: what is under way there is not shown"))
    return shown


def _place(entry: View) -> str:
    lines = [f"{entry['group_name']} (number {entry['group']})", f"epoch {entry['epoch']}, job {entry['job']}"]
    return "\n".join([*lines, f"channel {entry['channel']}"] if entry["channel"] else lines)


def _arrived(entry: View) -> str:
    return _lines([f"rank {who['rank']} {duration(who['age_s'])} ago" for who in entry["arrived"]])


def _missing(entry: View) -> str:
    lines = [
        f"rank {who['rank']} missing for {duration(who['missing_s'])} ({who['host']}, pid {who['pid']})"
        for who in entry["missing"]
    ]
    return _lines(lines) or "none"


def _lines(lines: Sequence[str]) -> str:
    more = [f"... {len(lines) - SHOWN} more"] if len(lines) > SHOWN else []
    return "\n".join([*lines[:SHOWN], *more])
