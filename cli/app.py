"""All commands under one name: `hocket.cli.__main__` runs them."""

import importlib.metadata
import platform

import typer

from hocket.cli import bench, run, status
from hocket.protocol.limits import PROTOCOL_VERSIONS

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    help="Collective communication: starts the services and jobs, and shows what they do.",
)
for part in (run, bench, status):
    app.registered_commands += part.app.registered_commands

_PASSED_ON = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}


@app.command(context_settings=_PASSED_ON)
def coordinator() -> None:
    """Runs a coordinator until SIGTERM (its options: hocket coordinator --help)."""
    raise AssertionError("the main program runs the daemons itself")


@app.command(context_settings=_PASSED_ON)
def worker() -> None:
    """Runs a worker until SIGTERM (its options: hocket worker --help)."""
    raise AssertionError("the main program runs the daemons itself")


@app.command()
def version() -> None:
    """The versions of hocket, of its protocol and of Python."""
    try:
        installed = importlib.metadata.version("hocket")
    except importlib.metadata.PackageNotFoundError:
        installed = "(not installed)"
    oldest, newest = PROTOCOL_VERSIONS
    spoken = str(newest) if oldest == newest else f"{oldest} to {newest}"
    typer.echo(f"hocket {installed}, protocol {spoken}, Python {platform.python_version()}")
