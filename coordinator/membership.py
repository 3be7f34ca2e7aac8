"""Who is in: the hosts, sessions, jobs and groups of a cluster, and since which epoch. Pure: no clock, no sockets.

A group's epoch ends for all as soon as one member is gone. Its number is never used again, and the epochs under one
name of a job only rise, so that nothing late can be taken for something new.
"""

import logging

from hocket.coordinator.events import (
    Disconnect,
    Effect,
    Ended,
    Event,
    Log,
    Send,
    TimerFired,
    WorkerGone,
    WorkerJoins,
    WorkerSays,
)
from hocket.coordinator.forming import (
    WORLD,
    Ask,
    Forming,
    Kind,
    check_group_name,
    check_name,
    check_ranks,
    check_reachable,
    check_seat,
    check_size,
    check_world,
    generate_name,
)
from hocket.coordinator.records import (
    Group,
    GroupChange,
    GroupState,
    Host,
    Key,
    Loss,
    Session,
    SessionChange,
    SessionState,
)
from hocket.coordinator.registry import Registry
from hocket.protocol.errors import (
    ArgumentError,
    ClosedError,
    ConnectError,
    DeadlineError,
    HocketError,
    MemberLostError,
    error_from_facts,
    error_to_facts,
)
from hocket.protocol.messages import (
    NOBODY,
    AskGroup,
    AskNamedGroup,
    Facts,
    GroupFormed,
    GroupInfo,
    GroupLost,
    HostInfo,
    LeaveGroup,
    MemberInfo,
    Message,
    PeerSilent,
    RequestFailed,
    SessionEnds,
    SessionJoined,
    SessionJoins,
)

ENDED_KEPT = 1024


