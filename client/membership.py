"""One epoch of a group, as one client takes part in it: its channels, its point-to-point messages, its end.

`Group` is the public face; this is what stands behind it, and what the session hands messages to.
"""

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hocket.client.arrays import lock, unlock
from hocket.client.channel import BoardChannel, Channel, RemoteChannel
from hocket.client.p2p import PointToPoint
from hocket.client.places import Place, in_world_ranks
from hocket.client.prepare import Prepared
from hocket.client.work import Work
from hocket.fabric.operation import Operation
from hocket.protocol.errors import (
    AbortedError,
    ArgumentError,
    ClosedError,
    HocketError,
    Ranks,
    Where,
    copy_of,
    error_from_facts,
)
from hocket.protocol.frames import Buffers
from hocket.protocol.limits import IDENTITY_NBYTES
from hocket.protocol.messages import (
    Done,
    GroupInfo,
    Leave,
    Message,
    MonitoredArrive,
    MonitoredEnds,
    OpenChannel,
)
from hocket.protocol.signature import encode_signature, withdrawn

if TYPE_CHECKING:
    from hocket.client.quick import Key, Quick
    from hocket.client.session import OpenedBoard, Session

log = logging.getLogger("hocket.client")


class Membership:
    """See the module. Its methods may be called from any thread unless they say otherwise."""

    def __init__(self, session: "Session", info: GroupInfo, rank: int) -> None:
        self.session, self.info, self.rank = session, info, rank
        self.me = info.members[rank]
        world = tuple(member.world_rank for member in info.members)
        self.place = Place(info.name, rank, len(info.members), world)
        self.ended: HocketError | None = None
        self.p2p = PointToPoint(self)
        self.quick: Quick | None = None
        """carries out small operations of the default channel, once its board is there"""
        self._channels: dict[str, Channel] = {}
        self._monitored: dict[tuple[str, int], Work] = {}
        self._monitored_count: dict[str, int] = {}
        self._lock = threading.Lock()

    def where(self, operation: str, number: int, channel: str) -> Where:
        """An operation's place, for an error."""
        return Where(operation, number, self.info.name, self.info.epoch, channel)

    def shown(self, error: HocketError) -> HocketError:
        """The error with ranks as users know them: those in the world, where the members have one."""
        return in_world_ranks(error, self.place)

    def post(self, message: Message, payload: tuple[memoryview, ...] = ()) -> None:
        """Sends to the worker, from any thread. Where the connection has ended, everybody has been told."""
        self.session.engine.soon(self._post, message, payload)

    def _post(self, message: Message, payload: tuple[memoryview, ...]) -> None:
        try:
            self.session.send(message, payload)
        except HocketError as error:
            log.debug("%s was not sent: %s", type(message).__name__, error)

    # --- collectives -------------------------------------------------------------------------------------------------

    def submit(
        self, kind: str, prepare: Callable[[], Prepared], timeout_s: float, channel: str, key: "Key | None" = None
    ) -> Work:
        """Starts a collective; ``key`` is that of its call site, where calls like it may be quick.

        Raises:
            UsageError: the call is wrong. The other members are told, so that they do not wait for this one.
        """
        lane = self.channel(channel)
        try:
            prepared = prepare()
        except HocketError as error:
            self._withdraw(lane, kind, error, timeout_s)
            raise
        except Exception as error:
            self._withdraw(lane, kind, ArgumentError("tensor", f"unusable ({error!r})", "what arrays allow"), timeout_s)
            raise
        if key is not None and self.quick is not None:
            self.quick.learn(key, prepared.text)
        call = self.call(kind, prepared, timeout_s, lane.cancel)
        work = call.work
        lane.submit(call.op)
        if not work.done():
            call.lock()
        return work

    def call(self, kind: str, prepared: Prepared, timeout_s: float, cancel: Callable[[Operation, str], None]) -> "Call":
        """The operation of a call that is prepared, and its `Work`."""
        call = Call(kind, prepared, self)
        op = Operation(kind, prepared.text, prepared.sends, prepared.recvs, timeout_s, call.ended)
        call.carried(op, Work(kind, lambda cause: cancel(op, cause)))
        return call

    def _withdraw(self, lane: Channel, kind: str, error: HocketError, timeout_s: float) -> None:
        """Takes the operation's number, with the news that it is not going to happen here."""
        op = Operation(kind, encode_signature(withdrawn(kind, error)), [], [], timeout_s, lambda _error: None)
        op.error = copy_of(error)
        lane.submit(op)

    def channel(self, name: str) -> Channel:
        """The channel, opened at its first use. Raises `ArgumentError` for a name that cannot be one."""
        found = self._channels.get(name)
        if found is not None:
            return found
        if len(str(name).encode()) > IDENTITY_NBYTES:
            raise ArgumentError("channel", repr(name), f"a string of at most {IDENTITY_NBYTES} bytes")
        with self._lock:
            found = self._channels.get(name)
            if found is None:
                found = BoardChannel(self, name) if self.session.shared else RemoteChannel(self, name)
                if self.ended is not None:
                    found.finish(self.ended)
                self._channels[name] = found
                if self.session.shared and self.ended is None:
                    self.session.engine.soon(self._ask_for_board, name)
        return found

    def _ask_for_board(self, name: str) -> None:
        if self.session.closed is None:
            answer = self.session.expect(lambda request: OpenChannel(request, self.info.group, name))
            answer.add_done_callback(lambda future: self._board_refused(name, future.exception()))

    def _board_refused(self, name: str, error: BaseException | None) -> None:
        if isinstance(error, HocketError):
            self._channels[name].finish(error)

    def channel_ready(self, name: str, opened: "OpenedBoard") -> None:
        """A board has come (socket thread)."""
        self._channels[name].opened(opened)

    # --- monitored barriers ------------------------------------------------------------------------------------------

    def monitored_barrier(self, timeout_s: float, wait_all_ranks: bool, channel: str) -> Work:
        """Starts a monitored barrier, which the coordinator keeps."""
        with self._lock:
            number = self._monitored_count[channel] = self._monitored_count.get(channel, 0) + 1
            work = Work("monitored_barrier", lambda cause: self._leave_monitored(channel, number, cause))
            self._monitored[channel, number] = work
            ended = self.ended
        if ended is not None:
            self._end_monitored(channel, number, ended)
        else:
            arrive = MonitoredArrive(self.info.group, channel, number, self.rank, wait_all_ranks, timeout_s)
            self.post(arrive)
        return work

    def monitored_ends(self, message: MonitoredEnds) -> None:
        """The coordinator's word on one."""
        error = None if message.error is None else error_from_facts(message.error)
        self._end_monitored(message.channel, message.number, error)

    def _leave_monitored(self, channel: str, number: int, cause: str) -> None:
        """The caller waits no longer. The coordinator has it as arrived, so that nobody waits for it either."""
        self._end_monitored(channel, number, AbortedError(self.rank, cause))

    def _end_monitored(self, channel: str, number: int, error: HocketError | None) -> None:
        with self._lock:
            work = self._monitored.pop((channel, number), None)
        if work is not None:
            where = self.where("monitored_barrier", number, channel)
            work.complete(None, None if error is None else self.shown(copy_of(error).at(where)))

    # --- what the worker says (socket thread) ------------------------------------------------------------------------

    def verdict(self, channel: str, number: int, error: HocketError | None) -> None:
        """How a contested operation ended."""
        found = self._channels.get(channel)
        if found is not None:
            found.verdict(number, error)

    def remote_done(self, done: Done) -> None:
        """The worker has carried out an operation for us."""
        found = self._channels.get(done.channel)
        if found is not None:
            found.done(done)

    def remote_room(self, done: Done, nbytes: int) -> Buffers | None:
        """Where what it brings goes."""
        found = self._channels.get(done.channel)
        return None if found is None else found.room(done, nbytes)

    def late(self, where: Where, waited_s: float, missing: Ranks) -> None:
        """An operation waits for long."""
        log.warning("%s has waited for %.0f s; missing: %s", where, waited_s, list(missing) or "nobody, only data")

    # --- the end -----------------------------------------------------------------------------------------------------

    def end(self, error: HocketError) -> None:
        """The epoch has ended: what is under way is settled, nothing new starts (socket thread)."""
        with self._lock:
            self.ended = self.ended or error
            channels = list(self._channels.values())
            monitored = list(self._monitored)
        for channel in channels:
            channel.finish(error)
        for key in monitored:
            self._end_monitored(*key, error)
        self.p2p.end(error)

    def abandon(self, error: HocketError, *, disconnected: bool = True) -> None:
        """The worker is gone, or the group was left: everything ends at once (socket thread)."""
        self.end(error)
        if disconnected:
            self.p2p.end(error, disconnected=True)
        for channel in list(self._channels.values()):
            channel.abandon(error)

    def leave(self) -> None:
        """Leaves the group: the epoch ends for the others, and nothing starts here from now on."""
        error = ClosedError(f"this client has left group {self.info.name!r}")
        self.post(Leave(self.info.group))
        with self._lock:
            self.ended = self.ended or error
            channels = list(self._channels.values())
        for channel in channels:
            channel.finish(error)
        self.session.engine.soon(lambda: self.abandon(error, disconnected=False))


