"""``hocket bench``: how fast the collectives are here, in the manner of nccl-tests."""

import asyncio
import os
import secrets
import sys
from typing import Annotated

import typer

from hocket.cli.bench_plan import (
    Settings,
    check_settings,
    parse_dtype,
    parse_op,
    parse_operations,
    parse_size,
)
from hocket.cli.bench_report import Report
from hocket.cli.bench_screen import ProgressLine, Screen, shown_directly
from hocket.cli.output import MakePrinter
from hocket.cli.plan import Plan, read_hosts
from hocket.cli.run import execute
from hocket.protocol.errors import ArgumentError, HocketError

LEAST_RANKS, MOST_RANKS = 2, 8
"""Without ``-n`` there is a rank for each processor, within these."""
WORLD = "WORLD_SIZE"
"""Set where somebody else starts the ranks, and this process is one of them."""

app = typer.Typer()

Operation = Annotated[
    str,
    typer.Argument(
        metavar="OPERATION",
        help="all_reduce (default), reduce, broadcast, all_gather, reduce_scatter, all_to_all, gather, scatter, "
        "sendrecv or barrier; several with commas; or all.",
    ),
]
Ranks = Annotated[
    int | None,
    typer.Option("-n", "--ranks", metavar="N", min=1, help="Number of ranks; else one a processor, 2 to 8."),
]
Smallest = Annotated[str, typer.Option("-b", "--minbytes", metavar="SIZE", help="Smallest size: 4, 8K, 64M, 1G.")]
Largest = Annotated[str, typer.Option("-e", "--maxbytes", metavar="SIZE", help="Largest size.")]
Factor = Annotated[
    int | None, typer.Option("-f", "--stepfactor", metavar="F", help="Each size is F times the one before (2).")
]
Step = Annotated[
    str | None, typer.Option("-i", "--stepbytes", metavar="SIZE", help="Or larger than the one before by SIZE.")
]
Warmup = Annotated[int, typer.Option("-w", "--warmup", metavar="N", min=0, help="Calls before the time is taken.")]
Iterations = Annotated[
    int | None,
    typer.Option("--iters", metavar="N", min=1, help="Calls that are timed; else 20, and more until 0.1 s are filled."),
]
Dtype = Annotated[str, typer.Option("-d", "--datatype", metavar="DTYPE", help="Dtype, such as float32 or bfloat16.")]
Op = Annotated[str, typer.Option("-o", "--op", metavar="OP", help="Reduce operation: sum, avg, prod, min, max, ...")]
Root = Annotated[int, typer.Option("-r", "--root", metavar="RANK", help="Root, for operations that have one.")]
Check = Annotated[bool, typer.Option("--check/--no-check", help="Look at every element of every result.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print a JSON object for each row, and one with the summary.")]
Compression = Annotated[
    str | None, typer.Option("--compression", metavar="KIND", help="bf16 or int8: passed on to all_reduce.")
]
BoardMemory = Annotated[bool, typer.Option("--board-memory", help="Take the buffers from the host's shared memory.")]
Hosts = Annotated[
    str | None,
    typer.Option("--hosts", metavar="K|ADDRESSES", help="Emulate K hosts, or use the workers at these addresses."),
]
Worker = Annotated[str | None, typer.Option("--worker", metavar="ADDRESS", help="Use the worker at this address.")]
Limit = Annotated[float | None, typer.Option("--timeout", metavar="S", help="End after S seconds (exit 124).")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Print what the own coordinator and workers log.")]


@app.command()
def bench(
    operation: Operation = "all_reduce",
    ranks: Ranks = None,
    smallest: Smallest = "4",
    largest: Largest = "64M",
    factor: Factor = None,
    step: Step = None,
    warmup: Warmup = 5,
    iterations: Iterations = None,
    dtype: Dtype = "float32",
    op: Op = "sum",
    root: Root = 0,
    check: Check = True,
    as_json: AsJson = False,
    compression: Compression = None,
    board_memory: BoardMemory = False,
    hosts: Hosts = None,
    worker: Worker = None,
    timeout: Limit = None,
    verbose: Verbose = False,
) -> None:
    """Measures operations for a range of sizes: time, bandwidths as nccl-tests counts them, and wrong elements.

    Starts its ranks as `hocket run` does: on the service that HOCKET_WORKER or --hosts names, else on one of its own.
    Where WORLD_SIZE is set, it is one rank itself, and rank 0 prints. The exit status is 1 where elements were wrong.
    """
    settings = Settings(
        operations=parse_operations(operation),
        smallest_nbytes=parse_size(smallest, "-b"),
        largest_nbytes=parse_size(largest, "-e"),
        factor=_factor(factor, step),
        step_nbytes=None if step is None else parse_size(step, "-i"),
        warmup=warmup,
        iterations=iterations,
        dtype=parse_dtype(dtype),
        op=parse_op(op),
        root=root,
        check=check,
        compression=compression,
        board_memory=board_memory,
    )
    report, progress = Report(settings, as_json), ProgressLine()
    try:
        if WORLD in os.environ:
            _refuse_to_start(ranks, hosts, timeout)
            _take_part(settings, report, progress, worker)
        else:
            plan = _plan(settings, ranks, hosts if worker is None else _only(worker, hosts), timeout, verbose)
            status = execute(plan, _screen(report, progress))
            if status:
                raise typer.Exit(status)
    finally:
        progress.clear()
    if report.wrong:
        raise HocketError(report.verdict())


def _factor(factor: int | None, step: str | None) -> int | None:
    """The factor between sizes; None where there is a step."""
    if factor is not None and step is not None:
        raise ArgumentError("-i", step, "nothing beside -f: sizes grow by one of them")
    return None if step is not None else 2 if factor is None else factor


def _only(worker: str, hosts: str | None) -> str:
    if hosts is not None:
        raise ArgumentError("--worker", worker, "nothing beside --hosts, which takes several addresses with commas")
    if worker.isdecimal():
        raise ArgumentError("--worker", worker, "an address: host:port or unix:/path")
    return worker


# --- starting the ranks ----------------------------------------------------------------------------------------------


def _plan(settings: Settings, ranks: int | None, hosts: str | None, timeout_s: float | None, verbose: bool) -> Plan:
    if timeout_s is not None and not timeout_s > 0:
        raise ArgumentError("--timeout", str(timeout_s), "seconds as a number above 0")
    if ranks is None:
        processors = len(os.sched_getaffinity(0))
        ranks = max(LEAST_RANKS, min(MOST_RANKS, processors))
    check_settings(settings, ranks)
    command = (sys.executable, "-m", "hocket.cli.bench_rank", settings.to_json())
    job = f"bench-{os.getpid()}-{secrets.token_hex(4)}"
    return Plan(
        command, ranks, read_hosts(hosts, ranks), job, timeout_s, prefix=ranks > 1, verbose=verbose, name="hocket bench"
    )


def _screen(report: Report, progress: ProgressLine) -> MakePrinter:
    return lambda prefix, on_broken: Screen(report, progress, prefix, on_broken)


# --- being one of them -----------------------------------------------------------------------------------------------


def _refuse_to_start(ranks: int | None, hosts: str | None, timeout_s: float | None) -> None:
    """Says which options are for a benchmark that starts its ranks."""
    world = os.environ[WORLD]
    if ranks is not None and str(ranks) != world.strip():
        raise ArgumentError("-n", str(ranks), f"{world} or not given: {WORLD} is set, so that others start the ranks")
    for option, given in (("--hosts", hosts), ("--timeout", timeout_s)):
        if given is not None:
            raise ArgumentError(option, str(given), f"nothing: {WORLD} is set, so that others start the ranks")


def _take_part(settings: Settings, report: Report, progress: ProgressLine, worker: str | None) -> None:
    """Measures as one rank of a world that others have started."""
    from hocket.cli.bench_rank import take_part  # numpy is not for those who only start ranks

    wrong = asyncio.run(take_part(settings, shown_directly(report, progress), worker))
    if wrong and not report.wrong:  # rank 0 tells what they are
        raise typer.Exit(1)
