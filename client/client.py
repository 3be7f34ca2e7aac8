"""`connect` and `Client`: a rank's way into its job."""

import asyncio
import os
import socket
from collections.abc import Generator, Sequence
from typing import Any

from hocket.client.collectives import Collectives
from hocket.client.engine import Engine, engine
from hocket.client.group import Group, seconds
from hocket.client.membership import Membership
from hocket.client.session import Session
from hocket.protocol.addresses import Address, parse_address
from hocket.protocol.environment import default_socket, read_token
from hocket.protocol.errors import ArgumentError, ArgumentTypeError, ClosedError
from hocket.protocol.limits import IDENTITY_NBYTES, OPERATION_TIMEOUT_S
from hocket.protocol.messages import NOBODY, GroupReady, Join, Joined, JoinNamed

NO_WORLD = 0
"""As a world size: none, whatever the environment says."""


def connect(
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
) -> "Connecting":
    """Joins a job through a worker. Await it for a `Client`, or use it with ``async with``.

    Args:
        worker: the worker's socket (``unix:/path``) or TCP address; else ``HOCKET_WORKER``, else this host's default.
        job: who meets whom; else ``HOCKET_JOB``, else ``default``.
        rank: our rank in the job's world; else ``RANK``, else the coordinator gives one.
        world_size: size of that world; else ``WORLD_SIZE``; none, or 0 whatever the environment says: a client
            without a world, for `Client.join`.
        timeout: seconds for joining, and for operations that name no limit (300).
        token: the service's secret, for TCP; else the file that ``HOCKET_TOKEN_FILE`` names.
        name: how people see this client; else host and process id.
        allow_pickle: whether objects beyond the safe kinds travel; must be given on every rank.
        shared: False: never map the host's memory, have the worker carry everything out; else ``HOCKET_SHARED``.

    Raises:
        ConnectError: no worker listens there. AuthError: wrong token.
        ArgumentError: the rank is taken or out of range, or the world has another size.
        DeadlineError: the world was not complete in time; it names the ranks that never came.
    """
    env = os.environ
    settings = _Settings(
        parse_address(worker or env.get("HOCKET_WORKER") or default_socket(), "worker"),
        _named(job or env.get("HOCKET_JOB") or "default", "job"),
        _whole(rank, "rank", env.get("RANK"), 0),
        _whole(world_size, "world_size", env.get("WORLD_SIZE"), NO_WORLD),
        seconds(timeout, OPERATION_TIMEOUT_S),
        _token(token, env.get("HOCKET_TOKEN_FILE")),
        _named(name or f"{socket.gethostname()}:{os.getpid()}", "name"),
        allow_pickle,
        env.get("HOCKET_SHARED", "1") != "0" if shared is None else shared,
    )
    return Connecting(settings)


class _Settings:
    def __init__(
        self,
        worker: Address,
        job: str,
        rank: int,
        world_size: int,
        timeout_s: float,
        token: bytes,
        name: str,
        allow_pickle: bool,
        shared: bool,
    ) -> None:
        if world_size in (NOBODY, NO_WORLD):
            rank = world_size = NOBODY
        elif not NOBODY <= rank < world_size:
            raise ArgumentError("rank", str(rank), f"0 to {world_size - 1} in a world of {world_size}")
        self.worker, self.job, self.rank, self.world_size = worker, job, rank, world_size
        self.timeout_s, self.token, self.name = timeout_s, token, name
        self.allow_pickle, self.shared = allow_pickle, shared


class Connecting:
    """What `connect` gives: await it for a `Client`, or use it as an asynchronous context manager."""

    def __init__(self, settings: _Settings) -> None:
        self._settings = settings
        self._client: Client | None = None

    def __await__(self) -> Generator[Any, None, "Client"]:
        return self._open().__await__()

    async def __aenter__(self) -> "Client":
        self._client = await self._open()
        return self._client

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, _trace: object) -> None:
        if self._client is not None:
            await self._client.close("left" if kind is None else "exited")

    async def _open(self) -> "Client":
        client = Client(self._settings)
        await client.open()
        return client


