"""Small operations on one host, carried out by the native core inside the call: nothing is made but the outcome.

The first call of a kind, dtype and shape goes the long way, on which the members agree on a plan. From then on the
call site's key finds that plan, and one call of the core signs, posts, waits for a moment, reads and reduces. Where the
others take longer than that moment, the operation is gone on with like any other.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hocket.client.patience import Patience
from hocket.client.places import Place
from hocket.client.prepare import Prepared
from hocket.client.work import Finished, Work
from hocket.fabric.lane import Lane
from hocket.fabric.native_plan import NativePlan
from hocket.fabric.operation import Operation

if TYPE_CHECKING:
    from hocket.client.collectives import Collectives
    from hocket.client.membership import Call, Membership

Key = tuple[Any, ...]
"""Everything that a call's signature depends on: kind, dtypes, shapes, reduce op, root."""

INSIDE_NBYTES = 8 << 20
"""Operations that send and receive more than this are left to the data thread: the caller's loop is not held up."""
PATIENCE_NS = 200_000
"""How long a call waits for the others before it is gone on with elsewhere: about what that costs."""
CROWDED_PATIENCE_NS = 1_000_000
"""The same where ranks share cores: the others need this one's core to come, and get it while it waits."""
IMPATIENCE_NS = 2_000
"""The same, once the others have been late several times in a row."""
KEYS = 1024
"""Call sites that are remembered; beyond it all are forgotten and learnt anew."""


class Quick:
    """See the module. One for each group's default channel that has a seat at a board."""

    def __init__(self, membership: "Membership", lane: Lane, willing: bool) -> None:
        self._membership, self._lane = membership, lane
        self._engine = membership.session.engine
        self._plans: dict[Key, NativePlan] = {}
        self._texts: dict[Key, bytes] = {}
        self._patience = Patience(willing)
        self._patience_ns = CROWDED_PATIENCE_NS if lane.seat.crowded else PATIENCE_NS

    def learn(self, key: Key, text: bytes) -> None:
        """A call of this kind goes the long way, with this signature."""
        if len(self._texts) >= KEYS:
            self._texts.clear()
            self._plans.clear()
        self._texts[key] = text

    def start(
        self, owner: "Collectives", key: Key, source: Any, target: Any, value: Any, make: Callable[[Place], Prepared]
    ) -> Work | None:
        """Starts an operation, and mostly ends it. None where it has to go the long way; nothing has happened then.

        Args:
            owner: whose method was called: it knows the time limit.
            key: of the call site.
            source: array to read from.
            target: array to write to.
            value: what the await gives.
            make: prepares the same call, should it take longer.
        """
        plan = self._plans.get(key) or self._find(key)
        if plan is None or self._engine.forked:
            return None
        begun: list[tuple[Call, Work]] = []

        def hand_over() -> Operation:
            membership = self._membership
            call = membership.call(key[0], make(membership.place), owner._timeout_s(None, None), self._cancel)
            begun.append((call, call.work))
            return call.op

        patience_ns = self._patience_ns if self._patience.waits() else IMPATIENCE_NS
        outcome = self._lane.attempt(plan, source, target, patience_ns, hand_over)
        if outcome:
            self._patience.came()
            return Finished(key[0], value)
        if outcome is None:
            return None
        self._patience.missed()
        self._plans.pop(key, None)  # if it is still agreed on, it is found again
        self._engine.wake()
        [(call, work)] = begun
        call.lock()
        return work

    def _find(self, key: Key) -> NativePlan | None:
        """The plan on which the members agreed the last time, if it is one to be carried out inside a call."""
        text = self._texts.get(key)
        plan = self._lane.seat.plans.get(text) if text is not None else None
        if plan is not None and plan.nbytes <= INSIDE_NBYTES:
            self._plans[key] = plan
            return plan
        return None

    def _cancel(self, op: Operation, cause: str) -> None:
        self._lane.cancel(op, cause)
        self._engine.wake()
