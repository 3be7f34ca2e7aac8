"""How contested operations of one channel end: remembered on every host, decided once.

On a group of one host the worker decides by looking at the board. Between hosts the lowest living host of the group
does: it asks every host to raise its hand and look (`Freeze`), and if any of them holds all that its members need, the
operation completes; otherwise it ends with the first reason given.
"""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field

from hocket.protocol.errors import DeadlineAbortedError, DeadlineError, HocketError, error_to_facts

KEPT = 1024


@dataclass(slots=True)
class Trial:
    """An operation that the deciding host is asking about."""

    waiting: set[int]
    reason: HocketError | None
    sealed: bool = False
    late: set[int] = field(default_factory=set)
    """members that hold it up, as far as hosts have said"""


@dataclass(slots=True)
class Verdicts:
    """Outcomes by operation number (None: completed), and the trials under way on the deciding host."""

    decided: OrderedDict[int, HocketError | None] = field(default_factory=OrderedDict)
    trials: dict[int, Trial] = field(default_factory=dict)
    asked: dict[int, HocketError | None] = field(default_factory=dict)
    """numbers that this host has sent to the deciding one"""
    broken: dict[int, HocketError] = field(default_factory=dict)
    """numbers that this host cannot bring to their end, whatever the outcome elsewhere, and why"""
    highest: int = 0
    """the highest number that a hand was raised on, for a board that is made later"""

    def decide(self, number: int, error: HocketError | None) -> HocketError | None:
        """Keeps an outcome; the first one stays."""
        outcome = self.decided.setdefault(number, error)
        self.highest = max(self.highest, number)
        while len(self.decided) > KEPT:
            self.broken.pop(self.decided.popitem(last=False)[0], None)
        self.trials.pop(number, None)
        self.asked.pop(number, None)
        return outcome

    def is_over(self, number: int) -> bool:
        """Whether the operation has ended with an error."""
        return self.decided.get(number) is not None


def with_names(reason: HocketError, late: Iterable[int]) -> HocketError:
    """A deadline's reason that could not name anybody, for all had arrived, with those who then held it up."""
    if isinstance(reason, DeadlineAbortedError) and not reason.missing:
        return DeadlineAbortedError(reason.rank, reason.limit_s, tuple(sorted(set(late) - {reason.rank})))
    return reason


def seen_by_itself(rank: int, reason: HocketError, outcome: HocketError) -> HocketError:
    """What ``rank`` raises, which gave ``reason``, if that was what led to ``outcome``."""
    if isinstance(outcome, DeadlineAbortedError) and isinstance(reason, DeadlineError) and outcome.rank == rank:
        return reason if reason.missing else DeadlineError(reason.limit_s, outcome.missing, reason.detail)
    return reason if error_to_facts(seen_by_others(rank, reason)) == error_to_facts(outcome) else outcome


def seen_by_others(rank: int, error: HocketError) -> HocketError:
    """What members other than ``rank``, which gave ``error`` as its reason, raise."""
    if isinstance(error, DeadlineError) and not isinstance(error, DeadlineAbortedError):
        return DeadlineAbortedError(rank, error.limit_s, error.missing)
    return error
