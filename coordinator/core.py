"""The coordinator without its sockets: membership, barriers and liveness behind one `handle`. Pure."""

import logging

from hocket.coordinator.barrier import Barriers
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
from hocket.coordinator.liveness import Liveness
from hocket.coordinator.membership import Membership
from hocket.protocol.errors import CoordinatorUnavailableError, error_to_facts
from hocket.protocol.messages import BarrierArrive, BarrierEnds, BarrierLeave, Heartbeat


class Core:
    """What the shell drives: events in, effects out; the machines inside are for reading.

    Args:
        liveness_s: silence of a worker, in seconds, that counts as the loss of its host.
        heartbeat_s: how often workers give a sign of life, and silence is looked for.
        first_group: number of the first group; higher than all that workers may remember.
    """

    def __init__(self, liveness_s: float, heartbeat_s: float, first_group: int = 1) -> None:
        self.membership = Membership(first_group)
        self.barriers = Barriers()
        self.liveness = Liveness(liveness_s, heartbeat_s)

    @property
    def deadline(self) -> float | None:
        """When to call ``handle(TimerFired(), now)``."""
        deadlines = (self.membership.deadline, self.barriers.deadline, self.liveness.deadline)
        return min((due for due in deadlines if due is not None), default=None)

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Takes in what happened at ``now``. The effects are to be performed in their order."""
        match event:
            case WorkerJoins(info=info):
                self.liveness.heard(info.host, now)
            case WorkerGone(host):
                self.liveness.forget(host)
            case WorkerSays(host, message):
                if host not in self.membership.hosts:
                    return []
                self.liveness.heard(host, now)
                match message:
                    case Heartbeat():
                        return [Send(host, message)]
                    case BarrierArrive():
                        return self._barrier_arrive(host, message, now)
                    case BarrierLeave(group, channel, number):
                        return self.barriers.leave((group, channel, number))
                    case _:
                        pass
            case TimerFired():
                return self._timer_fired(now)
        return self._expand(self.membership.handle(event, now))

    def _timer_fired(self, now: float) -> list[Effect]:
        effects: list[Effect] = []
        for host, silence_s in self.liveness.tick(now).items():
            detail = f"its worker was silent for {silence_s:.1f} s"
            effects += self.handle(WorkerGone(host, "unreachable", detail), now)
            error = CoordinatorUnavailableError(f"the coordinator gave this worker up: {detail}")
            effects.append(Disconnect(host, error_to_facts(error)))
        effects += self._expand(self.membership.handle(TimerFired(), now))
        return effects + self.barriers.expire(now)

    def _barrier_arrive(self, host: int, message: BarrierArrive, now: float) -> list[Effect]:
        group = self.membership.groups.get(message.group)
        if group is None:
            if not message.monitored:
                return []
            error = error_to_facts(self.membership.end_of(message.group))
            return [Send(host, BarrierEnds(message.group, message.channel, message.number, error))]
        there = {member.rank for member in group.info.members if member.host == host}
        if not set(message.ranks) <= there:
            text = f"host {host} reports ranks {message.ranks} at a barrier of {group.info.name!r}, has {sorted(there)}"
            return [Log(logging.WARNING, text)]
        return self.barriers.arrive(host, group.info, message, now)

    def _expand(self, effects: list[Effect]) -> list[Effect]:
        """Breaks the barriers of ended groups, at the place where their end stands."""
        expanded: list[Effect] = []
        for effect in effects:
            if isinstance(effect, Ended):
                expanded += self.barriers.group_ended(effect.group, dict(effect.errors))
            else:
                expanded.append(effect)
        for effect in effects:
            if isinstance(effect, Disconnect):
                self.liveness.forget(effect.host)
        return expanded

    def check(self) -> None:
        """Asserts what holds between any two events."""
        self.membership.check()
        self.barriers.check()
        assert all(key[0] in self.membership.groups for key in self.barriers.waiting), "a barrier outlived its group"
