"""``hocket status``, ``workers``, ``jobs``, ``groups``, ``group``, ``barriers``, ``ops``: what the coordinator sees."""

import json
from collections.abc import Callable, Sequence
from typing import Annotated

import typer
from rich.console import Console, RenderableType

from hocket.cli import tables
from hocket.cli.http_client import Json, fetch
from hocket.protocol.errors import HocketError
from hocket.protocol.limits import COORDINATOR_HOST, HTTP_PORT

DEFAULT_HTTP = f"{COORDINATOR_HOST}:{HTTP_PORT}"
PIPE_COLUMNS = 120

app = typer.Typer(no_args_is_help=True, help="Shows what the coordinator knows.")

AsJson = Annotated[bool, typer.Option("--json", help="Print the API's JSON.")]
Http = Annotated[
    str, typer.Option("--http", envvar="HOCKET_HTTP", metavar="HOST:PORT", help="The coordinator's HTTP API.")
]
TokenFile = Annotated[str, typer.Option("--token-file", envvar="HOCKET_TOKEN_FILE", help="File with the token.")]
JobName = Annotated[str | None, typer.Option("--job", help="Of this job only.")]


@app.command()
def status(as_json: AsJson = False, http: Http = DEFAULT_HTTP, token_file: TokenFile = "") -> None:
    """The whole in numbers, all that waits, and the members that were lost last."""
    _show(http, token_file, "/api/status", as_json, tables.status)


@app.command()
def workers(as_json: AsJson = False, http: Http = DEFAULT_HTTP, token_file: TokenFile = "") -> None:
    """The workers, their data addresses and when they were heard last."""
    _show(http, token_file, "/api/workers", as_json, tables.workers)


@app.command()
def jobs(as_json: AsJson = False, http: Http = DEFAULT_HTTP, token_file: TokenFile = "") -> None:
    """The jobs and their worlds."""
    _show(http, token_file, "/api/jobs", as_json, tables.jobs)


@app.command()
def groups(as_json: AsJson = False, http: Http = DEFAULT_HTTP, token_file: TokenFile = "", job: JobName = None) -> None:
    """The groups that live, and those that wait for members."""
    _show(http, token_file, "/api/groups", as_json, tables.groups, job)


@app.command()
def group(
    name: Annotated[str, typer.Argument(help="Name or number of a group.")],
    as_json: AsJson = False,
    http: Http = DEFAULT_HTTP,
    token_file: TokenFile = "",
    job: JobName = None,
) -> None:
    """One group: its epochs, members, and how it ended."""
    _show(http, token_file, f"/api/groups/{name}", as_json, tables.group, job)


@app.command()
def barriers(as_json: AsJson = False, http: Http = DEFAULT_HTTP, token_file: TokenFile = "") -> None:
    """The barriers that somebody waits in: who arrived, who is missing."""
    _show(http, token_file, "/api/barriers", as_json, lambda view: [tables.barriers(view["barriers"])])


@app.command()
def ops(as_json: AsJson = False, http: Http = DEFAULT_HTTP, token_file: TokenFile = "") -> None:
    """The operations under way: who arrived and when, who is missing and since when."""
    _show(http, token_file, "/api/ops", as_json, tables.operations)


def _show(
    http: str,
    token_file: str,
    path: str,
    as_json: bool,
    render: Callable[[Json], Sequence[RenderableType]],
    job: str | None = None,
) -> None:
    """Asks and prints. An error goes to standard error, and the exit status is 1."""
    try:
        view = fetch(http, path, {"job": job}, token_file)
    except HocketError as error:
        typer.echo(f"hocket: {error}", err=True)
        raise typer.Exit(1) from error
    if as_json:
        typer.echo(json.dumps(view, indent=2))
        return
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=PIPE_COLUMNS)
    for part in render(view):
        console.print(part)
