from hocket.coordinator.events import WorkerJoins, WorkerSays
from hocket.coordinator.membership import Membership
from hocket.coordinator.operations import merge
from hocket.protocol.messages import HostInfo, OperationInfo, SessionJoins


def cluster() -> Membership:
    """A world of ranks 0 and 1 on host a, 2 on host b."""
    machine = Membership()
    for number, name in ((1, "a"), (2, "b")):
        machine.handle(WorkerJoins(HostInfo(number, name, "127.0.0.1", 1, 1, "i")), 0.0)
    for rank, host in enumerate((1, 1, 2)):
        machine.handle(WorkerSays(host, SessionJoins(1, rank, "x", rank, 3, "", 100 + rank, 9.0)), 0.0)
    return machine


def operation(
    number: int, arrived: dict[int, float], name: str = "all_reduce", channel: str = "", group: int = 1
) -> OperationInfo:
    missing = tuple(rank for rank in range(3) if rank not in arrived)
    first_s = max(arrived.values(), default=0.0)
    ages = tuple(arrived.values())
    return OperationInfo("x", group, "world", 1, channel, number, name, tuple(arrived), missing, first_s, ages)


def test_what_the_hosts_know_is_put_together_by_rank() -> None:
    answers = {1: (operation(4, {0: 3.0, 1: 2.0}),), 2: ()}
    assert merge(cluster(), answers) == {
        "operations": [
            {
                "job": "x",
                "group": 1,
                "group_name": "world",
                "epoch": 1,
                "channel": "",
                "number": 4,
                "operation": "all_reduce",
                "size": 3,
                "age_s": 3.0,
                "reason": "waiting for 1 of 3: rank 2",
                "arrived": [
                    {"rank": 0, "host": "a", "pid": 100, "age_s": 3.0},
                    {"rank": 1, "host": "a", "pid": 101, "age_s": 2.0},
                ],
                "missing": [{"rank": 2, "host": "b", "pid": 102, "missing_s": 3.0}],
            }
        ],
        "silent": [],
    }


def test_a_rank_at_a_later_operation_is_not_missing_at_an_earlier_one() -> None:
    answers = {1: (operation(4, {0: 3.0}), operation(5, {1: 1.0})), 2: (operation(5, {2: 1.0}),)}
    shown = merge(cluster(), answers)["operations"]
    assert [(entry["number"], [who["rank"] for who in entry["missing"]]) for entry in shown] == [(4, []), (5, [0])]
    assert shown[0]["reason"] == "all have arrived"


def test_channels_are_apart() -> None:
    answers = {1: (operation(4, {0: 3.0}), operation(5, {1: 1.0}, channel="side")), 2: ()}
    shown = merge(cluster(), answers)["operations"]
    assert [[who["rank"] for who in entry["missing"]] for entry in shown] == [[1, 2], [0, 2]]


def test_hosts_that_call_different_things_are_shown_to() -> None:
    answers = {1: (operation(4, {0: 3.0}),), 2: (operation(4, {2: 1.0}, name="broadcast"),)}
    (shown,) = merge(cluster(), answers)["operations"]
    assert shown["operation"] == "all_reduce | broadcast"


def test_silent_workers_are_named_and_dead_groups_left_out() -> None:
    answers = {1: (operation(4, {0: 3.0}, group=99),), 2: None}
    assert merge(cluster(), answers) == {"operations": [], "silent": ["b"]}
