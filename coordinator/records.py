"""What the coordinator knows: hosts, sessions, jobs and groups, and the tables of what may become of them.

group      FORMING --complete--> LIVE --member lost, member left, link lost--> ENDED
           FORMING --abandoned--> ENDED
session    WAITING --world formed--> JOINED --gone--> GONE
           WAITING --refused, gone--> GONE
"""

import enum
from collections import Counter
from dataclasses import dataclass, field

from hocket.protocol.errors import Member
from hocket.protocol.messages import NOBODY, Facts, GroupInfo, HostInfo, MemberInfo

Key = tuple[int, int]
"""A session: its host's number and its own on that host."""


class GroupState(enum.Enum):
    """Where an epoch of a group stands."""

    FORMING = "forming"
    """Some members have asked for it. More may ask, any may give up at its deadline. It has no number yet."""
    LIVE = "live"
    """All members have asked and were told. Operations, barriers and sub-groups are legal."""
    ENDED = "ended"
    """A member is gone, or it never came to be. Nothing is legal; it stays known for a while, to say why."""


class GroupChange(enum.Enum):
    """What moves a group from state to state."""

    COMPLETE = "complete"
    ABANDONED = "abandoned"
    MEMBER_LOST = "member lost"
    MEMBER_LEFT = "member left"
    LINK_LOST = "link lost"


GROUP_TABLE: dict[GroupState, dict[GroupChange, GroupState]] = {
    GroupState.FORMING: {GroupChange.COMPLETE: GroupState.LIVE, GroupChange.ABANDONED: GroupState.ENDED},
    GroupState.LIVE: {
        GroupChange.MEMBER_LOST: GroupState.ENDED,
        GroupChange.MEMBER_LEFT: GroupState.ENDED,
        GroupChange.LINK_LOST: GroupState.ENDED,
    },
    GroupState.ENDED: {},
}


class SessionState(enum.Enum):
    """Where a client stands."""

    WAITING = "waiting"
    """It has asked into its job's world, which has not formed. It may only go, or wait."""
    JOINED = "joined"
    """It is in its job. It may ask for groups, be a member of some, and ask into a world anew."""
    GONE = "gone"
    """It has left, was lost or was refused, and is in no group any more. Only the history of losses remembers it."""


class SessionChange(enum.Enum):
    """What moves a session from state to state."""

    WORLD_FORMED = "world formed"
    REFUSED = "refused"
    GONE = "gone"


SESSION_TABLE: dict[SessionState, dict[SessionChange, SessionState]] = {
    SessionState.WAITING: {
        SessionChange.WORLD_FORMED: SessionState.JOINED,
        SessionChange.REFUSED: SessionState.GONE,
        SessionChange.GONE: SessionState.GONE,
    },
    SessionState.JOINED: {
        SessionChange.WORLD_FORMED: SessionState.JOINED,
        SessionChange.REFUSED: SessionState.JOINED,
        SessionChange.GONE: SessionState.GONE,
    },
    SessionState.GONE: {},
}


@dataclass(slots=True, eq=False)
class Host:
    """A registered worker and the numbers of its sessions."""

    info: HostInfo
    is_local: bool
    joined_s: float
    sessions: set[int] = field(default_factory=set)


@dataclass(slots=True, eq=False)
class Session:
    """A client. ``world_rank`` is its rank in the world that it joined last, ``groups`` its live groups."""

    host: HostInfo
    number: int
    job: str
    name: str
    pid: int
    joined_s: float
    state: SessionState
    world_rank: int = NOBODY
    groups: set[int] = field(default_factory=set)

    @property
    def key(self) -> Key:
        """What it is known by."""
        return self.host.host, self.number

    def change(self, change: SessionChange) -> None:
        """Moves along the table; what is not in it is a fault of the machine."""
        following = SESSION_TABLE[self.state].get(change)
        assert following is not None, f"session {self.key} is {self.state.value}: {change.value} is illegal"
        self.state = following

    def __str__(self) -> str:
        place = f"host {self.host.name}, pid {self.pid}"
        return f"{self.name!r} ({place})" if self.name else place


@dataclass(slots=True, eq=False)
class Group:
    """One epoch of a group. ``named`` marks those made by `AskNamedGroup`, of which one may live under a name."""

    info: GroupInfo
    formed_s: float
    named: bool = False
    state: GroupState = GroupState.FORMING
    error: Facts | None = None
    ended_s: float = 0.0
    children: set[str] = field(default_factory=set)
    gone: set[Key] = field(default_factory=set)
    """members whose loss or leaving ended it"""
    _by_key: dict[Key, MemberInfo] = field(init=False)

    def __post_init__(self) -> None:
        self._by_key = {(member.host, member.session): member for member in self.info.members}

    def change(self, change: GroupChange) -> None:
        """Moves along the table; what is not in it is a fault of the machine."""
        following = GROUP_TABLE[self.state].get(change)
        assert following is not None, f"group {self.info.group} is {self.state.value}: {change.value} is illegal"
        self.state = following

    def member(self, key: Key) -> MemberInfo | None:
        """The member that a session is."""
        return self._by_key.get(key)

    def host_name(self, host: int) -> str:
        """Name of one of its hosts, also where that has gone meanwhile."""
        return next((info.name for info in self.info.hosts if info.host == host), str(host))

    def named_members(self, keys: set[Key]) -> tuple[Member, ...]:
        """Those of its members that are among ``keys``, as errors name them."""
        return tuple(
            Member(member.rank, self.host_name(member.host), member.pid)
            for member in self.info.members
            if (member.host, member.session) in keys
        )


@dataclass(slots=True, eq=False)
class Job:
    """What carries one name: its sessions, last epoch of each group name, and who holds the ranks of its world.

    ``held`` has the members of the last world that neither left it nor were lost, whether or not its epoch has ended.
    """

    name: str
    first_epoch: int
    sessions: set[Key] = field(default_factory=set)
    epochs: dict[str, int] = field(default_factory=dict)
    world: int = NOBODY
    held: dict[int, Session] = field(default_factory=dict)
    named: dict[str, int] = field(default_factory=dict)

    def raise_epoch(self, name: str) -> int:
        """The next epoch of a name."""
        self.epochs[name] = self.epochs.get(name, self.first_epoch - 1) + 1
        return self.epochs[name]


@dataclass(frozen=True, slots=True)
class Loss:
    """Who was lost, when and why; ``ranks`` gives group name, epoch and rank of each membership that it ended."""

    job: str
    name: str
    host: str
    pid: int
    cause: str
    detail: str
    lost_s: float
    ranks: tuple[tuple[str, int, int], ...]


@dataclass(slots=True)
class Counts:
    """What has happened since the start."""

    joins: int = 0
    refusals: int = 0
    groups_formed: int = 0
    losses: Counter[str] = field(default_factory=Counter)
