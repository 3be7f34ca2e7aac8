"""Every message of hocket, grouped by direction. One frozen dataclass each, with an integer code that never changes.

Field types are what `codec` checks: int, float, str, bytes, bool, another record, a tuple of one of these, a union with
None, and ``Facts`` (an error taken apart by `errors.error_to_facts`). A request carries a ``request`` number that its
answer repeats.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar, dataclass_transform

Facts = dict[str, Any]
NOBODY = -1
"""A rank or size that was not given."""


class Message:
    """Base of what travels as a frame of its own."""

    __slots__ = ()
    code: ClassVar[int]


class Record:
    """Base of what travels inside messages."""

    __slots__ = ()


MESSAGES: dict[int, type[Message]] = {}


M = TypeVar("M", bound=Message)


@dataclass_transform(frozen_default=True)
def message(code: int) -> Callable[[type[M]], type[M]]:
    """Makes a class a frozen dataclass and registers it under ``code``."""

    def register(kind: type[M]) -> type[M]:
        made = dataclass(frozen=True, slots=True)(kind)
        assert code not in MESSAGES, f"code {code} is taken by {MESSAGES[code].__name__}"
        made.code = code
        MESSAGES[code] = made
        return made

    return register


# --- records ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HostInfo(Record):
    """A worker as its peers see it: where its data port listens. ``instance`` tells a restarted one from the old."""

    host: int
    name: str
    address: str
    port: int
    pid: int
    instance: str


@dataclass(frozen=True, slots=True)
class MemberInfo(Record):
    """A member of a group: its rank there and in the world (`NOBODY` without one), its host and session."""

    rank: int
    world_rank: int
    host: int
    session: int
    name: str
    pid: int


@dataclass(frozen=True, slots=True)
class GroupInfo(Record):
    """A group's epoch. ``group`` is the coordinator's number for exactly this epoch, never used again."""

    group: int
    job: str
    name: str
    epoch: int
    parent: int
    members: tuple[MemberInfo, ...]
    hosts: tuple[HostInfo, ...]


@dataclass(frozen=True, slots=True)
class OperationInfo(Record):
    """An operation under way on one host: which of its members have arrived, and since when (seconds ago)."""

    job: str
    group: int
    group_name: str
    epoch: int
    channel: str
    number: int
    operation: str
    arrived: tuple[int, ...]
    missing: tuple[int, ...]
    first_arrived_s: float
    arrived_ages_s: tuple[float, ...]


# --- handshake, all directions ---------------------------------------------------------------------------------------


@message(1)
class Hello(Message):
    """First frame of whoever connects: versions it speaks, its role (client, worker, peer), its challenge."""

    version_min: int
    version_max: int
    role: str
    job: str
    nonce: bytes


@message(2)
class Challenge(Message):
    """The listener's choice of version and its own challenge."""

    version: int
    nonce: bytes


@message(3)
class Proof(Message):
    """HMAC of both challenges by whoever connected."""

    mac: bytes


@message(4)
class Welcome(Message):
    """HMAC of both challenges by the listener: both sides know the token."""

    mac: bytes


@message(5)
class Refused(Message):
    """The listener ends the connection and says why."""

    error: Facts


# --- worker -> coordinator -------------------------------------------------------------------------------------------


@message(10)
class Register(Message):
    """A worker joins: its name, data address (empty: the one this connection comes from) and incarnation."""

    name: str
    address: str
    port: int
    pid: int
    instance: str


@message(11)
class Heartbeat(Message):
    """Sign of life, worker to coordinator and back."""

    sent_s: float


@message(12)
class SessionJoins(Message):
    """A client on this host asks into its job: with a world (``world_size`` given) or without."""

    request: int
    session: int
    job: str
    rank: int
    world_size: int
    name: str
    pid: int
    timeout_s: float


@message(13)
class SessionEnds(Message):
    """A client is gone. ``cause``: left, exited, killed or unreachable."""

    session: int
    cause: str
    detail: str


@message(14)
class AskGroup(Message):
    """A member of ``parent`` calls for a sub-group of ``ranks`` (of the parent), for the ``call``-th time."""

    request: int
    session: int
    parent: int
    ranks: tuple[int, ...]
    call: int
    name: str
    timeout_s: float