class Call:
    """What a collective does when it ends: outputs are put in place, arrays unlocked, the `Work` completed."""

    __slots__ = ("_held", "_mutex", "_op", "_over", "_work", "kind", "membership", "prepared")

    def __init__(self, kind: str, prepared: Prepared, membership: Membership) -> None:
        self.kind, self.prepared, self.membership = kind, prepared, membership
        self._op: Operation | None = None
        self._work: Work | None = None
        self._held: Any = None
        self._over = False
        self._mutex = threading.Lock()

    def carried(self, op: Operation, work: Work) -> None:
        """By this operation, with this outcome."""
        self._op, self._work = op, work

    @property
    def op(self) -> Operation:
        """The operation, until it ends."""
        assert self._op is not None, "the call has ended"
        return self._op

    @property
    def work(self) -> Work:
        """The outcome, until the operation ends."""
        assert self._work is not None, "the call has ended"
        return self._work

    def lock(self) -> None:
        """Locks the caller's arrays while the operation is in flight."""
        with self._mutex:
            if not self._over:
                self._held = lock(self.prepared.locked)

    def ended(self, error: HocketError | None) -> None:
        """The operation's outcome, from whichever thread."""
        with self._mutex:
            self._over = True
            if self._held is not None:
                unlock(self._held)
        value = None
        if error is None:
            value, error = self._commit()
        work, self._work, self._op = self.work, None, None  # the operation refers to us: no cycle is to keep its arrays
        work.complete(value, None if error is None else self.membership.shown(error))

    def _commit(self) -> tuple[Any, HocketError | None]:
        try:
            if self.prepared.received is not None:
                return self.prepared.received(self.op.recvs or []), None
            return self.prepared.commit(), None
        except HocketError as error:
            return None, error
        except Exception as broken:
            failure = HocketError(f"{self.kind} completed, but its outputs could not be put in place: {broken!r}")
            failure.__cause__ = broken
            return None, failure
