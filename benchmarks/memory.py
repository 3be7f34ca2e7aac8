"""The claims: eight ranks of a host share less than 40 MiB of board memory, and operations leave no memory taken.

Eight ranks make every kind of operation, with arrays far larger than the board; then what the worker's boards occupy is
added up. After that two of them make 100,000 small all_reduces in a group of their own, and the resident memory of rank
0's process and of the worker is compared with what it was after a tenth of that.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from claims import WORKER_PID, Found, Verdict, run_program

import hocket

RANKS = 8
LARGE_ELEMENTS = (8 << 20) // 4
SMALL_ELEMENTS, SMALL_CALLS, WARM_CALLS = 256, 100_000, 10_000
BOARD_LIMIT_MIB = 40.0
GROWTH_LIMIT_MIB = 1.0
"""About 10 bytes for each operation: less than anything that could be left behind."""
MIB = 1 << 20


def _boards(pid: str) -> Iterator[tuple[int, int]]:
    """Size and occupied memory, in bytes, of each memfd that a process has open."""
    seen = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            if os.readlink(entry).startswith("/memfd:"):
                file = entry.stat()
                if file.st_ino not in seen:
                    yield file.st_size, file.st_blocks * 512
                seen.add(file.st_ino)
        except FileNotFoundError:  # closed meanwhile
            continue


def _resident_mib(pid: str) -> float:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(encoding="utf-8"))
    assert found is not None
    return int(found[1]) / 1024


async def _make_every_kind(client: hocket.Client) -> None:
    whole = np.zeros(LARGE_ELEMENTS, np.float32)
    part, other = np.zeros(LARGE_ELEMENTS // client.size, np.float32), np.empty_like(whole)
    await client.all_reduce(whole)
    await client.broadcast(whole, 0)
    await client.all_gather_into_tensor(whole, part)
    await client.reduce_scatter_tensor(part, whole)
    await client.all_to_all_single(other, whole)
    await client.barrier()


async def measure(client: hocket.Client) -> Found:
    """All ranks, then two of them."""
    worker = os.environ[WORKER_PID]
    await _make_every_kind(client)
    await client.barrier()
    boards = list(_boards(worker))
    await client.barrier()
    pair = await client.new_group([0, 1])
    if client.rank > 1:
        return {}
    array, resident = np.zeros(SMALL_ELEMENTS, np.float32), []
    for calls in (WARM_CALLS, SMALL_CALLS):
        for _ in range(calls):
            await client.all_reduce(array, group=pair)
        resident.append((_resident_mib("self"), _resident_mib(worker)))
    (own_before, worker_before), (own_after, worker_after) = resident
    return {
        "board_mib": sum(occupied for _, occupied in boards) / MIB,
        "board_size_mib": sum(size for size, _ in boards) / MIB,
        "rank_growth_mib": own_after - own_before,
        "worker_growth_mib": worker_after - worker_before,
        "rank_resident_mib": own_after,
        "worker_resident_mib": worker_after,
    }


def judge(found: list[Found]) -> Verdict:
    """Both claims at once."""
    figures = {name: round(value, 2) for name, value in found[0].items()}
    growth = max(figures["rank_growth_mib"], figures["worker_growth_mib"])
    sentence = (
        f"{RANKS} ranks of a host occupy {figures['board_mib']:.1f} MiB of board memory (limit {BOARD_LIMIT_MIB:g}); "
        f"over {SMALL_CALLS:,} operations a rank’s resident memory grows by {figures['rank_growth_mib']:.2f} MiB and "
        f"its worker’s by {figures['worker_growth_mib']:.2f} MiB (limit {GROWTH_LIMIT_MIB:g})."
    )
    is_met = figures["board_mib"] < BOARD_LIMIT_MIB and growth < GROWTH_LIMIT_MIB
    return Verdict("memory", sentence, is_met, figures)


if __name__ == "__main__":
    run_program(__file__, RANKS, measure, judge)
