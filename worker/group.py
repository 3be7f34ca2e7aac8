"""A group as one host sees it: its boards by channel, its bridges, its members here, and how its operations end."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from hocket.fabric.bells import Bells
from hocket.fabric.board import EVERYTHING, Board
from hocket.fabric.contest import behind, judge
from hocket.protocol.errors import AbortedError, HocketError, Ranks, Where, error_from_facts, error_to_facts
from hocket.protocol.limits import BLOCK_NBYTES
from hocket.protocol.messages import (
    AskVerdict,
    BarrierArrive,
    BarrierLeave,
    Chunk,
    Credit,
    Decided,
    Freeze,
    Frozen,
    GroupInfo,
    Header,
    Message,
    Posted,
)
from hocket.protocol.signature import decode_signature
from hocket.worker.bridge import Bridge
from hocket.worker.verdicts import Trial, Verdicts, seen_by_itself, seen_by_others, with_names

EARLY_MESSAGES = 4096
"""Headers that may wait for their channel to be opened here."""


class Host(Protocol):
    """What a group needs of its worker."""

    number: int
    bells: Bells

    def send_to_host(self, host: int, message: Message, payload: Iterable[memoryview] = ()) -> None:
        """Sends over the link to another host."""

    async def sent_to_host(self, host: int) -> None:
        """Waits until what was sent to a host has left."""

    def is_reachable(self, host: int) -> bool:
        """Whether the link to a host has not ended."""

    def send_to_coordinator(self, message: Message) -> None:
        """Sends over the control stream, or not at all while it is down."""

    def deliver_verdict(self, group: int, channel: str, number: int, rank: int, error: HocketError | None) -> None:
        """Tells a local member how a contested operation ended."""

    def pulse_soon(self) -> None:
        """Has the stand-ins look at their boards."""


@dataclass(slots=True)
class HostChannel:
    """One channel of a group on this host."""

    name: str
    board: Board
    bridge: Bridge | None = None
    task: asyncio.Task[None] | None = None


@dataclass(slots=True)
class _Asking:
    """Members here that wait for a verdict, with the reasons that they gave."""

    ranks: dict[int, HocketError | None] = field(default_factory=dict)


class HostGroup:
    """See the module."""

    def __init__(self, info: GroupInfo, host: Host) -> None:
        self.info = info
        self._host = host
        self.number = host.number
        """this host's number in the group; a coordinator that was restarted gives the worker another one"""
        self.hosts = tuple(sorted(entry.host for entry in info.hosts))
        self.members = tuple(tuple(m.rank for m in info.members if m.host == number) for number in self.hosts)
        self.me = self.hosts.index(self.number)
        self.locals = self.members[self.me]
        self.bridged = len(self.hosts) > 1
        self.channels: dict[str, HostChannel] = {}
        self.sessions: dict[int, int] = {m.session: m.rank for m in info.members if m.host == self.number}
        self.wake: set[int] = set()
        self.stands_in = False
        """whether members here have no shared memory, so that the worker itself is to be woken for them"""
        self.ended: HocketError | None = None
        self._verdicts: dict[str, Verdicts] = {}
        self._asking: dict[tuple[str, int], _Asking] = {}
        self._early: list[tuple[int, Message]] = []

    def where(self, operation: str, number: int, channel: str) -> Where:
        """An operation's place, for an error."""
        return Where(operation, number, self.info.name, self.info.epoch, channel)

    def channel(self, name: str) -> HostChannel:
        """The channel, made at its first use."""
        found = self.channels.get(name)
        if found is None:
            board = Board.create(f"{self.info.name}-{self.info.epoch}", len(self.info.members), BLOCK_NBYTES)
            found = HostChannel(name, board)
            self.channels[name] = found
            found.board.contest(self.verdicts(name).highest)
            if self.ended is not None:
                found.board.contest(EVERYTHING)
            if self.bridged:
                around = _Around(self, found)
                found.bridge = Bridge(found.board, around, self.hosts, self.members, self.me)
                found.task = asyncio.get_running_loop().create_task(found.bridge.run())
                self._deliver_early(found)
        return found

    def pulse(self) -> None:
        """The board may have changed."""
        for channel in self.channels.values():
            if channel.bridge is not None:
                channel.bridge.pulse()

    def ring(self) -> None:
        """Wakes the local members."""
        self._host.bells.ring(self.wake)
        if self.stands_in:
            self._host.pulse_soon()

    # --- messages of other hosts -------------------------------------------------------------------------------------

    def sink(self, host: int, chunk: Chunk, nbytes: int) -> Iterable[memoryview] | None:
        """Where a chunk goes."""
        found = self.channels.get(chunk.channel)
        if found is None or found.bridge is None or (self.ended is not None and self._is_over(chunk)):
            return None
        return found.bridge.inbox.sink(host, chunk, nbytes)

    def _is_over(self, chunk: Chunk) -> bool:
        return self.verdicts(chunk.channel).is_over(chunk.number)

    def heard(self, host: int, message: Message, nbytes: int) -> None:
        """A message of another host of the group."""
        if isinstance(message, Chunk | Header | Credit | Posted):
            found = self.channels.get(message.channel)
            if found is not None and found.bridge is not None:
                found.bridge.heard(host, message, nbytes)
            elif len(self._early) < EARLY_MESSAGES and not isinstance(message, Chunk):
                self._early.append((host, message))
        elif isinstance(message, AskVerdict):
            self._try(message.channel, message.number, _error(message.error))
        elif isinstance(message, Freeze):
            sealed = self._look(message.channel, message.number)
            late = () if sealed else self._late(message.channel, message.number)
            answer = Frozen(message.group, message.channel, message.number, sealed is True, late)
            self._host.send_to_host(host, answer)
        elif isinstance(message, Frozen):
            self._frozen(host, message)
        elif isinstance(message, Decided):
            self._decide(message.channel, message.number, _error(message.error))

    def _deliver_early(self, channel: HostChannel) -> None:
        early, self._early = self._early, []
        for host, message in early:
            self.heard(host, message, 0)

    # --- contests ----------------------------------------------------------------------------------------------------

    def verdicts(self, channel: str) -> Verdicts:
        """The channel's outcomes; they exist before and without its board."""
        return self._verdicts.setdefault(channel, Verdicts())

    def contest(self, channel: str, number: int, rank: int, error: HocketError | None) -> None:
        """A local member wants an operation ended, or asks how it ended."""
        verdicts = self.verdicts(channel)
        if number in verdicts.decided:
            self._tell(channel, number, rank, error, self._seen_here(verdicts, number))
            return
        self._asking.setdefault((channel, number), _Asking()).ranks[rank] = error
        self.want_ended(channel, number, None if error is None else seen_by_others(rank, error))

    def want_ended(self, channel: str, number: int, reason: HocketError | None) -> None:
        """Brings about a verdict on an operation."""
        verdicts = self.verdicts(channel)
        if not self.bridged:
            self._decide_alone(channel, number, reason)
            return
        decider = self._decider()
        if decider == self.number:
            self._try(channel, number, reason)
        elif number not in verdicts.asked or (reason is not None and verdicts.asked[number] is None):
            verdicts.asked[number] = reason
            facts = None if reason is None else error_to_facts(reason)
            self._host.send_to_host(decider, AskVerdict(self.info.group, channel, number, facts))

    def _decider(self) -> int:
        return min(host for host in self.hosts if host == self.number or self._host.is_reachable(host))

    def _look(self, channel: str, number: int) -> HocketError | bool:
        found = self.channels.get(channel)
        verdicts = self.verdicts(channel)
        verdicts.highest = max(verdicts.highest, number)
        if number in verdicts.decided:
            return verdicts.decided[number] or True
        if found is None:
            return False
        self._settle_before(found, verdicts, number - 1)
        seen = judge(found.board, number, self.locals, self.bridged)
        self.ring()
        return seen

    def _settle_before(self, channel: HostChannel, verdicts: Verdicts, number: int) -> None:
        """Remembers how the operation before a contested one ended, while it still stands on the board.

        Whoever is in the contested one has left it, and a verdict lets them go on and write over it. A member that has
        not (it was stopped, say) asks later.
        """
        if number < 1 or number in verdicts.decided:
            return
        seen = judge(channel.board, number, self.locals, self.bridged)
        trial = verdicts.trials.get(number)
        if trial is not None:
            trial.sealed = trial.sealed or seen is True
        elif seen:
            self._decide(channel.name, number, None if seen is True else seen)

    def _decide_alone(self, channel: str, number: int, reason: HocketError | None) -> None:
        seen = self._look(channel, number)
        if isinstance(seen, HocketError):
            self._decide(channel, number, seen)
        elif seen:
            self._decide(channel, number, None)
        else:
            reason = with_names(reason or self._reason_unknown(), self._late(channel, number))
            self._decide(channel, number, reason)

    def _late(self, channel: str, number: int) -> Ranks:
        """Members here that hold an operation up."""
        found = self.channels.get(channel)
        return self.locals if found is None else behind(found.board, number, self.locals, self.bridged)

    def _reason_unknown(self) -> HocketError:
        return self.ended or AbortedError(-1, "it ended before this member arrived")

    def _try(self, channel: str, number: int, reason: HocketError | None) -> None:
        verdicts = self.verdicts(channel)
        if number in verdicts.decided:
            self._announce(channel, number, verdicts.decided[number])
            return
        trial = verdicts.trials.get(number)
        if trial is not None:
            trial.reason = trial.reason or reason
            return
        others = {host for host in self.hosts if host != self.number and self._host.is_reachable(host)}
        verdicts.trials[number] = trial = Trial(others, reason)
        seen = self._look(channel, number)
        trial.sealed = seen is True
        if isinstance(seen, HocketError):
            trial.reason = seen
        trial.late.update(() if seen else self._late(channel, number))
        for host in others:
            self._host.send_to_host(host, Freeze(self.info.group, channel, number))
        self._conclude(channel, number, trial)

    def _frozen(self, host: int, message: Frozen) -> None:
        trial = self.verdicts(message.channel).trials.get(message.number)
        if trial is not None:
            trial.waiting.discard(host)
            trial.sealed = trial.sealed or message.sealed
            trial.late.update(message.late)
            self._conclude(message.channel, message.number, trial)

    def _conclude(self, channel: str, number: int, trial: Trial) -> None:
        if trial.waiting:
            return
        error = None if trial.sealed else with_names(trial.reason or self._reason_unknown(), trial.late)
        self._announce(channel, number, error)
        self._decide(channel, number, error)

    def _announce(self, channel: str, number: int, error: HocketError | None) -> None:
        facts = None if error is None else error_to_facts(error)
        for host in self.hosts:
            if host != self.number:
                self._host.send_to_host(host, Decided(self.info.group, channel, number, facts))

    def _decide(self, channel: str, number: int, error: HocketError | None) -> None:
        verdicts = self.verdicts(channel)
        outcome = verdicts.decide(number, error)
        asking = self._asking.pop((channel, number), _Asking())
        for rank, reason in asking.ranks.items():
            self._tell(channel, number, rank, reason, self._seen_here(verdicts, number))
        found = self.channels.get(channel)
        if found is not None:
            found.board.contest(number)
            if found.bridge is not None:
                found.bridge.verdict(number, outcome)
        if outcome is None and number in verdicts.broken:
            self._break(channel, number)
        self.ring()

    def _seen_here(self, verdicts: Verdicts, number: int) -> HocketError | None:
        """An outcome as members here see it: what completes elsewhere may have broken here as the group ended."""
        outcome = verdicts.decided[number]
        return self.ended if outcome is None and number in verdicts.broken else outcome

    def _tell(
        self, channel: str, number: int, rank: int, reason: HocketError | None, outcome: HocketError | None
    ) -> None:
        """Whoever gave the reason that was taken raises it as its own."""
        if reason is not None and outcome is not None:
            outcome = seen_by_itself(rank, reason, outcome)
        self._host.deliver_verdict(self.info.group, channel, number, rank, outcome)

    def failed(self, channel: str, number: int, error: HocketError) -> None:
        """The bridge cannot go on. If the operation completes elsewhere all the same, the members here cannot."""
        self.verdicts(channel).broken[number] = error
        self._break(channel, number)

    def _break(self, channel: str, number: int) -> None:
        verdicts = self.verdicts(channel)
        others = [host for host in self.hosts if host != self.number]
        if self.ended is None and not all(map(self._host.is_reachable, others)):
            return  # the group is about to end, and how is the better reason
        error = self.ended or verdicts.broken[number]
        if number not in verdicts.decided:
            self.want_ended(channel, number, error)
        elif verdicts.decided[number] is None:
            for rank in self.locals:
                self._host.deliver_verdict(self.info.group, channel, number, rank, error)

    # --- the end -----------------------------------------------------------------------------------------------------

    def end(self, error: HocketError) -> None:
        """The epoch has ended: nobody completes anything any more without a verdict."""
        if self.ended is None:
            self.ended = error
        for channel in self.channels.values():
            channel.board.contest(EVERYTHING)
            if channel.bridge is not None:
                channel.bridge.feedback.release()
        for name, verdicts in list(self._verdicts.items()):
            for number in list(verdicts.broken):
                self._break(name, number)
        self.ring()
        self.pulse()

    def host_gone(self, host: int, error: HocketError) -> None:
        """The link to a host has ended."""
        for name, verdicts in self._verdicts.items():
            for number, trial in list(verdicts.trials.items()):
                trial.waiting.discard(host)
                self._conclude(name, number, trial)
            for number, reason in list(verdicts.asked.items()):
                del verdicts.asked[number]
                self.want_ended(name, number, reason)
        for channel in self.channels.values():
            if channel.bridge is not None:
                channel.bridge.host_gone(host, error)

    async def close(self) -> None:
        """Ends the bridges and gives the boards back."""
        tasks = [channel.task for channel in self.channels.values() if channel.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for channel in self.channels.values():
            channel.board.close()
        self.channels.clear()


class _Around:
    """The bridge's view of its group."""

    def __init__(self, group: HostGroup, channel: HostChannel) -> None:
        self._group = group
        self._host: Host = group._host
        self._ranks = group.locals
        self.group = group.info.group
        self.channel = channel.name
        self._board = channel.board
        self._in_barrier: set[int] = set()

    def send(self, host: int, message: Message, payload: Iterable[memoryview] = ()) -> None:
        self._host.send_to_host(host, message, payload)

    async def sent(self, host: int) -> None:
        await self._host.sent_to_host(host)

    def is_over(self, number: int) -> bool:
        return self._group.verdicts(self.channel).is_over(number)

    def failed(self, number: int, error: HocketError) -> None:
        self._group.failed(self.channel, number, error)

    def barrier_entered(self, number: int) -> None:
        text = self._board.signature(self._ranks[0], number)
        if text is not None and decode_signature(text).kind == "barrier":
            self._in_barrier.add(number)
            arrive = BarrierArrive(self.group, self.channel, number, self._ranks, False, False, 0.0)
            self._host.send_to_coordinator(arrive)

    def barrier_left(self, number: int) -> None:
        if number in self._in_barrier:
            self._in_barrier.discard(number)
            self._host.send_to_coordinator(BarrierLeave(self.group, self.channel, number))

    def ring(self) -> None:
        self._group.ring()


def _error(facts: dict[str, object] | None) -> HocketError | None:
    return None if facts is None else error_from_facts(facts)
