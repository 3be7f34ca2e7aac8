"""A rank's connection to its worker: what it may ask for, and what it holds on this host."""

import logging
import os
from dataclasses import dataclass, field
from typing import Protocol

from hocket.fabric.bells import WORKER_BELL, Bells, make_bell
from hocket.fabric.lane import Lane
from hocket.fabric.seat import Seat
from hocket.protocol.connection import Connection
from hocket.protocol.errors import (
    AbortedError,
    ClosedError,
    EpochEndedError,
    HocketError,
    WireError,
    error_from_facts,
    error_to_facts,
)
from hocket.protocol.frames import Buffers
from hocket.protocol.limits import IDENTITY_NBYTES, PIECE_NBYTES
from hocket.protocol.messages import (
    AskGroup,
    AskNamedGroup,
    BarrierArrive,
    ChannelReady,
    Contest,
    Done,
    Failed,
    Goodbye,
    GroupReady,
    Join,
    Joined,
    JoinNamed,
    Leave,
    LeaveGroup,
    Message,
    MonitoredArrive,
    MonitoredEnds,
    NewGroup,
    OpenChannel,
    P2PData,
    P2POffer,
    P2PRefuse,
    P2PTake,
    P2PWithdraw,
    SessionJoins,
    Submit,
    Verdict,
)
from hocket.worker.group import HostGroup
from hocket.worker.standin import Incoming, StandIn

log = logging.getLogger("hocket.worker")

P2P = (P2POffer, P2PTake, P2PData, P2PRefuse, P2PWithdraw)
FROM_SENDER = (P2POffer, P2PData, P2PWithdraw)


class Desk(Protocol):
    """What a session needs of its worker."""

    name: str
    bells: Bells

    def group(self, number: int) -> HostGroup | None:
        """A live or ended group that has members here."""

    def to_coordinator(self, message: Message) -> None:
        """Sends, or holds the message until the coordinator is back."""

    def route(self, message: Message, payload: memoryview | None) -> None:
        """Brings a point-to-point message on its way."""

    def leave_group(self, session: "Session", group: int) -> None:
        """The session's member leaves a group."""

    def bell_fds(self, group: HostGroup, known: set[int]) -> tuple[tuple[int, ...], tuple[int, ...], list[int]]:
        """Bells of a group's members, those that are new to a session, and their descriptors."""

    def pulse_soon(self) -> None:
        """The board has changed under a stand-in's hands."""

    def make_bell_place(self, fd: int) -> int:
        """A place on the bells page for a session."""


