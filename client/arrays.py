"""Intake of the caller's tensors: as arrays, as flat bytes, and locked while an operation is under way.

Whatever the caller gives, `as_input` and `as_output` make a numpy view of *its* memory or refuse it; nothing is copied.
`flat_input` and `FlatOutput` make of a view the contiguous, native bytes that move, with a staging copy only where the
array is strided or byte-swapped. `lock` keeps the caller from writing too early.
"""

import itertools
import sys
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, cast

import ml_dtypes
import numpy as np
import numpy.typing as npt

from hocket.protocol.errors import ArgumentError, ArgumentTypeError

Array = npt.NDArray[Any]
FlatBytes = npt.NDArray[np.uint8]

_WRITEABLE: Final = 0x400
_WARNS_ON_WRITE: Final = 1 << 31
"""Bits of numpy's ``flags.num``. Asking ``flags.writeable`` itself warns for what `numpy.broadcast_arrays` gives."""

_CPU_DEVICES: Final = frozenset({1, 3, 11})
"""DLPack's device types in ordinary memory: CPU, and CPU memory pinned for CUDA or ROCm."""
_DEVICES: Final = {2: "CUDA", 4: "OpenCL", 7: "Vulkan", 8: "Metal", 10: "ROCm", 13: "CUDA managed", 14: "oneAPI"}

_INPUT: Final = "an array in CPU memory: use numpy.asarray(...)"
_OUTPUT: Final = "an array in CPU memory: use numpy.array(...), the result is written in place"


# --- intake ----------------------------------------------------------------------------------------------------------


def as_input(value: object, argument: str) -> Array:
    """The caller's tensor as an array to read from, without a copy.

    Takes arrays of any strides and byte order, 0-d ones included; what has the buffer protocol (`bytes` too); and
    tensors in CPU memory that have DLPack. ``argument`` names the caller's argument in errors.

    Raises:
        ArgumentTypeError: ``value`` is no array (a number, a list, ...), holds Python objects, or is masked.
        ArgumentError: it lies on another device, or its owner does not hand it out.
    """
    array = value if type(value) is np.ndarray else _view(value, argument, _INPUT)
    _refuse_objects(array, argument)
    return array


def as_output(value: object, argument: str) -> Array:
    """The caller's tensor as a new view to write results into; what `lock` does to the original does not touch it.

    Takes what `as_input` takes, where it can be written.

    Raises:
        ArgumentTypeError: as `as_input`, and for `bytes`.
        ArgumentError: as `as_input`; ``value`` is read-only, or several of its elements share memory.
    """
    array = value if type(value) is np.ndarray else _view(value, argument, _OUTPUT)
    _refuse_objects(array, argument)
    if not array.flags.c_contiguous and _overlaps_itself(array):
        given = f"an array of shape {array.shape} and strides {array.strides}, whose elements share memory"
        raise ArgumentError(argument, given, "an array in which each element has a place of its own")
    if not array.flags.num & _WRITEABLE:
        if id(value) in _held:
            given, allowed = "in use by another operation", "an array that no operation in flight holds"
        else:
            given, allowed = "a read-only array", "a writable array, for the result is written in place"
        raise ArgumentError(argument, given, allowed)
    return array.view()


def _view(value: object, argument: str, allowed: str) -> Array:
    """A view of whatever is not a plain array already."""
    if isinstance(value, np.ma.MaskedArray):
        raise ArgumentTypeError(argument, "a masked array", "an array without a mask, which would be lost")
    if isinstance(value, np.ndarray):
        # Unbound: a subclass (matrix, memmap, recarray) may have a view() with ideas of its own.
        return np.ndarray.view(value, np.ndarray)
    if isinstance(value, np.generic | bool | int | float | complex | str | list | tuple | None):
        raise ArgumentTypeError(argument, _name(value), allowed)
    if isinstance(value, bytes):
        if allowed is _OUTPUT:
            raise ArgumentTypeError(argument, "a bytes object, which is read-only", "a bytearray or an array")
        return np.frombuffer(value, np.uint8)
    if hasattr(value, "__dlpack__") and hasattr(value, "__dlpack_device__"):
        return _from_dlpack(value, argument)
    return _from_buffer(value, argument, allowed)


def _refuse_objects(array: Array, argument: str) -> None:
    if array.dtype.hasobject:
        given = f"an array of dtype {array.dtype}, which holds Python objects"
        allowed = "an array of numbers or bytes; any value goes through the object collectives (all_gather_object, ...)"
        raise ArgumentTypeError(argument, given, allowed)


