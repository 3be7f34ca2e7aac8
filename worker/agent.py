"""The worker: it joins the coordinator, serves its host's ranks, and keeps groups, boards and links together."""

import asyncio
import contextlib
import logging
import os
import secrets
import time
from collections.abc import Iterable

from hocket.fabric.arena import Arena
from hocket.fabric.bells import PLACES, WORKER_BELL, Bells, make_bell
from hocket.protocol.addresses import Address
from hocket.protocol.connection import Connection
from hocket.protocol.errors import (
    ClosedError,
    EpochEndedError,
    HocketError,
    Member,
    MemberLostError,
    WireError,
    error_from_facts,
    error_to_facts,
)
from hocket.protocol.frames import Buffers
from hocket.protocol.limits import LIVENESS_S, PIECE_NBYTES
from hocket.protocol.messages import (
    AskOperations,
    AskVerdict,
    BarrierEnds,
    Chunk,
    Decided,
    Freeze,
    Frozen,
    GroupEnded,
    GroupFormed,
    GroupLost,
    Message,
    MonitoredEnds,
    OperationsReport,
    P2PData,
    P2POffer,
    PeerSilent,
    RequestFailed,
    SessionEnds,
    SessionJoined,
)
from hocket.worker.config import WorkerConfig
from hocket.worker.control import Control
from hocket.worker.doors import Doors
from hocket.worker.group import HostGroup
from hocket.worker.links import Links
from hocket.worker.operations import operations_of
from hocket.worker.session import FROM_SENDER, P2P, Session

log = logging.getLogger("hocket.worker")

ENDED_KEPT = 32
"""Ended groups whose boards and verdicts are kept for late members and for other hosts."""
EARLY_GROUPS = 256
"""Groups that other hosts may speak of before the coordinator has."""
UNREACHABLE_GRACE_S = 1.0
"""How long the coordinator may take to name the cause when a link ends, before the worker does."""


