"""Where this rank stands in a group, and which rank of the group a caller means by ``src=`` or ``group_dst=``."""

import operator
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal

from hocket.protocol.errors import (
    AbortedError,
    ArgumentError,
    ArgumentTypeError,
    DeadlineAbortedError,
    DeadlineError,
    HocketError,
    Member,
    MemberLostError,
    MismatchError,
)

NOWHERE: Final = -1
"""No rank: of a client that is in no world, or in a group that it is no member of."""
_SHOWN: Final = 64
"""Members that an error lists before it shortens the list."""


@dataclass(frozen=True)
class Place:
    """One rank's place in one group.

    ``rank`` is its rank in the group, `NOWHERE` where it is no member. ``world_ranks`` are the members' ranks in the
    world by group rank, `NOWHERE` for those without a world. ``world_rank`` is its own, member or not.
    """

    group: str
    rank: int
    size: int
    world_ranks: tuple[int, ...]
    world_rank: int = NOWHERE

    @cached_property
    def worldless(self) -> bool:
        """Whether no member is in a world, so that ranks are always those in the group."""
        return all(rank == NOWHERE for rank in self.world_ranks)

    @property
    def members(self) -> str:
        """The members as users know them, for an error: ``"[1, 2]"``."""
        known = range(self.size) if self.worldless else [rank for rank in self.world_ranks if rank != NOWHERE]
        return _listed(known)

    def shown(self, rank: int) -> int:
        """The number by which users know the member with group rank ``rank``: that in the world, if it has one."""
        world = self.world_ranks[rank]
        return rank if world == NOWHERE else world


def _listed(ranks: Sequence[int]) -> str:
    if len(ranks) <= _SHOWN:
        return str(list(ranks))
    first, last = ", ".join(map(str, ranks[:8])), ranks[-1]
    return f"[{first}, ..., {last}] ({len(ranks)} in all)"


def check_member(place: Place) -> None:
    """Returns where the caller is a member of the group.

    Raises:
        ArgumentError: it is not.
    """
    if place.rank == NOWHERE:
        who = "this rank" if place.world_rank == NOWHERE else f"rank {place.world_rank}"
        given = f"{place.group!r}, and {who} is not in group {place.members}"
        raise ArgumentError("group", given, "a group of which the caller is a member")


def resolve(
    place: Place, name: Literal["src", "dst"], world: int | None, group_rank: int | None, default: int | None = 0
) -> int:
    """The group rank that a caller means.

    Args:
        place: the caller's place in the group.
        name: ``"src"`` or ``"dst"``: the argument of the world rank; that of the group rank begins with ``group_``.
        world: a rank in the world, or None where not given; in a group without a world, a rank in the group.
        group_rank: a rank in the group, or None where not given.
        default: what ``world`` is if neither is given; None where there is none.

    Raises:
        ArgumentError: both are given, or no member has that rank, or neither is given and the default is no member.
        ArgumentTypeError: not a whole number.
    """
    if group_rank is not None:
        if world is not None:
            given = f"{world!r}, and 'group_{name}' is {group_rank!r}"
            raise ArgumentError(name, given, "only one of the two, not both")
        rank = _whole(group_rank, f"group_{name}")
        if not 0 <= rank < place.size:
            allowed = f"a rank in group {place.group!r}, from 0 to {place.size - 1}"
            raise ArgumentError(f"group_{name}", str(rank), allowed)
        return rank
    if world is not None:
        rank = _whole(world, name)
        found = _find(place, rank)
        if found is None:
            raise ArgumentError(name, str(rank), _allowed(place, name))
        return found
    found = None if default is None else _find(place, default)
    if found is None:
        why = "" if default is None else f", and its default, rank {default}, is not in group {place.members}"
        raise ArgumentError(name, f"not given{why}", _allowed(place, name))
    return found


def _find(place: Place, world: int) -> int | None:
    """The group rank of the member whose rank in the world is ``world``."""
    ranks: Sequence[int] = range(place.size) if place.worldless else place.world_ranks
    if 0 <= world < place.size and ranks[world] == world:
        return world  # as in the world itself
    return ranks.index(world) if world >= 0 and world in ranks else None


def _allowed(place: Place, name: str) -> str:
    kind = "a rank in the group" if place.worldless else "the world rank of a member"
    return f"{kind}, one of {place.members} (or 'group_{name}', from 0 to {place.size - 1})"


def _whole(value: object, argument: str) -> int:
    if type(value) is int:
        return value
    try:
        if isinstance(value, bool):
            raise TypeError
        return operator.index(value)  # type: ignore[arg-type] # what has no __index__ is what is looked for
    except TypeError:
        given = f"of type {type(value).__name__} ({value!r:.40})"
        raise ArgumentTypeError(argument, given, "a rank, which is a whole number") from None


def in_world_ranks(error: HocketError, place: Place) -> HocketError:
    """An error of a group's operation with the ranks that users know: those in the world, where there are such."""
    if place.worldless or place.world_ranks == tuple(range(place.size)):
        return error

    def shown(rank: int) -> int:
        return place.shown(rank) if 0 <= rank < place.size else rank

    if isinstance(error, MismatchError):
        error.calls = tuple((tuple(map(shown, ranks)), call) for ranks, call in error.calls)
        error.why = re.sub(r"\brank (\d+)", lambda found: f"rank {shown(int(found[1]))}", error.why)
    if isinstance(error, DeadlineError):
        error.missing = tuple(map(shown, error.missing))
    if isinstance(error, AbortedError):
        error.rank = shown(error.rank)
    if isinstance(error, DeadlineAbortedError):
        error.cause = DeadlineError.sentence(error)
    if isinstance(error, MemberLostError):
        error.members = tuple(Member(shown(member.rank), member.host, member.pid) for member in error.members)
    return error