@message(15)
class AskNamedGroup(Message):
    """A client of the job asks into the group ``name`` of ``size`` members."""

    request: int
    session: int
    name: str
    size: int
    rank: int
    timeout_s: float


@message(16)
class LeaveGroup(Message):
    """A member leaves a group: its epoch ends for the others at their next operation."""

    session: int
    group: int


@message(17)
class PeerSilent(Message):
    """A worker cannot reach another one any more."""

    host: int
    detail: str


@message(18)
class BarrierArrive(Message):
    """Members on this host have entered a barrier. ``wait_all``, ``timeout_s`` matter to monitored barriers."""

    group: int
    channel: str
    number: int
    ranks: tuple[int, ...]
    monitored: bool
    wait_all: bool
    timeout_s: float


@message(19)
class BarrierLeave(Message):
    """A barrier ended on this host without the coordinator (released between the hosts, or aborted)."""

    group: int
    channel: str
    number: int


@message(20)
class OperationsReport(Message):
    """Answer to `AskOperations`."""

    request: int
    operations: tuple[OperationInfo, ...]


# --- coordinator -> worker -------------------------------------------------------------------------------------------


@message(30)
class Registered(Message):
    """The worker is in: its number, and how long it may be silent."""

    host: int
    liveness_s: float
    heartbeat_s: float


@message(31)
class SessionJoined(Message):
    """A client without a world is in its job."""

    request: int
    session: int


@message(32)
class GroupFormed(Message):
    """A group is complete. ``requests`` pairs (session, request) of this host's members."""

    info: GroupInfo
    requests: tuple[tuple[int, ...], ...]


@message(33)
class RequestFailed(Message):
    """A request of a session came to nothing."""

    session: int
    request: int
    error: Facts


@message(34)
class GroupLost(Message):
    """The epoch of a group has ended. ``error`` is what its members raise."""

    group: int
    error: Facts


@message(35)
class BarrierEnds(Message):
    """A monitored barrier is over for all: released, or broken with ``error``."""

    group: int
    channel: str
    number: int
    error: Facts | None


@message(36)
class AskOperations(Message):
    """The coordinator asks what is under way on this host."""

    request: int


# --- client -> worker ------------------------------------------------------------------------------------------------


@message(50)
class Join(Message):
    """A client enters its job through this worker. ``shared``: it can map the host's memory."""

    request: int
    job: str
    rank: int
    world_size: int
    name: str
    pid: int
    timeout_s: float
    shared: bool


@message(51)
class NewGroup(Message):
    """Asks for a sub-group of the caller's group ``parent``."""

    request: int
    parent: int
    ranks: tuple[int, ...]
    call: int
    name: str
    timeout_s: float


@message(52)
class JoinNamed(Message):
    """Asks into a named group of the job."""

    request: int
    name: str
    size: int
    rank: int
    timeout_s: float


@message(53)
class OpenChannel(Message):
    """Asks for the board of a channel."""

    request: int
    group: int
    channel: str


@message(54)
class Leave(Message):
    """Leaves a group."""

    group: int


@message(55)
class Goodbye(Message):
    """The client closes in good order."""

    detail: str


@message(56)
class Contest(Message):
    """A member wants operation ``number`` ended, or asks how it ended. ``error`` is its reason, if it has one."""

    group: int
    channel: str
    number: int
    rank: int
    error: Facts | None


@message(57)
class Submit(Message):
    """A client without shared memory calls an operation; its pieces follow as payload, in order."""

    group: int
    channel: str
    number: int
    signature: bytes
    sends: tuple[int, ...]
    recvs: tuple[int, ...]
    timeout_s: float


@message(58)
class MonitoredArrive(Message):
    """A member enters a monitored barrier."""

    group: int
    channel: str
    number: int
    rank: int
    wait_all: bool
    timeout_s: float


# --- worker -> client ------------------------------------------------------------------------------------------------


@message(70)
class Joined(Message):
    """The client has its session. ``alone``: it has no world, and this is the whole answer to its `Join`.

    ``bell`` is its place among the host's bells. Descriptors: the bells page, its own bell, the worker's.
    """

    request: int
    session: int
    host: str
    bell: int
    alone: bool


@message(71)
class GroupReady(Message):
    """A group that the client asked for, with its member number there."""

    request: int
    info: GroupInfo
    rank: int


