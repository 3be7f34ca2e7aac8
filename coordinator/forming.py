"""Groups that are being formed: who has asked, who would sit where, who is missing. And the rules of who may ask."""

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hocket.coordinator.records import Group, Host, Key, Session
from hocket.protocol.addresses import is_loopback
from hocket.protocol.errors import ArgumentError, ConnectError, Ranks, name_ranks
from hocket.protocol.limits import IDENTITY_NBYTES, MEMBERS
from hocket.protocol.messages import NOBODY

WORLD = "world"
RUNS_NAMED = 8


class Kind(enum.Enum):
    """How the members of a group find one another."""

    WORLD = "world"
    """By their job: one at a time, of ``world_size`` members."""
    NAMED = "named"
    """By a name in their job."""
    SUB = "sub"
    """By parent, ranks and call."""


FormingKey = tuple[object, ...]


@dataclass(slots=True, eq=False)
class Forming:
    """A group that waits for members. Seats are ranks in the group to be; those of a sub-group are known beforehand."""

    key: FormingKey
    kind: Kind
    job: str
    name: str
    size: int
    parent: Group | None = None
    ranks: Ranks = ()
    call: int = 0
    by_session: dict[Key, "Ask"] = field(default_factory=dict)
    claims: dict[int, "Ask"] = field(default_factory=dict)

    @property
    def asks(self) -> list["Ask"]:
        """Who has asked, by arrival."""
        return list(self.by_session.values())

    @property
    def complete(self) -> bool:
        """Whether every seat has somebody for it."""
        return len(self.by_session) == self.size

    def add(self, ask: "Ask") -> None:
        """Takes in who asks; the rules have been checked."""
        self.by_session[ask.session.key] = ask
        if ask.seat != NOBODY:
            self.claims[ask.seat] = ask

    def remove(self, ask: "Ask") -> None:
        """Lets go of one who no longer waits."""
        del self.by_session[ask.session.key]
        self.claims.pop(ask.seat, None)

    def seats(self) -> dict[int, "Ask"]:
        """Who sits where as things stand: claimed ranks first, the others by arrival on the lowest that are free."""
        seats = dict(self.claims)
        free = (seat for seat in range(self.size) if seat not in self.claims)
        for ask in self.asks:
            if ask.seat == NOBODY:
                seats[next(free)] = ask
        return seats

    def missing(self) -> Ranks:
        """Ranks that wait for somebody; those of a sub-group are ranks of its parent."""
        seats = self.seats()
        return tuple(sorted(self.ranks[seat] for seat in range(self.size) if seat not in seats))

    def title(self) -> str:
        """What is forming, for a sentence."""
        if self.kind is Kind.WORLD:
            return f"world of job {self.job!r}"
        if self.kind is Kind.NAMED:
            return f"group {self.name!r} of job {self.job!r}"
        assert self.parent is not None
        name = f"group {self.name!r}" if self.name else "a new group"
        return f"{name} of {name_ranks(self.ranks)} of {self.parent.info.name!r}"

    def reason(self) -> str:
        """Why it has not formed."""
        missing = self.missing()
        if not missing:
            return "all have asked; waiting for the epoch before it to end"
        return f"waiting for {len(missing)} of {self.size}: {name_ranks(missing)}"


@dataclass(slots=True, eq=False)
class Ask:
    """One session's wish for a seat (`NOBODY`: any). ``token`` is its deadline's."""

    session: Session
    request: int
    forming: Forming
    seat: int
    limit_s: float
    asked_s: float
    token: int = 0


def check_name(argument: str, name: str) -> None:
    """Refuses a name that is longer than names may be."""
    if len(name.encode()) > IDENTITY_NBYTES:
        raise ArgumentError(argument, f"a name of {len(name.encode())} bytes", f"at most {IDENTITY_NBYTES} bytes")


def check_group_name(name: str) -> None:
    """Refuses a name for a group that is too long, or the world's."""
    check_name("name", name)
    if name == WORLD:
        raise ArgumentError("name", repr(name), "any name but that of the job's world")


def check_size(argument: str, size: int, rank: int) -> None:
    """Refuses sizes that no group has, and ranks beyond them."""
    if not 1 <= size <= MEMBERS:
        raise ArgumentError(argument, str(size), f"1 to {MEMBERS}")
    if rank != NOBODY and not 0 <= rank < size:
        raise ArgumentError("rank", str(rank), f"0 to {size - 1}")


