"""Every operation of the SDK, written once for `Client` (on its world, or on ``group=``) and `Group` (on itself).

All take ``group`` (a `Group`), ``timeout`` (seconds; default: the group's), ``channel`` (operations of one channel
match by order of calls, channels run side by side) and ``async_op`` (accepted for code written for torch.distributed: a
call submits at once and returns a `Work` either way). ``src`` and ``dst`` are ranks in the world, ``group_src`` and
``group_dst`` ranks in the group. Outputs are filled in place and are also what the await gives.

Common errors: `UsageError`'s kinds (change the call), `DeadlineError` (who is missing), `AbortedError` (another member
gave up), `MemberLostError` (make a new group of the survivors).
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from hocket.client import prepare
from hocket.client.membership import Membership
from hocket.client.object_collectives import ObjectCollectives
from hocket.client.places import Place, check_member, resolve
from hocket.client.prepare import Prepared
from hocket.client.quick import Key
from hocket.client.work import Work
from hocket.protocol.compression import Compression
from hocket.protocol.reduce_ops import ReduceOp


class Collectives(ObjectCollectives):
    """See the module. What it builds on adds objects, and what goes from one member to another."""

    _home: Membership | None = None
    """the membership that operations without ``group=`` act on"""

    def _begin(
        self,
        key: Key,
        source: Any,
        target: Any,
        value: Any,
        make: Callable[[Place], Prepared],
        group: Any,
        timeout: float | None,
        channel: str,
    ) -> Work:
        """Starts an operation that may be quick: see `hocket.client.quick`. The await gives ``value``."""
        if timeout is None and not channel and type(source) is np.ndarray and type(target) is np.ndarray:
            home = self._home if group is None else self._membership(group)
            if home is not None and home.quick is not None:
                work = home.quick.start(self, key, source, target, value, make)
                if work is not None:
                    return work
            return self._start(key[0], make, group, timeout, channel, key)
        return self._start(key[0], make, group, timeout, channel)

    # --- reductions --------------------------------------------------------------------------------------------------

    def all_reduce(
        self,
        tensor: Any,
        op: ReduceOp = ReduceOp.SUM,
        group: Any = None,
        async_op: bool = False,
        *,
        compression: str | Compression | None = None,
        timeout: float | None = None,
        channel: str = "",
    ) -> Work:
        """Reduces ``tensor`` over all members, in place on each.

        With ``compression`` (``"bf16"``, ``"int8"`` or a `Compression`) hosts exchange rounded sums: for slow links.
        """

        def make(place: Place) -> Prepared:
            return prepare.all_reduce(place, tensor, op, compression)

        key = _reducing("all_reduce", tensor, op)
        if compression is not None:
            key = (*key, str(compression))
        return self._begin(key, tensor, tensor, tensor, make, group, timeout, channel)

    def reduce(
        self,
        tensor: Any,
        dst: int | None = None,
        op: ReduceOp = ReduceOp.SUM,
        group: Any = None,
        async_op: bool = False,
        *,
        group_dst: int | None = None,
        timeout: float | None = None,
        channel: str = "",
    ) -> Work:
        """Reduces ``tensor`` into the root's; those of the others are only read."""

        def make(place: Place) -> Prepared:
            return prepare.reduce(place, tensor, resolve(place, "dst", dst, group_dst), op)

        return self._start("reduce", make, group, timeout, channel)

    def scan(
        self,
        tensor: Any,
        op: ReduceOp = ReduceOp.SUM,
        group: Any = None,
        async_op: bool = False,
        *,
        timeout: float | None = None,
        channel: str = "",
    ) -> Work:
        """Inclusive prefix reduction: rank r's ``tensor`` becomes the reduction of ranks 0 to r."""
        return self._start("scan", lambda place: prepare.scan(place, tensor, op), group, timeout, channel)

    def exscan(
        self,
        tensor: Any,
        op: ReduceOp = ReduceOp.SUM,
        group: Any = None,
        async_op: bool = False,
        *,
        timeout: float | None = None,
        channel: str = "",
    ) -> Work:
        """Exclusive prefix reduction: ranks 0 to r-1; rank 0's ``tensor`` stays as it is."""
        return self._start("exscan", lambda place: prepare.exscan(place, tensor, op), group, timeout, channel)

    def reduce_scatter(
        self,
        output: Any,
        input_list: Sequence[Any],
        op: ReduceOp = ReduceOp.SUM,
        group: Any = None,
        async_op: bool = False,
        *,
        timeout: float | None = None,
        channel: str = "",
    ) -> Work:
        """Reduces the lists elementwise; rank r's ``output`` becomes the reduction of their r-th arrays."""

        def make(place: Place) -> Prepared:
            return prepare.reduce_scatter(place, output, input_list, op)

        return self._start("reduce_scatter", make, group, timeout, channel)

    def reduce_scatter_tensor(
        self,
        output: Any,
        input: Any,
        op: ReduceOp = ReduceOp.SUM,
        group: Any = None,
        async_op: bool = False,
        *,
        timeout: float | None = None,
        channel: str = "",
    ) -> Work:
        """Reduces ``input`` (as many times ``output`` as there are members); rank r gets the r-th part."""

        def make(place: Place) -> Prepared:
            return prepare.reduce_scatter_tensor(place, output, input, op)

        key = (*_reducing("reduce_scatter_tensor", output, op), *_form(input))
        return self._begin(key, input, output, output, make, group, timeout, channel)

    def all_reduce_coalesced(
        self,
        tensors: Sequence[Any],
        op: ReduceOp = ReduceOp.SUM,
        group: Any = None,
        async_op: bool = False,
        *,
        compression: str | Compression | None = None,
        timeout: float | None = None,
        channel: str = "",
    ) -> Work:
        """`all_reduce` of several arrays of one dtype in one operation, compressed between hosts or not."""

        def make(place: Place) -> Prepared:
            return prepare.all_reduce_coalesced(place, tensors, op, compression)

        return self._start("all_reduce_coalesced", make, group, timeout, channel)

    # --- moving ------------------------------------------------------------------------------------------------------

    def broadcast(
        self,
        tensor: Any,
        src: int | None = None,
        group: Any = None,
        async_op: bool = False,
        *,
        group_src: int | None = None,
        timeout: float | None = None,
        channel: str = "",
    ) -> Work:
        """Copies the root's ``tensor`` into everybody's."""

        def make(place: Place) -> Prepared:
            return prepare.broadcast(place, tensor, resolve(place, "src", src, group_src))

        key = ("broadcast", *_form(tensor), _root(src), _root(group_src))
        return self._begin(key, tensor, tensor, tensor, make, group, timeout, channel)

    def all_gather(
        self,
        tensor_list: Sequence[Any],
        tensor: Any,
        group: Any = None,
        async_op: bool = False,
        *,
        timeout: float | None = None,
        channel: str = "",
    ) -> Work:
        """Fills ``tensor_list`` with everybody's ``tensor``; shapes may differ where the list says so."""

        def make(place: Place) -> Prepared:
            return prepare.all_gather(place, tensor_list, tensor)

        return self._start("all_gather", make, group, timeout, channel)

    def all_gather_into_tensor(
        self,
        output: Any,
        input: Any,
        group: Any = None,
        async_op: bool = False,
        *,
        timeout: float | None = None,
        channel: str = "",
    ) -> Work:
        """Gathers ``input`` of all members into ``output``, concatenated or stacked as its shape says."""

        def make(place: Place) -> Prepared:
            return prepare.all_gather_into_tensor(place, output, input)

        key = ("all_gather_into_tensor", *_form(output), *_form(input))
        return self._begin(key, input, output, output, make, group, timeout, channel)

    def all_gather_coalesced(
        self,
        output_lists: Sequence[Sequence[Any]],
        tensors: Sequence[Any],
        group: Any = None,
        async_op: bool = False,
        *,
        timeout: float | None = None,
        channel: str = "",
    ) -> Work:
        """`all_gather` of several arrays in one operation: ``output_lists[i][r]`` is array i of rank r."""

        def make(place: Place) -> Prepared:
            return prepare.all_gather_coalesced(place, output_lists, tensors)

        return self._start("all_gather_coalesced", make, group, timeout, channel)

    def gather(
        self,
        tensor: Any,
        gather_list: Sequence[Any] | None = None,
        dst: int | None = None,
        group: Any = None,
        async_op: bool = False,
        *,
        group_dst: int | None = None,
        timeout: float | None = None,
        channel: str = "",
    ) -> Work:
        """Fills the root's ``gather_list`` with everybody's ``tensor`` (None: fresh arrays, which the await gives)."""

        def make(place: Place) -> Prepared:
            return prepare.gather(place, tensor, gather_list, resolve(place, "dst", dst, group_dst))

        return self._start("gather", make, group, timeout, channel)

    def scatter(
        self,
        tensor: Any,
        scatter_list: Sequence[Any] | None = None,
        src: int | None = None,
        group: Any = None,
        async_op: bool = False,
        *,
        group_src: int | None = None,
        timeout: float | None = None,
        channel: str = "",
    ) -> Work:
        """Rank r's ``tensor`` becomes the r-th of the root's ``scatter_list``."""

        def make(place: Place) -> Prepared:
            return prepare.scatter(place, tensor, scatter_list, resolve(place, "src", src, group_src))

        return self._start("scatter", make, group, timeout, channel)

    def all_to_all(
        self,
        output_list: Sequence[Any],
        input_list: Sequence[Any],
        group: Any = None,
        async_op: bool = False,
        *,
        timeout: float | None = None,
        channel: str = "",
    ) -> Work:
        """Rank r's ``output_list[s]`` becomes rank s's ``input_list[r]``."""

        def make(place: Place) -> Prepared:
            return prepare.all_to_all(place, output_list, input_list)

        return self._start("all_to_all", make, group, timeout, channel)

    def all_to_all_single(
        self,
        output: Any,
        input: Any,
        output_split_sizes: Sequence[int] | None = None,
        input_split_sizes: Sequence[int] | None = None,
        group: Any = None,
        async_op: bool = False,
        *,
        timeout: float | None = None,
        channel: str = "",
    ) -> Work:
        """`all_to_all` of one array's parts along its first dimension, even unless split sizes are given."""

        def make(place: Place) -> Prepared:
            return prepare.all_to_all_single(place, output, input, output_split_sizes, input_split_sizes)

        if output_split_sizes is not None or input_split_sizes is not None:
            return self._start("all_to_all_single", make, group, timeout, channel)
        key = ("all_to_all_single", *_form(output), *_form(input))
        return self._begin(key, input, output, output, make, group, timeout, channel)

    # --- synchronising -----------------------------------------------------------------------------------------------

    def barrier(
        self, group: Any = None, async_op: bool = False, *, timeout: float | None = None, channel: str = ""
    ) -> Work:
        """Ends once every member has entered it."""
        return self._begin(("barrier",), _NOTHING, _NOTHING, None, prepare.barrier, group, timeout, channel)

    def monitored_barrier(
        self,
        group: Any = None,
        timeout: float | None = None,
        wait_all_ranks: bool = False,
        *,
        channel: str = "",
    ) -> Work:
        """A barrier kept by the coordinator: it breaks for everyone, naming who is missing, when time is up."""
        membership = self._membership(group)
        check_member(membership.place)
        return membership.monitored_barrier(self._timeout_s(group, timeout), wait_all_ranks, channel)


_NOTHING: Final = np.empty(0, np.uint8)


def _form(tensor: Any) -> tuple[Any, Any]:
    """What a call's signature takes from an array; of anything else, nothing that would be looked up."""
    return (tensor.dtype, tensor.shape) if type(tensor) is np.ndarray else (None, None)


def _reducing(kind: str, tensor: Any, op: Any) -> Key:
    if type(tensor) is np.ndarray and type(op) is ReduceOp:
        return kind, tensor.dtype, tensor.shape, op.name, op.factor
    return (kind,)


def _root(rank: Any) -> Any:
    """A root for a key: only a plain number, for 1, 1.0 and True are one key."""
    return rank if rank is None or type(rank) is int else object()
