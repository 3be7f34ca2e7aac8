"""Ranks of one host as lanes on one board, in this thread, polled in whatever order a test wants: no worker."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from hocket.fabric.arena import PAGE_NBYTES, Arena
from hocket.fabric.bells import Bells
from hocket.fabric.board import Board
from hocket.fabric.lane import Lane
from hocket.fabric.operation import Operation
from hocket.fabric.seat import Seat
from hocket.protocol.errors import HocketError, Ranks, Where
from hocket.protocol.signature import FAMILY, NO_ROOT, Family, Signature, encode_signature

Bytes = npt.NDArray[np.uint8]
UNFINISHED = "unfinished"


@dataclass(slots=True)
class Call:
    """One rank's operation, and how it ended: ``outcome`` is `UNFINISHED`, None or the error."""

    op: Operation
    recvs: list[Bytes]
    outcome: Any = UNFINISHED


def call(signature: Signature, sends: Sequence[Bytes], recvs: Sequence[Bytes], timeout_s: float = 60.0) -> Call:
    """A call whose outcome is kept."""
    made = Call.__new__(Call)

    def ended(error: HocketError | None) -> None:
        assert made.outcome is UNFINISHED, "ended twice"
        made.outcome = error

    text = encode_signature(signature)
    op = Operation(signature.kind, text, list(sends), list(recvs), timeout_s=timeout_s, ended=ended)
    made.op, made.recvs, made.outcome = op, list(recvs), UNFINISHED
    return made


@dataclass(slots=True)
class Lanes:
    """``size`` lanes on a board of their own. ``asked`` is what they ask the worker, ``late`` what they warn of."""

    size: int
    block_nbytes: int = 256
    asked: list[tuple[int, int, HocketError | None]] = field(default_factory=list)
    late: list[tuple[Where, float, Ranks]] = field(default_factory=list)
    board: Board = field(init=False)
    lanes: list[Lane] = field(init=False)
    _bells: Bells = field(init=False)

    def __enter__(self) -> Self:
        self._bells = Bells(Arena.create("bells", PAGE_NBYTES))
        self.board = Board.create("test", self.size, self.block_nbytes)
        self.lanes = [self._lane(rank) for rank in range(self.size)]
        return self

    def _lane(self, rank: int) -> Lane:
        seat = Seat(self.board, rank, tuple(range(self.size)), False, self._bells, (), by_core=True)

        def ask(number: int, error: HocketError | None) -> None:
            self.asked.append((rank, number, error))

        return Lane(seat, "world", 1, "", ask, lambda *warning: self.late.append(warning))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.board.close()
        self._bells.close()

    def poll(self) -> None:
        """Goes on, on all lanes, until nothing moves, on the board or off it."""
        before = b""
        while (words := bytes(self.board.arena.buffer[: self.board.layout.texts])) != before:
            before = words
            for lane in self.lanes:
                lane.poll()


# --- operations whose answer is plain to see -------------------------------------------------------------------------


def piece(sender: int, reader: int, nbytes: int, salt: int) -> Bytes:
    """What a sender has for a reader: bytes that no other pair has at the same place."""
    found: Bytes = (np.arange(nbytes) * 7 + sender * 31 + reader * 57 + salt * 101).astype(np.uint8)
    return found


def operation(kind: str, size: int, nbytes: int, root: int, salt: int) -> list[tuple[Call, list[Bytes]]]:
    """A call for each rank, with what each must find in its receives.

    Bytes are reduced by BXOR. ``nbytes`` is the largest piece; of personal and gathered ones others are smaller.
    """
    family = FAMILY[kind]
    if family is Family.SYNC:
        return [(call(Signature(kind), [], []), []) for _ in range(size)]
    makers = {Family.SHARED: _shared, Family.PERSONAL: _personal, Family.REDUCE: _reduced}
    return makers.get(family, _reduce_scattered)(kind, size, nbytes, root % size, salt)


def _shared(kind: str, size: int, nbytes: int, root: int, salt: int) -> list[tuple[Call, list[Bytes]]]:
    lengths = [nbytes * (1 + (rank + salt) % 2) // 2 for rank in range(size)]
    if kind == "broadcast":
        lengths = [nbytes if rank == root else 0 for rank in range(size)]
    pieces = [piece(rank, 0, lengths[rank], salt) for rank in range(size)]
    found = []
    for rank in range(size):
        gives = kind != "broadcast" or rank == root
        takes = kind == "all_gather" or (kind == "gather") == (rank == root)
        recvs = [np.zeros(length, np.uint8) for length in lengths] if takes else []
        shapes = ((nbytes,),) if kind == "broadcast" else ((lengths[rank],),)
        signature = Signature(
            kind,
            "uint8",
            1,
            shapes,
            "",
            NO_ROOT if kind == "all_gather" else root,
            (lengths[rank],) if gives else (),
            tuple(lengths) if takes else (),
        )
        found.append((call(signature, [pieces[rank]] if gives else [], recvs), pieces if takes else []))
    return found


def _personal(kind: str, size: int, nbytes: int, root: int, salt: int) -> list[tuple[Call, list[Bytes]]]:
    def length(sender: int, reader: int) -> int:
        if kind == "scatter" and sender != root:
            return 0
        return nbytes * ((sender + 2 * reader + salt) % 3) // 2

    found = []
    for rank in range(size):
        gives = kind != "scatter" or rank == root
        sends = [piece(rank, reader, length(rank, reader), salt) for reader in range(size)] if gives else []
        expected = [piece(sender, rank, length(sender, rank), salt) for sender in range(size)]
        signature = Signature(
            kind,
            "uint8",
            1,
            (),
            "",
            root if kind == "scatter" else NO_ROOT,
            tuple(len(one) for one in sends),
            tuple(len(one) for one in expected),
        )
        found.append((call(signature, sends, [np.zeros(len(one), np.uint8) for one in expected]), expected))
    return found


def _xor(pieces: Sequence[Bytes]) -> Bytes:
    found: Bytes = np.bitwise_xor.reduce(np.stack(pieces))
    return found


def _reduced(kind: str, size: int, nbytes: int, root: int, salt: int) -> list[tuple[Call, list[Bytes]]]:
    pieces = [piece(rank, 0, nbytes, salt) for rank in range(size)]
    found = []
    for rank in range(size):
        takes = kind == "all_reduce" or rank == root
        recvs = (nbytes,) if takes else ()
        of = NO_ROOT if kind == "all_reduce" else root
        signature = Signature(kind, "uint8", 1, ((nbytes,),), "BXOR", of, (nbytes,), recvs)
        mine = pieces[rank].copy()  # in place
        found.append((call(signature, [mine], [mine] if takes else []), [_xor(pieces)] if takes else []))
    return found


def _reduce_scattered(kind: str, size: int, nbytes: int, root: int, salt: int) -> list[tuple[Call, list[Bytes]]]:
    lengths = [nbytes * ((reader + salt) % 3) // 2 for reader in range(size)]
    found = []
    for rank in range(size):
        sends = [piece(rank, reader, lengths[reader], salt) for reader in range(size)]
        signature = Signature(kind, "uint8", 1, (), "BXOR", NO_ROOT, tuple(lengths), (lengths[rank],))
        expected = _xor([piece(sender, rank, lengths[rank], salt) for sender in range(size)])
        found.append((call(signature, sends, [np.zeros(lengths[rank], np.uint8)]), [expected]))
    return found


KINDS = (
    "barrier",
    "broadcast",
    "all_gather",
    "gather",
    "scatter",
    "all_to_all",
    "all_reduce",
    "reduce",
    "reduce_scatter",
)
"""One kind of each way in which bytes move."""
