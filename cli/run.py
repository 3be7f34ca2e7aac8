"""``hocket run``: starts a job's ranks on this machine, with a service of their own where none is configured."""

import asyncio
import os
import shutil
import tempfile
from typing import Annotated

import typer

from hocket.cli.embedded import folder_for_sockets
from hocket.cli.launch import Launch
from hocket.cli.output import MakePrinter, Printer
from hocket.cli.plan import Plan, read_hosts
from hocket.protocol.errors import ArgumentError

NOT_FOUND, NOT_EXECUTABLE = 127, 126
"""Exit statuses for commands that cannot be run, as shells have them."""

app = typer.Typer()


Number = Annotated[int, typer.Option("-n", "--ranks", metavar="N", min=1, help="Number of ranks.")]
Hosts = Annotated[
    str | None,
    typer.Option(
        "--hosts",
        metavar="K|ADDRESSES",
        help="Emulate K hosts, or use the workers at these addresses (host:port or unix:/path, with commas). "
        "Ranks are dealt to them in blocks.",
    ),
]
Job = Annotated[str | None, typer.Option("--job", envvar="HOCKET_JOB", help="The job's name; else one of its own.")]
Limit = Annotated[float | None, typer.Option("--timeout", metavar="S", help="End the run after S seconds (exit 124).")]
HttpPort = Annotated[int, typer.Option("--http", metavar="PORT", help="Port of the own coordinator's HTTP API.")]
NoPrefix = Annotated[bool, typer.Option("--no-prefix", help="Print the ranks' lines without their number.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Print what the own coordinator and workers log.")]
Command = Annotated[list[str], typer.Argument(metavar="CMD", help="The program, with its arguments.")]


@app.command(context_settings={"allow_interspersed_args": False})
def run(
    command: Command,
    ranks: Number,
    hosts: Hosts = None,
    job: Job = None,
    timeout: Limit = None,
    http: HttpPort = 0,
    no_prefix: NoPrefix = False,
    verbose: Verbose = False,
) -> None:
    """Runs a program as N ranks on this machine.

    Without HOCKET_WORKER (or with --hosts K) they get a coordinator and workers of their own, which end with them.
    The exit status is that of the rank that failed first.
    """
    _check_program(command[0])
    if timeout is not None and not timeout > 0:
        raise ArgumentError("--timeout", str(timeout), "seconds as a number above 0")
    plan = Plan(tuple(command), ranks, read_hosts(hosts, ranks), job, timeout, http, not no_prefix, verbose)
    if http and not isinstance(plan.hosts, int):
        raise ArgumentError("--http", str(http), "nothing, where the workers have a coordinator already")
    raise typer.Exit(execute(plan))


def execute(plan: Plan, printer: MakePrinter = Printer) -> int:
    """Runs the plan and returns the exit status. ``printer`` makes what shows the ranks' output."""
    with tempfile.TemporaryDirectory(prefix="hocket-", dir=folder_for_sockets(), ignore_cleanup_errors=True) as folder:
        return asyncio.run(Launch(plan, folder, printer).run())


def _check_program(name: str) -> None:
    """Says why a program cannot be run, and ends with the status that shells use for it."""
    if shutil.which(name) is not None:
        return
    found = os.path.exists(name)
    hint = f" (did you mean: python {name}?)" if name.endswith(".py") and found else ""
    typer.echo(f"hocket run: {name}: {'not executable' if found else 'no such program'}{hint}", err=True)
    raise typer.Exit(NOT_EXECUTABLE if found else NOT_FOUND)
