"""The board: one host's shared memory for one channel of one group's epoch.

    head    page     who wants to end what (`contested`), what the bridge to other hosts has done
    lines   128 B    per member: how far it is, in words that only it (or its host's worker for it) writes
    texts   2 x      per member: the signatures of its current and its previous operation
    slots   2 x      per member: its current and its previous block of data, page-aligned
    result  2 x      the reduced block

Every member of the group has a line, a text and slots, also those on other hosts: the worker writes them for those.
Words are *stages*: operation number and count of blocks in one integer, so that they only ever rise.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hocket.fabric.arena import PAGE_NBYTES, Arena
from hocket.fabric.words import Words, words_of
from hocket.protocol.errors import WireError
from hocket.protocol.limits import BLOCK_NBYTES, SIGNATURE_NBYTES
from hocket.protocol.signature import call_word

Bytes = npt.NDArray[np.uint8]
MAGIC = 0x484F434B45540002
LINE_WORDS = 16
COUNT_BITS = 24
DIRECT_DONE = 2
"""What a member's word of reductions counts to where members read one another's memory: it needs nothing any more."""
EVERYTHING = (1 << 63) - 1
"""A contested number that covers every operation: the epoch has ended."""

# words of the head
_MAGIC, _SIZE, _BLOCK, _CONTESTED, _RESULT, _BRIDGE_READ = range(6)
# words of a line
_SIGNED, _POSTED, _READ, _REDUCED, _SIGNED_AT = range(5)
_CALL, _OFFER = 5, 7
"""Two words each, by the operation's parity: what `call_word` makes of its signature; where others may read what the
member contributes, 0 if they may not. Two more, of the native core: how it finds out whether they can."""


def stage(number: int, count: int) -> int:
    """Operation ``number`` with ``count`` blocks done, as one word that rises with both."""
    return number << COUNT_BITS | count


@dataclass(frozen=True, slots=True)
class Layout:
    """Where things stand on a board for ``size`` members and blocks of ``block_nbytes``."""

    size: int
    block_nbytes: int = BLOCK_NBYTES

    @property
    def texts(self) -> int:
        """Offset of the signatures."""
        return _pages(PAGE_NBYTES + self.size * LINE_WORDS * 8)

    @property
    def slots(self) -> int:
        """Offset of the data slots."""
        return self.texts + self.size * 2 * SIGNATURE_NBYTES

    @property
    def room(self) -> int:
        """Nbytes from one slot to the next."""
        return _pages(self.block_nbytes)

    @property
    def results(self) -> int:
        """Offset of the result slots."""
        return self.slots + self.size * 2 * self.room

    @property
    def nbytes(self) -> int:
        """Size of the whole board. What is never touched costs nothing."""
        return self.results + 2 * self.room


def _pages(nbytes: int) -> int:
    return -(-nbytes // PAGE_NBYTES) * PAGE_NBYTES


class Board:
    """A mapped board. Reads and writes words, signatures and slots; knows no rules: see `program`."""

    def __init__(self, arena: Arena) -> None:
        self.arena = arena
        self._bytes: Bytes = np.frombuffer(arena.buffer, np.uint8)
        words = memoryview(arena.buffer)
        size, block_nbytes = int.from_bytes(words[8:16], "little"), int.from_bytes(words[16:24], "little")
        if int.from_bytes(words[:8], "little") != MAGIC or Layout(size, block_nbytes).nbytes > arena.nbytes:
            raise WireError("not a board of this release of hocket")
        self.layout = Layout(size, block_nbytes)
        self.size = size
        self.block_nbytes = block_nbytes
        self._words: Words = words_of(words[: self.layout.texts])
        self._slots: dict[tuple[int, int], Bytes] = {}
        self._signed = [self._line(member) + _SIGNED for member in range(size)]

    @classmethod
    def create(cls, name: str, size: int, block_nbytes: int = BLOCK_NBYTES) -> "Board":
        """A fresh board for ``size`` members."""
        arena = Arena.create(name, Layout(size, block_nbytes).nbytes)
        words = memoryview(arena.buffer)[:24].cast("Q")
        words[_MAGIC], words[_SIZE], words[_BLOCK] = MAGIC, size, block_nbytes
        return cls(arena)

    def close(self) -> None:
        """Gives up this mapping."""
        self._slots.clear()
        self._bytes = np.empty(0, np.uint8)
        self._words.release()
        self.arena.close()

    # --- words -------------------------------------------------------------------------------------------------------

    @staticmethod
    def _line(member: int) -> int:
        return PAGE_NBYTES // 8 + member * LINE_WORDS

    def signed(self, member: int) -> int:
        """Number of the last operation that the member has entered."""
        return self._words[self._line(member) + _SIGNED]

    def all_signed(self, number: int) -> bool:
        """Whether every member has entered operation ``number`` or a later one."""
        words = self._words
        return all(words[index] >= number for index in self._signed)

    def posted(self, member: int) -> int:
        """Stage up to which the member's data lie in its slots."""
        return self._words[self._line(member) + _POSTED]

    def set_posted(self, member: int, at: int) -> None:
        """The member's data lie in its slots up to stage ``at``. Write them first."""
        self._words[self._line(member) + _POSTED] = at

    def read(self, member: int) -> int:
        """Stage up to which the member has read what it needs."""
        return self._words[self._line(member) + _READ]

    def set_read(self, member: int, at: int) -> None:
        """The member needs nothing below stage ``at`` any more."""
        self._words[self._line(member) + _READ] = at

    def reduced(self, member: int) -> int:
        """Stage up to which the member has reduced its share of the blocks."""
        return self._words[self._line(member) + _REDUCED]

    def set_reduced(self, member: int, at: int) -> None:
        """The member's share of the result stands in the result slot up to stage ``at``."""
        self._words[self._line(member) + _REDUCED] = at

    def signed_at_ns(self, member: int) -> int:
        """When the member entered its last operation, on this host's monotonic clock."""
        return self._words[self._line(member) + _SIGNED_AT]

    def offer(self, member: int, number: int) -> int:
        """Where the member, which has signed operation ``number``, lets others read its input; 0: nowhere."""
        return self._words[self._line(member) + _OFFER + (number & 1)]

    def is_direct(self, number: int) -> bool:
        """Whether in operation ``number``, which all have signed, members read one another's memory."""
        return all(self.offer(member, number) for member in range(self.size))

    @property
    def contested(self) -> int:
        """Operations up to this number are not to be completed without a verdict of the worker's."""
        return self._words[_CONTESTED]

    def contest(self, number: int) -> None:
        """The worker's hand on operation ``number`` and all before it."""
        self._words[_CONTESTED] = max(self._words[_CONTESTED], number)

    @property
    def result(self) -> int:
        """Stage up to which results of all hosts stand in the result slots."""
        return self._words[_RESULT]

    def set_result(self, at: int) -> None:
        """The bridge has brought the result up to stage ``at``."""
        self._words[_RESULT] = at

    @property
    def bridge_read(self) -> int:
        """Stage up to which the bridge needs no slot any more."""
        return self._words[_BRIDGE_READ]

    def set_bridge_read(self, at: int) -> None:
        """The bridge needs nothing below stage ``at`` any more."""
        self._words[_BRIDGE_READ] = at

    # --- signatures and data -----------------------------------------------------------------------------------------

    def _text(self, member: int, number: int) -> int:
        return self.layout.texts + (member * 2 + (number & 1)) * SIGNATURE_NBYTES

    def sign(self, member: int, number: int, text: bytes, now_ns: int, offer: int = 0) -> None:
        """The member enters operation ``number``; ``offer`` is where in its memory others may read its input."""
        start = self._text(member, number)
        buffer = self.arena.buffer
        buffer[start : start + 8] = bytes(8)  # whoever still reads the signature that stood here must notice
        buffer[start + 8 : start + 8 + len(text)] = text
        buffer[start : start + 8] = (number << COUNT_BITS | len(text)).to_bytes(8, "little")
        line = self._line(member)
        self._words[line + _CALL + (number & 1)] = call_word(text)
        self._words[line + _OFFER + (number & 1)] = offer
        self._words[line + _SIGNED_AT] = now_ns
        self._words[line + _SIGNED] = number

    def signature(self, member: int, number: int) -> bytes | None:
        """The member's signature of operation ``number``, or None where it has not entered or has gone on."""
        if self.signed(member) < number:
            return None
        start = self._text(member, number)
        buffer = self.arena.buffer
        head = bytes(buffer[start : start + 8])
        of, nbytes = divmod(int.from_bytes(head, "little"), 1 << COUNT_BITS)
        if of != number:
            return None
        text = bytes(buffer[start + 8 : start + 8 + min(nbytes, SIGNATURE_NBYTES - 8)])
        return text if buffer[start : start + 8] == head else None

    def slot(self, member: int, block: int) -> Bytes:
        """The member's slot for a block, uint8[block_nbytes]. ``block`` counts on from the operation's number."""
        return self._cached(member, block & 1)

    def result_slot(self, block: int) -> Bytes:
        """The result slot for a block, uint8[block_nbytes]."""
        return self._cached(self.size, block & 1)

    def _cached(self, member: int, parity: int) -> Bytes:
        found = self._slots.get((member, parity))
        if found is None:
            room = self.layout.room
            start = self.layout.slots + (member * 2 + parity) * room
            found = self._slots[member, parity] = self._bytes[start : start + self.block_nbytes]
        return found
