import pytest

from hocket.coordinator import membership, registry
from hocket.coordinator.events import (
    Disconnect,
    Effect,
    Ended,
    Log,
    Send,
    TimerFired,
    WorkerGone,
    WorkerJoins,
    WorkerSays,
)
from hocket.coordinator.membership import Membership
from hocket.protocol.errors import (
    ArgumentError,
    ClosedError,
    ConnectError,
    DeadlineError,
    EpochEndedError,
    HocketError,
    Member,
    MemberLostError,
    error_from_facts,
    error_to_facts,
)
from hocket.protocol.messages import (
    NOBODY,
    AskGroup,
    AskNamedGroup,
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

A = HostInfo(1, "a", "127.0.0.1", 5001, 11, "first")
B = HostInfo(2, "b", "127.0.0.1", 5002, 12, "first")


class Cluster:
    """A membership with hosts a and b; sessions have distinct numbers, and pid 100 + their number."""

    def __init__(self) -> None:
        self.machine = Membership()
        self.now = 0.0
        self.requests = 0
        for info in (A, B):
            self.handle(WorkerJoins(info))

    def handle(self, event: object) -> list[Effect]:
        effects = self.machine.handle(event, self.now)  # type: ignore[arg-type]
        self.machine.check()
        return [effect for effect in effects if not isinstance(effect, Log)]

    def say(self, host: HostInfo, message: Message) -> list[Effect]:
        return [effect for effect in self.handle(WorkerSays(host.host, message)) if not isinstance(effect, Ended)]

    def join(
        self,
        host: HostInfo,
        session: int,
        rank: int = NOBODY,
        size: int = NOBODY,
        *,
        job: str = "x",
        timeout_s: float = 60.0,
    ) -> list[Effect]:
        self.requests = session * 10
        name, pid = f"client {session}", 100 + session
        return self.say(host, SessionJoins(self.requests, session, job, rank, size, name, pid, timeout_s))

    def world(self, *hosts: HostInfo, job: str = "x", first: int = 1) -> GroupInfo:
        """A world with one rank on each of ``hosts``, sessions numbered from ``first``."""
        effects: list[Effect] = []
        for rank, host in enumerate(hosts):
            effects = self.join(host, first + rank, rank, len(hosts), job=job)
        return formed(effects)

    def ask(
        self,
        host: HostInfo,
        session: int,
        parent: GroupInfo,
        *ranks: int,
        call: int = 1,
        name: str = "",
        timeout_s: float = 60.0,
    ) -> list[Effect]:
        return self.say(host, AskGroup(session * 10 + 1, session, parent.group, ranks, call, name, timeout_s))

    def ask_named(
        self, host: HostInfo, session: int, name: str, size: int, rank: int = NOBODY, timeout_s: float = 60.0
    ) -> list[Effect]:
        return self.say(host, AskNamedGroup(session * 10 + 2, session, name, size, rank, timeout_s))

    def at(self, now: float) -> list[Effect]:
        self.now = now
        return [effect for effect in self.handle(TimerFired()) if not isinstance(effect, Ended)]


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def formed(effects: list[Effect]) -> GroupInfo:
    """The one group that these effects form."""
    infos = {effect.message.info.group: effect.message.info for effect in sends(effects, GroupFormed)}
    (info,) = infos.values()
    return info


def sends(effects: list[Effect], kind: type[Message]) -> list[Send]:
    return [effect for effect in effects if isinstance(effect, Send) and isinstance(effect.message, kind)]


def refusal(effects: list[Effect]) -> HocketError:
    """The error of the one request that fails, which is all that happens."""
    (effect,) = effects
    assert isinstance(effect, Send) and isinstance(effect.message, RequestFailed)
    return error_from_facts(effect.message.error)


def lost(host: HostInfo, group: GroupInfo, cause: str, *members: Member, detail: str = "") -> Send:
    return Send(host.host, GroupLost(group.group, error_to_facts(MemberLostError(members, cause, detail))))


# --- worlds ----------------------------------------------------------------------------------------------------------


def test_a_client_without_a_world_is_in_its_job_at_once(cluster: Cluster) -> None:
    assert cluster.join(A, 1) == [Send(1, SessionJoined(10, 1))]


def test_a_world_forms_when_all_ranks_are_there_and_each_host_hears_once(cluster: Cluster) -> None:
    assert cluster.join(A, 1, 1, 3) == []
    assert cluster.join(B, 1, 0, 3) == []
    info = GroupInfo(
        group=1,
        job="x",
        name="world",
        epoch=1,
        parent=NOBODY,
        members=(
            MemberInfo(0, 0, 2, 1, "client 1", 101),
            MemberInfo(1, 1, 1, 1, "client 1", 101),
            MemberInfo(2, 2, 1, 2, "client 2", 102),
        ),
        hosts=(B, A),
    )
    assert cluster.join(A, 2, 2, 3) == [
        Send(2, GroupFormed(info, ((1, 10),))),
        Send(1, GroupFormed(info, ((1, 10), (2, 20)))),
    ]


def test_ranks_that_were_not_claimed_go_by_arrival_to_who_claimed_none(cluster: Cluster) -> None:
    cluster.join(A, 1, NOBODY, 3)
    cluster.join(A, 2, NOBODY, 3)
    info = formed(cluster.join(A, 3, 0, 3))
    assert [member.session for member in info.members] == [3, 1, 2]


@pytest.mark.parametrize(
    ("rank", "size", "given", "allowed"),
    [
        (2, 2, "2", "0 to 1"),
        (-7, 2, "-7", "0 to 1"),
        (0, 0, "0", "1 to 4096"),
        (0, 5000, "5000", "1 to 4096"),
    ],
)
def test_a_rank_or_size_that_no_world_has_is_refused(
    cluster: Cluster, rank: int, size: int, given: str, allowed: str
) -> None:
    error = refusal(cluster.join(A, 1, rank, size))
    assert isinstance(error, ArgumentError)
    assert (error.given, error.allowed) == (given, allowed)


def test_a_rank_that_is_claimed_already_is_refused_naming_who_claimed_it(cluster: Cluster) -> None:
    cluster.join(B, 1, 0, 2)
    error = refusal(cluster.join(A, 2, 0, 2))
    assert "is claimed by 'client 1' (host b, pid 101)" in str(error)
    assert formed(cluster.join(A, 2, 1, 2)).epoch == 1


def test_a_rank_that_a_living_member_holds_is_refused_naming_it(cluster: Cluster) -> None:
    cluster.world(A, B)
    error = refusal(cluster.join(A, 3, 1, 2))
    assert "rank 1 of the world of job 'x' is held by 'client 2' (host b, pid 102)" in str(error)


def test_another_size_than_the_others_asked_for_is_refused(cluster: Cluster) -> None:
    cluster.join(A, 1, 0, 2)
    error = refusal(cluster.join(B, 2, 1, 3))
    assert isinstance(error, ArgumentError)
    assert (error.argument, error.given) == ("world_size", "3")
    assert error.allowed.startswith("2, as 'client 1' (host a, pid 101) asked for")


def test_who_comes_to_a_full_world_without_a_rank_is_refused(cluster: Cluster) -> None:
    cluster.world(A, B)
    assert "world of job 'x' is full: 2 of 2" in str(refusal(cluster.join(A, 3, NOBODY, 2)))


def test_a_lost_rank_is_free_and_a_world_of_returners_is_the_next_epoch(cluster: Cluster) -> None:
    cluster.world(A, B)
    cluster.say(B, SessionEnds(2, "killed", ""))
    assert cluster.join(B, 3, 1, 2) == []
    assert "is held by 'client 1'" in str(refusal(cluster.join(B, 4, 0, 2)))
    cluster.say(A, SessionEnds(1, "left", ""))
    info = formed(cluster.join(A, 5, 0, 2))
    assert (info.group, info.epoch) == (2, 2)
    assert [member.session for member in info.members] == [5, 3]


def test_a_seat_that_a_survivor_holds_is_not_given_to_a_stranger(cluster: Cluster) -> None:
    cluster.world(A, B)
    cluster.say(B, SessionEnds(2, "killed", ""))
    assert cluster.join(B, 3, NOBODY, 2) == []
    assert "full: 2 of 2" in str(refusal(cluster.join(B, 4, NOBODY, 2)))
    cluster.say(A, SessionEnds(1, "left", ""))
    assert [member.session for member in formed(cluster.join(A, 5, NOBODY, 2)).members] == [3, 5]


def test_a_larger_world_does_not_form_beside_a_living_one(cluster: Cluster) -> None:
    cluster.world(A)
    assert cluster.join(A, 2, NOBODY, 2) == []
    assert "full: 2 of 2" in str(refusal(cluster.join(A, 3, 1, 2)))
    cluster.say(A, SessionEnds(1, "left", ""))
    assert formed(cluster.join(A, 4, 1, 2)).epoch == 2


def test_a_process_may_come_back_to_its_rank_once_the_epoch_has_ended(cluster: Cluster) -> None:
    cluster.world(A, B)
    same_process = SessionJoins(70, 7, "x", 0, 2, "again", 101, 60.0)
    assert isinstance(refusal(cluster.say(A, same_process)), ArgumentError)
    cluster.say(B, SessionEnds(2, "killed", ""))
    assert cluster.say(A, same_process) == []
    assert formed(cluster.join(B, 8, 1, 2)).epoch == 2


def test_a_member_of_a_living_world_cannot_ask_into_it_again(cluster: Cluster) -> None:
    cluster.world(A)
    assert "already" in str(refusal(cluster.join(A, 1, NOBODY, 2)))


def test_a_joiner_that_waits_too_long_hears_who_never_came(cluster: Cluster) -> None:
    cluster.join(A, 1, 0, 3, timeout_s=2.0)
    cluster.now = 1.0
    cluster.join(B, 2, NOBODY, 3, timeout_s=9.0)
    assert cluster.machine.deadline == 2.0
    error = refusal(cluster.at(2.0))
    assert isinstance(error, DeadlineError)
    assert (error.limit_s, error.missing) == (2.0, (2,))
    assert error.detail == "world of job 'x': waiting for 1 of 3: rank 2"
    assert cluster.machine.deadline == 10.0
    assert list(cluster.machine.sessions) == [(2, 2)]


def test_a_failed_start_leaves_nothing_behind(cluster: Cluster) -> None:
    cluster.join(A, 1, 0, 2, timeout_s=2.0)
    assert isinstance(refusal(cluster.at(2.0)), DeadlineError)
    info = cluster.world(A, A, first=3)
    assert [member.session for member in info.members] == [3, 4]


def test_a_joiner_that_goes_gives_its_rank_back(cluster: Cluster) -> None:
    cluster.join(A, 1, 0, 2)
    assert cluster.say(A, SessionEnds(1, "killed", "")) == []
    assert cluster.join(A, 2, 0, 2) == []


def test_a_timeout_that_is_no_number_has_passed_at_once(cluster: Cluster) -> None:
    cluster.join(A, 1, 0, 2, timeout_s=float("nan"))
    assert isinstance(refusal(cluster.at(0.0)), DeadlineError)


def test_an_endless_timeout_never_passes(cluster: Cluster) -> None:
    cluster.join(A, 1, 0, 2, timeout_s=float("inf"))
    assert cluster.machine.deadline is None


def test_jobs_do_not_meet(cluster: Cluster) -> None:
    assert cluster.join(A, 1, 0, 2, job="x") == []
    assert cluster.join(A, 2, 1, 2, job="y") == []
    assert formed(cluster.join(B, 3, 0, 2, job="y")).job == "y"
    cluster.join(A, 4, job="x")
    cluster.join(B, 5, job="y")
    assert cluster.ask_named(A, 4, "pair", 2) == []
    assert cluster.ask_named(B, 5, "pair", 2) == []


def test_a_client_stays_in_its_job(cluster: Cluster) -> None:
    cluster.join(A, 1, job="x")
    assert "'x', the job that this client is in" in str(refusal(cluster.join(A, 1, job="y")))


def test_a_name_that_is_too_long_is_refused(cluster: Cluster) -> None:
    assert "at most 256 bytes" in str(refusal(cluster.join(A, 1, job="j" * 257)))


# --- losses ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cause", ["left", "exited", "killed", "unreachable"])
def test_a_lost_member_ends_the_epoch_for_every_host_that_has_others(cluster: Cluster, cause: str) -> None:
    info = cluster.world(A, B, B)
    gone = Member(1, "b", 102)
    assert cluster.say(B, SessionEnds(2, cause, "signal 9")) == [
        lost(A, info, cause, gone, detail="signal 9"),
        lost(B, info, cause, gone, detail="signal 9"),
    ]


def test_a_host_without_other_members_hears_nothing(cluster: Cluster) -> None:
    info = cluster.world(A, B)
    assert cluster.say(B, SessionEnds(2, "killed", "")) == [lost(A, info, "killed", Member(1, "b", 102))]
    assert cluster.say(A, SessionEnds(1, "killed", "")) == []


def test_a_lost_worker_is_one_loss_of_all_its_members(cluster: Cluster) -> None:
    info = cluster.world(A, B, B)
    effects = cluster.handle(WorkerGone(2, "worker lost", "closed"))
    members = (Member(1, "b", 102), Member(2, "b", 103))
    assert effects[1:] == [lost(A, info, "worker lost", *members, detail="closed")]
    assert isinstance(effects[0], Ended)
    assert [(loss.pid, loss.cause, loss.ranks) for loss in cluster.machine.losses] == [
        (102, "worker lost", (("world", 1, 1),)),
        (103, "worker lost", (("world", 1, 2),)),
    ]
    assert cluster.handle(WorkerGone(2, "worker lost", "closed")) == []


def test_what_a_lost_worker_still_says_is_not_heard(cluster: Cluster) -> None:
    cluster.handle(WorkerGone(2, "worker lost", ""))
    assert cluster.join(B, 1, 0, 1) == []


def test_a_restarted_worker_costs_the_old_one_its_members_first(cluster: Cluster) -> None:
    info = cluster.world(A, B)
    again = HostInfo(3, "b", "127.0.0.1", 5003, 13, "second")
    effects = cluster.handle(WorkerJoins(again))
    detail = "a new worker registered as 'b' from 127.0.0.1, pid 13"
    assert sends(effects, GroupLost) == [lost(A, info, "worker lost", Member(1, "b", 102), detail=detail)]
    (bye,) = [effect for effect in effects if isinstance(effect, Disconnect)]
    assert bye.host == 2
    assert isinstance(error_from_facts(bye.error), ConnectError)
    assert list(cluster.machine.hosts) == [1, 3]


def test_a_worker_that_comes_back_hears_of_the_epochs_that_its_absence_ended(cluster: Cluster) -> None:
    info = cluster.world(A, B)
    cluster.handle(WorkerGone(2, "worker lost", "cut"))
    back = HostInfo(3, "b", "127.0.0.1", 5002, 12, "first")
    assert cluster.handle(WorkerJoins(back)) == [lost(back, info, "worker lost", Member(1, "b", 102), detail="cut")]


def test_hosts_that_do_not_reach_each_other_hear_of_the_members_on_the_other_side(cluster: Cluster) -> None:
    apart = cluster.world(A, B)
    cluster.join(A, 5)
    together = formed(cluster.ask_named(A, 5, "alone", 1))
    assert cluster.say(A, PeerSilent(2, "no answer")) == [
        lost(A, apart, "unreachable", Member(1, "b", 102), detail="no answer"),
        lost(B, apart, "unreachable", Member(0, "a", 101), detail="no answer"),
    ]
    assert list(cluster.machine.groups) == [together.group]
    assert len(cluster.machine.sessions) == 3


def test_a_report_of_silence_about_nobody_changes_nothing(cluster: Cluster) -> None:
    cluster.world(A, B)
    assert cluster.say(A, PeerSilent(9, "")) == []
    assert cluster.say(A, PeerSilent(1, "")) == []


def test_leaving_a_world_ends_it_for_the_others_and_frees_the_rank(cluster: Cluster) -> None:
    info = cluster.world(A, B)
    assert cluster.say(B, LeaveGroup(2, info.group)) == [lost(A, info, "left", Member(1, "b", 102))]
    assert cluster.say(A, LeaveGroup(1, info.group)) == []
    assert cluster.join(B, 2, 1, 2) == []
    assert formed(cluster.join(A, 1, 0, 2)).epoch == 2


def test_leaving_what_one_is_not_in_changes_nothing(cluster: Cluster) -> None:
    info = cluster.world(A, B)
    cluster.join(A, 3)
    assert cluster.say(A, LeaveGroup(3, info.group)) == []
    assert cluster.say(A, LeaveGroup(9, info.group)) == []
    assert cluster.say(A, LeaveGroup(1, 77)) == []


def test_losses_are_remembered_up_to_a_bound(cluster: Cluster) -> None:
    for session in range(1, 400):
        cluster.join(A, session)
        cluster.say(A, SessionEnds(session, "exited", ""))
    assert len(cluster.machine.losses) == 256
    assert cluster.machine.losses[-1].pid == 499
    assert cluster.machine.counts.losses == {"exited": 399}


def test_epochs_rise_even_when_jobs_are_forgotten(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "IDLE_JOBS_KEPT", 8)
    epochs = []
    for _ in range(2):
        epochs.append(cluster.world(A, job="again").epoch)
        cluster.say(A, SessionEnds(1, "left", ""))
        for number in range(20):
            cluster.join(A, 50, job=f"job {number}")
            cluster.say(A, SessionEnds(50, "left", ""))
    assert epochs[0] < epochs[1]
    assert len(cluster.machine.jobs) <= 9


# --- sub-groups ------------------------------------------------------------------------------------------------------


def test_a_sub_group_forms_when_exactly_its_members_have_asked(cluster: Cluster) -> None:
    world = cluster.world(A, B, A, B)
    assert cluster.ask(A, 1, world, 0, 3) == []
    assert cluster.ask(B, 2, world, 1, 2) == []
    first = formed(cluster.ask(B, 4, world, 0, 3))
    second = formed(cluster.ask(A, 3, world, 1, 2))
    assert [(member.rank, member.world_rank, member.session) for member in first.members] == [(0, 0, 1), (1, 3, 4)]
    assert [(member.rank, member.world_rank, member.session) for member in second.members] == [(0, 1, 2), (1, 2, 3)]
    assert (first.name, first.parent, second.name) == ("world/0.3#1", world.group, "world/1.2#1")


def test_the_order_of_the_ranks_is_the_order_of_the_members(cluster: Cluster) -> None:
    world = cluster.world(A, B)
    cluster.ask(A, 1, world, 1, 0)
    info = formed(cluster.ask(B, 2, world, 1, 0))
    assert [(member.rank, member.world_rank) for member in info.members] == [(0, 1), (1, 0)]


def test_calls_are_told_apart_by_ranks_number_and_name(cluster: Cluster) -> None:
    world = cluster.world(A, B)
    for effects in (
        cluster.ask(A, 1, world, 0, 1, call=1),
        cluster.ask(A, 1, world, 0, 1, call=2),
        cluster.ask(A, 1, world, 1, 0, call=1),
        cluster.ask(A, 1, world, 0, 1, call=1, name="tp"),
    ):
        assert effects == []
    names = [
        formed(cluster.ask(B, 2, world, 0, 1, call=1, name="tp")).name,
        formed(cluster.ask(B, 2, world, 1, 0, call=1)).name,
        formed(cluster.ask(B, 2, world, 0, 1, call=2)).name,
        formed(cluster.ask(B, 2, world, 0, 1, call=1)).name,
    ]
    assert names == ["tp", "world/1.0#1", "world/0.1#2", "world/0.1#1"]


def test_the_same_call_once_more_gets_a_name_of_its_own(cluster: Cluster) -> None:
    world = cluster.world(A)
    first, second = formed(cluster.ask(A, 1, world, 0)), formed(cluster.ask(A, 1, world, 0))
    assert first.name != second.name


@pytest.mark.parametrize(
    ("ranks", "allowed"),
    [
        ((), "ranks of group 'world': 0 to 1"),
        ((0, 2), "ranks of group 'world': 0 to 1"),
        ((-1, 0), "ranks of group 'world': 0 to 1"),
        ((0, 0), "each rank once"),
        ((1,), "a list with the rank that calls, 0: only members call"),
    ],
)
def test_a_list_of_ranks_that_makes_no_group_is_refused(cluster: Cluster, ranks: tuple[int, ...], allowed: str) -> None:
    world = cluster.world(A, B)
    error = refusal(cluster.ask(A, 1, world, *ranks))
    assert isinstance(error, ArgumentError)
    assert (error.argument, error.allowed) == ("ranks", allowed)


def test_only_members_of_the_parent_make_sub_groups(cluster: Cluster) -> None:
    world = cluster.world(A)
    cluster.join(A, 2)
    assert "a group that the caller is a member of" in str(refusal(cluster.ask(A, 2, world, 0)))


def test_the_world_s_name_is_the_world_s(cluster: Cluster) -> None:
    world = cluster.world(A)
    assert isinstance(refusal(cluster.ask(A, 1, world, 0, name="world")), ArgumentError)
    assert isinstance(refusal(cluster.ask_named(A, 1, "world", 1)), ArgumentError)


def test_a_lone_caller_hears_who_did_not_ask_and_what_they_asked_for_instead(cluster: Cluster) -> None:
    world = cluster.world(A, B, A)
    cluster.ask(A, 1, world, 0, 2, timeout_s=1.0)
    cluster.ask(A, 3, world, 1, 2, timeout_s=5.0)
    error = refusal(cluster.at(1.0))
    assert isinstance(error, DeadlineError)
    assert error.missing == (2,)
    assert error.detail == (
        "a new group of ranks 0, 2 of 'world': waiting for 1 of 2: rank 2; "
        "rank 2 asked for a new group of ranks 1, 2 of 'world'"
    )


def test_the_end_of_a_parent_ends_the_asking_with_who_is_lost_but_not_that_of_survivors(cluster: Cluster) -> None:
    world = cluster.world(A, A, B)
    cluster.ask(A, 1, world, 0, 1)
    survivors = formed(cluster.ask(A, 2, world, 0, 1))
    cluster.ask(A, 1, world, 0, 1, call=2)
    cluster.ask(A, 2, world, 1, 2)
    error = error_to_facts(MemberLostError((Member(2, "b", 103),), "killed"))
    assert cluster.say(B, SessionEnds(3, "killed", "")) == [
        Send(1, GroupLost(world.group, error)),
        Send(1, RequestFailed(2, 21, error)),
    ]
    assert list(cluster.machine.groups) == [survivors.group]
    assert formed(cluster.ask(A, 2, world, 0, 1, call=2)).name == "world/0.1#2"


def test_survivors_of_an_ended_group_make_a_new_one_without_the_lost(cluster: Cluster) -> None:
    world = cluster.world(A, A, B, B)
    cluster.say(B, SessionEnds(3, "killed", ""))
    assert cluster.ask(A, 1, world, 0, 1, 3) == cluster.ask(A, 2, world, 0, 1, 3) == []
    info = formed(cluster.ask(B, 4, world, 0, 1, 3))
    assert [member.world_rank for member in info.members] == [0, 1, 3] and info.parent == world.group
    error = refusal(cluster.ask(A, 1, world, 0, 2))
    assert isinstance(error, MemberLostError) and error.ranks == (2,)


def test_survivors_who_form_a_group_hear_of_a_second_loss(cluster: Cluster) -> None:
    world = cluster.world(A, B, A, B)
    cluster.say(B, SessionEnds(2, "killed", ""))
    cluster.ask(A, 1, world, 0, 2, 3)
    (sent,) = cluster.say(B, SessionEnds(4, "exited", "why"))
    error = refusal([sent])
    assert isinstance(error, MemberLostError) and (error.ranks, error.cause) == ((3,), "exited")
    cluster.ask(A, 1, world, 0, 2)
    assert formed(cluster.ask(A, 3, world, 0, 2)).parent == world.group


def test_a_member_that_left_an_ended_group_is_none_of_its_survivors(cluster: Cluster) -> None:
    world = cluster.world(A, A, B)
    sub = [cluster.ask(A, 1, world, 0, 1, 2), cluster.ask(A, 2, world, 0, 1, 2)]
    group = formed(cluster.ask(B, 3, world, 0, 1, 2))
    cluster.say(A, LeaveGroup(2, group.group))
    assert sub == [[], []] and isinstance(refusal(cluster.ask(A, 1, group, 0, 1)), MemberLostError)
    cluster.ask(A, 1, group, 0, 2)
    assert formed(cluster.ask(B, 3, group, 0, 2)).parent == group.group


def test_a_group_that_nobody_remembers_has_ended_and_one_that_never_was_is_a_wrong_argument(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership, "ENDED_KEPT", 2)
    world = cluster.world(A)
    for _ in range(5):
        info = formed(cluster.ask(A, 1, world, 0))
        cluster.say(A, LeaveGroup(1, info.group))
    forgotten = AskGroup(1, 1, 2, (0,), 1, "", 1.0)
    assert isinstance(refusal(cluster.say(A, forgotten)), EpochEndedError)
    assert isinstance(refusal(cluster.say(A, AskGroup(1, 1, 99999, (0,), 1, "", 1.0))), ArgumentError)


def test_an_unknown_client_is_told_to_connect_again(cluster: Cluster) -> None:
    world = cluster.world(A)
    assert isinstance(refusal(cluster.ask(B, 9, world, 0)), ClosedError)


# --- named groups ----------------------------------------------------------------------------------------------------


def test_a_named_group_forms_among_members_of_a_world_and_services(cluster: Cluster) -> None:
    cluster.world(A, B)
    cluster.join(B, 9)
    assert cluster.ask_named(B, 2, "sync", 2, rank=1) == []
    info = formed(cluster.ask_named(B, 9, "sync", 2))
    assert (info.name, info.epoch, info.parent, info.hosts) == ("sync", 1, NOBODY, (B,))
    assert [(member.session, member.world_rank) for member in info.members] == [(9, NOBODY), (2, 1)]


def test_those_who_disagree_about_a_named_group_are_refused(cluster: Cluster) -> None:
    for session in (1, 2):
        cluster.join(A, session)
    cluster.ask_named(A, 1, "sync", 2, rank=0)
    assert "argument 'size' is 3" in str(refusal(cluster.ask_named(A, 2, "sync", 3)))
    assert "is claimed by" in str(refusal(cluster.ask_named(A, 2, "sync", 2, rank=0)))
    assert "0 to 1" in str(refusal(cluster.ask_named(A, 2, "sync", 2, rank=2)))
    assert "already waits for rank 0" in str(refusal(cluster.ask_named(A, 1, "sync", 2, rank=1)))


def test_the_next_epoch_of_a_name_waits_for_the_end_of_the_one_before(cluster: Cluster) -> None:
    for session in (1, 2, 3):
        cluster.join(A, session)
    first = formed(cluster.ask_named(A, 1, "solo", 1))
    assert cluster.ask_named(A, 2, "solo", 1) == []
    assert "wait for its next epoch" in str(refusal(cluster.ask_named(A, 3, "solo", 1)))
    effects = cluster.say(A, LeaveGroup(1, first.group))
    assert [(member.session, formed(effects).epoch) for member in formed(effects).members] == [(2, 2)]


def test_who_waits_for_a_name_too_long_hears_who_holds_it(cluster: Cluster) -> None:
    for session in (1, 2):
        cluster.join(A, session)
    cluster.ask_named(A, 1, "solo", 1)
    cluster.ask_named(A, 2, "solo", 1, timeout_s=3.0)
    error = refusal(cluster.at(3.0))
    assert isinstance(error, DeadlineError)
    assert "epoch 1 is held by 'client 1' (host a, pid 101)" in error.detail


def test_a_group_across_machines_is_refused_where_a_host_is_known_by_a_loopback_address(cluster: Cluster) -> None:
    far = HostInfo(3, "far", "10.0.0.3", 5003, 13, "first")
    cluster.handle(WorkerJoins(far, is_local=False))
    cluster.join(A, 1, 0, 2)
    effects = cluster.join(far, 2, 1, 2)
    errors = [error_from_facts(effect.message.error) for effect in sends(effects, RequestFailed)]
    assert len(errors) == len(effects) == 2
    assert {str(error) for error in errors} == {
        "cannot use 127.0.0.1:5001: host 'a' is known by it, and host 'far' at 10.0.0.3 cannot reach it "
        "(set by HOCKET_DATA_ADDRESS or --data-address)"
    }