def _name(value: object) -> str:
    """What was given instead of an array, in a few words."""
    match value:
        case None:
            return "None"
        case list() | tuple():
            return f"a {type(value).__name__} of {len(value)} items"
        case float() | complex() | np.number() | np.bool_():
            return f"of type {_type_name(value)} ({value!s:.40})"
        case int() if value.bit_length() < 128:
            return f"of type {_type_name(value)} ({value})"
        case _:
            return f"of type {_type_name(value)}"


def _type_name(value: object) -> str:
    kind = type(value)
    module = {"builtins": "", "numpy": "numpy."}.get(kind.__module__, f"{kind.__module__}.")
    return f"{module}{kind.__qualname__}"


def _from_buffer(value: Any, argument: str, allowed: str) -> Array:
    try:
        buffer = memoryview(value)
    except TypeError:
        raise ArgumentTypeError(argument, _name(value), allowed) from None
    except (BufferError, ValueError) as refusal:
        raise ArgumentError(argument, f"a {_type_name(value)} that gives no buffer ({refusal})", allowed) from refusal
    try:
        array = np.asarray(buffer)
    except (TypeError, ValueError) as refusal:
        raise ArgumentTypeError(argument, f"a buffer of format {buffer.format!r} ({refusal})", allowed) from refusal
    if array.flags.owndata:
        # numpy took it for a sequence: a result written there would never reach the caller.
        raise ArgumentTypeError(argument, f"a buffer of format {buffer.format!r}", allowed)
    return array


def _from_dlpack(value: Any, argument: str) -> Array:
    try:
        device, number = value.__dlpack_device__()
        if device not in _CPU_DEVICES:
            name = f"{_DEVICES.get(int(device), f'DLPack device {int(device)}')}:{number}"
            raise ArgumentError(argument, f"on device {name}", "a tensor in CPU memory; copy it there first")
        tensor, dtype = _torch_bits(value)
        array = np.from_dlpack(tensor)
    except ArgumentError:
        raise
    except Exception as refusal:  # whatever the producer raises
        given = f"a {_type_name(value)} that DLPack does not hand out ({refusal})"
        raise ArgumentError(argument, given, "a dense tensor of numbers in CPU memory") from refusal
    if not array.flags.writeable:
        # Old DLPack has no flag for it, so that numpy makes every view read-only. The producer's own array decides.
        array = _writable_twin(array, tensor)
    return array if dtype is None else array.view(dtype)


def _torch_bits(tensor: Any) -> tuple[Any, Any]:
    """For a torch tensor whose dtype numpy's DLPack does not know (bfloat16, float8), its bits and that dtype."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(tensor, torch.Tensor):
        return tensor, None
    dtype = getattr(ml_dtypes, str(tensor.dtype).removeprefix("torch."), None)
    if dtype is None or tensor.requires_grad:
        return tensor, None
    return tensor.view(torch.int16 if tensor.element_size() == 2 else torch.uint8), dtype


def _writable_twin(array: Array, value: Any) -> Array:
    """The array that the producer itself shows, if it is the same memory and writable, else ``array``."""
    try:
        own = np.asarray(value)
    except Exception:  # whatever the producer raises: then it has none
        return array
    return own if own.flags.num & _WRITEABLE and _layout(own) == _layout(array) else array


def _layout(array: Array) -> tuple[Any, ...]:
    steps = [(size, step) for size, step in zip(array.shape, array.strides, strict=True) if size > 1]
    return array.__array_interface__["data"][0], array.dtype, array.shape, steps


def _overlaps_itself(array: Array) -> bool:
    """Whether two elements share a byte. Exact; costs a list of all elements only where a bound does not decide."""
    steps = sorted((abs(step), size) for step, size in zip(array.strides, array.shape, strict=True) if size > 1)
    if array.size < 2 or array.itemsize == 0:
        return False
    if steps[0][0] < array.itemsize or any(a[0] == b[0] for a, b in itertools.pairwise(steps)):
        return True  # neighbours overlap, or two ways lead to one place
    reach = array.itemsize
    for step, size in steps:
        if step < reach:
            break
        reach += step * (size - 1)
    else:
        return False  # each dimension steps over all that lies within the smaller ones
    places = np.zeros(1, np.int64)
    for step, size in steps:
        places = np.add.outer(places, np.arange(size, dtype=np.int64) * step).reshape(-1)
    places.sort()
    return bool((np.diff(places) < array.itemsize).any())


# --- flat bytes ------------------------------------------------------------------------------------------------------


def flat_bytes(array: Array) -> FlatBytes:
    """The memory of a C-contiguous array as ``uint8[nbytes]``, a view."""
    if array.nbytes == 0:
        return np.empty(0, np.uint8)
    return array.reshape(-1).view(np.uint8)


def flat_input(array: Array) -> FlatBytes:
    """The elements of ``array`` in C order and native byte order as ``uint8[nbytes]``.

    A view where the array lies like that already, else a copy.
    """
    if _moves_as_is(array):
        return flat_bytes(array)
    staging = _staging(array)
    staging[...] = array
    return flat_bytes(staging)


class FlatOutput:
    """The bytes of an output: ``flat`` (``uint8[nbytes]``, C order, native byte order) is filled, then committed.

    Args:
        array: what `as_output` gave.
        load: whether ``flat`` starts as the array's present contents, as operations in place need it.
    """

    __slots__ = ("_staging", "array", "flat")

    def __init__(self, array: Array, load: bool = False) -> None:
        self.array = array
        self._staging = None if _moves_as_is(array) else _staging(array)
        if self._staging is None:
            self.flat = flat_bytes(array)
        else:
            if load:
                self._staging[...] = array
            self.flat = flat_bytes(self._staging)

    @property
    def direct(self) -> bool:
        """Whether ``flat`` is the caller's memory itself, so that writing it cannot be undone."""
        return self._staging is None

    def commit(self) -> None:
        """Writes the elements into the caller's array, and nothing between them. Direct ones are there already."""
        if self._staging is not None:
            self.array[...] = self._staging


