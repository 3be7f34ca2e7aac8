"""The collectives that carry Python objects instead of arrays, and how any collective is started.

What an object may be is in `hocket.client.object_codec`.
"""

from collections.abc import Callable
from typing import Any

from hocket.client import prepare_objects
from hocket.client.messaging import Messaging
from hocket.client.places import Place, check_member, resolve
from hocket.client.prepare import Prepared
from hocket.client.quick import Key
from hocket.client.work import Work


class ObjectCollectives(Messaging):
    """See the module."""

    def _start(
        self,
        kind: str,
        make: Callable[[Place], Prepared],
        group: Any,
        timeout: float | None,
        channel: str,
        key: Key | None = None,
    ) -> Work:
        membership = self._membership(group)
        check_member(membership.place)
        timeout_s = self._timeout_s(group, timeout)
        return membership.submit(kind, lambda: make(membership.place), timeout_s, channel, key)

    def broadcast_object_list(
        self,
        object_list: list[Any],
        src: int | None = None,
        group: Any = None,
        *,
        group_src: int | None = None,
        timeout: float | None = None,
        channel: str = "",
    ) -> Work:
        """Fills everybody's ``object_list`` with the root's objects."""

        def make(place: Place) -> Prepared:
            root = resolve(place, "src", src, group_src)
            return prepare_objects.broadcast_object_list(place, object_list, root, self._pickle_allowed)

        return self._start("broadcast_object_list", make, group, timeout, channel)

    def all_gather_object(
        self,
        object_list: list[Any] | None,
        obj: Any,
        group: Any = None,
        *,
        timeout: float | None = None,
        channel: str = "",
    ) -> Work:
        """Fills ``object_list`` (None: a fresh list, which the await gives) with everybody's ``obj``."""

        def make(place: Place) -> Prepared:
            return prepare_objects.all_gather_object(place, object_list, obj, self._pickle_allowed)

        return self._start("all_gather_object", make, group, timeout, channel)

    def gather_object(
        self,
        obj: Any,
        object_gather_list: list[Any] | None = None,
        dst: int | None = None,
        group: Any = None,
        *,
        group_dst: int | None = None,
        timeout: float | None = None,
        channel: str = "",
    ) -> Work:
        """Fills the root's ``object_gather_list`` (None: a fresh list) with everybody's ``obj``."""

        def make(place: Place) -> Prepared:
            root = resolve(place, "dst", dst, group_dst)
            return prepare_objects.gather_object(place, obj, object_gather_list, root, self._pickle_allowed)

        return self._start("gather_object", make, group, timeout, channel)

    def scatter_object_list(
        self,
        scatter_object_output_list: list[Any],
        scatter_object_input_list: list[Any] | None = None,
        src: int | None = None,
        group: Any = None,
        *,
        group_src: int | None = None,
        timeout: float | None = None,
        channel: str = "",
    ) -> Work:
        """Puts the r-th of the root's objects into rank r's output list, at its first place."""

        def make(place: Place) -> Prepared:
            root = resolve(place, "src", src, group_src)
            return prepare_objects.scatter_object_list(
                place, scatter_object_output_list, scatter_object_input_list, root, self._pickle_allowed
            )

        return self._start("scatter_object_list", make, group, timeout, channel)
