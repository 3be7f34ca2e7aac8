"""``python -m hocket.worker``: runs a worker until SIGTERM or SIGINT. ``hocket worker`` is the same."""

import argparse
import asyncio
import logging
import os
import signal
import sys
from collections.abc import Sequence

from hocket.protocol.daemon import run_daemon
from hocket.protocol.notify import feed_watchdog, notify
from hocket.worker.agent import Worker
from hocket.worker.config import WorkerConfig

log = logging.getLogger("hocket.worker")
OPTIONS = {
    "coordinator": ("HOCKET_COORDINATOR", "ADDRESS", "where the coordinator listens (127.0.0.1:7420)"),
    "socket": ("HOCKET_SOCKET", "PATH", "Unix socket for the ranks of this host"),
    "socket-mode": ("HOCKET_SOCKET_MODE", "OCTAL", "its permissions, such as 0660 for a group (0600)"),
    "listen": ("HOCKET_LISTEN", "ADDRESS", "TCP address for ranks without this host's memory (none)"),
    "data-address": (
        "HOCKET_DATA_ADDRESS",
        "ADDRESS",
        "address for other workers (ours on the route to the coordinator)",
    ),
    "name": ("HOCKET_HOST_NAME", "NAME", "name of this host (its host name)"),
    "token-file": ("HOCKET_TOKEN_FILE", "PATH", "file with the service's token"),
}
"""Option to environment variable, placeholder and meaning."""


def read_arguments(arguments: Sequence[str] | None) -> WorkerConfig:
    """Settings from options, else from the environment, else the defaults."""
    parser = argparse.ArgumentParser(prog="hocket worker", description="Serves the ranks of one host.")
    for option, (variable, placeholder, text) in OPTIONS.items():
        parser.add_argument(f"--{option}", metavar=placeholder, help=f"{text}; {variable}")
    given = vars(parser.parse_args(arguments))
    environ = dict(os.environ)
    for option, (variable, _, _) in OPTIONS.items():
        value = given[option.replace("-", "_")]
        if value is not None:
            environ[variable] = value
    return WorkerConfig.from_environment(environ)


async def serve(config: WorkerConfig) -> None:
    """Runs a worker until the process is told to end. Raises what keeps it from working: a taken address, a refusal."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    worker = Worker(config)
    try:
        await worker.start()
        log.info("worker %s listening on %s", config.name, config.socket)
        life = asyncio.create_task(_live(worker))
        until = asyncio.create_task(ended.wait())
        await asyncio.wait({life, until}, return_when=asyncio.FIRST_COMPLETED)
        until.cancel()
        life.cancel()
        notify("STOPPING=1")
        if not ended.is_set():
            await life
    finally:
        await worker.stop()
    log.info("worker %s stops", config.name)


async def _live(worker: Worker) -> None:
    """Ready is said once the coordinator knows us: only then can ranks join."""
    await worker.registered()
    notify("READY=1")
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(feed_watchdog())
        await worker.run()


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the program. Returns its exit status: 0 after a signal to end, 1 if it could not start or go on."""
    return run_daemon("worker", lambda: serve(read_arguments(arguments)))


if __name__ == "__main__":
    sys.exit(main())
