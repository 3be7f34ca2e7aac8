"""Who has entered the operation that a bridge is at: told to the other hosts and heard from them.

A host tells of its members once all of them have entered. What they owe to the others travels along if it is little
(see `carried`), and then is waited for, too: members post before they sign, or right after.
"""

import time

from hocket.fabric.board import Board, stage
from hocket.fabric.program import all_left
from hocket.protocol.messages import Header
from hocket.worker.carried import Carrier, Texts
from hocket.worker.compression import Feedback


class Entry:
    """See the module. ``number`` is the operation; `following` goes on to the next one.

    Args:
        group, channel: as other hosts know them.
        hosts: of the group, in their order.
        members: the ranks on each of them.
        me: index of this host.
        feedback: of compressed sums, for the channel.
    """

    def __init__(
        self,
        board: Board,
        group: int,
        channel: str,
        hosts: tuple[int, ...],
        members: tuple[tuple[int, ...], ...],
        me: int,
        feedback: Feedback,
    ) -> None:
        self.board, self.group, self.channel = board, group, channel
        self.hosts, self.members, self.me = hosts, members, me
        self.locals = members[me]
        self.carrier = Carrier(board, members, me, feedback)
        self.number = 1
        self.before = 0
        """blocks of the operation before, -1 where it was aborted"""
        self.impatient = False
        """whether those who have entered here are told of without waiting for the rest"""
        self._told: set[int] = set()
        self._gave = False
        """whether nothing that travels with signatures is left to be sent"""
        self._signatures: dict[int, dict[int, bytes]] = {}
        self._shares: dict[int, dict[int, bytes]] = {}
        """by operation and index of host"""

    def has_told(self) -> bool:
        """Whether the other hosts have been told all there is to tell."""
        return self._gave and len(self._told) == len(self.locals)

    @property
    def begun(self) -> bool:
        """Whether a member here has entered."""
        return any(self.board.signed(rank) >= self.number for rank in self.locals)

    def heard(self, host: int, header: Header) -> None:
        """Takes what another host tells."""
        if header.number < self.number:
            return
        index = self.hosts.index(host)
        allowed, table = self.members[index], self._signatures.setdefault(header.number, {})
        table.update((r, s) for r, s in zip(header.ranks, header.signatures, strict=False) if r in allowed)
        if header.carried is not None:
            self._shares.setdefault(header.number, {})[index] = header.carried

    def sign_for_others(self) -> bool:
        """Writes the signatures of members elsewhere. Returns whether there was any to write."""
        board, number = self.board, self.number
        table = self._signatures.get(number)
        if not table or (self.before < 0 and not all_left(board, self.locals, number - 2)):
            return False  # a member here may still have to read the signatures that these are written over
        now_ns = time.monotonic_ns()
        for rank, text in table.items():
            if board.signed(rank) < number:
                board.sign(rank, number, text, now_ns)
        table.clear()
        return True

    def headers(self) -> list[tuple[int, Header]]:
        """What is to be sent now, by host."""
        board, number = self.board, self.number
        entered = [rank for rank in self.locals if board.signed(rank) >= number]
        whole = len(entered) == len(self.locals)
        if self.has_told() or not entered or not (whole or self.impatient):
            return []
        found = [board.signature(rank, number) for rank in entered]
        texts = tuple([text for text in found if text is not None])
        if len(texts) < len(found):
            return []  # a member has gone on: there was a verdict
        shapes = self.carrier.shapes(self.me, texts) if whole else None
        if shapes is not None and not self.carrier.is_ready(shapes, number):
            # Who has left without having posted has found that the calls do not match; so will everybody.
            left = any(board.read(rank) >= stage(number + 1, 0) for rank in self.locals)
            ready, shapes = left, None
        else:
            ready = whole
        fresh = tuple([rank for rank in entered if rank not in self._told])
        if not ready and not (self.impatient and fresh):
            return []
        make = self.carrier.made_for(shapes, number) if ready and shapes is not None else None
        if make is not None:
            self._shares.setdefault(number, {})[self.me] = make(self.me)
        self._told.update(fresh)
        self._gave = ready
        signatures = tuple([text for rank, text in zip(entered, texts, strict=True) if rank in fresh])
        return [
            (host, Header(self.group, self.channel, number, fresh, signatures, None if make is None else make(index)))
            for index, host in enumerate(self.hosts)
            if index != self.me
        ]

    def missing(self) -> list[int]:
        """Other hosts that have members to enter yet, once one of ours has."""
        signed, number = self.board.signed, self.number
        if not self.begun:
            return []
        return [
            host
            for index, (host, members) in enumerate(zip(self.hosts, self.members, strict=True))
            if index != self.me and any(signed(rank) < number for rank in members)
        ]

    def texts(self) -> Texts | None:
        """The signatures of all members, who have entered; None where one has gone on."""
        found = [self.board.signature(member, self.number) for member in range(self.board.size)]
        texts = tuple(text for text in found if text is not None)
        return texts if len(texts) == len(found) else None

    def is_small(self, texts: Texts) -> bool:
        """Whether all hosts send what they owe along with their signatures."""
        return all(
            self.carrier.shapes(index, tuple([texts[rank] for rank in members])) is not None
            for index, members in enumerate(self.members)
        )

    def shares(self) -> list[bytes] | None:
        """What the hosts have sent along, in their order; None until all have."""
        shares = self._shares.get(self.number, {})
        if len(shares) < len(self.hosts):
            return None
        return [shares[index] for index in range(len(self.hosts))]

    def not_carried(self) -> list[int]:
        """Other hosts whose shares have not come."""
        shares = self._shares.get(self.number, {})
        return [host for index, host in enumerate(self.hosts) if index != self.me and index not in shares]

    def following(self, before: int) -> None:
        """The operation is over, after ``before`` blocks (-1: it was aborted)."""
        for table in (self._signatures, self._shares):
            for old in [number for number in table if number <= self.number]:
                del table[old]
        self.before = before
        self.number += 1
        self._told.clear()
        self._gave = self.impatient = False