def _moves_as_is(array: Array) -> bool:
    return array.nbytes == 0 or (array.flags.c_contiguous and array.dtype.isnative)


def _staging(array: Array) -> Array:
    return np.empty(array.shape, array.dtype.newbyteorder("="))


# --- locks -----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Held:
    array: Array
    """A strong reference, so that the id stays this array's."""
    holders: int


_held: dict[int, _Held] = {}
"""Every array whose flag we turned off, by id."""
_waiting: set[int] = set()
"""Those without holders whose base is still held: numpy makes a view writable only after its base."""
_mutex = threading.Lock()


class Lock:
    """What one call of `lock` turned read-only; given back to `unlock`, once."""

    __slots__ = ("_keys",)

    def __init__(self, keys: list[int]) -> None:
        self._keys = keys

    def take(self) -> list[int]:
        """The keys in the registry, which the lock then forgets."""
        keys, self._keys = self._keys, []
        return keys


def lock(values: Iterable[object]) -> Lock:
    """Makes the caller's own arrays read-only until `unlock`, so that a write too early raises ValueError.

    Only the array objects given are locked, not other views of their memory. Skipped is what has no such flag
    (bytearray, tensors), what is read-only anyway, and what numpy would not make writable again. Thread-safe; an array
    locked by several operations is writable again after the last one.
    """
    with _mutex:
        return Lock([id(value) for value in values if isinstance(value, np.ndarray) and _hold(value)])


def unlock(held: Lock) -> None:
    """Ends a lock: arrays that no other one holds are writable again. A second call does nothing."""
    with _mutex:
        for key in held.take():
            _held[key].holders -= 1
            if _held[key].holders == 0:
                _release(key)


def _hold(array: Array) -> bool:
    entry = _held.get(id(array))
    if entry is not None:
        entry.holders += 1
        _waiting.discard(id(array))
        return True
    flags = array.flags.num
    if not flags & _WRITEABLE or flags & _WARNS_ON_WRITE or not _can_be_restored(array):
        return False
    array.flags.writeable = False
    _held[id(array)] = _Held(array, 1)
    return True


def _release(key: int) -> None:
    """Restores an array without holders, and then those that waited for it."""
    array = _held[key].array
    if any(id(base) in _held for base in _bases(array)):
        _waiting.add(key)
        return
    _waiting.discard(key)
    del _held[key]
    if _can_be_restored(array):
        array.flags.writeable = True
    for other in list(_waiting):
        if other in _waiting and any(base is array for base in _bases(_held[other].array)):
            _release(other)


def _bases(array: Array) -> Iterator[Array]:
    """The arrays that ``array`` is a view of, nearest first."""
    base = array.base
    while isinstance(base, np.ndarray):
        yield base
        base = base.base


def _can_be_restored(array: Array) -> bool:
    """Whether numpy will let the flag be turned on again: the owner of the memory must be writable, and say so."""
    owner = array
    for base in _bases(array):
        if base.flags.num & _WRITEABLE or id(base) in _held:
            return True
        owner = base
    if owner.base is None:
        return owner is array
    try:
        return not memoryview(cast(Any, owner.base)).readonly
    except (TypeError, BufferError, ValueError):
        return False  # a tensor or capsule, for example
