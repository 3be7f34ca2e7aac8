"""Pages made from the daemons and the command line: configuration, commands, HTTP API, state diagrams."""

import enum
import inspect
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import typer
from generate_code import prose, table
from prometheus_client.parser import text_string_to_metric_families

from hocket.cli.app import app
from hocket.coordinator import __main__ as coordinator_main
from hocket.coordinator import config as coordinator_config
from hocket.coordinator import http, metrics, operations, records, views
from hocket.coordinator.core import Core
from hocket.protocol import limits
from hocket.worker import __main__ as worker_main

ROOT = Path(__file__).resolve().parents[1]
CLIENT = {
    "HOCKET_WORKER": "the worker's socket (`unix:/path`) or TCP address (`host:port`); else this host's default socket",
    "HOCKET_JOB": "the job: who meets whom; else `default`",
    "HOCKET_TOKEN_FILE": "file with the service's token, for a worker's TCP address",
    "HOCKET_SHARED": "`0`: never map the host's memory, have the worker carry everything out",
    "HOCKET_CORE": "`python`: do without the native core, also where it is installed",
    "RANK": "our rank in the job's world; else the coordinator gives one",
    "WORLD_SIZE": "size of that world; none: a client without a world",
}
COMMANDS = {
    "HOCKET_HTTP": "the coordinator's HTTP API, for the commands that show what it knows",
    "HOCKET_TOKEN_FILE": "file with the token, for an API beyond loopback",
    "HOCKET_JOB": "the job's name for `hocket run`; else one of its own",
    "HOCKET_WORKER": "the worker that `hocket run` uses, without `--hosts`; else it starts its own",
}
RUN_SETS = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "HOCKET_WORKER",
    "HOCKET_JOB",
    "HOCKET_HTTP",
    "MASTER_ADDR",
    "MASTER_PORT",
    "PYTHONUNBUFFERED",
)


# --- configuration ---------------------------------------------------------------------------------------------------


def configuration() -> str:
    """reference/configuration.md."""
    coordinator = [
        (f"`--{setting.replace('_', '-')}`", f"`{variable}`", coordinator_main.HELP[setting], _default(setting))
        for setting, variable in coordinator_config.VARIABLES.items()
    ]
    worker = [(f"`--{option}`", f"`{entry[0]}`", entry[2]) for option, entry in worker_main.OPTIONS.items()]
    text = "\n".join(
        [
            "# Configuration\n",
            "An option comes before its environment variable, a variable before the default.\n",
            "## Programs that connect\n",
            "Read by `hocket.connect()` and by the blocking twin where the argument is not given.\n",
            table(("variable", "meaning"), [(f"`{name}`", meaning) for name, meaning in CLIENT.items()]),
            "\n## `hocket coordinator`\n",
            table(("option", "variable", "meaning", "default"), coordinator),
            "\n## `hocket worker`\n",
            table(("option", "variable", "meaning (default)"), worker),
            "\n## Commands\n",
            table(("variable", "meaning"), [(f"`{name}`", meaning) for name, meaning in COMMANDS.items()]),
            f"\n`hocket run` sets for each rank: {', '.join(f'`{name}`' for name in RUN_SETS)}. What is set already of "
            "`MASTER_ADDR` and `MASTER_PORT` stays.\n",
            "\n## Limits\n",
            "All of them are in `protocol/limits.py`. Names end in their unit.\n",
            table(("name", "value", "meaning"), _limits()),
            "",
        ]
    )
    _check_variables(text)
    return text


def _default(setting: str) -> str:
    value = getattr(coordinator_config.CoordinatorConfig(), setting)
    return f"`{value}`" if value else "none"


def _check_variables(text: str) -> None:
    """Fails where the code reads a variable that the page would leave out."""
    packages = ("protocol", "client", "coordinator", "worker", "cli")
    sources = [path.read_text(encoding="utf-8") for package in packages for path in (ROOT / package).rglob("*.py")]
    read = {name for source in sources for name in re.findall(r"\bHOCKET_[A-Z_]*[A-Z]\b", source)}
    missing = sorted(name for name in read if f"`{name}`" not in text)
    assert not missing, f"variables that no page tells of: {missing}"
    launcher = (ROOT / "cli" / "launch.py").read_text(encoding="utf-8")
    assert all(f'"{name}"' in launcher for name in RUN_SETS), "hocket run sets other variables than the page says"


def _limits() -> list[tuple[str, ...]]:
    source = inspect.getsource(limits)
    entries = re.finditer(r'^([A-Z_]+): Final = (.+)$(?:\n"""((?:.|\n)+?)""")?', source, re.MULTILINE)
    return [(f"`{one[1]}`", f"`{one[2]}`", " ".join(prose(one[3]).split())) for one in entries]


# --- commands --------------------------------------------------------------------------------------------------------


