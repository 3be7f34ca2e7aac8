"""The blocking twin: torch.distributed's module-level functions for a process that is one rank.

    import hocket.client.sync as dist

    dist.init_process_group()                      # RANK, WORLD_SIZE, HOCKET_WORKER, as `hocket run` sets them
    dist.all_reduce(gradients)                     # returns when it has ended
    work = dist.all_reduce(other, async_op=True)   # returns at once
    work.wait()
    dist.destroy_process_group()

Each operation is the method of the same name of `hocket.Client`, with the same arguments; see there. It blocks the
calling thread only, and gives what awaiting the method gives; with ``async_op=True`` it gives the `Work`. Ctrl-C (or
whatever a signal handler raises) ends the operation for the group, with `AbortedError` on the other ranks.

**Threads.** All functions may be called from any thread. Operations in one channel of one group match by the order of
calls, so threads that call at the same time take a group or a ``channel`` each. Groups made at the same time take a
``name`` each: groups of the same ranks match by name, and those of one name by the order of calls.

**Event loops.** All of this works in a coroutine, too, and blocks its loop meanwhile. An asyncio client may be used
next to it in the same process.
"""

import inspect
import os
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

from hocket.client.client import Client, connect
from hocket.client.engine import engine
from hocket.client.group import Group
from hocket.client.messaging import P2POp
from hocket.client.work import Work
from hocket.protocol.compression import Compression
from hocket.protocol.errors import ArgumentError, ArgumentTypeError, ClosedError, HocketError, UsageError
from hocket.protocol.limits import VERDICT_TIMEOUT_S
from hocket.protocol.messages import NOBODY
from hocket.protocol.reduce_ops import ReduceOp

__all__ = [
    "Compression",
    "Group",
    "P2POp",
    "ReduceOp",
    "Work",
    "all_gather",
    "all_gather_coalesced",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_reduce",
    "all_reduce_coalesced",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "batch_isend_irecv",
    "broadcast",
    "broadcast_object_list",
    "destroy_process_group",
    "exscan",
    "gather",
    "gather_object",
    "get_global_rank",
    "get_group_rank",
    "get_process_group_ranks",
    "get_rank",
    "get_world_size",
    "init_process_group",
    "irecv",
    "is_available",
    "is_initialized",
    "isend",
    "join",
    "monitored_barrier",
    "new_group",
    "recv",
    "recv_object_list",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "scan",
    "scatter",
    "scatter_object_list",
    "send",
    "send_object_list",
    "split",
]

P = ParamSpec("P")
T = TypeVar("T")

_client: Client | None = None
_lock = threading.Lock()
_inherited: list[Client | None] = []
"""Clients of a parent process: kept for good, since to finalise them is for the parent alone."""


# --- life ------------------------------------------------------------------------------------------------------------


def init_process_group(
    worker: str | None = None,
    *,
    job: str | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    timeout: float | None = None,
    token: str | bytes | None = None,
    name: str | None = None,
    allow_pickle: bool = False,
    shared: bool | None = None,
) -> None:
    """Joins this process to its job's world: see `hocket.connect` for the arguments, their defaults and the errors.

    Raises:
        UsageError: the process is in a world already.
    """
    global _client
    with _lock:
        if is_initialized():
            raise UsageError("initialised already: call destroy_process_group() before initialising again")
        how: dict[str, Any] = {"allow_pickle": allow_pickle, "shared": shared}
        connecting = connect(
            worker, job=job, rank=rank, world_size=world_size, timeout=timeout, token=token, name=name, **how
        )

        async def open_client() -> Client:
            return await connecting

        _client = _run(open_client())


def destroy_process_group(group: Group | None = None) -> None:
    """Leaves a group, or (none given) the job with all its groups. Then `init_process_group` may be called again.

    Raises:
        ClosedError: not initialised.
    """
    global _client
    with _lock:
        client = _initialised()
        if group is not None and group is not client.world:
            group.leave()
            return
        _client = None
        _run(client.close())


