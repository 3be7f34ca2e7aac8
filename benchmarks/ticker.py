"""The claim: operations do not hold up the event loop of who calls them.

A task beside the calls wakes every millisecond and notes when it did. Reported is the longest time between two of its
wake-ups: with nothing else to do, during all_reduces of 64 MiB, and during 10,000 of 1 KiB, each awaited by itself.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable

import numpy as np
from claims import Found, Verdict, run_program

import hocket

TICK_S = 0.001
QUIET_S = 1.0
LARGE_NBYTES, LARGE_CALLS = 64 << 20, 12
SMALL_ELEMENTS, SMALL_CALLS = 256, 10_000


async def _largest_gap_ms(work: Callable[[], Awaitable[object]]) -> float:
    """The longest time between two wake-ups of a ticker while ``work`` is done."""
    largest_s, done = 0.0, False

    async def tick() -> None:
        nonlocal largest_s
        last_s = time.perf_counter()
        while not done:
            await asyncio.sleep(TICK_S)
            now_s = time.perf_counter()
            largest_s, last_s = max(largest_s, now_s - last_s), now_s

    ticker = asyncio.create_task(tick())
    await asyncio.sleep(0)
    await work()
    done = True
    await ticker
    return largest_s * 1e3


async def measure(client: hocket.Client) -> Found:
    """Quiet, large, small; every call has been made once before."""
    large, small = np.zeros(LARGE_NBYTES // 4, np.float32), np.zeros(SMALL_ELEMENTS, np.float32)

    async def repeat(array: "np.ndarray[tuple[int], np.dtype[np.float32]]", calls: int) -> None:
        for _ in range(calls):
            await client.all_reduce(array)

    await repeat(large, 2)
    await repeat(small, 100)
    found = {"quiet_ms": await _largest_gap_ms(lambda: asyncio.sleep(QUIET_S))}
    for name, array, calls in (("large_ms", large, LARGE_CALLS), ("small_ms", small, SMALL_CALLS)):
        await client.barrier()
        found[name] = await _largest_gap_ms(lambda array=array, calls=calls: repeat(array, calls))  # type: ignore[misc]
    return found


def judge(found: list[Found]) -> Verdict:
    """The longest gap of any rank. Nothing is promised, for the machine has a part in it."""
    figures = {name: round(max(rank[name] for rank in found), 2) for name in found[0]}
    sentence = (
        f"a ticker of 1 ms on the ranks’ event loops was held up for {figures['large_ms']:.1f} ms at most during "
        f"{LARGE_CALLS} all_reduces of 64 MiB, for {figures['small_ms']:.1f} ms during {SMALL_CALLS:,} of 1 KiB "
        f"({figures['quiet_ms']:.1f} ms with nothing to do)."
    )
    return Verdict("event loop", sentence, None, figures)


if __name__ == "__main__":
    run_program(__file__, 2, measure, judge)
