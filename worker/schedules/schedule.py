"""The vocabulary of schedules, and the three powers of two that most of them need.

A *schedule* is a generator of rounds for one host. It touches no array and no socket: the executor does what the
rounds say, the checker (`check.py`) does it with symbols.

* *rank*, *size*: index of the host among the hosts that take part, and their number; these are hosts, not the ranks
  that live on them.
* *chunk*: the unit that a schedule moves, known by an id. How many there are, and which piece of which array each one
  is, follows from the algorithm: one chunk for the whole array, one for each host, or one for each pair of hosts.
  Chunks are equal in size as far as the array's length allows; a schedule is right for uneven and empty ones, too.
* *round*: at most one message out and one in, at the same time.
* *peer*: the other host of a message.

Ordering duties of whoever executes a schedule:

1. A message carries its chunks' content from the start of the round. Where a round reduces into a chunk that it also
   sends (only `recursive_doubling` does), what arrives must wait until that chunk has left, or go to a scratch first.
2. A round ends when its message has left and the one awaited was stored or reduced; then the next one starts.
3. The k-th message from a to b is the k-th that b takes from a. Messages of different senders may come in any order.
4. A message with no chunks is sent and awaited like any other: it is how a barrier speaks.

Sending need not be buffered: every schedule ends also where a message leaves only once its receiver waits for it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum


class Action(Enum):
    """What to do with chunks that arrive."""

    STORE = "store"
    """Overwrite the chunk of the same id."""
    REDUCE = "reduce"
    """Combine with the chunk of the same id by the operation's reduction, which is commutative."""


@dataclass(frozen=True, slots=True)
class Round:
    """One round of one host: at most one message out and one in, at the same time.

    A host that has nothing to do while others are busy yields no round.

    Args:
        to: host to send to; None: nobody.
        send: ids of the chunks sent, in this order, with their content at the start of the round.
        source: host to receive from; None: nobody.
        recv: ids of the chunks that arrive, in this order: the sender's `send`.
        action: what to do with them.
    """

    to: int | None
    send: tuple[int, ...]
    source: int | None
    recv: tuple[int, ...]
    action: Action = Action.STORE


def doublings(limit: int) -> Iterator[int]:
    """Powers of two below `limit`, ascending: the distances of a logarithmic algorithm.

    >>> list(doublings(8)), list(doublings(9)), list(doublings(1))
    ([1, 2, 4], [1, 2, 4, 8], [])
    """
    distance = 1
    while distance < limit:
        yield distance
        distance *= 2


def ceil_log2(size: int) -> int:
    """How often 1 must be doubled to reach `size` >= 1; the number of `doublings(size)`.

    >>> [ceil_log2(size) for size in (1, 2, 3, 4, 5)]
    [0, 1, 2, 2, 3]
    """
    return (size - 1).bit_length()


def floor_power_of_two(size: int) -> int:
    """Largest power of two <= `size`, which is at least 1.

    >>> [floor_power_of_two(size) for size in (1, 2, 3, 4, 5)]
    [1, 2, 2, 4, 4]
    """
    return 1 << (size.bit_length() - 1)
