import pytest

from hocket.coordinator.barrier import Barriers
from hocket.coordinator.events import Effect, Send
from hocket.protocol.errors import (
    DeadlineError,
    Member,
    MemberLostError,
    Where,
    error_to_facts,
)
from hocket.protocol.messages import BarrierArrive, BarrierEnds, Facts, GroupInfo, HostInfo, MemberInfo

HOSTS = tuple(HostInfo(number, name, "127.0.0.1", 1, 1, "i") for number, name in ((1, "a"), (2, "b")))
MEMBERS = tuple(MemberInfo(rank, rank, 1 + rank // 2, rank, "", 100 + rank) for rank in range(3))
GROUP = GroupInfo(7, "x", "world", 2, -1, MEMBERS, HOSTS)
LOST = error_to_facts(MemberLostError((Member(2, "b", 102),), "killed"))


class Machine(Barriers):
    """Barriers that check themselves after every call."""

    def enter(
        self, *ranks: int, at: float = 0.0, number: int = 1, monitored: bool = True, timeout_s: float = 5.0
    ) -> list[Effect]:
        host = MEMBERS[ranks[0]].host if ranks else 1
        effects = self.arrive(host, GROUP, BarrierArrive(7, "", number, ranks, monitored, False, timeout_s), at)
        self.check()
        return effects


@pytest.fixture
def barriers() -> Machine:
    return Machine()


def ends(error: Facts | None, *hosts: int, number: int = 1) -> list[Effect]:
    return [Send(host, BarrierEnds(7, "", number, error)) for host in hosts]


def test_a_monitored_barrier_releases_every_host_when_all_have_arrived(barriers: Machine) -> None:
    assert barriers.enter(0, 1) == []
    assert barriers.enter(2) == ends(None, 1, 2)
    assert barriers.deadline is None


def test_a_plain_barrier_is_looked_at_and_forgotten(barriers: Machine) -> None:
    assert barriers.enter(0, 1, monitored=False) == []
    (barrier,) = barriers.waiting.values()
    assert barrier.reason() == "waiting for 1 of 3: rank 2"
    assert barriers.deadline is None
    assert barriers.enter(2, monitored=False) == []
    assert not barriers.waiting


def test_a_plain_barrier_that_ended_between_the_hosts_does_not_come_back(barriers: Machine) -> None:
    barriers.enter(0, 1, monitored=False)
    assert barriers.leave((7, "", 1)) == []
    assert barriers.enter(2, monitored=False) == []
    assert not barriers.waiting


def test_a_host_cannot_end_a_monitored_barrier_alone(barriers: Machine) -> None:
    barriers.enter(0)
    barriers.leave((7, "", 1))
    assert len(barriers.waiting) == 1


def test_the_earliest_deadline_breaks_it_for_everyone_naming_the_missing(barriers: Machine) -> None:
    barriers.enter(0, at=0.0, timeout_s=9.0)
    barriers.enter(1, at=1.0, timeout_s=2.0)
    assert barriers.deadline == 3.0
    assert barriers.expire(2.9) == []
    error = DeadlineError(2.0, (2,)).at(Where("monitored_barrier", 1, "world", 2))
    assert barriers.expire(3.0) == ends(error_to_facts(error), 1, 2)
    barriers.check()
    assert "rank 2 did not arrive" in str(error)


def test_who_arrives_after_the_end_hears_of_it_at_once(barriers: Machine) -> None:
    barriers.enter(0, timeout_s=1.0)
    (first, _) = barriers.expire(1.0)
    assert isinstance(first, Send) and isinstance(first.message, BarrierEnds)
    assert barriers.enter(2, at=5.0) == ends(first.message.error, 2)
    assert not barriers.waiting


def test_an_ended_group_breaks_its_barriers_with_each_host_s_own_error(barriers: Machine) -> None:
    barriers.enter(0, number=1)
    barriers.enter(0, number=2, monitored=False)
    here, there = LOST, error_to_facts(MemberLostError((Member(0, "a", 100),), "unreachable"))
    assert barriers.group_ended(7, {1: here, 2: there}) == [*ends(here, 1), *ends(there, 2)]
    barriers.check()
    assert not barriers.waiting and barriers.deadline is None


def test_the_end_of_another_group_breaks_nothing(barriers: Machine) -> None:
    barriers.enter(0)
    assert barriers.group_ended(8, {1: LOST}) == []
    assert len(barriers.waiting) == 1


def test_monitored_and_plain_barriers_of_one_number_are_apart(barriers: Machine) -> None:
    barriers.enter(0, 1, 2, monitored=False)
    barriers.enter(0, monitored=False, number=2)
    barriers.enter(0, 1)
    assert [(barrier.number, barrier.monitored) for barrier in barriers.waiting.values()] == [(2, False), (1, True)]
    assert barriers.enter(2) == ends(None, 1, 2)
    assert [barrier.monitored for barrier in barriers.waiting.values()] == [False]


def test_arriving_twice_or_with_nobody_counts_for_nothing(barriers: Machine) -> None:
    barriers.enter(0, at=1.0)
    barriers.enter(0, at=2.0)
    barriers.enter()
    (barrier,) = barriers.waiting.values()
    assert barrier.arrived == {0: 1.0}


def test_the_past_is_remembered_up_to_a_bound(barriers: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hocket.coordinator.barrier.ENDED_KEPT", 3)
    for number in range(10):
        barriers.enter(0, 1, number=number)
        barriers.enter(2, number=number)
    assert barriers.released == 10
    assert barriers.enter(2, number=9) == ends(None, 2, number=9)
    assert barriers.enter(2, number=1) == []