def is_available() -> bool:
    """True: for code that asks."""
    return True


def is_initialized() -> bool:
    """Whether this process is in a world: between `init_process_group` and `destroy_process_group`."""
    return _client is not None and not _client.closed


def _initialised() -> Client:
    if _client is None:
        raise ClosedError("not initialised: call init_process_group() first")
    return _client


def _forget_in_child() -> None:
    """After a fork: the child is in no world and may initialise."""
    global _client, _lock
    _inherited.append(_client)
    _client, _lock = None, threading.Lock()


os.register_at_fork(after_in_child=_forget_in_child)


# --- who and where ---------------------------------------------------------------------------------------------------


def get_rank(group: Group | None = None) -> int:
    """This process's rank in the world or a group, -1 where it is no member. Raises `ClosedError` as all do."""
    return (_initialised() if group is None else _checked(group)).rank


def get_world_size(group: Group | None = None) -> int:
    """Size of the world or a group, -1 where this process is no member."""
    of = _initialised() if group is None else _checked(group)
    return of.size if of.rank != NOBODY else NOBODY


def get_process_group_ranks(group: Group | None = None) -> list[int]:
    """World ranks of the members, by their ranks in the group."""
    return list((_initialised() if group is None else _checked(group)).ranks)


def get_group_rank(group: Group, global_rank: int) -> int:
    """The rank in a group of the member with a rank in the world. Raises `ArgumentError` if there is none."""
    ranks = get_process_group_ranks(group)
    if global_rank not in ranks:
        raise ArgumentError("global_rank", repr(global_rank), f"the world rank of a member: {ranks}")
    return ranks.index(global_rank)


def get_global_rank(group: Group, group_rank: int) -> int:
    """The rank in the world of the member with a rank in the group. Raises `ArgumentError` if there is none."""
    ranks = get_process_group_ranks(group)
    if group_rank not in range(len(ranks)):
        raise ArgumentError("group_rank", repr(group_rank), f"0 to {len(ranks) - 1}")
    return ranks[group_rank]


def _checked(group: object) -> Group:
    _initialised()
    if not isinstance(group, Group):
        raise ArgumentTypeError("group", f"{group!r:.60} ({type(group).__name__})", "a Group")
    return group


# --- groups ----------------------------------------------------------------------------------------------------------


def new_group(ranks: Sequence[int] | None = None, timeout: float | None = None, name: str = "") -> Group:
    """A group of some ranks of the world: see `hocket.Group.new_group`."""
    return _run(_initialised().new_group(ranks, timeout, name))


def split(color: int | None, key: int = 0, group: Group | None = None, *, timeout: float | None = None) -> Group | None:
    """Divides the world or a group, whose members all call: see `hocket.Group.split`."""
    client = _initialised()
    return _run((client if group is None else group).split(color, key, timeout))


def join(name: str, size: int, rank: int | None = None, timeout: float | None = None) -> Group:
    """A named group among any clients of the job: see `hocket.Client.join`."""
    return _run(_initialised().join(name, size, rank, timeout))


def _run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine on the engine's loop, whatever runs in this thread."""
    try:
        _not_from_within()
    except HocketError:
        coroutine.close()
        raise
    future = engine().call(coroutine)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


# --- operations ------------------------------------------------------------------------------------------------------


def _not_from_within() -> None:
    """Refuses to wait in one of the engine's own threads, which would then wait for itself."""
    if threading.current_thread().name.startswith("hocket-"):
        raise UsageError("a callback of an operation cannot wait for another one: it runs on the thread that ends them")


def _wait(work: Work) -> Any:
    """The outcome of an operation. One that has ended inside the call costs no more than the call."""
    if work.done():
        return work.result()
    try:
        return work.wait()
    except HocketError:
        raise
    except BaseException:  # Ctrl-C, or what a signal handler raised: the caller's arrays are its own when this returns
        _abandon(work)
        raise