class Client(Collectives):
    """A member of a job. Its operations act on the world unless ``group=`` says otherwise."""

    def __init__(self, settings: _Settings) -> None:
        self._settings = settings
        self.allow_pickle = settings.allow_pickle
        self.job = settings.job
        self._engine: Engine = engine()
        self._session = Session(self._engine, settings.worker, settings.shared)
        self.world: Group | None = None
        """the group of the whole world; None for a client without one"""

    def __repr__(self) -> str:
        return f"<Client {self._settings.name!r} of job {self.job!r}: {self.world or 'no world'}>"

    # --- life --------------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Connects and joins. For `connect`."""
        try:
            await asyncio.wrap_future(self._engine.call(self._join()))
        except BaseException:
            await self.close("exited")
            raise
        self._engine.at_exit(self._goodbye)

    async def _join(self) -> None:
        wanted, session = self._settings, self._session
        await session.open(wanted.token, lambda _error: None)
        ask = session.request(
            lambda request: Join(
                request,
                wanted.job,
                wanted.rank,
                wanted.world_size,
                wanted.name,
                os.getpid(),
                wanted.timeout_s,
                session.shared,
            ),
            wanted.timeout_s,
        )
        answer = await ask
        if isinstance(answer, GroupReady):
            self.world = self.adopt(answer.info.group, wanted.timeout_s)
            self._home = self.world._home
        else:
            assert isinstance(answer, Joined), f"Join was answered by {type(answer).__name__}"

    async def close(self, detail: str = "left") -> None:
        """Leaves the job. Operations under way end; the others' next operation with us names us as having left."""
        if self._engine.forked:
            return
        self._engine.forget_closer(self._goodbye)
        await asyncio.wrap_future(self._engine.call(self._session.close(detail)))

    def _goodbye(self) -> None:
        """At the interpreter's end, for a client that nobody has closed."""
        self._engine.call(self._session.close("exited")).result(2.0)

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(self, *_what: object) -> None:
        await self.close()

    # --- who and where -----------------------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """Whether the client was closed or has lost its worker."""
        return self._session.closed is not None

    @property
    def rank(self) -> int:
        """Rank in the world, -1 without one."""
        return self.world.rank if self.world else NOBODY

    @property
    def size(self) -> int:
        """Size of the world, 0 without one."""
        return self.world.size if self.world else 0

    @property
    def ranks(self) -> tuple[int, ...]:
        """Ranks of the world."""
        return self.world.ranks if self.world else ()

    @property
    def epoch(self) -> int:
        """The world's epoch, -1 without one."""
        return self.world.epoch if self.world else NOBODY

    @property
    def name(self) -> str:
        """How people see this client."""
        return self._settings.name

    @property
    def host(self) -> str:
        """Name of the worker's host."""
        return self._session.host

    @property
    def timeout(self) -> float:
        """Seconds that an operation gets when neither it nor its group names a limit."""
        return self.world.timeout if self.world else self._settings.timeout_s

    @timeout.setter
    def timeout(self, value: float) -> None:
        self._settings.timeout_s = seconds(value, self.timeout)
        if self.world is not None:
            self.world.timeout = value

    @property
    def world_membership(self) -> Membership | None:
        """What stands behind the world."""
        return self.world._membership(None) if self.world else None

    def _the_world(self) -> Group:
        self._check_open()
        if self.world is None:
            raise ArgumentError("group", "not given", "a group: this client has no world (connect(world_size=...))")
        return self.world

    def _check_open(self) -> None:
        if self._engine.forked:
            raise ClosedError("this process was forked after hocket.connect(): connect again in the child")
        if self._session.closed is not None:
            raise self._session.closed

    def _membership(self, group: Any) -> Membership:
        self._check_open()
        if group is None:
            return self._the_world()._membership(None)
        if not isinstance(group, Group):
            raise ArgumentTypeError("group", f"{group!r:.60} ({type(group).__name__})", "a Group")
        if group._client is not self:
            raise ArgumentError("group", repr(group), "a group of this client")
        return group._membership(None)

    def _timeout_s(self, group: Any, timeout: float | None) -> float:
        return seconds(timeout, self.timeout if group is None else group.timeout)

    @property
    def _pickle_allowed(self) -> bool:
        return self.allow_pickle

    # --- groups ------------------------------------------------------------------------------------------------------

    def adopt(self, group: int, timeout_s: float) -> Group:
        """A handle on a group that has formed. For hocket itself."""
        membership = self._session.memberships.get(group)
        if membership is None:
            raise self._session.closed or ClosedError(f"group {group} is gone")
        return Group(self, membership, membership.place, timeout_s)

    async def new_group(
        self, ranks: Sequence[int] | None = None, timeout: float | None = None, name: str = ""
    ) -> Group:
        """A group of some ranks of the world: see `Group.new_group`."""
        return await self._the_world().new_group(ranks, timeout, name)

    async def split(self, color: int | None, key: int = 0, timeout: float | None = None) -> Group | None:
        """Divides the world: see `Group.split`."""
        return await self._the_world().split(color, key, timeout)

    async def join(self, name: str, size: int, rank: int | None = None, timeout: float | None = None) -> Group:
        """A named group among any clients of the job, once ``size`` of them have joined it.

        Raises:
            ArgumentError: the others want another size, or the rank is taken.
            DeadlineError: not enough came in time.
        """
        self._check_open()
        wanted = _named(name, "name")
        members = _whole(size, "size", None, 1)
        place = _whole(rank, "rank", None, 0)
        if place >= members:
            raise ArgumentError("rank", str(place), f"0 to {members - 1} in a group of {members}")
        timeout_s = seconds(timeout, self.timeout)
        ask = self._session.request(lambda request: JoinNamed(request, wanted, members, place, timeout_s), timeout_s)
        answer = await asyncio.wrap_future(self._engine.call(ask))
        assert isinstance(answer, GroupReady), f"JoinNamed was answered by {type(answer).__name__}"
        return self.adopt(answer.info.group, timeout_s)


def _named(value: object, argument: str) -> str:
    if not isinstance(value, str) or not value or len(value.encode()) > IDENTITY_NBYTES:
        raise ArgumentError(argument, repr(value), f"a string of 1 to {IDENTITY_NBYTES} bytes")
    return value


def _whole(value: object, argument: str, text: str | None, least: int) -> int:
    if value is None and text:
        if not text.strip().isdecimal():
            raise ArgumentError(argument, f"{text!r} (from {argument.upper()})", "a whole number")
        value = int(text)
    if value is None:
        return NOBODY
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise ArgumentTypeError(argument, f"{value!r} ({type(value).__name__})", f"a whole number from {least} up")
    number = int(value)
    if number < least:
        raise ArgumentError(argument, str(number), f"a whole number from {least} up")
    return number


def _token(token: str | bytes | None, path: str | None) -> bytes:
    if token is not None:
        return token.encode() if isinstance(token, str) else token
    return read_token(path) if path else b""
