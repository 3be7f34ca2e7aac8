"""A group of several ranks in this process, on one board: what a prepared call does when it is carried out."""

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from hocket.client.places import Place
from hocket.client.prepare import Prepared
from hocket.fabric.arena import PAGE_NBYTES, Arena
from hocket.fabric.bells import Bells
from hocket.fabric.board import Board
from hocket.fabric.lane import Lane
from hocket.fabric.operation import Operation
from hocket.fabric.seat import Seat
from hocket.protocol.errors import HocketError

POLLS = 100_000
"""Rounds after which the ranks count as stuck."""


class OneBoard:
    """``size`` ranks that call in turn, in this thread."""

    def __init__(self, size: int, block_nbytes: int = 4096) -> None:
        self.size = size
        self.places = [Place("world", rank, size, tuple(range(size)), rank) for rank in range(size)]
        self._bells = Bells(Arena.create("bells", PAGE_NBYTES))
        self._board = Board.create("test", size, block_nbytes)
        everybody = tuple(range(size))
        seats = [Seat(self._board, rank, everybody, False, self._bells, (), by_core=True) for rank in range(size)]
        self._lanes = [Lane(seat, "world", 1, "", _never_asked, lambda *late: None) for seat in seats]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._board.close()
        self._bells.close()

    def outcomes(self, calls: Sequence[Prepared]) -> list[Any]:
        """What the ranks' awaits give for one call of each: its value, or the error."""
        errors: dict[int, HocketError | None] = {}
        operations = []
        for rank, call in enumerate(calls):

            def ended(error: HocketError | None, rank: int = rank) -> None:
                errors[rank] = error

            kind = call.signature.kind
            operations.append(Operation(kind, call.text, list(call.sends), call.recvs, timeout_s=60, ended=ended))
            self._lanes[rank].submit(operations[-1])
        for _ in range(POLLS):
            if len(errors) == self.size:
                break
            for lane in self._lanes:
                lane.poll()
        assert len(errors) == self.size, f"ranks {set(range(self.size)) - set(errors)} are stuck"
        return [
            errors[rank] or _value(call, operation)
            for rank, (call, operation) in enumerate(zip(calls, operations, strict=True))
        ]

    def values(self, calls: Sequence[Prepared]) -> list[Any]:
        """What the ranks' awaits give. Raises the first error."""
        found = self.outcomes(calls)
        for one in found:
            if isinstance(one, HocketError):
                raise one
        return found


def _value(call: Prepared, operation: Operation) -> Any:
    try:
        if call.received is None:
            return call.commit()
        assert operation.recvs is not None
        return call.received(operation.recvs)
    except HocketError as error:
        return error


def _never_asked(number: int, error: HocketError | None) -> None:
    raise AssertionError(f"operation {number} needs a verdict: {error}")
