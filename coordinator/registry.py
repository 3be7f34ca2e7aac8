"""What is known of a cluster, and the questions that can be asked of it. Pure; only `membership` changes it."""

from collections import OrderedDict, deque

from hocket.coordinator.deadlines import Deadlines
from hocket.coordinator.forming import WORLD, Ask, Forming, FormingKey, Kind
from hocket.coordinator.records import Counts, Group, Host, Job, Key, Loss, Session, SessionState
from hocket.protocol.errors import ConnectError, EpochEndedError, HocketError, error_from_facts, name_ranks
from hocket.protocol.messages import NOBODY, HostInfo

LOSSES_KEPT = 256
REPLACED_KEPT = 256
IDLE_JOBS_KEPT = 1024
HOLDERS_NAMED = 8


class Registry:
    """Hosts, sessions, jobs, live and ended groups, groups that are forming, and the last losses. All for reading."""

    def __init__(self, first_group: int = 1) -> None:
        self.hosts: dict[int, Host] = {}
        self.sessions: dict[Key, Session] = {}
        self.jobs: OrderedDict[str, Job] = OrderedDict()
        self.groups: dict[int, Group] = {}
        self.ended: OrderedDict[int, Group] = OrderedDict()
        self.forming: dict[FormingKey, Forming] = {}
        self.losses: deque[Loss] = deque(maxlen=LOSSES_KEPT)
        self.replaced: deque[str] = deque(maxlen=REPLACED_KEPT)
        self.counts = Counts()
        self.asks: dict[Key, list[Ask]] = {}
        self.deadlines: Deadlines[Ask] = Deadlines()
        self.next_group = first_group
        self.first_epoch = 1

    def check_worker(self, info: HostInfo) -> None:
        """Refuses a worker that was replaced: two of one name would go on throwing each other out."""
        if info.instance in self.replaced:
            detail = "another worker registered under this name since; give each a name of its own"
            raise ConnectError(f"worker name {info.name!r}", "HOCKET_HOST_NAME", detail)

    def find(self, number: int) -> Group | None:
        """A group that lives, or ended not long ago."""
        return self.groups.get(number) or self.ended.get(number)

    def is_gone(self, group: Group, rank: int) -> bool:
        """Whether a member of a group that lives or has ended can take part in nothing new that comes of it."""
        member = group.info.members[rank]
        key = member.host, member.session
        return key in group.gone or key not in self.sessions

    def world_forming(self, job: str) -> Forming | None:
        """The world of a job that waits for members."""
        return self.forming.get((Kind.WORLD, job))

    def end_of(self, number: int) -> HocketError:
        """What a member of a group that does not live any more raises."""
        ended = self.ended.get(number)
        if ended is not None and ended.error is not None:
            return error_from_facts(ended.error)
        return EpochEndedError(f"group number {number} has ended")

    def job(self, name: str) -> Job:
        """The job of that name, made where there is none."""
        job = self.jobs.get(name)
        if job is None:
            job = self.jobs[name] = Job(name, self.first_epoch)
            self._forget_jobs()
        return job

    def _forget_jobs(self) -> None:
        """Keeps the last jobs that nobody is in, whose epochs must go on rising if they come back."""
        idle = [job for job in self.jobs.values() if not job.sessions][:-1] if len(self.jobs) > IDLE_JOBS_KEPT else []
        for job in idle[: len(self.jobs) - IDLE_JOBS_KEPT]:
            self.first_epoch = max(self.first_epoch, *(epoch + 1 for epoch in job.epochs.values()), 1)
            del self.jobs[job.name]

    def forget(self, session: Session) -> None:
        """Takes a session out of its host, its job and the ranks that it holds there; its groups must have ended."""
        del self.sessions[session.key]
        host = self.hosts.get(session.host.host)
        if host is not None:
            host.sessions.discard(session.number)
        job = self.jobs[session.job]
        job.sessions.discard(session.key)
        for rank in [rank for rank, holder in job.held.items() if holder is session]:
            del job.held[rank]
        if not job.sessions:
            self.jobs.move_to_end(job.name)

    def where_they_are(self, forming: Forming) -> str:
        """What is known of those who are missing, for a sentence."""
        found: list[str] = []
        if forming.kind is Kind.WORLD:
            held = self.jobs[forming.job].held
            found = [
                f"rank {rank} of the epoch before is held by {held[rank]}" for rank in forming.missing() if rank in held
            ]
        elif forming.kind is Kind.NAMED:
            earlier = self.groups.get(self.jobs[forming.job].named.get(forming.name, NOBODY))
            members = earlier.info.members if earlier else ()
            holders = ", ".join(str(self.sessions[member.host, member.session]) for member in members[:HOLDERS_NAMED])
            found = [f"epoch {earlier.info.epoch} is held by {holders}"] if earlier else []
        else:
            for other in self.forming.values():
                if other.parent is forming.parent and other is not forming:
                    elsewhere = set(forming.missing()) & {other.ranks[ask.seat] for ask in other.asks}
                    found += [f"{name_ranks(tuple(elsewhere))} asked for {other.title()}"] if elsewhere else []
        return "".join(f"; {what}" for what in found[:HOLDERS_NAMED])

    def check(self) -> None:
        """Asserts what holds between any two events."""
        for number, group in self.groups.items():
            keys = [(member.host, member.session) for member in group.info.members]
            assert len(set(keys)) == len(keys), f"group {number}: a session sits twice"
            assert all(number in self.sessions[key].groups for key in keys), f"group {number}: a member is not in"
            assert [member.rank for member in group.info.members] == list(range(len(keys))), f"group {number}: ranks"
            assert [host.host for host in group.info.hosts] == list(dict.fromkeys(host for host, _ in keys))
        for key, session in self.sessions.items():
            assert session.key == key and session.number in self.hosts[key[0]].sessions, f"{session}: lost its host"
            assert key in self.jobs[session.job].sessions, f"{session}: not in its job"
            assert all(self.groups[number].member(key) for number in session.groups), f"{session}: in a dead group"
            waits = [ask for ask in self.asks.get(key, ()) if ask.forming.kind is Kind.WORLD]
            assert session.state is not SessionState.WAITING or len(waits) == 1, f"{session}: waits for nothing"
        asks = [ask for forming in self.forming.values() for ask in forming.asks]
        assert sorted(map(id, asks)) == sorted(id(ask) for own in self.asks.values() for ask in own)
        assert len(asks) == len(self.deadlines), "every ask has a deadline, and nothing else has"
        for forming in self.forming.values():
            assert 0 < len(forming.asks) <= forming.size, f"{forming.title()}: {len(forming.asks)} asks"
            assert len(forming.seats()) == len(forming.asks), f"{forming.title()}: a seat is taken twice"
            blocked = self.jobs[forming.job].named.get(forming.name) in self.groups
            assert not forming.complete or (forming.kind is Kind.NAMED and blocked), f"{forming.title()}: complete"
        for job in self.jobs.values():
            worlds = [
                group for group in self.groups.values() if group.info.job == job.name and group.info.name == WORLD
            ]
            live = [group for group in worlds if group.info.parent == NOBODY]
            assert len(live) <= 1, f"job {job.name}: two worlds"
            assert all(self.sessions.get(holder.key) is holder for holder in job.held.values()), "a dead holder"
