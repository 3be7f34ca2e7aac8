"""What people and programs see of the coordinator: plain data, made from the machines. Pure.

Times are ages in seconds, so that nobody's clock matters. The field names are part of the HTTP API: they stay.
"""

from typing import Any

from hocket.coordinator.barrier import Barrier
from hocket.coordinator.core import Core
from hocket.coordinator.forming import Forming
from hocket.coordinator.records import Group, Host, Job, Loss
from hocket.protocol.errors import error_from_facts
from hocket.protocol.messages import NOBODY

View = dict[str, Any]
LOSSES_SHOWN = 20


def status(core: Core, now: float) -> View:
    """The whole in numbers, all that waits with its reason, and the last losses.

    Fields: workers, sessions, jobs, groups, joins, groups_formed, losses (cause to count); waiting: [`forming`];
    barriers: [`barrier`]; last_losses: [`loss`], the newest first.
    """
    members = core.membership
    return {
        "workers": len(members.hosts),
        "sessions": len(members.sessions),
        "jobs": sum(1 for job in members.jobs.values() if job.sessions),
        "groups": len(members.groups),
        "joins": members.counts.joins,
        "groups_formed": members.counts.groups_formed,
        "losses": dict(members.counts.losses),
        "waiting": all_forming(core, now),
        "barriers": barriers(core, now),
        "last_losses": [loss(entry, now) for entry in list(members.losses)[-LOSSES_SHOWN:][::-1]],
    }


def loss(entry: Loss, now: float) -> View:
    """One who is gone: job, name, host, pid, cause, detail, age_s, ranks: [{group, epoch, rank}]."""
    ranks = [{"group": group, "epoch": epoch, "rank": rank} for group, epoch, rank in entry.ranks]
    return {
        "job": entry.job,
        "name": entry.name,
        "host": entry.host,
        "pid": entry.pid,
        "cause": entry.cause,
        "detail": entry.detail,
        "age_s": _age(now, entry.lost_s),
        "ranks": ranks,
    }


def workers(core: Core, now: float) -> list[View]:
    """All workers, as `worker` shows them."""
    return [worker(core, host, now) for host in core.membership.hosts.values()]


def worker(core: Core, host: Host, now: float) -> View:
    """A worker: host (its number), name, address, port, pid, instance, sessions, age_s, silent_s."""
    info = host.info
    return {
        "host": info.host,
        "name": info.name,
        "address": info.address,
        "port": info.port,
        "pid": info.pid,
        "instance": info.instance,
        "sessions": len(host.sessions),
        "age_s": _age(now, host.joined_s),
        "silent_s": round(core.liveness.silence(info.host, now), 3),
    }


def jobs(core: Core, now: float) -> list[View]:
    """The jobs that somebody is in, as `job` shows them."""
    return [job(core, entry, now) for entry in core.membership.jobs.values() if entry.sessions]


def job(core: Core, entry: Job, now: float) -> View:
    """A job: name, sessions: [{session, host, name, pid, state, world_rank, age_s}], groups, world and its state.

    ``world`` is null or {group, epoch, size, state}; ``waiting`` is why the next world has not formed, or null.
    """
    members = core.membership
    sessions = [
        {
            "session": session.number,
            "host": session.host.name,
            "name": session.name,
            "pid": session.pid,
            "state": session.state.value,
            "world_rank": None if session.world_rank == NOBODY else session.world_rank,
            "age_s": _age(now, session.joined_s),
        }
        for session in (members.sessions[key] for key in sorted(entry.sessions))
    ]
    world = members.find(entry.world)
    next_world = members.world_forming(entry.name)
    return {
        "name": entry.name,
        "sessions": sessions,
        "groups": sum(1 for group in members.groups.values() if group.info.job == entry.name),
        "world": world and _outline(world),
        "waiting": next_world and next_world.reason(),
    }


def _outline(entry: Group) -> View:
    info = entry.info
    return {"group": info.group, "epoch": info.epoch, "size": len(info.members), "state": entry.state.value}