@message(72)
class ChannelReady(Message):
    """The board of a channel. Descriptors: the board, then the bells numbered in ``new_bells``.

    ``bells`` holds each member's bell (0: the worker's, which stands in for members elsewhere).
    """

    request: int
    group: int
    channel: str
    bridged: bool
    bells: tuple[int, ...]
    new_bells: tuple[int, ...]


@message(73)
class Failed(Message):
    """A request came to nothing."""

    request: int
    error: Facts


@message(74)
class GroupEnded(Message):
    """The group's epoch has ended; ``error`` says why."""

    group: int
    error: Facts


@message(75)
class Verdict(Message):
    """How a contested operation ended: completed for all (``error`` None), or with one error for all."""

    group: int
    channel: str
    number: int
    error: Facts | None


@message(76)
class Done(Message):
    """Outcome of a `Submit`; what it received follows as payload, ``recvs`` bytes from each."""

    group: int
    channel: str
    number: int
    recvs: tuple[int, ...]
    error: Facts | None


@message(77)
class MonitoredEnds(Message):
    """A monitored barrier is over."""

    group: int
    channel: str
    number: int
    error: Facts | None


# --- point to point: client -> worker (-> worker) -> client ----------------------------------------------------------


@message(90)
class P2POffer(Message):
    """A message from ``src`` to ``dst`` (ranks in the group). Eager ones bring their bytes along."""

    group: int
    channel: str
    src: int
    dst: int
    tag: int
    number: int
    dtype: str
    count: int
    nbytes: int
    eager: bool


@message(91)
class P2PTake(Message):
    """The receiver takes an offer: bytes up to ``granted`` may come (all of an eager one have)."""

    group: int
    channel: str
    src: int
    dst: int
    number: int
    granted: int


@message(92)
class P2PData(Message):
    """Bytes of an offer that was taken, from ``offset`` on, as payload."""

    group: int
    channel: str
    src: int
    dst: int
    number: int
    offset: int


@message(93)
class P2PRefuse(Message):
    """The receiver's buffer does not fit an offer."""

    group: int
    channel: str
    src: int
    dst: int
    number: int
    error: Facts


@message(94)
class P2PWithdraw(Message):
    """The sender gives an offer up, before or while it is taken: the receiver gets what an abort gives."""

    group: int
    channel: str
    src: int
    dst: int
    number: int


# --- worker <-> worker -----------------------------------------------------------------------------------------------


@message(110)
class PeerHello(Message):
    """Who connects, and to which incarnation it wants to speak."""

    host: int
    instance: str
    wanted: str


@message(111)
class Header(Message):
    """Members on the sending host have entered operation ``number``: their signatures, by rank.

    ``carried`` is what they owe to the receiving host, where that is little (see `worker.carried`). It comes with the
    last of them; None: it does not come, or not yet.
    """

    group: int
    channel: str
    number: int
    ranks: tuple[int, ...]
    signatures: tuple[bytes, ...]
    carried: bytes | None


@message(112)
class Chunk(Message):
    """Bytes of one round of a schedule, in the order that the round names them."""

    group: int
    channel: str
    number: int
    block: int
    step: int


@message(113)
class Credit(Message):
    """The sending host is done with ``block``: one more may come."""

    group: int
    channel: str
    number: int
    block: int


@message(114)
class AskVerdict(Message):
    """A host wants an operation ended or asks how it ended; goes to the lowest living host of the group."""

    group: int
    channel: str
    number: int
    error: Facts | None


@message(115)
class Freeze(Message):
    """The deciding host asks whether operation ``number`` is complete on yours; from here on, nobody completes it."""

    group: int
    channel: str
    number: int


@message(116)
class Frozen(Message):
    """Answer to `Freeze`: whether this host holds all that its members need; if not, its members that hold it up."""

    group: int
    channel: str
    number: int
    sealed: bool
    late: tuple[int, ...]


@message(117)
class Decided(Message):
    """The outcome of a contested operation on every host of the group."""

    group: int
    channel: str
    number: int
    error: Facts | None


@message(118)
class Posted(Message):
    """All members on the sending host have posted all that they owe to operation ``number``."""

    group: int
    channel: str
    number: int