class Membership(Registry):
    """The machine: `handle` is the only way in, its effects the only way out; the rest is for reading."""

    def __init__(self, first_group: int = 1) -> None:
        super().__init__(first_group)
        self._effects: list[Effect] = []
        self._now = 0.0

    @property
    def deadline(self) -> float | None:
        """When to call ``handle(TimerFired(), now)``."""
        return self.deadlines.first

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Takes in what happened at ``now`` and says what is to be done, in that order."""
        self._effects, self._now = [], now
        match event:
            case WorkerJoins(info, is_local):
                self._worker_joins(info, is_local)
            case WorkerSays(host, message):
                if host in self.hosts:
                    self._worker_says(host, message)
            case WorkerGone(host, cause, detail):
                self._worker_gone(host, cause, detail)
            case TimerFired():
                while (late := self.deadlines.pop_due(now)) is not None:
                    self._give_up(late)
        return self._effects

    # --- hosts -------------------------------------------------------------------------------------------------------

    def _worker_joins(self, info: HostInfo, is_local: bool) -> None:
        for old in [host for host in self.hosts.values() if host.info.name == info.name]:
            if old.info.instance == info.instance:
                detail = "its worker connected anew"
            else:
                detail = f"a new worker registered as {info.name!r} from {info.address}, pid {info.pid}"
                self.replaced.append(old.info.instance)
                self._log(logging.WARNING, f"{detail}; the one at {old.info.address}, pid {old.info.pid}, is out")
            error = ConnectError(f"worker name {info.name!r}", "HOCKET_HOST_NAME", f"it was replaced: {detail}")
            self._worker_gone(old.info.host, "worker lost", detail)
            self._effects.append(Disconnect(old.info.host, error_to_facts(error)))
        self.hosts[info.host] = Host(info, is_local, self._now)
        for group in self.ended.values():
            if any((host.name, host.instance) == (info.name, info.instance) for host in group.info.hosts):
                assert group.error is not None, "ended groups say why"
                self._send(info.host, GroupLost(group.info.group, group.error))  # it was away and may not have heard

    def _worker_gone(self, number: int, cause: str, detail: str) -> None:
        host = self.hosts.pop(number, None)
        if host is not None:
            self._lose([self.sessions[number, session] for session in sorted(host.sessions)], cause, detail)

    def _worker_says(self, host: int, message: Message) -> None:
        match message:
            case SessionJoins() | AskGroup() | AskNamedGroup():
                try:
                    self._asked(host, message)
                except HocketError as refused:
                    self.counts.refusals += 1
                    self._send(host, RequestFailed(message.session, message.request, error_to_facts(refused)))
            case SessionEnds(session, cause, detail):
                known = self.sessions.get((host, session))
                if known is not None:
                    self._lose([known], cause, detail)
            case LeaveGroup(session, group):
                self._leave((host, session), group)
            case PeerSilent(silent, detail):
                self._link_lost(host, silent, detail)
            case _:
                pass  # the core deals with barriers and signs of life

    # --- asking ------------------------------------------------------------------------------------------------------

    def _asked(self, host: int, message: SessionJoins | AskGroup | AskNamedGroup) -> None:
        session = self.sessions.get((host, message.session))
        if isinstance(message, SessionJoins):
            self._session_joins(host, session, message)
        elif session is None or session.state is not SessionState.JOINED:
            raise ClosedError("the coordinator does not know this client as one of a job: connect again")
        elif isinstance(message, AskGroup):
            self._ask_group(session, message)
        else:
            self._ask_named(session, message)

    def _session_joins(self, host: int, session: Session | None, message: SessionJoins) -> None:
        check_name("job", message.job)
        check_name("name", message.name)
        if session is not None and session.job != message.job:
            raise ArgumentError("job", repr(message.job), f"{session.job!r}, the job that this client is in")
        asker = session or self._new_session(host, message)
        if message.world_size == NOBODY:
            self._admit(asker)
            self._send(host, SessionJoined(message.request, message.session))
            return
        check_size("world_size", message.world_size, message.rank)
        key = (Kind.WORLD, message.job)
        forming = self.forming.get(key) or Forming(
            key, Kind.WORLD, message.job, WORLD, message.world_size, ranks=tuple(range(message.world_size))
        )
        job = self.job(message.job)
        check_seat(forming, message.world_size, message.rank, "world_size", asker)
        check_world(forming, message.rank, job.held, job.world in self.groups, asker)
        self._admit(asker)
        for seat in [seat for seat, holds in job.held.items() if holds is asker or seat == message.rank]:
            del job.held[seat]
        self._wait(forming, asker, message.request, message.rank, message.timeout_s)

    def _new_session(self, host: int, message: SessionJoins) -> Session:
        state = SessionState.JOINED if message.world_size == NOBODY else SessionState.WAITING
        info = self.hosts[host].info
        return Session(info, message.session, message.job, message.name, message.pid, self._now, state)

    def _admit(self, session: Session) -> None:
        if session.key in self.sessions:
            return
        self.sessions[session.key] = session
        self.hosts[session.host.host].sessions.add(session.number)
        self.job(session.job).sessions.add(session.key)
        self.counts.joins += 1

    def _ask_group(self, session: Session, message: AskGroup) -> None:
        parent = self.find(message.parent)
        if parent is None:
            if not 0 < message.parent < self.next_group:
                raise ArgumentError("group", f"number {message.parent}", "a group that was formed")
            raise self.end_of(message.parent)
        member = parent.member(session.key)
        if member is None:
            raise ArgumentError("group", repr(parent.info.name), "a group that the caller is a member of")
        key = (Kind.SUB, message.parent, message.ranks, message.call, message.name)
        forming = self.forming.get(key)
        if forming is None or member.rank not in message.ranks:
            check_ranks(parent, message.ranks, member.rank)
            check_group_name(message.name)
            if parent.state is GroupState.ENDED and any(self.is_gone(parent, rank) for rank in message.ranks):
                raise self.end_of(message.parent)  # the others may make a new group of themselves
            size = len(message.ranks)
            forming = Forming(key, Kind.SUB, session.job, message.name, size, parent, message.ranks, message.call)
        seat = message.ranks.index(member.rank)
        check_seat(forming, forming.size, seat, "ranks", session)
        self._wait(forming, session, message.request, seat, message.timeout_s)

    def _ask_named(self, session: Session, message: AskNamedGroup) -> None:
        check_group_name(message.name)
        check_size("size", message.size, message.rank)
        key = (Kind.NAMED, session.job, message.name)
        forming = self.forming.get(key) or Forming(
            key, Kind.NAMED, session.job, message.name, message.size, ranks=tuple(range(message.size))
        )
        check_seat(forming, message.size, message.rank, "size", session)
        if forming.complete:
            raise ArgumentError(
                "name", repr(message.name), f"a group with room: {forming.size} wait for its next epoch"
            )
        self._wait(forming, session, message.request, message.rank, message.timeout_s)

    def _wait(self, forming: Forming, session: Session, request: int, seat: int, timeout_s: float) -> None:
        limit_s = timeout_s if timeout_s > 0 else 0.0  # also where it is not a number
        ask = Ask(session, request, forming, seat, limit_s, self._now)
        ask.token = self.deadlines.add(self._now + limit_s, ask)
        self.asks.setdefault(session.key, []).append(ask)
        self.forming.setdefault(forming.key, forming).add(ask)
        self._form_if_complete(forming)

    # --- forming -----------------------------------------------------------------------------------------------------

    def _form_if_complete(self, forming: Forming) -> None:
        earlier = self.jobs[forming.job].named.get(forming.name)
        if not forming.complete or (forming.kind is Kind.NAMED and earlier in self.groups):
            return
        try:
            check_reachable([self.hosts[ask.session.host.host] for ask in forming.asks])
        except ConnectError as apart:
            for ask in list(forming.asks):
                self._refuse(ask, error_to_facts(apart))
            return
        del self.forming[forming.key]
        seats = forming.seats()
        group = Group(self._describe(forming, seats), self._now, named=forming.kind is Kind.NAMED)
        group.change(GroupChange.COMPLETE)
        self.groups[group.info.group] = group
        self.counts.groups_formed += 1
        job = self.jobs[forming.job]
        if forming.kind is Kind.WORLD:
            job.world, job.held = group.info.group, {rank: ask.session for rank, ask in seats.items()}
        if forming.kind is Kind.NAMED:
            job.named[forming.name] = group.info.group
        for rank, ask in seats.items():
            self._settle(ask)
            ask.session.groups.add(group.info.group)
            if forming.kind is Kind.WORLD:
                ask.session.world_rank = rank
                ask.session.change(SessionChange.WORLD_FORMED)
        for host in group.info.hosts:
            pairs = [
                (seats[m.rank].session.number, seats[m.rank].request) for m in group.info.members if m.host == host.host
            ]
            self._send(host.host, GroupFormed(group.info, tuple(pairs)))
        self._log(logging.INFO, f"group {group.info.name!r} of job {forming.job!r}, epoch {group.info.epoch}, formed")

    def _describe(self, forming: Forming, seats: dict[int, Ask]) -> GroupInfo:
        number, self.next_group = self.next_group, self.next_group + 1
        members = []
        for rank in range(forming.size):
            session = seats[rank].session
            world_rank = rank if forming.kind is Kind.WORLD else session.world_rank
            host = session.host.host
            members.append(MemberInfo(rank, world_rank, host, session.number, session.name, session.pid))
        hosts = {member.host: self.hosts[member.host].info for member in members}
        name, epoch = self._name(forming, number)
        parent = forming.parent.info.group if forming.parent else NOBODY
        return GroupInfo(number, forming.job, name, epoch, parent, tuple(members), tuple(hosts.values()))

    def _name(self, forming: Forming, number: int) -> tuple[str, int]:
        """A name that was given has epochs of its own; a generated one is new in each epoch of the parent."""
        parent = forming.parent
        if parent is None or forming.name:
            return forming.name, self.jobs[forming.job].raise_epoch(forming.name)
        name = generate_name(parent.info.name, forming.ranks, forming.call, number)
        if name in parent.children:  # the same call once more: only a fault of the client's
            name += f"@{number}"
        parent.children.add(name)
        return name, parent.info.epoch

    def _settle(self, ask: Ask) -> None:
        """An ask has its answer."""
        self.deadlines.discard(ask.token)
        asks = self.asks[ask.session.key]
        asks.remove(ask)
        if not asks:
            del self.asks[ask.session.key]

    def _withdraw(self, ask: Ask) -> None:
        self._settle(ask)
        ask.forming.remove(ask)
        if not ask.forming.by_session:
            del self.forming[ask.forming.key]

    def _refuse(self, ask: Ask, error: Facts) -> None:
        """An ask comes to nothing. A client that is in no world yet is then in no job either."""
        self._withdraw(ask)
        session = ask.session
        if ask.forming.kind is Kind.WORLD:
            session.change(SessionChange.REFUSED)
            if session.state is SessionState.GONE:
                self.forget(session)
        self._send(session.host.host, RequestFailed(session.number, ask.request, error))

    def _give_up(self, ask: Ask) -> None:
        forming = ask.forming
        detail = f"{forming.title()}: {forming.reason()}{self.where_they_are(forming)}"
        self._refuse(ask, error_to_facts(DeadlineError(ask.limit_s, forming.missing(), detail)))

    # --- losing ------------------------------------------------------------------------------------------------------

    def _lose(self, lost: list[Session], cause: str, detail: str) -> None:
        """Sessions are gone, all at once: one error names them all."""
        groups: set[int] = set()
        for session in lost:
            ranks = []
            for number in sorted(session.groups):
                groups.add(number)
                info = self.groups[number].info
                ranks += [
                    (info.name, info.epoch, member.rank) for member in self.groups[number].named_members({session.key})
                ]
            self.losses.append(
                Loss(session.job, session.name, session.host.name, session.pid, cause, detail, self._now, tuple(ranks))
            )
            self.counts.losses[cause] += 1
            for ask in list(self.asks.get(session.key, ())):
                self._withdraw(ask)
            session.change(SessionChange.GONE)
            self.forget(session)
        keys = {session.key for session in lost}
        change = GroupChange.MEMBER_LEFT if cause == "left" else GroupChange.MEMBER_LOST
        for number in sorted(groups):
            group = self.groups[number]
            error = error_to_facts(MemberLostError(group.named_members(keys), cause, detail))
            self._end(group, change, error, gone=keys)
        self._disband(keys, cause, detail)
        self._retry(lost)

    def _disband(self, keys: set[Key], cause: str, detail: str) -> None:
        """Refuses what survivors of an ended group were about to form with some that are lost now, too."""
        for forming in list(self.forming.values()):
            parent = forming.parent
            lost = () if parent is None else tuple(m for m in parent.named_members(keys) if m.rank in forming.ranks)
            for ask in list(forming.asks) if lost else ():
                self._refuse(ask, error_to_facts(MemberLostError(lost, cause, detail)))

    def _leave(self, key: Key, number: int) -> None:
        session, group = self.sessions.get(key), self.find(number)
        if session is None or group is None or group.member(key) is None:
            return
        job = self.jobs[session.job]
        if job.world == number:
            for rank in [rank for rank, holder in job.held.items() if holder is session]:
                del job.held[rank]
        if number in self.groups:
            error = error_to_facts(MemberLostError(group.named_members({key}), "left"))
            self._end(group, GroupChange.MEMBER_LEFT, error, gone={key})
            self._retry([session])

    def _link_lost(self, reporter: int, silent: int, detail: str) -> None:
        """Two hosts do not reach each other: each side hears of the members on the other one."""
        if silent == reporter or silent not in self.hosts:
            return
        for group in list(self.groups.values()):
            if {reporter, silent} <= {host.host for host in group.info.hosts}:
                beyond = self._unreachable(group, silent, detail)
                here = self._unreachable(group, reporter, detail)
                self._end(group, GroupChange.LINK_LOST, beyond, gone=set(), told={silent: here})
                self._retry([self.sessions[member.host, member.session] for member in group.info.members])

    def _unreachable(self, group: Group, host: int, detail: str) -> Facts:
        keys = {(member.host, member.session) for member in group.info.members if member.host == host}
        return error_to_facts(MemberLostError(group.named_members(keys), "unreachable", detail))

    def _end(
        self, group: Group, change: GroupChange, error: Facts, gone: set[Key], told: dict[int, Facts] | None = None
    ) -> None:
        """Ends an epoch: those who stay are told ``error``, or what ``told`` has for their host."""
        number, told = group.info.group, told or {}
        staying = [member for member in group.info.members if (member.host, member.session) not in gone]
        hosts = [host.host for host in group.info.hosts if any(member.host == host.host for member in staying)]
        errors = [(host, told.get(host, error)) for host in hosts if host in self.hosts]
        group.change(change)
        group.error, group.ended_s, group.gone = error, self._now, gone
        del self.groups[number]
        self.ended[number] = group
        while len(self.ended) > ENDED_KEPT:
            self.ended.popitem(last=False)
        for member in group.info.members:
            session = self.sessions.get((member.host, member.session))
            if session is not None:
                session.groups.discard(number)
        self._effects.append(Ended(number, tuple(errors)))
        for host, facts in errors:
            self._send(host, GroupLost(number, facts))
        for forming in [forming for forming in self.forming.values() if forming.parent is group]:
            if gone and not any(self.is_gone(group, rank) for rank in forming.ranks):
                continue  # survivors that heard of it before we did
            for ask in list(forming.asks):
                self._refuse(ask, told.get(ask.session.host.host, error))
        what = f"group {group.info.name!r} of job {group.info.job!r}, epoch {group.info.epoch}"
        self._log(logging.INFO, f"{what}, ended: {error_from_facts(error)}")

    def _retry(self, freed: list[Session]) -> None:
        """Forms what waited for the end of an earlier epoch of its name."""
        for job in dict.fromkeys(session.job for session in freed):
            for forming in [one for one in self.forming.values() if one.job == job and one.kind is Kind.NAMED]:
                self._form_if_complete(forming)

    def _send(self, host: int, message: Message) -> None:
        self._effects.append(Send(host, message))

    def _log(self, level: int, text: str) -> None:
        self._effects.append(Log(level, text))
