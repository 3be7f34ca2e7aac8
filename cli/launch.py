"""One run: the ranks start, their output is shown, and all of them end, whatever happens to one of them or to us."""

import asyncio
import os
import secrets
import signal
import socket
from collections.abc import Coroutine, Sequence

from rich.console import Console

from hocket.cli import tables
from hocket.cli.embedded import Embedded, Service, last_line
from hocket.cli.failures import Failure, describe, exit_status, first_failure, last_words
from hocket.cli.http_client import fetch
from hocket.cli.output import MakePrinter, Printer, discard
from hocket.cli.plan import Plan, deal
from hocket.cli.processes import Child, Children, Sink, end_groups
from hocket.protocol.errors import HocketError

Steps = Sequence[tuple[int | None, float]]
"""Signals (None: none yet) for the ranks, and the seconds that they get after each."""

AFTER_FAILURE: Steps = ((None, 5.0), (signal.SIGTERM, 3.0), (signal.SIGKILL, 2.0))
"""A member's loss ends the others' operations, so that they may well end by themselves."""
AFTER_INTERRUPT: Steps = ((signal.SIGINT, 5.0), (signal.SIGTERM, 3.0), (signal.SIGKILL, 2.0))
AFTER_TERM: Steps = ((signal.SIGTERM, 5.0), (signal.SIGKILL, 2.0))
AT_ONCE: Steps = ((signal.SIGKILL, 2.0),)
LEFT_BEHIND = ((signal.SIGTERM, 1.0), (signal.SIGKILL, 1.0))
"""For what a rank has started and not ended."""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
TIMED_OUT = 124
"""Exit status after ``--timeout``, as timeout(1) has it."""