def groups(core: Core, now: float, job_name: str | None = None) -> list[View]:
    """The groups that live, as `group` shows them; of one job, if one is named."""
    return [group(entry, now) for entry in core.membership.groups.values() if job_name in (None, entry.info.job)]


def group(entry: Group, now: float) -> View:
    """A group: group (its number), job, name, epoch, size, state, parent (number or null), hosts (names), age_s."""
    return {
        **_outline(entry),
        "job": entry.info.job,
        "name": entry.info.name,
        "parent": None if entry.info.parent == NOBODY else entry.info.parent,
        "hosts": [host.name for host in entry.info.hosts],
        "age_s": _age(now, entry.formed_s),
    }


def group_in_full(entry: Group, now: float) -> View:
    """A group with its members: [{rank, world_rank, host, session, name, pid}], and error and ended_s if it ended."""
    members = [
        {
            "rank": member.rank,
            "world_rank": None if member.world_rank == NOBODY else member.world_rank,
            "host": entry.host_name(member.host),
            "session": member.session,
            "name": member.name,
            "pid": member.pid,
        }
        for member in entry.info.members
    ]
    error = entry.error and str(error_from_facts(entry.error))
    return {
        **group(entry, now),
        "members": members,
        "error": error,
        "ended_s": _age(now, entry.ended_s) if error else None,
    }


def find_groups(core: Core, now: float, wanted: str, job_name: str | None = None) -> list[View]:
    """Groups by number or name, living or ended, the newest first, as `group_in_full` shows them."""
    known = {**core.membership.ended, **core.membership.groups}
    found = [
        entry
        for number, entry in sorted(known.items(), reverse=True)
        if wanted in (entry.info.name, str(number)) and job_name in (None, entry.info.job)
    ]
    return [group_in_full(entry, now) for entry in found]


def all_forming(core: Core, now: float, job_name: str | None = None) -> list[View]:
    """Groups that wait for members, as `forming` shows them."""
    return [forming(entry, now) for entry in core.membership.forming.values() if job_name in (None, entry.job)]


def forming(entry: Forming, now: float) -> View:
    """A group that waits: job, name, kind, size, title, reason, missing (ranks),
    waiting: [{rank, host, name, pid, age_s}].

    ``rank`` is null for one who takes any; in a sub-group, ranks are those of the parent.
    """
    waiting = [
        {
            "rank": None if ask.seat == NOBODY else entry.ranks[ask.seat],
            "host": ask.session.host.name,
            "name": ask.session.name,
            "pid": ask.session.pid,
            "age_s": _age(now, ask.asked_s),
        }
        for ask in entry.asks
    ]
    return {
        "job": entry.job,
        "name": entry.name,
        "kind": entry.kind.value,
        "size": entry.size,
        "title": entry.title(),
        "reason": entry.reason(),
        "missing": list(entry.missing()),
        "waiting": waiting,
    }


def barriers(core: Core, now: float) -> list[View]:
    """The barriers that somebody waits in, as `barrier` shows them."""
    return [barrier(entry, now) for entry in core.barriers.waiting.values()]


def barrier(entry: Barrier, now: float) -> View:
    """A barrier: job, group (number), group_name, epoch, channel, number, monitored, size, age_s, reason,
    arrived: [{rank, host, pid, age_s}], missing: [{rank, host, pid, missing_s}].
    """
    info, hosts = entry.group, {host.host: host.name for host in entry.group.hosts}
    age_s = _age(now, entry.since_s)
    arrived, missing = [], []
    for member in info.members:
        who = {"rank": member.rank, "host": hosts[member.host], "pid": member.pid}
        if member.rank in entry.arrived:
            arrived.append({**who, "age_s": _age(now, entry.arrived[member.rank])})
        else:
            missing.append({**who, "missing_s": age_s})
    return {
        "job": info.job,
        "group": info.group,
        "group_name": info.name,
        "epoch": info.epoch,
        "channel": entry.channel,
        "number": entry.number,
        "monitored": entry.monitored,
        "size": len(info.members),
        "age_s": age_s,
        "reason": entry.reason(),
        "arrived": arrived,
        "missing": missing,
    }


def _age(now: float, then: float) -> float:
    return round(max(0.0, now - then), 3)
