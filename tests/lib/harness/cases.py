"""What the field cases share: layouts of ranks on hosts, the outcome on every rank, and the check after it."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pytest
from harness.service import clients, service

import hocket

E = TypeVar("E", bound=BaseException)
Call = Callable[[hocket.Client], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Layout:
    """Rank r is on host ``placement[r]``; ``remote`` ranks share no memory with their worker."""

    name: str
    placement: tuple[int, ...]
    remote: tuple[int, ...] = ()


def layouts(n: int) -> list[Layout]:
    """The ways in which ``n`` ranks are placed in these cases."""
    together, apart = (0,) * n, tuple(rank % 2 for rank in range(n))
    return [
        Layout("one host", together),
        Layout("two hosts", apart),
        Layout("last rank remote", together, (n - 1,)),
        Layout("two hosts, rank 0 remote", apart, (0,)),
    ]


def on_layouts(n: int) -> pytest.MarkDecorator:
    """Runs a test once for each layout of ``n`` ranks."""
    return pytest.mark.parametrize("layout", layouts(n), ids=lambda layout: layout.name.replace(" ", "-"))


def on_unlike_layouts(n: int) -> pytest.MarkDecorator:
    """The same with the two that differ most, for cases that are tried in many ways already."""
    first, *_, last = layouts(n)
    return pytest.mark.parametrize("layout", [first, last], ids=lambda layout: layout.name.replace(" ", "-"))


@asynccontextmanager
async def ranks(layout: Layout, **how: Any) -> AsyncIterator[list[hocket.Client]]:
    """The world of a layout, with T = 60 s, so that what only comes out of the time-out comes too late."""
    async with (
        service(hosts=max(layout.placement) + 1) as running,
        clients(running, layout.placement, remote=layout.remote, **{"timeout": 60, **how}) as found,
    ):
        yield found


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a call ended on one rank: a value or an error, and how long it took."""

    value: Any
    error: BaseException | None
    took_s: float


async def outcome(call: Callable[[], Awaitable[Any]]) -> Outcome:
    """One call's outcome; hocket's errors are kept, everything else goes on."""
    begun_s = time.perf_counter()
    try:
        value, error = await call(), None
    except (hocket.HocketError, ValueError, TypeError) as raised:
        value, error = None, raised
    return Outcome(value, error, time.perf_counter() - begun_s)


async def outcomes(world: Sequence[hocket.Client], call: Call, within_s: float = 2.0) -> list[Outcome]:
    """``call(client)`` on all ranks at once. Nobody may take longer than ``within_s``."""
    async with asyncio.timeout(within_s + 10):
        found = await asyncio.gather(*(outcome(lambda client=client: call(client)) for client in world))
    slow = [(rank, one.took_s) for rank, one in enumerate(found) if one.took_s > within_s]
    assert not slow, f"took too long: {slow}"
    return found


async def values(world: Sequence[hocket.Client], call: Call, within_s: float = 10.0) -> list[Any]:
    """What the calls give, on ranks that all succeed."""
    found = await outcomes(world, call, within_s)
    for one in found:
        if one.error is not None:
            raise one.error
    return [one.value for one in found]


def error_of(one: Outcome, kind: type[E]) -> E:
    """The outcome's error, which must be of that kind."""
    assert isinstance(one.error, kind), f"expected {kind.__name__}, found {one.error!r} and {one.value!r}"
    return one.error


async def errors(world: Sequence[hocket.Client], kind: type[E], call: Call, within_s: float = 2.0) -> list[E]:
    """The errors of a call that fails with that kind on all ranks."""
    return [error_of(one, kind) for one in await outcomes(world, call, within_s)]


def who_called(error: hocket.MismatchError) -> dict[int, str]:
    """Rank to what it called."""
    return {rank: call for ranks_, call in error.calls for rank in ranks_}


async def after_check(world: Sequence[hocket.Client]) -> None:
    """The channel is in step and the members are well: an all_reduce of ones gives their number, at once."""

    async def one(client: hocket.Client) -> Any:
        x = np.ones(1)
        await client.all_reduce(x)
        return x[0]

    assert await values(world, one, within_s=5.0) == [len(world)] * len(world)


def per_rank(world: Sequence[hocket.Client], *calls: Call) -> Call:
    """A call that is another one on each rank."""

    def call(client: hocket.Client) -> Awaitable[Any]:
        return calls[world.index(client)](client)

    return call