def check_seat(forming: Forming, size: int, rank: int, argument: str, session: Session) -> None:
    """Refuses who asks twice, for another size than the others, or for a rank that another one has claimed."""
    own = forming.by_session.get(session.key)
    if own is not None:
        raise ArgumentError("rank", str(rank), f"one seat for each client: this one already waits for {_seat(own)}")
    if size != forming.size:
        first = forming.asks[0]
        raise ArgumentError(
            argument, str(size), f"{forming.size}, as {first.session} asked for the {forming.title()} that is forming"
        )
    claim = forming.claims.get(rank)
    if claim is not None:
        allowed = f"a free rank: rank {rank} in the {forming.title()} that is forming is claimed by {claim.session}"
        raise ArgumentError("rank", str(rank), allowed)


def _seat(ask: Ask) -> str:
    return "any rank" if ask.seat == NOBODY else f"rank {ask.seat}"


def check_world(forming: Forming, rank: int, held: Mapping[int, Session], live: bool, asker: Session) -> None:
    """Refuses ranks that living members of the job's last world hold, and whoever finds no room beside them.

    Once that world's epoch has ended, a process may come back to its own rank.
    """
    holder = held.get(rank)
    if live and any(holds is asker for holds in held.values()):
        raise ArgumentError(
            "rank", str(rank), f"one seat for each client: this one is in the {forming.title()} already"
        )
    if holder is not None and (live or not _is_back(holder, asker)):
        allowed = f"a free rank: rank {rank} of the {forming.title()} is held by {holder}"
        raise ArgumentError("rank", str(rank), allowed)
    kept = {seat for seat, holds in held.items() if seat < forming.size and seat != rank and holds is not asker}
    taken = len(forming.by_session) + sum(1 for seat in kept if seat not in forming.claims)
    if taken >= forming.size:
        given = "not given" if rank == NOBODY else str(rank)
        full = f"the {forming.title()} is full: {taken} of {forming.size}"
        raise ArgumentError("rank", given, f"one that is free: {full}{_holders(held)}")


def _is_back(holder: Session, asker: Session) -> bool:
    return holder is asker or (asker.pid > 0 and (holder.host.host, holder.pid) == (asker.host.host, asker.pid))


def _holders(held: Mapping[int, Session]) -> str:
    named = [f"rank {rank} by {held[rank]}" for rank in sorted(held)[:RUNS_NAMED]]
    if not named:
        return ""
    return f"; held are {', '.join(named)}" + (", ..." if len(held) > RUNS_NAMED else "")


def check_ranks(parent: Group, ranks: Ranks, own: int) -> None:
    """Refuses a list of a sub-group's ranks that is none of its parent's, or leaves out the rank that calls."""
    size, name = len(parent.info.members), parent.info.name
    outside = [rank for rank in ranks if not 0 <= rank < size]
    if outside or not ranks:
        raise ArgumentError("ranks", str(list(ranks)), f"ranks of group {name!r}: 0 to {size - 1}")
    if len(set(ranks)) != len(ranks):
        raise ArgumentError("ranks", str(list(ranks)), "each rank once")
    if own not in ranks:
        raise ArgumentError("ranks", str(list(ranks)), f"a list with the rank that calls, {own}: only members call")


def check_reachable(hosts: Iterable[Host]) -> None:
    """Refuses a group with members here, known by a loopback address, and members on another machine."""
    found = list(dict.fromkeys(hosts))
    inward = [host.info for host in found if is_loopback(host.info.address)]
    beyond = [host.info for host in found if not host.is_local]
    if inward and beyond:
        outside = f"host {beyond[0].name!r} at {beyond[0].address}"
        detail = f"host {inward[0].name!r} is known by it, and {outside} cannot reach it"
        raise ConnectError(f"{inward[0].address}:{inward[0].port}", "HOCKET_DATA_ADDRESS or --data-address", detail)


def generate_name(parent: str, ranks: Ranks, call: int, number: int) -> str:
    """A readable name for a sub-group without one, unique under its parent.

    >>> generate_name("world", (1, 2), 3, 77), generate_name("world", (3, 0, 1, 2, 4, 8), 1, 77)
    ('world/1.2#3', 'world/3.0-2.4.8#1')
    """
    runs = list(_runs(ranks))
    text = ".".join(runs[:RUNS_NAMED])
    if len(runs) > RUNS_NAMED:
        text += f"...{len(ranks)}@{number}"
    name = f"{parent}/{text}#{call}"
    return name if len(name.encode()) <= IDENTITY_NBYTES else f"group@{number}"


def _runs(ranks: Iterable[int]) -> Iterable[str]:
    """Ranks in their order, three and more in a row as first-last."""
    run: list[int] = []
    for rank in [*ranks, NOBODY]:
        if run and rank == run[-1] + 1:
            run.append(rank)
            continue
        if len(run) > 2:
            yield f"{run[0]}-{run[-1]}"
        else:
            yield from map(str, run)
        run = [rank]
