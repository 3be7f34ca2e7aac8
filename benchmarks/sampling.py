"""How one rank measures, whatever the system, and what the ranks' clock readings become.

Every rank is one process on this machine, and CLOCK_MONOTONIC is one clock for all of them. Each notes when it entered
and when it left every call. A sample is

    symmetric operations    the time from one call's last exit to the next call's last exit: calls are made back to back
                            and the loop's period is what a call costs
    broadcast               the time from the root's entry to the last exit; before each call there is a barrier outside
                            of the sample, or the root would run ahead of the others
"""

import json
import os
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from cases import ROOT, Case, Floats, make_case

Times = npt.NDArray[np.int64]
"""int64[2, calls]: when a rank entered and left, in nanoseconds of the monotonic clock."""
SETTINGS = "HOCKET_BENCH_SETTINGS"
WARM_CALLS = 4
TRIAL_CALLS = 3
LARGE_NBYTES = 4 << 20
"""From here on a call is so long that fewer of them have to do."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the ranks of one job do; the driver hands it to them in an environment variable, as JSON."""

    folder: str
    """where each rank leaves ``<op>.<nbytes>.<rank>.npy``"""
    size: int
    ops: tuple[str, ...]
    sizes: tuple[int, ...]
    budget_s: float
    """about how long the measured calls of one case may take"""
    most_calls: int = 2000
    least_calls: int = 10
    least_large_calls: int = 4

    def fields(self) -> dict[str, Any]:
        """As a dictionary, of which another process can make them again."""
        return asdict(self)

    def dump(self) -> str:
        """As JSON."""
        return json.dumps(self.fields())

    @classmethod
    def read(cls) -> "Settings":
        """Those of this process."""
        found = json.loads(os.environ[SETTINGS])
        return cls(**found | {"ops": tuple(found["ops"]), "sizes": tuple(found["sizes"])})

    def cases(self) -> Iterable[tuple[str, int]]:
        """Operations and sizes in order; a barrier has one size."""
        for op in self.ops:
            for nbytes in (0,) if op == "barrier" else self.sizes:
                yield op, nbytes


class Rank(Protocol):
    """What a system has to offer to be measured."""

    rank: int
    size: int

    def empty(self, length: int) -> Floats:
        """float32[length] as this system's users would make it."""

    def bind(self, case: Case) -> Callable[[], Any]:
        """The call to be measured, all its arguments at hand."""

    async def once(self, call: Callable[[], Any]) -> None:
        """Makes one call and waits for its end."""

    async def run(self, call: Callable[[], Any], times: Times, apart: bool) -> None:
        """Makes a call for each column of ``times`` and notes entry and exit; ``apart``: with a barrier before each."""

    async def barrier(self) -> None:
        """Returns once all have entered."""

    async def agree(self, value: float) -> float:
        """Rank 0's value."""


async def measure_all(rank: Rank, settings: Settings) -> None:
    """Goes through all cases. Raises AssertionError where a result is wrong."""
    for op, nbytes in settings.cases():
        case = make_case(op, nbytes, rank.rank, rank.size, rank.empty)
        call = rank.bind(case)
        await rank.once(call)
        assert case.is_right(), f"wrong result: {op} of {nbytes} bytes on rank {rank.rank} of {rank.size}"
        case.settle()
        times = await _measure(rank, settings, call, op == "broadcast", nbytes >= LARGE_NBYTES)
        np.save(Path(settings.folder) / f"{op}.{nbytes}.{rank.rank}.npy", times)


async def _measure(rank: Rank, settings: Settings, call: Callable[[], Any], apart: bool, large: bool) -> Times:
    for _ in range(0 if large else WARM_CALLS):
        await rank.once(call)
    await rank.barrier()
    trials = 1 if large else TRIAL_CALLS
    start_s = time.perf_counter()
    await rank.run(call, np.zeros((2, trials), np.int64), apart)
    each_s = max((time.perf_counter() - start_s) / trials, 1e-7)
    least, most = (settings.least_large_calls, 200) if large else (settings.least_calls, settings.most_calls)
    calls = int(await rank.agree(float(max(least, min(most, int(settings.budget_s / each_s))))))
    if not large:  # once more, now that the ranks run in step
        await rank.run(call, np.zeros((2, min(20, calls)), np.int64), apart)
    times = np.zeros((2, calls + 1), np.int64)
    await rank.barrier()
    await rank.run(call, times, apart)
    return times


class Blocking:
    """`once` and `run` of systems whose calls block."""

    async def once(self, call: Callable[[], Any]) -> None:
        """Makes one call."""
        call()

    async def run(self, call: Callable[[], Any], times: Times, apart: bool) -> None:
        """See `Rank`."""
        clock, (entries, exits) = time.perf_counter_ns, times
        for at in range(times.shape[1]):
            if apart:
                self.block()
            entries[at] = clock()
            call()
            exits[at] = clock()

    async def barrier(self) -> None:
        """See `Rank`."""
        self.block()

    def block(self) -> None:
        """The system's barrier."""
        raise AssertionError("subclasses define it")


class Awaiting:
    """`once` and `run` of systems whose calls are awaited."""

    async def once(self, call: Callable[[], Awaitable[Any]]) -> None:
        """Makes one call."""
        await call()

    async def run(self, call: Callable[[], Awaitable[Any]], times: Times, apart: bool) -> None:
        """See `Rank`."""
        clock, (entries, exits) = time.perf_counter_ns, times
        for at in range(times.shape[1]):
            if apart:
                await self.barrier()
            entries[at] = clock()
            await call()
            exits[at] = clock()

    async def barrier(self) -> None:
        """See `Rank`."""
        raise AssertionError("subclasses define it")


# --- what the readings become ----------------------------------------------------------------------------------------


def samples_us(op: str, times: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """The samples of one case, in microseconds, from int64[ranks, 2, calls]. The first call is only where it begins."""
    entries, exits = times[:, 0, :], times[:, 1, :]
    last = exits.max(axis=0)
    found: Times = (last - entries[ROOT])[1:] if op == "broadcast" else np.diff(last)
    return found.astype(np.float64) / 1e3


def collect(settings: Settings) -> list[dict[str, Any]]:
    """One row for each case that all ranks have finished."""
    rows = []
    for op, nbytes in settings.cases():
        paths = [Path(settings.folder) / f"{op}.{nbytes}.{rank}.npy" for rank in range(settings.size)]
        if not all(path.exists() for path in paths):
            continue
        found = samples_us(op, np.stack([np.load(path) for path in paths]))
        middle, high = (round(float(value), 2) for value in np.percentile(found, (50, 99)))
        case = {"op": op, "nbytes": nbytes, "calls": len(found)}
        rows.append(case | {"median_us": middle, "p99_us": high})
    return rows
