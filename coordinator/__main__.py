"""``python -m hocket.coordinator``: runs a coordinator until SIGTERM or SIGINT. ``hocket coordinator`` is the same."""

import argparse
import asyncio
import logging
import os
import signal
import sys
from collections.abc import Sequence

from hocket.coordinator.config import VARIABLES, CoordinatorConfig, read_config
from hocket.coordinator.server import Coordinator
from hocket.protocol.addresses import Address
from hocket.protocol.daemon import run_daemon
from hocket.protocol.notify import feed_watchdog, notify

logger = logging.getLogger("hocket.coordinator")
HELP = {
    "host": "address that workers connect to; beyond loopback it needs a token",
    "port": "its port; 0 takes a free one",
    "http_host": "address of the HTTP API; beyond loopback it needs a token",
    "http_port": "its port; 0 takes a free one",
    "token_file": "file with the service's token",
    "liveness_s": "silence of a worker, in seconds, that counts as the loss of its host",
    "heartbeat_s": "seconds between the workers' signs of life",
}


def _read_arguments(arguments: Sequence[str] | None) -> CoordinatorConfig:
    parser = argparse.ArgumentParser(prog="hocket coordinator", description="Keeps groups and barriers for workers.")
    defaults = CoordinatorConfig()
    for setting, text in HELP.items():
        default = getattr(defaults, setting)
        shown = f"{text} ({VARIABLES[setting]}{f', default {default}' if default else ''})"
        parser.add_argument(f"--{setting.replace('_', '-')}", metavar=setting.rsplit("_", 1)[-1].upper(), help=shown)
    return read_config(os.environ, vars(parser.parse_args(arguments)))


async def serve(config: CoordinatorConfig) -> None:
    """Runs a coordinator until the process is told to end. Raises what `Coordinator.start` raises."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    async with Coordinator(config) as coordinator:
        address, http = Address(config.host, coordinator.port), Address(config.http_host, coordinator.http_port)
        logger.info("coordinator listening on %s, http on %s", address, http)
        notify("READY=1")
        watchdog = asyncio.create_task(feed_watchdog())
        await ended.wait()
        watchdog.cancel()
        notify("STOPPING=1")
        logger.info("coordinator stops")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the program. Returns its exit status: 0 after a signal to end, 1 if it could not start."""
    return run_daemon("coordinator", lambda: serve(_read_arguments(arguments)))


if __name__ == "__main__":
    sys.exit(main())