@dataclass(slots=True)
class Session:
    """One rank. ``goodbye`` is set once it has said that it leaves."""

    number: int
    connection: Connection
    desk: Desk
    is_unix: bool
    shared: bool = False
    job: str = ""
    name: str = ""
    pid: int = 0
    place: int = WORKER_BELL
    bell_fd: int = -1
    goodbye: str | None = None
    joined: int | None = None
    """request number of its `Join`, while that is not answered"""
    known_bells: set[int] = field(default_factory=set)
    standins: dict[tuple[int, str], StandIn] = field(default_factory=dict)
    _relayed: bytearray | None = None
    _incoming: Incoming | None = None

    # --- payloads ----------------------------------------------------------------------------------------------------

    def sink(self, message: Message, nbytes: int) -> Buffers | None:
        """Where a payload goes: into a piece to be passed on, or into a stand-in's operation."""
        if not self.job:
            raise WireError(f"{type(message).__name__} before Join")
        if isinstance(message, P2POffer | P2PData):
            if nbytes > PIECE_NBYTES:
                raise WireError(f"a piece of {nbytes} bytes, allowed are {PIECE_NBYTES}")
            self._relayed = bytearray(nbytes)
            return [memoryview(self._relayed)]
        if isinstance(message, Submit):
            if self.desk.group(message.group) is None:
                return None
            self._member_of(message.group)
            self._incoming = Incoming.for_submit(message, nbytes)
            return [part.data for part in self._incoming.sends]
        raise WireError(f"{type(message).__name__} carries no payload")

    # --- messages ----------------------------------------------------------------------------------------------------

    def receive(self, message: Message, _nbytes: int, fds: list[int]) -> None:
        """A message of the rank's."""
        for fd in fds:  # a rank has no business handing us descriptors
            os.close(fd)
        if isinstance(message, Join):
            self._join(message)
        elif self.joined is None and not self.job:
            raise WireError(f"{type(message).__name__} before Join")
        elif isinstance(message, (*P2P, Contest, Submit, MonitoredArrive)) and self.desk.group(message.group) is None:
            self._answer_for_forgotten(message)
        elif isinstance(message, P2P):
            self._point_to_point(message)
        elif isinstance(message, Contest):
            self._contest(message)
        elif isinstance(message, Submit):
            self._submit(message)
        elif isinstance(message, OpenChannel):
            self._open_channel(message)
        else:
            self._ask(message)

    def _join(self, message: Join) -> None:
        if self.job:
            raise WireError("Join came twice")
        if not message.job or any(len(text.encode()) > IDENTITY_NBYTES for text in (message.job, message.name)):
            raise WireError(f"job and client names have 1 to {IDENTITY_NBYTES} bytes")
        pid = self.connection.credentials()[0] if self.is_unix else 0
        self.job, self.name, self.pid = message.job, message.name, pid or message.pid
        self.shared = message.shared and self.is_unix
        self.joined = message.request
        if self.shared:
            try:
                self.bell_fd = make_bell()
                self.place = self.desk.make_bell_place(self.bell_fd)
            except (ClosedError, OSError) as full:
                self.fail(message.request, full if isinstance(full, ClosedError) else self._overloaded(full))
                return
        self.desk.to_coordinator(
            SessionJoins(
                message.request,
                self.number,
                message.job,
                message.rank,
                message.world_size,
                message.name,
                self.pid,
                message.timeout_s,
            )
        )

    def answer_join(self, *, alone: bool) -> None:
        """Tells the rank its session, once; ``alone``: and that it is in its job without a world."""
        if self.joined is not None:
            bells = self.desk.bells
            fds = [bells.page.fd, self.bell_fd, bells.fds[WORKER_BELL]] if self.shared else []
            self.connection.send(Joined(self.joined, self.number, self.desk.name, self.place, alone), fds=fds)
            self.joined = None

    def ready(self, request: int, group: HostGroup) -> None:
        """A group that the rank asked for has formed."""
        self.answer_join(alone=False)
        self.connection.send(GroupReady(request, group.info, group.sessions[self.number]))

    def fail(self, request: int, error: HocketError) -> None:
        """A request came to nothing."""
        self.connection.send(Failed(request, error_to_facts(error)))

    def _overloaded(self, full: OSError) -> ClosedError:
        return ClosedError(f"worker {self.desk.name} cannot serve more: {full.strerror}")

    def _ask(self, message: Message) -> None:
        if isinstance(message, NewGroup):
            ask: Message = AskGroup(
                message.request,
                self.number,
                message.parent,
                message.ranks,
                message.call,
                message.name,
                message.timeout_s,
            )
        elif isinstance(message, JoinNamed):
            ask = AskNamedGroup(
                message.request, self.number, message.name, message.size, message.rank, message.timeout_s
            )
        elif isinstance(message, MonitoredArrive):
            group = self._member_of(message.group)
            ranks = (group.sessions[self.number],)
            ask = BarrierArrive(
                message.group, message.channel, message.number, ranks, True, message.wait_all, message.timeout_s
            )
        elif isinstance(message, Leave):
            if self.desk.group(message.group) is not None:
                self._member_of(message.group)
                self.desk.leave_group(self, message.group)
            ask = LeaveGroup(self.number, message.group)
        elif isinstance(message, Goodbye):
            self.goodbye = message.detail or "left"
            return
        else:
            raise WireError(f"a rank does not send {type(message).__name__}")
        self.desk.to_coordinator(ask)

    def _answer_for_forgotten(self, message: Message) -> None:
        """A group that ended long ago: its boards and outcomes are gone, which is all that can be said."""
        self._relayed = self._incoming = None
        gone = error_to_facts(EpochEndedError("the group ended long ago"))
        if isinstance(message, Contest):
            self.connection.send(Verdict(message.group, message.channel, message.number, gone))
        elif isinstance(message, Submit):
            self.connection.send(Done(message.group, message.channel, message.number, (), gone))
        elif isinstance(message, MonitoredArrive):
            self.connection.send(MonitoredEnds(message.group, message.channel, message.number, gone))

    def forget_group(self, number: int, error: HocketError) -> None:
        """The group's boards are given back: whatever stands in on them ends."""
        for key in [key for key in self.standins if key[0] == number]:
            self.standins.pop(key).lane.abandon(error)

    def _member_of(self, number: int) -> HostGroup:
        group = self.desk.group(number)
        if group is None or self.number not in group.sessions:
            raise WireError(f"session {self.number} is not in group {number}")
        return group

    # --- the board ---------------------------------------------------------------------------------------------------

    def _open_channel(self, message: OpenChannel) -> None:
        group = self.desk.group(message.group)
        if group is None or self.number not in group.sessions or len(message.channel.encode()) > IDENTITY_NBYTES:
            self.fail(message.request, ClosedError(f"group {message.group} is not open here"))
            return
        known = set(self.known_bells)
        try:
            board = group.channel(message.channel).board
            bells, new, fds = self.desk.bell_fds(group, self.known_bells)
            ready = ChannelReady(message.request, message.group, message.channel, group.bridged, bells, new)
            self.connection.send(ready, fds=[board.arena.fd, *fds])
        except OSError as full:
            self.known_bells = known
            self.fail(message.request, self._overloaded(full))

    def _contest(self, message: Contest) -> None:
        group = self._member_of(message.group)
        error = None if message.error is None else error_from_facts(message.error)
        standin = self.standins.get((message.group, message.channel))
        if standin is not None:
            op = standin.operations.get(message.number)
            if op is not None and error is not None:
                standin.lane.cancel(op, error.cause if isinstance(error, AbortedError) else error.sentence())
                self.desk.pulse_soon()
            return
        group.contest(message.channel, message.number, group.sessions[self.number], error)

    def deliver_verdict(self, group: HostGroup, channel: str, number: int, error: HocketError | None) -> None:
        """How a contested operation ended."""
        standin = self.standins.get((group.info.group, channel))
        if standin is not None:
            standin.lane.verdict(number, error)
            self.desk.pulse_soon()
        else:
            facts = None if error is None else error_to_facts(error)
            self.connection.send(Verdict(group.info.group, channel, number, facts))

    def _submit(self, message: Submit) -> None:
        group = self._member_of(message.group)
        key = message.group, message.channel
        standin = self.standins.get(key)
        if standin is None:
            standin = self.standins[key] = self._stand_in(group, message.channel)
        incoming, self._incoming = self._incoming, None
        standin.submit(message, incoming)
        self.desk.pulse_soon()

    def _stand_in(self, group: HostGroup, channel: str) -> StandIn:
        member = group.sessions[self.number]
        board = group.channel(channel).board
        bells, _, _ = self.desk.bell_fds(group, set())
        from_here = tuple(sorted(set(bells) - {WORKER_BELL}))
        seat = Seat(board, member, group.locals, group.bridged, self.desk.bells, from_here)
        lane = Lane(
            seat,
            group.info.name,
            group.info.epoch,
            channel,
            lambda number, error: group.contest(channel, number, member, error),
            lambda where, waited_s, missing: log.warning("%s waits for %.0f s: missing %s", where, waited_s, missing),
        )
        if group.ended is not None:
            lane.finish(group.ended)
        return StandIn(lane, group.info.group, lambda done, payload: self.connection.send(done, payload))

    # --- point to point ----------------------------------------------------------------------------------------------

    def _point_to_point(self, message: Message) -> None:
        assert isinstance(message, P2P)
        relayed, self._relayed = self._relayed, None
        group = self._member_of(message.group)
        mine = message.src if isinstance(message, FROM_SENDER) else message.dst
        if group.sessions[self.number] != mine:
            raise WireError(f"session {self.number} is not rank {mine} of group {message.group}")
        self.desk.route(message, memoryview(relayed) if relayed is not None else None)
