"""One call of one member: what it says of itself, and the flat memory that it sends from and receives into."""

from collections.abc import Callable
from dataclasses import dataclass, field

from hocket.fabric.board import Bytes
from hocket.protocol.errors import HocketError

Ended = Callable[[HocketError | None], None]


@dataclass(slots=True)
class Operation:
    """What a `Lane` carries out.

    ``sends`` and ``recvs`` are flat uint8 views: one piece, or one for each member (see `signature.Family`). ``recvs``
    may be None for object collectives, which learn their sizes from the others; it is filled in then. ``ended`` is
    called exactly once, with the error or None, from the thread that carries the lane.
    """

    kind: str
    text: bytes
    """the encoded signature"""
    sends: list[Bytes]
    recvs: list[Bytes] | None
    timeout_s: float
    ended: Ended
    deadline_s: float = 0.0
    """on the monotonic clock; 0: starts to count when the lane takes it"""
    number: int = 0
    wrote: bool = False
    """whether output has been written, so that an abort leaves it undefined"""
    error: HocketError | None = None
    """set where the call is withdrawn before it starts"""
    over: bool = field(default=False)

    def end(self, error: HocketError | None) -> None:
        """Reports the outcome, once."""
        if not self.over:
            self.over = True
            self.ended(error)
