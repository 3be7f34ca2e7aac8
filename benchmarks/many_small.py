"""The claim: 64 small operations at once take less than 10 times as long as one.

Two ranks on one host submit 64 all_reduces of 1 KiB before they await the first of them, again and again; once all on
one channel, once each on a channel of its own, as tasks that know nothing of each other would.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable

import numpy as np
from claims import Found, Verdict, run_program

import hocket

OPERATIONS = 64
ELEMENTS = 256
LIMIT = 10.0
CALLS, WARM_CALLS = 300, 20


async def _median_us(client: hocket.Client, call: Callable[[], Awaitable[object]]) -> float:
    for _ in range(WARM_CALLS):
        await call()
    await client.barrier()
    times_us = []
    for _ in range(CALLS):
        start_s = time.perf_counter()
        await call()
        times_us.append((time.perf_counter() - start_s) * 1e6)
    return float(np.median(times_us))


async def measure(client: hocket.Client) -> Found:
    """One call alone, then 64 at once."""
    arrays = [np.zeros(ELEMENTS, np.float32) for _ in range(OPERATIONS)]

    async def on_one_channel() -> None:
        await asyncio.gather(*[client.all_reduce(array) for array in arrays])

    async def on_their_own() -> None:
        await asyncio.gather(*[client.all_reduce(array, channel=str(at)) for at, array in enumerate(arrays)])

    one = await _median_us(client, lambda: client.all_reduce(arrays[0]))
    together = await _median_us(client, on_one_channel)
    apart = await _median_us(client, on_their_own)
    return {"one_us": one, "one_channel_us": together, "own_channels_us": apart}


def judge(found: list[Found]) -> Verdict:
    """The slower rank counts."""
    figures = {name: round(max(rank[name] for rank in found), 1) for name in found[0]}
    together, apart = (figures[name] / figures["one_us"] for name in ("one_channel_us", "own_channels_us"))
    sentence = (
        f"{OPERATIONS} all_reduces of 1 KiB at once take {figures['one_channel_us']:.0f} µs on one channel, "
        f"{together:.1f} times as long as one ({figures['one_us']:.1f} µs); on a channel each {apart:.1f} times; "
        f"the limit is {LIMIT:g} times."
    )
    return Verdict("many small operations", sentence, together < LIMIT, figures)


if __name__ == "__main__":
    run_program(__file__, 2, measure, judge)