def commands() -> str:
    """reference/cli.md."""
    parts = [
        "# Commands\n",
        "`hocket` is installed with the extra `server`. `hocket COMMAND --help` shows the same. An error is one line "
        "on standard error, and the exit status is 1.\n",
    ]
    found: Any = typer.main.get_command(app)
    for name, command in found.commands.items():
        words = [_argument(parameter) for parameter in command.params if parameter.param_type_name == "argument"]
        parts += [f"## hocket {name}\n", f"```text\nhocket {' '.join([name, '[OPTIONS]', *words])}\n```\n"]
        parts.append(f"{prose(command.help)}\n")
        rows = [_option(parameter) for parameter in command.params]
        if rows:
            parts.append(table(("option", "meaning"), rows) + "\n")
        if name in ("coordinator", "worker"):
            parts.append(f"Its options are in [configuration](configuration.md#hocket-{name}).\n")
    return "\n".join(parts)


def _argument(parameter: Any) -> str:
    name = f"{parameter.metavar or parameter.name.upper()}{'...' if parameter.nargs == -1 else ''}"
    return name if parameter.required else f"[{name}]"


def _option(parameter: Any) -> tuple[str, str]:
    if parameter.param_type_name == "argument":
        return f"`{_argument(parameter)}`", parameter.help or ""
    metavar = "" if parameter.is_flag else f" {parameter.metavar or 'TEXT'}"
    notes = []
    if parameter.envvar:
        notes.append(f"`{parameter.envvar}`")
    if parameter.default and not parameter.is_flag:
        notes.append(f"default `{parameter.default}`")
    more = f" ({', '.join(notes)})" if notes else ""
    return f"`{', '.join([*parameter.opts, *parameter.secondary_opts])}{metavar}`", f"{parameter.help or ''}{more}"


# --- HTTP ------------------------------------------------------------------------------------------------------------

VIEWS: dict[str, Callable[..., Any]] = {
    "status": views.status,
    "worker": views.worker,
    "job": views.job,
    "group": views.group,
    "group_in_full": views.group_in_full,
    "forming": views.forming,
    "barrier": views.barrier,
    "loss": views.loss,
    "operations": operations.merge,
}


def http_api() -> str:
    """reference/http-api.md."""
    doc = inspect.cleandoc(http.__doc__ or "")
    routes = re.findall(r"^    GET (\S+) +(.+)$", doc, re.MULTILINE)
    after = prose(doc[doc.rindex("    GET") :].partition("\n\n")[2])
    rows = [(f"`GET {path}`", _shape(shape)) for path, shape in routes]
    parts = [
        "# HTTP API\n",
        "The coordinator serves it, by default on `127.0.0.1:7421`. It shows; it changes nothing.\n",
        table(("request", "answer"), rows),
        f"\n{after}\n",
        prose(views.__doc__),
        "\n## Shapes\n",
    ]
    for name, make in VIEWS.items():
        parts += [f"### {name}\n", f"{prose(make.__doc__)}\n"]
    families = text_string_to_metric_families(metrics.render(Core(limits.LIVENESS_S, limits.HEARTBEAT_S), 0).decode())
    shown = [(f"`{family.name}`", family.type, family.documentation) for family in families]
    parts += ["## Metrics\n", "Counters end in `_total`.\n", table(("metric", "type", "meaning"), shown), ""]
    return "\n".join(parts)


def _shape(text: str) -> str:
    plain = re.sub(r"`(?:views|operations)\.(\w+)`", lambda found: f"[{_named(found[1])}](#{_named(found[1])})", text)
    return plain.replace('"', "").replace("{", "").replace("}", "") if "{" in text else plain


def _named(view: str) -> str:
    return "operations" if view == "merge" else view


# --- states ----------------------------------------------------------------------------------------------------------


def states() -> str:
    """explanation/states.md."""
    return "\n".join(
        [
            "# States in the coordinator\n",
            "Drawn from the tables in `coordinator/records.py`, by which the coordinator moves: a change that is not "
            "in the table cannot happen.\n",
            "## An epoch of a group\n",
            _diagram(records.GROUP_TABLE, records.GroupState.FORMING),
            _meanings(records.GroupState),
            "## A client\n",
            _diagram(records.SESSION_TABLE, records.SessionState.WAITING),
            _meanings(records.SessionState),
        ]
    )


def _diagram(moves: Mapping[Any, Mapping[Any, Any]], first: enum.Enum) -> str:
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {first.value}"]
    for state, changes in moves.items():
        lines += [f"    {state.value} --> {following.value}: {change.value}" for change, following in changes.items()]
        if not changes:
            lines.append(f"    {state.value} --> [*]")
    return "\n".join([*lines, "```", ""])


def _meanings(states: type[enum.Enum]) -> str:
    """Each state with the text that follows it in the source."""
    source = inspect.getsource(states)
    rows = re.findall(r'^    [A-Z]+ = "(\w+)"\n    """(.+?)"""', source, re.MULTILINE | re.DOTALL)
    assert len(rows) == len(states), f"a state of {states.__name__} is not explained"
    return table(("state", "meaning"), [(f"`{name}`", " ".join(text.split())) for name, text in rows]) + "\n"


PAGES: dict[str, Callable[[], str]] = {
    "reference/configuration.md": configuration,
    "reference/cli.md": commands,
    "reference/http-api.md": http_api,
    "explanation/states.md": states,
}
