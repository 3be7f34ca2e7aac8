"""The claim: a rank that waits for others uses less than 2 % of a core, from the first second on.

One rank enters an all_reduce at once, the other one a few seconds later. The processor time of the first one's process,
all threads, is read a second after it has entered and again before the other one comes; so is its worker's.
"""

import asyncio
import os
import time
from pathlib import Path

import numpy as np
from claims import WORKER_PID, Found, Verdict, run_program

import hocket

SETTLE_S, WATCH_S = 1.0, 4.0
LIMIT = 0.02


def _worker_s() -> float:
    """Processor time that the worker has used."""
    fields = Path(f"/proc/{os.environ[WORKER_PID]}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def measure(client: hocket.Client) -> Found:
    """Rank 0 waits and is watched."""
    array = np.ones(256, np.float32)
    await client.all_reduce(array)
    await client.barrier()
    if client.rank:
        await asyncio.sleep(SETTLE_S + WATCH_S + 1.0)
        await client.all_reduce(array)
        return {}
    work = client.all_reduce(array)
    await asyncio.sleep(SETTLE_S)
    own_s, worker_s, start_s = time.process_time(), _worker_s(), time.perf_counter()
    await asyncio.sleep(WATCH_S)
    watched_s = time.perf_counter() - start_s
    found = {"rank": (time.process_time() - own_s) / watched_s, "worker": (_worker_s() - worker_s) / watched_s}
    assert not work.done(), "the other rank came too early"
    await work
    return found


def judge(found: list[Found]) -> Verdict:
    """Rank 0's figures."""
    figures = {f"{name}_percent": round(100 * share, 3) for name, share in found[0].items()}
    sentence = (
        f"a rank that waits uses {figures['rank_percent']:.2f} % of a core after {SETTLE_S:g} s, its worker "
        f"{figures['worker_percent']:.2f} %; the limit for the rank is {100 * LIMIT:g} %."
    )
    return Verdict("waiting", sentence, found[0]["rank"] < LIMIT, figures)


if __name__ == "__main__":
    run_program(__file__, 2, measure, judge)