class Launch:
    """A run of a plan, in a folder for its sockets."""

    def __init__(self, plan: Plan, folder: str, printer: MakePrinter = Printer) -> None:
        self._plan, self._folder = plan, folder
        self._printer = printer(plan.prefix, lambda: self._told(signal.SIGPIPE))
        self._ranks: list[Child] = []
        self._failed: list[Child] = []
        self._status: int | None = None
        """what we were told to end with"""
        self._signalled = False
        self._ending: asyncio.Task[None] | None = None
        self._over = asyncio.Event()
        self._http = ""

    async def run(self) -> int:
        """Runs it. Returns the exit status; nothing that it has started is left.

        Raises:
            HocketError: the service did not start.
        """
        children = Children()
        embedded = Embedded(children, self._folder, self._daemon_sink, self._daemon_ended)
        loop = asyncio.get_running_loop()
        heeded = [number for number in SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
        for number in heeded:
            loop.add_signal_handler(number, self._told, number)
        try:
            service = await self._service(embedded)
            if self._status is None and service is not None:
                self._start(children, service)
                await self._until_over()
            return self._verdict()
        finally:
            await embedded.stop()
            children.close()
            for number in heeded:
                loop.remove_signal_handler(number)

    async def _service(self, embedded: Embedded) -> Service | None:
        """The service, embedded or not; None where we were told to end before it was there."""
        if not isinstance(self._plan.hosts, int):
            return Service(list(self._plan.hosts), os.environ.get("HOCKET_HTTP", ""))
        starting = asyncio.create_task(embedded.start(self._plan.hosts, self._plan.http_port))
        told = asyncio.create_task(self._over.wait())
        await asyncio.wait({starting, told}, return_when=asyncio.FIRST_COMPLETED)
        told.cancel()
        if not starting.done():
            starting.cancel()
            await asyncio.wait({starting})
            return None
        service = starting.result()
        self._http = service.http
        if self._plan.verbose:
            self._printer.say(f"{self._plan.name}: HOCKET_HTTP={service.http} {' '.join(service.workers)}")
        return service

    # --- the ranks ---------------------------------------------------------------------------------------------------

    def _start(self, children: Children, service: Service) -> None:
        plan = self._plan
        common = dict(os.environ)
        common |= {"PYTHONUNBUFFERED": "1", "WORLD_SIZE": str(plan.ranks)}
        common["HOCKET_JOB"] = plan.job or f"run-{os.getpid()}-{secrets.token_hex(4)}"
        if service.http:
            common["HOCKET_HTTP"] = service.http
        if "MASTER_PORT" not in common:  # all ranks are on this machine: torch's env:// works as it is
            common |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port())}
        placement = deal(plan.ranks, len(service.workers))
        for rank, host in enumerate(placement):
            own = {
                "RANK": str(rank),
                "LOCAL_RANK": str(rank - placement.index(host)),
                "LOCAL_WORLD_SIZE": str(placement.count(host)),
                "HOCKET_WORKER": service.workers[host],
            }
            sink = self._printer.sink(str(rank), rank)
            try:
                self._ranks.append(children.start(str(rank), plan.command, common | own, sink, self._rank_ended))
            except OSError as broken:
                self._printer.say(f"{self._plan.name}: {plan.command[0]}: {broken.strerror}")
                self._status = 126
                self._end_by(AT_ONCE)
                break

    def _rank_ended(self, child: Child) -> None:
        if child.status:
            if not self._signalled:
                self._failed.append(child)
            if self._ending is None:
                self._end_by(AFTER_FAILURE)
        if all(rank.status is not None for rank in self._ranks):
            self._over.set()

    async def _until_over(self) -> None:
        """Waits for the ranks, and then sees to it that they leave nothing behind."""
        loop = asyncio.get_running_loop()
        limit = None
        if self._plan.timeout_s is not None:
            limit = loop.call_later(self._plan.timeout_s, self._out_of_time)
        if self._ranks:
            await self._over.wait()
        if limit is not None:
            limit.cancel()
        if self._ending is not None:
            self._ending.cancel()
        await end_groups(self._ranks, LEFT_BEHIND)
        for rank in self._ranks:
            await rank.ended.wait()
            await rank.drain()

    # --- the end -----------------------------------------------------------------------------------------------------

    def _end_by(self, steps: Steps) -> None:
        """Has the ranks end, in these steps instead of those that may be under way."""
        self._begin(self._escalate(steps))

    def _begin(self, ending: Coroutine[None, None, None]) -> None:
        if self._ending is not None:
            self._ending.cancel()
        self._ending = asyncio.get_running_loop().create_task(ending)

    async def _escalate(self, steps: Steps) -> None:
        for number, grace_s in steps:
            if number is not None:
                self._signalled = True
                for rank in self._ranks:
                    rank.signal_group(number)
            await asyncio.sleep(grace_s)
        self._over.set()

    def _told(self, number: int) -> None:
        """We got a signal: it is passed on. The second one ends everything at once."""
        repeated = self._status is not None
        if not repeated:
            self._status = 128 + number
        if not self._ranks:
            self._over.set()
        steps = AFTER_INTERRUPT if number == signal.SIGINT else AFTER_TERM
        self._end_by(AT_ONCE if repeated else steps)

    def _out_of_time(self) -> None:
        if self._status is None:
            self._status = TIMED_OUT
            self._begin(self._end_late())

    async def _end_late(self) -> None:
        """Says what the ranks wait for, as long as they do, and ends them."""
        running = ", ".join(rank.label for rank in self._ranks if rank.status is None)
        self._printer.say(f"{self._plan.name}: no end within {self._plan.timeout_s:g} s; still running: {running}")
        if self._http:
            await self._show_operations()
        await self._escalate(AFTER_TERM)

    async def _show_operations(self) -> None:
        try:
            view = await asyncio.to_thread(fetch, self._http, "/api/ops", None, os.environ.get("HOCKET_TOKEN_FILE", ""))
        except HocketError as error:
            self._printer.say(f"{self._plan.name}: {error}")
            return
        console = Console(highlight=False, width=120)
        with console.capture() as shown:
            for part in tables.operations(view):
                console.print(part)
        self._printer.say(shown.get().rstrip())

    def _verdict(self) -> int:
        """The exit status; where a rank failed, it is named and its last words are repeated."""
        if self._status is not None:
            return self._status
        if not self._failed:
            return 0
        first = first_failure([_failure(child) for child in self._failed])
        if self._plan.ranks > 1:
            words = last_words(first.lines)
            self._printer.say(f"rank {first.rank} failed first ({describe(first.status)}){':' if words else ''}")
            for line in words:
                self._printer.say(f"  {line}")
        return exit_status(first.status)

    # --- the daemons -------------------------------------------------------------------------------------------------

    def _daemon_sink(self, label: str) -> Sink:
        return self._printer.sink(label, 0) if self._plan.verbose else discard

    def _daemon_ended(self, child: Child) -> None:
        how = describe(child.status or 0)
        self._printer.say(f"{self._plan.name}: the {child.label} has ended ({how}): {last_line(child)}")


def _failure(child: Child) -> Failure:
    lines = tuple(line.decode(errors="replace").rstrip() for line in child.tail)
    return Failure(int(child.label), child.status or 0, lines)


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])
