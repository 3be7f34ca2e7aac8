"""What is under way on all hosts, put together: who has arrived at each operation, and who is missing. Pure."""

from collections.abc import Mapping
from typing import Any

from hocket.coordinator.registry import Registry
from hocket.protocol.errors import Ranks, name_ranks
from hocket.protocol.messages import GroupInfo, OperationInfo

Place = tuple[int, str]
"""Group and channel."""
Reports = dict[int, list[OperationInfo]]
"""What the hosts say of a channel, by operation number."""


def merge(known: Registry, answers: Mapping[int, tuple[OperationInfo, ...] | None]) -> dict[str, Any]:
    """All hosts' answers as one list.

    Fields: operations: [{job, group, group_name, epoch, channel, number, operation, size, age_s, reason, arrived:
    [{rank, host, pid, age_s}], missing: [{rank, host, pid, missing_s}]}], the oldest first; silent: names of the
    workers that did not answer. ``missing_s`` counts from the first arrival of another rank. A rank that is at a later
    operation of the channel is not missing at an earlier one.
    """
    places: dict[Place, Reports] = {}
    for operation in (operation for answer in answers.values() for operation in answer or ()):
        place = places.setdefault((operation.group, operation.channel), {})
        place.setdefault(operation.number, []).append(operation)
    merged = []
    for (number, _), reports in places.items():
        group = known.groups.get(number)
        if group is not None:
            merged += _merge_channel(group.info, reports)
    silent = [known.hosts[host].info.name for host, answer in answers.items() if answer is None and host in known.hosts]
    return {"operations": sorted(merged, key=lambda operation: -operation["age_s"]), "silent": silent}


def _merge_channel(info: GroupInfo, reports: Reports) -> list[dict[str, Any]]:
    merged = []
    beyond: set[int] = set()
    for number in sorted(reports, reverse=True):
        ages = _ages(reports[number])
        merged.append(_describe(info, reports[number], ages, beyond))
        beyond |= set(ages)
    return merged


def _ages(reports: list[OperationInfo]) -> dict[int, float]:
    """Seconds since each rank's arrival; the longest where several hosts tell of it."""
    ages: dict[int, float] = {}
    for report in reports:
        for rank, age_s in zip(report.arrived, report.arrived_ages_s, strict=False):
            ages[rank] = max(age_s, ages.get(rank, 0.0))
    return ages


def _describe(
    info: GroupInfo, reports: list[OperationInfo], ages: dict[int, float], beyond: set[int]
) -> dict[str, Any]:
    hosts = {host.host: host.name for host in info.hosts}
    age_s = max([*ages.values(), *(report.first_arrived_s for report in reports)])
    arrived: list[dict[str, Any]] = []
    missing: list[dict[str, Any]] = []
    for member in info.members:
        who = {"rank": member.rank, "host": hosts[member.host], "pid": member.pid}
        if member.rank in ages:
            arrived.append({**who, "age_s": round(ages[member.rank], 3)})
        elif member.rank not in beyond:
            missing.append({**who, "missing_s": round(age_s, 3)})
    return {
        "job": info.job,
        "group": info.group,
        "group_name": info.name,
        "epoch": info.epoch,
        "channel": reports[0].channel,
        "number": reports[0].number,
        "operation": " | ".join(dict.fromkeys(report.operation for report in reports)),
        "size": len(info.members),
        "age_s": round(age_s, 3),
        "reason": _reason(tuple(who["rank"] for who in missing), len(info.members)),
        "arrived": arrived,
        "missing": missing,
    }


def _reason(missing: Ranks, size: int) -> str:
    if not missing:
        return "all have arrived"
    return f"waiting for {len(missing)} of {size}: {name_ranks(missing)}"