class Worker:
    """See the module. `start` returns once ranks can connect; `run` lasts until the worker cannot go on."""

    def __init__(self, config: WorkerConfig) -> None:
        config.check()
        self.config = config
        self.name = config.name
        self.number = -1
        self.instance = secrets.token_hex(8)
        self.bells = Bells(Arena.create("bells", PLACES * 8))
        self.bells.add(WORKER_BELL, make_bell())
        self._places = list(range(PLACES - 1, WORKER_BELL, -1))
        self._sessions: dict[int, Session] = {}
        self._next_session = 1
        self._groups: dict[int, HostGroup] = {}
        self._ended: list[int] = []
        self._closing: set[asyncio.Task[None]] = set()
        """groups that give their boards back"""
        self._links = Links(config.token, self._peer_message, self._peer_gone, self._peer_sink)
        self._links.instance = self.instance
        self._control = Control(config, self.instance, self._open_data_port, self._registered, self._coordinator_says)
        self._control_task: asyncio.Task[None] | None = None
        self._doors = Doors(config.token, config.socket_mode)
        self._data_address: tuple[str, int] | None = None
        self._pulsing = self._listens = self._stopped = False
        self._timer: asyncio.TimerHandle | None = None
        self._relayed: dict[int, bytearray] = {}
        self._newest_group = -1
        self._early: dict[int, list[tuple[int, Message, memoryview | None]]] = {}
        self.listen_port = 0

    # --- life --------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Opens the sockets for ranks and starts to look for the coordinator."""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self.bells.fds[WORKER_BELL], self._rung)
        self.bells.lie_down(WORKER_BELL)  # for good: the loop always sleeps on its descriptors
        self._doors.open(Address(path=self.config.socket), "--socket (HOCKET_SOCKET)", "client", self._open_local)
        self._listens = True
        if self.config.listen is not None:
            sock = self._doors.open(self.config.listen, "--listen (HOCKET_LISTEN)", "client", self._open_remote)
            self.listen_port = sock.getsockname()[1]
        self._control_task = self._loop.create_task(self._control.run())

    async def registered(self) -> None:
        """Waits until the coordinator knows us. Raises what makes that impossible."""
        assert self._control_task is not None, "the worker was not started"
        waiting = self._loop.create_task(self._control.registered.wait())
        await asyncio.wait({waiting, self._control_task}, return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            waiting.cancel()
            self._control_task.result()

    async def run(self) -> None:
        """Waits for the end of the control stream, which comes only by an error that trying again does not mend."""
        assert self._control_task is not None, "the worker was not started"
        await self._control_task

    async def stop(self) -> None:
        """Tells the ranks and closes everything. Stopping twice is harmless, as is stopping after a failed start."""
        if self._stopped:
            return
        self._stopped = True
        if self._control_task is not None:
            self._control_task.cancel()
            await asyncio.gather(self._control_task, return_exceptions=True)
        await self._links.close()  # before our ranks are gone: other hosts are to hear that we are, with all of them
        for session in list(self._sessions.values()):
            session.connection.close()
        await asyncio.sleep(0)  # for the sessions to hear of it
        await self._doors.close()
        await asyncio.gather(*self._closing, *(group.close() for group in self._groups.values()))
        if self._timer is not None:
            self._timer.cancel()
        self._loop.remove_reader(self.bells.fds[WORKER_BELL])
        if self._listens:  # else it is another worker's
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.config.socket)
        self.bells.close()

    # --- data port and coordinator -----------------------------------------------------------------------------------

    def _open_data_port(self, route: str) -> tuple[str, int]:
        """Listens for peers on our own address on the route to the coordinator, and tells what to register."""
        if self._data_address is None:
            wanted = self.config.data_address
            address = wanted if wanted is not None else Address(route, self.config.data_port)
            sock = self._doors.open(address, "--data-address (HOCKET_DATA_ADDRESS)", "peer", self._links.accept)
            self._data_address = (wanted.host if wanted is not None else ""), sock.getsockname()[1]
        return self._data_address

    def _registered(self, number: int) -> None:
        self.number = self._links.me = number
        log.info("registered with coordinator %s as host %d (%s)", self.config.coordinator, number, self.name)

    def to_coordinator(self, message: Message) -> None:
        """Sends, or holds the message until the coordinator is back."""
        self._control.send(message, hold=True)

    def send_to_coordinator(self, message: Message) -> None:
        """Sends, or drops the message while the coordinator is away."""
        self._control.send(message)

    def _coordinator_says(self, message: Message) -> None:
        if isinstance(message, GroupFormed):
            self._form(message)
        elif isinstance(message, SessionJoined):
            session = self._sessions.get(message.session)
            if session is not None:
                session.answer_join(alone=True)
        elif isinstance(message, RequestFailed):
            session = self._sessions.get(message.session)
            if session is not None:
                session.fail(message.request, error_from_facts(message.error))
        elif isinstance(message, GroupLost):
            self._end_group(message.group, error_from_facts(message.error))
        elif isinstance(message, BarrierEnds):
            self._barrier_ends(message)
        elif isinstance(message, AskOperations):
            found = [info for group in self._groups.values() for info in operations_of(group, time.monotonic_ns())]
            self.send_to_coordinator(OperationsReport(message.request, tuple(found)))
        else:
            log.warning("the coordinator sent %s, which means nothing to a worker", type(message).__name__)

    # --- groups ------------------------------------------------------------------------------------------------------

    def group(self, number: int) -> HostGroup | None:
        """A group with members here."""
        return self._groups.get(number)

    def _form(self, message: GroupFormed) -> None:
        group = HostGroup(message.info, self)
        self._groups[message.info.group] = group
        self._newest_group = max(self._newest_group, message.info.group)
        for host in message.info.hosts:
            if host.host != group.number:
                self._links.ensure(host)
        places = {self._sessions[s].place for s in group.sessions if s in self._sessions}
        group.wake, group.stands_in = places - {WORKER_BELL}, WORKER_BELL in places
        requests = {pair[0]: pair[1] for pair in message.requests}
        for number in group.sessions:
            session = self._sessions.get(number)
            if session is not None and number in requests:
                session.ready(requests[number], group)
        for number in [number for number in group.sessions if number not in self._sessions]:
            self._member_lost(group, number, "killed", "it ended while the group formed")
        for host_number, early, payload in self._early.pop(message.info.group, []):
            self._take(host_number, early, 0, payload)
        for stale in [number for number in self._early if number < self._newest_group]:  # they formed without us
            del self._early[stale]

    def _end_group(self, number: int, error: HocketError, *, spread: bool = False) -> None:
        group = self._groups.get(number)
        if group is None or group.ended is not None:
            return
        group.end(error)
        lost = GroupEnded(number, error_to_facts(error))
        for session_number in group.sessions:
            session = self._sessions.get(session_number)
            if session is not None:
                session.connection.send(lost)
                for (of, _), standin in session.standins.items():
                    if of == number:
                        standin.lane.finish(error)
        if spread:
            for host in group.hosts:
                if host != group.number:
                    self._links.send(host, GroupLost(number, error_to_facts(error)))
        self.pulse_soon()
        self._ended.append(number)
        if len(self._ended) > ENDED_KEPT:
            self._drop_group(self._ended[0])

    def _drop_group(self, number: int) -> None:
        """Gives back an ended group's boards."""
        self._ended.remove(number)
        group = self._groups.pop(number)
        for session in group.sessions.keys() & self._sessions.keys():
            self._sessions[session].forget_group(number, group.ended or EpochEndedError("the group has ended"))
        closing = self._loop.create_task(group.close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    def _drop_left_groups(self, session: int) -> None:
        """An ended group that lives on this host alone, and whose last member here has gone, is of use to nobody."""
        for number in list(self._ended):
            group = self._groups[number]
            if session in group.sessions and not group.bridged and not group.sessions.keys() & self._sessions.keys():
                self._drop_group(number)

    def _member_lost(self, group: HostGroup, session: int, cause: str, detail: str) -> None:
        member = group.info.members[group.sessions[session]]
        lost = Member(member.rank, self.name, member.pid)
        self._end_group(group.info.group, MemberLostError((lost,), cause, detail), spread=True)

    def leave_group(self, session: Session, group: int) -> None:
        """A member leaves: the epoch ends for the others."""
        found = self._groups.get(group)
        if found is not None:
            self._member_lost(found, session.number, "left", "")

    def deliver_verdict(self, group: int, channel: str, number: int, rank: int, error: HocketError | None) -> None:
        """Tells a local member how a contested operation ended."""
        found = self._groups.get(group)
        if found is not None:
            session = self._sessions.get(found.info.members[rank].session)
            if session is not None:
                session.deliver_verdict(found, channel, number, error)

    def _barrier_ends(self, message: BarrierEnds) -> None:
        group = self._groups.get(message.group)
        for number in group.sessions if group is not None else ():
            session = self._sessions.get(number)
            if session is not None:
                ends = MonitoredEnds(message.group, message.channel, message.number, message.error)
                session.connection.send(ends)

    # --- sessions ----------------------------------------------------------------------------------------------------

    async def _open_local(self, connection: Connection) -> None:
        self._open_session(connection, True)

    async def _open_remote(self, connection: Connection) -> None:
        self._open_session(connection, False)

    def _open_session(self, connection: Connection, is_unix: bool) -> None:
        session = Session(self._next_session, connection, self, is_unix)
        self._next_session += 1
        self._sessions[session.number] = session
        connection.start(session.receive, lambda error: self._session_closed(session, error), session.sink)

    def _session_closed(self, session: Session, error: HocketError | None) -> None:
        del self._sessions[session.number]
        if error is not None and session.goodbye is None:
            log.warning("session %d (%s): %s", session.number, session.name or session.connection.peer, error)
        cause = session.goodbye or ("killed" if session.is_unix else "unreachable" if error else "killed")
        detail = str(error) if error is not None else ""
        if session.place != WORKER_BELL:
            self.bells.remove(session.place)
            self._places.append(session.place)
            for other in self._sessions.values():
                other.known_bells.discard(session.place)
        if session.job:
            self.to_coordinator(SessionEnds(session.number, cause, detail))
            for group in [group for group in self._groups.values() if session.number in group.sessions]:
                self._member_lost(group, session.number, cause, detail)
            self._drop_left_groups(session.number)

    def make_bell_place(self, fd: int) -> int:
        """A place on the bells page for a session. Raises `ClosedError` where all are taken."""
        if not self._places:
            os.close(fd)
            raise ClosedError(f"worker {self.name} serves {PLACES - 1} ranks already: start another one")
        place = self._places.pop()
        self.bells.add(place, fd)
        return place

    def bell_fds(self, group: HostGroup, known: set[int]) -> tuple[tuple[int, ...], tuple[int, ...], list[int]]:
        """Bells of a group's members, those that are new to a session, and their descriptors."""
        places = []
        for member in group.info.members:
            session = self._sessions.get(member.session) if member.host == group.number else None
            places.append(session.place if session is not None else WORKER_BELL)
        new = tuple(sorted(set(places) - known - {WORKER_BELL}))
        known.update(new)
        return tuple(places), new, [self.bells.fds[place] for place in new]

    # --- pulses ------------------------------------------------------------------------------------------------------

    def _rung(self) -> None:
        try:
            os.eventfd_read(self.bells.fds[WORKER_BELL])
        except BlockingIOError:
            return
        self._pulse()

    def pulse_soon(self) -> None:
        """Looks at all boards in the loop's next turn."""
        if not self._pulsing:
            self._pulsing = True
            self._loop.call_soon(self._pulse)

    def _pulse(self) -> None:
        self._pulsing = False
        lanes = [standin.lane for session in self._sessions.values() for standin in session.standins.values()]
        moved = False
        for lane in lanes:
            moved = lane.poll() or moved
        for group in self._groups.values():  # after the lanes, which ring nobody for what they have done
            if group.bridged:
                group.pulse()
        if moved:
            self.pulse_soon()
        if lanes:
            self._arm(min(lane.deadline_s for lane in lanes))

    def _arm(self, deadline_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        delay_s = max(0.0, deadline_s - time.monotonic())
        self._timer = self._loop.call_later(min(delay_s, LIVENESS_S), self._pulse) if delay_s < float("inf") else None

    # --- other hosts -------------------------------------------------------------------------------------------------

    def send_to_host(self, host: int, message: Message, payload: Iterable[memoryview] = ()) -> None:
        """Sends over the link to another host."""
        self._links.send(host, message, payload)

    async def sent_to_host(self, host: int) -> None:
        """Waits until what was sent to a host has left."""
        await self._links.sent(host)

    def is_reachable(self, host: int) -> bool:
        """Whether the link to a host has not ended."""
        return self._links.is_reachable(host)

    def _peer_sink(self, host: int, message: Message, nbytes: int) -> Buffers | None:
        if isinstance(message, Chunk):
            group = self._groups.get(message.group)
            found = group.sink(host, message, nbytes) if group is not None else None
            return None if found is None else list(found)
        if isinstance(message, P2POffer | P2PData):
            if nbytes > PIECE_NBYTES:
                raise WireError(f"a piece of {nbytes} bytes, allowed are {PIECE_NBYTES}")
            self._relayed[host] = bytearray(nbytes)
            return [memoryview(self._relayed[host])]
        return None

    def _peer_message(self, host: int, message: Message, nbytes: int) -> None:
        relayed = self._relayed.pop(host, None)
        self._take(host, message, nbytes, memoryview(relayed) if relayed is not None else None)

    def _take(self, host: int, message: Message, nbytes: int, payload: memoryview | None) -> None:
        number = getattr(message, "group", -1)
        group = self._groups.get(number)
        if group is None and number > self._newest_group:
            self._keep_early(number, host, message, payload)
        elif isinstance(message, P2P):
            self.route(message, payload)
        elif isinstance(message, GroupLost):
            self._end_group(message.group, error_from_facts(message.error))
        elif group is not None:
            group.heard(host, message, nbytes)
        elif isinstance(message, AskVerdict):
            gone = error_to_facts(EpochEndedError(f"host {self.name} has forgotten group {number}"))
            self._links.send(host, Decided(number, message.channel, message.number, gone))
        elif isinstance(message, Freeze):
            self._links.send(host, Frozen(number, message.channel, message.number, False, ()))

    def _keep_early(self, number: int, host: int, message: Message, payload: memoryview | None) -> None:
        """A peer has heard of a group before us: the coordinator's word is still on its way."""
        if len(self._early) < EARLY_GROUPS or number in self._early:
            self._early.setdefault(number, []).append((host, message, payload))

    def _peer_gone(self, host: int, error: HocketError) -> None:
        log.warning("link to host %d: %s", host, error)
        self._relayed.pop(host, None)  # of a piece that was cut midway
        self.send_to_coordinator(PeerSilent(host, str(error)))
        affected = [group for group in self._groups.values() if host in group.hosts]
        for group in affected:
            group.host_gone(host, error)
        self._loop.call_later(UNREACHABLE_GRACE_S, self._give_up_on, host, affected, str(error))

    def _give_up_on(self, host: int, affected: list[HostGroup], detail: str) -> None:
        for group in affected:
            names = {entry.host: entry.name for entry in group.info.hosts}
            lost = tuple(Member(m.rank, names[host], m.pid) for m in group.info.members if m.host == host)
            self._end_group(group.info.group, MemberLostError(lost, "unreachable", detail))
        if not self._links.is_reachable(host):  # else a group that formed since has brought it back
            self._links.forget(host)

    def route(self, message: Message, payload: memoryview | None) -> None:
        """Brings a point-to-point message to its receiver here, or to its host."""
        assert isinstance(message, P2P)
        group = self._groups.get(message.group)
        to = message.dst if isinstance(message, FROM_SENDER) else message.src
        if group is None or not 0 <= to < len(group.info.members):
            return
        member = group.info.members[to]
        parts = [] if payload is None else [payload]
        if member.host != group.number:
            self._links.send(member.host, message, parts)
        elif member.session in self._sessions:
            self._sessions[member.session].connection.send(message, parts)
