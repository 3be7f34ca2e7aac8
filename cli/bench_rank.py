"""One rank of ``hocket bench``: makes the calls, checks what comes of them, and takes the time.

``python -m hocket.cli.bench_rank SETTINGS`` is what the command starts; rank 0 prints what happens, one JSON object on
each line, and the command shows it.
"""

import asyncio
import importlib.metadata
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import hocket
from hocket.cli.bench_cases import Case, Cases
from hocket.cli.bench_data import Array
from hocket.cli.bench_plan import OPERATIONS, Operation, Settings, check_settings, counts, iterations_for, percentile
from hocket.cli.bench_report import Event
from hocket.client.client import Client
from hocket.fabric import core
from hocket.protocol.errors import ArgumentError, HocketError
from hocket.protocol.reduce_ops import ReduceOp

TELL_EVERY_S = 0.25
"""How often rank 0 says how far it is: seldom enough to cost nothing that could be measured."""

Tell = Callable[[Event], None]


class Rank:
    """Measures everything that the settings ask for. ``tell`` hears of it, on rank 0 alone."""

    def __init__(self, client: Client, settings: Settings, tell: Tell) -> None:
        """Raises ArgumentError where the settings do not go with the world, or with this version."""
        check_settings(settings, client.size)
        self._client, self._settings = client, settings
        self._told = tell if client.rank == 0 else None
        self._under_way: Event = {}
        self._cases = Cases(client, settings, self._memory())

    def _memory(self) -> Callable[[int, "np.dtype[Any]"], Array]:
        if not self._settings.board_memory:
            return np.empty
        empty: Callable[[int, np.dtype[Any]], Array] | None = getattr(self._client, "empty", None)
        if empty is None:
            raise ArgumentError("--board-memory", "given", "nothing: this version gives no memory on the board")
        return empty

    def _tell(self, event: str, **facts: Any) -> None:
        if self._told is not None:
            self._told({"event": event, **facts})

    async def measure(self) -> int:
        """Measures. Returns how many elements were wrong, on all ranks together."""
        await self._introduce()
        found = 0
        for name in self._settings.operations:
            operation = OPERATIONS[name]
            for count in counts(operation, self._settings, self._client.size):
                row: Event = {"operation": name, "count": count}
                for form in operation.forms:
                    row[form] = figures = await self._measure(operation, form, count)
                    found += figures["wrong"] or 0
                self._tell("row", **row)
        self._tell("end")
        await self._client.barrier()  # so that nobody leaves while somebody still waits
        return found

    async def _introduce(self) -> None:
        mine = [self._client.host, os.getpid(), core.describe()]
        everybody: list[Any] = [None] * self._client.size
        await self._client.all_gather_object(everybody, mine)
        hosts, pids, cores = zip(*everybody, strict=True)
        self._tell("begin", version=_installed(), hosts=hosts, pids=pids, cores=sorted(set(cores)))

    async def _measure(self, operation: Operation, form: str, count: int) -> Event:
        """Figures of one operation, size and form, the same on every rank: those of the slowest one."""
        case = self._cases.make(operation, form, count)
        self._under_way = {"operation": operation.name, "count": count, "form": form}
        self._tell("progress", **self._under_way, done=0, of=0)
        wrong = await self._wrong(case)
        if operation.reduces:
            case.blank()
        iterations = await self._warm_up(case)
        await self._client.barrier()
        begun_s, ends_s = await self._time(case, iterations)
        each = sorted(after - before for before, after in zip([begun_s, *ends_s], ends_s, strict=False))
        mean = (ends_s[-1] - begun_s) / iterations
        mine = np.array([mean, percentile(each, 0.5), percentile(each, 0.99), each[0]])
        await self._client.all_reduce(mine, ReduceOp.MAX)
        names = ("time_s", "median_s", "p99_s", "min_s")
        return {**dict(zip(names, mine.tolist(), strict=True)), "iterations": iterations, "wrong": wrong}

    async def _wrong(self, case: Case) -> int | None:
        """Calls once and looks at every element, on every rank. None where that is not wanted."""
        case.prepare()  # also touches every page, before the time is taken
        await self._client.barrier()
        await case.call()
        if not self._settings.check:
            return None
        word = np.array([case.wrong()])
        await self._client.all_reduce(word)
        return int(word[0])

    async def _warm_up(self, case: Case) -> int:
        """Calls untimed, and has rank 0 say how often to repeat."""
        fastest_s = float("inf")
        for _ in range(self._settings.warmup):
            begun_s = time.perf_counter()
            await case.call()
            fastest_s = min(fastest_s, time.perf_counter() - begun_s)
        word = np.array([iterations_for(self._settings, fastest_s)])
        await self._client.broadcast(word, 0)
        return int(word[0])

    async def _time(self, case: Case, iterations: int) -> tuple[float, list[float]]:
        """When the calls began, and when each of them ended. They follow one another at once."""
        call, clock = case.call, time.perf_counter
        ends_s: list[float] = []
        note = ends_s.append
        begun_s = clock()
        next_s = begun_s + TELL_EVERY_S
        for _ in range(iterations):
            await call()
            now_s = clock()
            note(now_s)
            if now_s > next_s:
                self._tell("progress", **self._under_way, done=len(ends_s), of=iterations)
                next_s = now_s + TELL_EVERY_S
        return begun_s, ends_s


async def take_part(settings: Settings, tell: Tell, worker: str | None = None, job: str | None = None) -> int:
    """Joins the world that the environment names, and measures as one of its ranks.

    Args:
        settings: the same on every rank.
        tell: hears, on rank 0, what `hocket.cli.bench_report` shows.
        worker: where to connect; else as `hocket.connect` finds it. Likewise ``job``.

    Returns:
        How many elements were wrong, on all ranks together.

    Raises:
        HocketError: it could not be measured.
    """
    async with hocket.connect(worker, job=job) as client:
        try:
            rank = Rank(client, settings, tell)
        except MemoryError as lacking:
            raise HocketError(f"there is no memory for the buffers: {lacking} (-e: the largest size)") from lacking
        return await rank.measure()


def _installed() -> str:
    try:
        return importlib.metadata.version("hocket")
    except importlib.metadata.PackageNotFoundError:
        return "(not installed)"


def main(arguments: Sequence[str]) -> int:
    """A rank's process. Returns its exit status; that elements were wrong is rank 0's to tell, and no failure."""

    def tell(event: Event) -> None:
        print(json.dumps(event), flush=True)

    try:
        asyncio.run(take_part(Settings.from_json(arguments[0]), tell))
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except HocketError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
