"""`Group`: the handle on one epoch of a group, for members and for those that only hold it."""

import asyncio
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hocket.client.collectives import Collectives
from hocket.client.membership import Membership
from hocket.client.places import NOWHERE, Place
from hocket.client.work import Work
from hocket.protocol.errors import ArgumentError, ArgumentTypeError, ClosedError, DeadlineError, MemberLostError
from hocket.protocol.limits import MEMBERS
from hocket.protocol.messages import GroupReady, NewGroup

if TYPE_CHECKING:
    from hocket.client.client import Client


def seconds(timeout: float | None, default_s: float) -> float:
    """A time limit as it was given, or the default. Raises `ArgumentError` unless it is a number above 0."""
    if timeout is None:
        return default_s
    if isinstance(timeout, bool) or not isinstance(timeout, int | float):
        raise ArgumentTypeError("timeout", f"{timeout!r} ({type(timeout).__name__})", "seconds as a number above 0")
    if not timeout > 0:
        raise ArgumentError("timeout", repr(timeout), "seconds as a number above 0")
    return float(timeout)


class Group(Collectives):
    """A group of ranks, in one epoch. Two handles are equal only if they are the same.

    On a rank that is no member ``rank`` is -1 and every operation is an `ArgumentError`. ``timeout`` may be set: it is
    what later operations get that name none.
    """

    def __init__(self, client: "Client", membership: Membership | None, place: Place, timeout_s: float) -> None:
        self._client = client
        self._member_of = self._home = membership
        self._place = place
        self._timeout = timeout_s
        self._calls: dict[tuple[tuple[int, ...], str], set[int]] = {}

    @property
    def rank(self) -> int:
        """This client's rank in the group, -1 where it is no member."""
        return self._place.rank

    @property
    def size(self) -> int:
        """Number of members."""
        return self._place.size

    @property
    def ranks(self) -> tuple[int, ...]:
        """World ranks of the members, in the order of their group ranks (-1 for clients without a world)."""
        return self._place.world_ranks

    @property
    def name(self) -> str:
        """The group's name."""
        return self._place.group

    @property
    def epoch(self) -> int:
        """The group's epoch; -1 where this rank is no member and so has none."""
        return self._member_of.info.epoch if self._member_of else -1

    @property
    def timeout(self) -> float:
        """Seconds that an operation gets when it names no limit."""
        return self._timeout

    @timeout.setter
    def timeout(self, value: float) -> None:
        self._timeout = seconds(value, self._timeout)

    def __repr__(self) -> str:
        return f"<Group {self.name!r} epoch {self.epoch}: rank {self.rank} of {list(self.ranks)}>"

    def _membership(self, group: Any) -> Membership:
        if group is not None and group is not self:
            raise ArgumentError("group", repr(group), "nothing, on a Group's own methods")
        if self._member_of is None:
            who = f"rank {self._place.world_rank} is not in group {self._place.members}"
            raise ArgumentError("group", f"{self.name!r}, and {who}", "a group of which the caller is a member")
        return self._member_of

    def _timeout_s(self, group: Any, timeout: float | None) -> float:
        return seconds(timeout, self._timeout)

    @property
    def _pickle_allowed(self) -> bool:
        return self._client.allow_pickle

    # --- groups of this group's members ------------------------------------------------------------------------------

    async def new_group(
        self, ranks: Sequence[int] | None = None, timeout: float | None = None, name: str = ""
    ) -> "Group":
        """A group of some members, given by their ranks in the world; only they call, each as often as the others.

        Calls with the same ranks and ``name`` match by their order; threads or tasks that make groups at the same time
        give each a name of its own.
        Members are ordered by rank, whatever the order given. ``timeout`` is the group's default for its operations
        and the limit for its formation. On a rank that is not in the list it returns a handle at once.

        Raises:
            ArgumentError: a rank is given twice, is no member, or is no number.
            DeadlineError: not all of them have called within the limit; it names who is missing.
        """
        membership = self._membership(None)
        chosen = self._chosen(ranks)
        timeout_s = seconds(timeout, self._timeout)
        if membership.rank not in chosen:
            world = tuple(self._place.world_ranks[rank] for rank in chosen)
            place = Place(
                name or f"{self.name}[{len(chosen)}]", NOWHERE, len(chosen), world, self._place.shown(self.rank)
            )
            return Group(self._client, None, place, timeout_s)
        return await self._form(tuple(chosen), name, timeout_s)

    def _chosen(self, ranks: Sequence[int] | None) -> list[int]:
        if ranks is None:
            return list(range(self.size))
        known = list(range(self.size)) if self._place.worldless else list(self._place.world_ranks)
        given = list(ranks)
        if not given or len(given) > MEMBERS:
            raise ArgumentError("ranks", f"{len(given)} ranks", f"1 to {min(MEMBERS, self.size)} ranks of {known}")
        for rank in given:
            if isinstance(rank, bool) or not hasattr(rank, "__index__"):
                raise ArgumentTypeError("ranks", f"{rank!r} ({type(rank).__name__})", f"ranks of {known}")
            if int(rank) not in known:
                raise ArgumentError("ranks", str(rank), f"ranks of {known}")
        found = sorted(known.index(int(rank)) for rank in given)
        if len(set(found)) != len(found):
            raise ArgumentError("ranks", str([int(rank) for rank in given]), "each rank once")
        return found

    async def _form(self, chosen: tuple[int, ...], name: str, timeout_s: float) -> "Group":
        membership = self._membership(None)
        ended = membership.ended
        if ended is not None and not (isinstance(ended, MemberLostError) and not set(chosen) & set(ended.ranks)):
            raise ended  # but survivors of a lost member may make a new group of themselves
        calls = self._calls.setdefault((chosen, name), set())
        call = next(number for number in itertools.count(1) if number not in calls)
        calls.add(call)
        ask = membership.session.request(
            lambda request: NewGroup(request, membership.info.group, chosen, call, name, timeout_s), timeout_s
        )
        try:
            answer = await asyncio.wrap_future(membership.session.engine.call(ask))
        except (DeadlineError, ArgumentError, MemberLostError):
            calls.discard(call)  # nothing came of it: the next attempt is to meet the others' first one
            raise
        assert isinstance(answer, GroupReady), f"NewGroup was answered by {type(answer).__name__}"
        return self._client.adopt(answer.info.group, timeout_s)

    async def split(self, color: int | None, key: int = 0, timeout: float | None = None) -> "Group | None":
        """Divides the group: members that give one ``color`` form a group, ordered by ``key``, then by rank.

        All members call. Whoever gives None as its color gets None.
        """
        timeout_s = seconds(timeout, self._timeout)
        for argument, value in (("color", color), ("key", key)):
            if isinstance(value, bool) or not ((value is None and argument == "color") or hasattr(value, "__index__")):
                raise ArgumentTypeError(argument, f"{value!r} ({type(value).__name__})", "a whole number")
        mine = (None if color is None else int(color), int(key))
        everybody = await self.all_gather_object(None, mine, timeout=timeout_s, channel="hocket.split")
        if color is None:
            return None
        chosen = sorted((r for r, (c, _) in enumerate(everybody) if c == mine[0]), key=lambda r: (everybody[r][1], r))
        return await self._form(tuple(chosen), "", timeout_s)

    def leave(self) -> Work:
        """Leaves the group; its epoch ends for the others, whose next operation names us as having left."""
        membership = self._membership(None)
        work = Work("leave", lambda _cause: None)
        if membership is self._client.world_membership:
            raise ClosedError("the world is left by closing the client")
        membership.leave()
        work.complete(None, None)
        return work
