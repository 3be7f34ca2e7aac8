"""Object collectives made ready for the board: objects become bytes, and bytes objects in the caller's lists.

Receivers learn the sizes from the senders' signatures, so that the board makes room for what comes and hands it to
`Prepared.received`. A list is filled only once everything in it could be read. All objects that arrive are new ones,
the caller's own too.
"""

import struct
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, Final

import numpy as np

from hocket.client.consistency import as_list
from hocket.client.objects import dumps, loads
from hocket.client.places import Place
from hocket.client.prepare import Prepared, check_absent
from hocket.fabric.board import Bytes
from hocket.protocol.errors import ArgumentTypeError, MismatchError, WireError
from hocket.protocol.signature import NO_ROOT, Signature

_WORD: Final = struct.Struct("<Q")


def broadcast_object_list(place: Place, object_list: object, root: int, allow_pickle: bool = False) -> Prepared:
    """Every rank's list holds the root's objects afterwards. The lists are equally long.

    Raises:
        SerialiseError: one of the root's objects cannot travel; or, from ``received``, cannot be read here.
    """
    kind = "broadcast_object_list"
    if place.rank == root:
        objects = as_list(object_list, "object_list", None, "objects")
        framed = frame([_dumps(place, item, allow_pickle) for item in objects])
        signature = Signature(kind, shapes=((len(objects),),), root=root, sends=(len(framed),))
        return Prepared(signature, [framed], [], lambda: object_list, [])
    targets = _fillable(object_list, "object_list")
    count = len(targets)

    def received(pieces: list[Bytes]) -> object:
        framed = unframe(pieces[root])
        if len(framed) != count:
            calls = ((root, len(framed)), (place.rank, count))
            raise MismatchError(tuple(((rank,), f"{kind} with {length} objects") for rank, length in calls))
        targets[:] = [_loads(place, root, data, allow_pickle) for data in framed]
        return targets

    return _receives(Signature(kind, shapes=((count,),), root=root), [], received)


def all_gather_object(place: Place, object_list: object, obj: object, allow_pickle: bool = False) -> Prepared:
    """Entry r of every rank's list becomes rank r's object. None instead of a list: the await gives a new one.

    Raises:
        SerialiseError: the object cannot travel; or, from ``received``, one cannot be read here.
    """
    targets = _fillable(object_list, "object_list", place.size)
    return _gather(place, "all_gather_object", targets, obj, NO_ROOT, allow_pickle)


def gather_object(place: Place, obj: object, gather_list: object, root: int, allow_pickle: bool = False) -> Prepared:
    """Entry r of the root's list becomes rank r's object. None on the root: the await gives a new list.

    Raises:
        SerialiseError: as `all_gather_object`.
    """
    if place.rank == root:
        targets = _fillable(gather_list, "gather_list", place.size)
        return _gather(place, "gather_object", targets, obj, root, allow_pickle)
    check_absent(gather_list, "gather_list", "dst", root, place)
    data = _flat(_dumps(place, obj, allow_pickle))
    signature = Signature("gather_object", root=root, sends=(len(data),))
    return Prepared(signature, [data], [], lambda: None, [])


def _gather(place: Place, kind: str, targets: list[Any], obj: object, root: int, allow_pickle: bool) -> Prepared:
    data = _flat(_dumps(place, obj, allow_pickle))

    def received(pieces: list[Bytes]) -> object:
        targets[:] = [_loads(place, rank, piece.data, allow_pickle) for rank, piece in enumerate(pieces)]
        return targets

    return _receives(Signature(kind, root=root, sends=(len(data),)), [data], received)


def scatter_object_list(
    place: Place, output_list: object, input_list: object, root: int, allow_pickle: bool = False
) -> Prepared:
    """The first entry of rank r's output becomes entry r of the root's input; the inputs of others are not looked at.

    None instead of an output: the await gives a new list of one object.

    Raises:
        SerialiseError: one of the root's objects cannot travel; or, from ``received``, cannot be read here.
    """
    targets = _fillable(output_list, "output_list", 1 if output_list is None else None)
    if not targets:
        raise ArgumentTypeError("output_list", "an empty list", "a list with room for one object")
    datas: list[Bytes] = []
    if place.rank == root:
        objects = as_list(input_list, "input_list", place.size, "objects")
        datas = [_flat(_dumps(place, item, allow_pickle)) for item in objects]

    def received(pieces: list[Bytes]) -> object:
        targets[0] = _loads(place, root, pieces[root].data, allow_pickle)
        return targets

    signature = Signature("scatter_object_list", root=root, sends=tuple(len(data) for data in datas))
    return _receives(signature, datas, received)


# --- several objects in one piece ------------------------------------------------------------------------------------


def frame(parts: Sequence[bytes]) -> Bytes:
    """Several byte strings as one, from which `unframe` takes them: their number, their lengths, then themselves."""
    head = struct.pack(f"<{len(parts) + 1}Q", len(parts), *map(len, parts))
    return _flat(b"".join([head, *parts]))


def unframe(framed: Bytes) -> list[memoryview]:
    """What `frame` put together, as views.

    Raises:
        WireError: that was never framed.
    """
    view = framed.data
    count = _WORD.unpack_from(view)[0] if len(view) >= _WORD.size else 0
    start = (count + 1) * _WORD.size
    if len(view) < start:
        raise WireError(f"not a list of objects: {len(view)} bytes, which announce {count} objects")
    lengths = struct.unpack_from(f"<{count}Q", view, _WORD.size)
    if start + sum(lengths) != len(view):
        raise WireError(f"not a list of objects: {len(view)} bytes, which announce {start + sum(lengths)}")
    return [view[begin:end] for begin, end in pairwise(accumulate(lengths, initial=start))]


# --- what they share -------------------------------------------------------------------------------------------------


def _receives(signature: Signature, sends: list[Bytes], received: Any) -> Prepared:
    return Prepared(signature, sends, None, lambda: None, [], received=received)


def _fillable(value: object, argument: str, size: int | None = None) -> list[Any]:
    """The caller's list to be filled; a new one of ``size`` entries where that is known and None was given."""
    if value is None and size is not None:
        return [None] * size
    if isinstance(value, tuple):
        raise ArgumentTypeError(argument, "a tuple", "a list, which is filled in place")
    targets = as_list(value, argument, size, "objects")
    assert isinstance(targets, list)
    return targets


def _flat(data: bytes) -> Bytes:
    return np.frombuffer(data, np.uint8)


def _dumps(place: Place, item: object, allow_pickle: bool) -> bytes:
    return dumps(item, rank=place.shown(place.rank), allow_pickle=allow_pickle)


def _loads(place: Place, sender: int, data: memoryview, allow_pickle: bool) -> object:
    return loads(data, rank=place.shown(sender), allow_pickle=allow_pickle)
