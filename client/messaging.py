"""Operations between two members: sends and receives of arrays and objects, alone and in batches.

Messages match by channel, tag and sender, in the order in which they were sent. ``src=None`` receives from anybody.
"""

from collections.abc import Sequence
from typing import Any

from hocket.client.membership import Membership
from hocket.client.places import check_member, resolve
from hocket.client.work import Work
from hocket.protocol.errors import ArgumentError


class Messaging:
    """See the module. Subclasses say which membership a call is about."""

    def _membership(self, group: Any) -> Membership:
        """The membership behind ``group``, or this one's own. Raises `ArgumentError` for a group of others."""
        raise AssertionError("subclasses define it")

    def _timeout_s(self, group: Any, timeout: float | None) -> float:
        """The time limit of a call."""
        raise AssertionError("subclasses define it")

    @property
    def _pickle_allowed(self) -> bool:
        """Whether objects beyond the safe kinds travel."""
        raise AssertionError("subclasses define it")

    def isend(
        self,
        tensor: Any,
        dst: int | None = None,
        group: Any = None,
        tag: int = 0,
        *,
        group_dst: int | None = None,
        timeout: float | None = None,
        channel: str = "",
    ) -> Work:
        """Sends ``tensor`` to one member: done when handed over (up to 64 KiB), or when the receiver takes it."""
        membership = self._membership(group)
        check_member(membership.place)
        peer = resolve(membership.place, "dst", dst, group_dst, None)
        return membership.p2p.send(tensor, peer, tag, channel, self._timeout_s(group, timeout))

    def irecv(
        self,
        tensor: Any,
        src: int | None = None,
        group: Any = None,
        tag: int = 0,
        *,
        group_src: int | None = None,
        timeout: float | None = None,
        channel: str = "",
    ) -> Work:
        """Receives into ``tensor`` from one member, or from any (no ``src``). `Work.source` tells the sender's rank."""
        membership = self._membership(group)
        check_member(membership.place)
        anybody = src is None and group_src is None
        peer = None if anybody else resolve(membership.place, "src", src, group_src, None)
        return membership.p2p.recv(tensor, peer, tag, channel, self._timeout_s(group, timeout))

    send = isend
    recv = irecv

    def send_object_list(
        self,
        object_list: Sequence[Any],
        dst: int | None = None,
        group: Any = None,
        *,
        group_dst: int | None = None,
        tag: int = 0,
        timeout: float | None = None,
        channel: str = "",
    ) -> Work:
        """Sends a list of objects to one member, which calls `recv_object_list`."""
        membership = self._membership(group)
        check_member(membership.place)
        peer = resolve(membership.place, "dst", dst, group_dst, None)
        timeout_s = self._timeout_s(group, timeout)
        return membership.p2p.send_objects(list(object_list), peer, tag, channel, timeout_s, self._pickle_allowed)

    def recv_object_list(
        self,
        object_list: list[Any],
        src: int | None = None,
        group: Any = None,
        *,
        group_src: int | None = None,
        tag: int = 0,
        timeout: float | None = None,
        channel: str = "",
    ) -> Work:
        """Fills ``object_list`` with the objects that one member (or any) sends; its length must be theirs."""
        membership = self._membership(group)
        check_member(membership.place)
        anybody = src is None and group_src is None
        peer = None if anybody else resolve(membership.place, "src", src, group_src, None)
        timeout_s = self._timeout_s(group, timeout)
        return membership.p2p.recv_objects(object_list, peer, tag, channel, timeout_s, self._pickle_allowed)

    def batch_isend_irecv(self, p2p_op_list: Sequence[Any]) -> list[Work]:
        """Starts several sends and receives, in order. Returns their works."""
        wrong = [op for op in p2p_op_list if not isinstance(op, P2POp)]
        if wrong or not p2p_op_list:
            raise ArgumentError("p2p_op_list", f"{list(p2p_op_list)!r:.80}", "a list of P2POp, at least one")
        return [op.start(self) for op in p2p_op_list]


class P2POp:
    """One of `Messaging.batch_isend_irecv`: ``op`` is ``"isend"`` or ``"irecv"``, or a function of that name."""

    def __init__(
        self,
        op: Any,
        tensor: Any,
        peer: int | None = None,
        group: Any = None,
        tag: int = 0,
        group_peer: int | None = None,
    ) -> None:
        name = op if isinstance(op, str) else getattr(op, "__name__", "")
        if name not in ("isend", "irecv"):
            raise ArgumentError("op", repr(op), "isend or irecv")
        self.op, self.tensor, self.peer, self.group, self.tag, self.group_peer = (
            name,
            tensor,
            peer,
            group,
            tag,
            group_peer,
        )

    def start(self, on: Messaging) -> Work:
        """Starts it."""
        if self.op == "isend":
            return on.isend(self.tensor, self.peer, self.group, self.tag, group_dst=self.group_peer)
        return on.irecv(self.tensor, self.peer, self.group, self.tag, group_src=self.group_peer)