def _abandon(work: Work) -> None:
    ended = threading.Event()

    def look(done: Work) -> None:
        done.exception()
        ended.set()

    work.cancel("interrupted")
    work.add_done_callback(look)
    ended.wait(VERDICT_TIMEOUT_S)


def _like(method: Callable[..., Any], made: Callable[..., Any], returns: object, name: str = "") -> None:
    """Gives a function the name, text and parameters of a client's method."""
    made.__module__, made.__doc__ = __name__, method.__doc__
    made.__name__ = made.__qualname__ = name or method.__name__
    signature = inspect.signature(method)
    parameters = list(signature.parameters.values())[1:]
    made.__signature__ = signature.replace(parameters=parameters, return_annotation=returns)  # type: ignore[attr-defined]


def _blocking(method: Callable[Concatenate[Client, P], Work]) -> Callable[P, Any]:
    """A client's method as a function that waits, unless it is called with ``async_op=True``."""
    parameters = list(inspect.signature(method).parameters)
    place = parameters.index("async_op") - 1 if "async_op" in parameters else len(parameters)

    def call(*args: P.args, **kwargs: P.kwargs) -> Any:
        if kwargs.get("async_op") or (len(args) > place and args[place]):
            return method(_initialised(), *args, **kwargs)
        _not_from_within()
        return _wait(method(_initialised(), *args, **kwargs))

    _like(method, call, Any)
    return call


def _starting(method: Callable[Concatenate[Client, P], T]) -> Callable[P, T]:
    """A client's method as a function that returns at once."""

    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        return method(_initialised(), *args, **kwargs)

    _like(method, call, inspect.signature(method).return_annotation)
    return call


def _sending(name: str, method: Callable[Concatenate[Client, P], Work]) -> Callable[P, None]:
    """A client's method as a function that waits and returns nothing."""

    def call(*args: P.args, **kwargs: P.kwargs) -> None:
        _not_from_within()
        _wait(method(_initialised(), *args, **kwargs))

    _like(method, call, None, name)
    return call


def _receiving(name: str, method: Callable[Concatenate[Client, P], Work]) -> Callable[P, int]:
    """A client's method as a function that waits and returns the sender's rank."""

    def call(*args: P.args, **kwargs: P.kwargs) -> int:
        _not_from_within()
        work = method(_initialised(), *args, **kwargs)
        _wait(work)
        assert work.source is not None, "a receive ended without a sender"
        return work.source

    _like(method, call, int, name)
    return call


all_reduce = _blocking(Client.all_reduce)
reduce = _blocking(Client.reduce)
scan = _blocking(Client.scan)
exscan = _blocking(Client.exscan)
reduce_scatter = _blocking(Client.reduce_scatter)
reduce_scatter_tensor = _blocking(Client.reduce_scatter_tensor)
all_reduce_coalesced = _blocking(Client.all_reduce_coalesced)
broadcast = _blocking(Client.broadcast)
all_gather = _blocking(Client.all_gather)
all_gather_into_tensor = _blocking(Client.all_gather_into_tensor)
all_gather_coalesced = _blocking(Client.all_gather_coalesced)
gather = _blocking(Client.gather)
scatter = _blocking(Client.scatter)
all_to_all = _blocking(Client.all_to_all)
all_to_all_single = _blocking(Client.all_to_all_single)
barrier = _blocking(Client.barrier)
monitored_barrier = _blocking(Client.monitored_barrier)
broadcast_object_list = _blocking(Client.broadcast_object_list)
all_gather_object = _blocking(Client.all_gather_object)
gather_object = _blocking(Client.gather_object)
scatter_object_list = _blocking(Client.scatter_object_list)
send = _sending("send", Client.send)
recv = _receiving("recv", Client.recv)
isend = _starting(Client.isend)
irecv = _starting(Client.irecv)
send_object_list = _sending("send_object_list", Client.send_object_list)
recv_object_list = _receiving("recv_object_list", Client.recv_object_list)
batch_isend_irecv = _starting(Client.batch_isend_irecv)
