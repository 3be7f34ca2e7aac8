"""Intake: what counts as a tensor, what is refused and how, and that only the caller's elements are ever written."""

import array
import ctypes
import mmap
import sys
import threading
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.client import arrays
from hocket.client.arrays import FlatOutput, as_input, as_output, flat_bytes, flat_input, lock, unlock
from hocket.protocol.errors import ArgumentError, ArgumentTypeError

RECORD = np.dtype([("a", ">u8"), ("b", "<f4"), ("c", "<i2", (2,))])
SWAPPED_BFLOAT16 = np.dtype(ml_dtypes.bfloat16).newbyteorder(">")
ARRAYS = {
    "plain": np.arange(6.0),
    "0-d": np.array(2.5),
    "empty": np.empty((0, 3)),
    "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "strided": np.arange(12.0)[::2],
    "reversed": np.arange(12)[::-1],
    "column": np.arange(12.0).reshape(3, 4)[:, 1],
    "transposed": np.arange(24).reshape(2, 3, 4).transpose(2, 0, 1),
    "one element of many": np.arange(10.0)[::-5][:1],
    "swapped": np.arange(5, dtype=">i4"),
    "swapped and strided": np.arange(10, dtype=">f8")[::3],
    "swapped 0-d": np.array(1.5, ">f4"),
    "bfloat16": np.arange(5).astype(ml_dtypes.bfloat16),
    "swapped bfloat16": np.arange(5).astype(SWAPPED_BFLOAT16),
    "strided float8": np.arange(8).astype(ml_dtypes.float8_e4m3fn)[::2],
    "records": np.ones(3, RECORD),
    "strided records": np.ones(6, RECORD)[::2],
    "text": np.array(["ab", "c"], ">U5"),
    "dates": np.array(["2024-02-29", "NaT"], ">M8[ns]")[::-1],
    "strided bool": np.array([True, False, True])[::2],
    "no bytes": np.empty(4, "V0")[::2],
}
every_array = pytest.mark.parametrize("tensor", ARRAYS.values(), ids=ARRAYS.keys())


writable_dlpack = pytest.mark.skipif(
    np.lib.NumpyVersion(np.__version__) < "2.1.0", reason="numpy before 2.1 makes every DLPack view read-only"
)


class Foreign:
    """Memory that numpy shows as an array without being able to ask its owner whether it may be written."""

    def __init__(self, memory: np.ndarray) -> None:
        self.memory = memory
        self.__array_interface__ = memory.__array_interface__


class Producer:
    """A tensor of another library: DLPack and nothing else."""

    def __init__(self, memory: np.ndarray, device: tuple[int, int] = (1, 0), legacy: bool = False) -> None:
        self.memory, self.device, self.legacy = memory, device, legacy

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, **options: Any) -> Any:
        # Before version 1 a capsule could not say that it is read-only, and numpy takes it for that.
        return self.memory.__dlpack__() if self.legacy else self.memory.__dlpack__(**options)


class ProducerWithArray(Producer):
    """One that also shows itself as a numpy array, as torch does."""

    def __init__(self, memory: np.ndarray, shown: np.ndarray) -> None:
        super().__init__(memory, legacy=True)
        self.shown = shown

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return self.shown


# --- intake ----------------------------------------------------------------------------------------------------------


@every_array
def test_an_array_is_taken_as_it_lies(tensor: np.ndarray) -> None:
    for taken in (as_input(tensor, "tensor"), as_output(tensor, "tensor")):
        assert type(taken) is np.ndarray
        assert (taken.dtype, taken.shape, taken.strides) == (tensor.dtype, tensor.shape, tensor.strides)
        assert taken.__array_interface__["data"] == tensor.__array_interface__["data"]


def test_an_output_can_be_written_while_the_callers_array_is_locked() -> None:
    mine = np.zeros(3)
    output = as_output(mine, "tensor")
    held = lock([mine])
    output[...] = 1
    unlock(held)
    assert mine.tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("buffer", "dtype", "shape"),
    [
        (bytearray(b"abc"), "u1", (3,)),
        (bytearray(), "u1", (0,)),
        (array.array("d", [1, 2]), "f8", (2,)),
        (memoryview(bytearray(16)).cast("i", (2, 2)), "i4", (2, 2)),
        (memoryview(bytearray(16)).cast("h")[::2], "i2", (4,)),
        (mmap.mmap(-1, 64), "u1", (64,)),
        ((ctypes.c_double * 3)(), "f8", (3,)),
    ],
    ids=["bytearray", "empty bytearray", "array.array", "shaped memoryview", "strided memoryview", "mmap", "ctypes"],
)
def test_what_has_a_buffer_is_written_in_place(buffer: Any, dtype: str, shape: tuple[int, ...]) -> None:
    output = as_output(buffer, "tensor")
    assert (output.dtype, output.shape) == (np.dtype(dtype), shape)
    output[...] = 7
    assert (as_input(buffer, "tensor") == 7).all()
    assert memoryview(buffer).tobytes() == output.tobytes()


@pytest.mark.parametrize("data", [b"abc", b""])
def test_bytes_serve_as_input_only(data: bytes) -> None:
    assert as_input(data, "tensor").tolist() == list(data)
    with pytest.raises(ArgumentTypeError, match="'tensor' is a bytes object, which is read-only"):
        as_output(data, "tensor")


@pytest.mark.parametrize(
    ("tensor", "said"),
    [
        (None, "None"),
        (3, r"of type int \(3\)"),
        (True, r"of type bool \(True\)"),
        pytest.param(10**5000, "of type int", id="huge"),
        (1.5, r"of type float \(1.5\)"),
        (1j, r"of type complex \(1j\)"),
        (np.float64(1.5), r"of type numpy.float64 \(1.5\)"),
        (np.int32(7), r"of type numpy.int32 \(7\)"),
        (np.datetime64("2024-01-01"), "of type numpy.datetime64"),
        (np.ones(1, RECORD)[0], "of type numpy.void"),
        (ml_dtypes.bfloat16(1), "of type ml_dtypes.bfloat16"),
        ([1.0, 2.0], "a list of 2 items"),
        ((1.0,), "a tuple of 1 items"),
        ("text", "of type str"),
        ({1: 2}, "of type dict"),
        (range(3), "of type range"),
        (types.SimpleNamespace(), "of type types.SimpleNamespace"),
    ],
)
def test_what_is_no_array_is_refused_with_what_to_use_instead(tensor: object, said: str) -> None:
    with pytest.raises(ArgumentTypeError, match=f"argument 'tensor' is {said}, .*use numpy.asarray") as refusal:
        as_input(tensor, "tensor")
    assert isinstance(refusal.value, TypeError)
    with pytest.raises(ArgumentTypeError, match=f"{said}, .*numpy.array.*, the result is written in place"):
        as_output(tensor, "tensor")


@pytest.mark.parametrize("take", [as_input, as_output])
def test_arrays_of_objects_are_sent_to_the_object_collectives(take: Any) -> None:
    for dtype in ("O", [("a", "i4"), ("b", "O")]):
        with pytest.raises(ArgumentTypeError, match=r"holds Python objects.*all_gather_object"):
            take(np.empty(2, dtype), "tensor")


@pytest.mark.parametrize("take", [as_input, as_output])
def test_masked_arrays_are_refused(take: Any) -> None:
    with pytest.raises(ArgumentTypeError, match="a masked array, .*would be lost"):
        take(np.ma.masked_array([1.0, 2.0], [True, False]), "tensor")


def test_other_subclasses_are_plain_views_of_their_memory(tmp_path: Path) -> None:
    with pytest.warns(PendingDeprecationWarning):
        matrix = np.asmatrix(np.zeros((2, 2)))
    mapped = np.memmap(tmp_path / "numbers", "f8", "w+", shape=(2, 2))
    records = np.zeros((2, 2), [("a", "f8")]).view(np.recarray)
    for tensor in (matrix, mapped, records):
        output = as_output(tensor, "tensor")
        assert type(output) is np.ndarray
        assert type(as_input(tensor, "tensor")) is np.ndarray
        output[1, 0] = 5
        assert np.asarray(tensor).tobytes() == output.tobytes()
    del mapped, output


def test_a_mapping_for_reading_serves_as_input_only(tmp_path: Path) -> None:
    (tmp_path / "numbers").write_bytes(bytes(16))
    mapped = np.memmap(tmp_path / "numbers", "f8", "r")
    assert as_input(mapped, "tensor").tolist() == [0, 0]
    with pytest.raises(ArgumentError, match="a read-only array"):
        as_output(mapped, "tensor")


def test_read_only_memory_serves_as_input_only() -> None:
    frozen = np.arange(3)
    frozen.flags.writeable = False
    for tensor in (frozen, memoryview(b"abc"), np.broadcast_to(frozen[:1], (1,))):
        assert not as_input(tensor, "tensor").flags.writeable
        with pytest.raises(ArgumentError, match="'tensor' is a read-only array, .*written in place") as refusal:
            as_output(tensor, "tensor")
        assert not isinstance(refusal.value, TypeError)


def test_an_output_that_another_operation_holds_is_said_to_be_in_use() -> None:
    mine = np.zeros(3)
    held = lock([mine])
    with pytest.raises(ArgumentError, match="in use by another operation"):
        as_output(mine, "tensor")
    unlock(held)
    as_output(mine, "tensor")


@pytest.mark.parametrize(
    ("buffer", "error"),
    [((ctypes.POINTER(ctypes.c_int) * 3)(), ArgumentTypeError), ((ctypes.py_object * 2)(), ArgumentTypeError)],
    ids=["pointers", "objects"],
)
def test_a_buffer_of_what_numpy_does_not_know_is_refused(buffer: Any, error: type[Exception]) -> None:
    for take in (as_input, as_output):
        with pytest.raises(error, match="argument 'tensor' is a"):
            take(buffer, "tensor")


def test_a_released_buffer_is_refused() -> None:
    view = memoryview(bytearray(3))
    view.release()
    with pytest.raises(ArgumentError, match="gives no buffer"):
        as_input(view, "tensor")


# --- outputs that overlap themselves ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "tensor",
    [
        np.broadcast_to(np.arange(3.0), (2, 3)),
        np.lib.stride_tricks.as_strided(np.zeros(3), (4, 3), (0, 8)),
        np.lib.stride_tricks.as_strided(np.zeros(3), (3,), (4,)),
        np.lib.stride_tricks.as_strided(np.zeros(9), (3, 3), (8, 8)),
        np.lib.stride_tricks.as_strided(np.zeros(9)[4:], (3, 3), (8, -8)),
        np.lib.stride_tricks.as_strided(np.zeros(99), (4, 3), (16, 24)),
    ],
    ids=["broadcast", "zero stride", "half a step", "sliding window", "opposite", "two ways to one place"],
)
def test_an_output_whose_elements_share_memory_is_refused(tensor: np.ndarray) -> None:
    as_input(tensor, "tensor")
    with pytest.raises(ArgumentError, match="whose elements share memory, .*a place of its own"):
        as_output(tensor, "tensor")


@given(
    shape=st.lists(st.integers(0, 4), min_size=1, max_size=3),
    strides=st.lists(st.integers(-9, 9), min_size=3, max_size=3),
    itemsize=st.sampled_from([1, 2, 4]),
)
def test_overlap_is_found_exactly(shape: list[int], strides: list[int], itemsize: int) -> None:
    tensor = np.ndarray(shape, f"V{itemsize}", bytearray(200), offset=100, strides=strides[: len(shape)])
    starts = [sum(np.multiply(index, tensor.strides)) for index in np.ndindex(*shape)]
    touched = [start + byte for start in starts for byte in range(itemsize)]
    assert arrays._overlaps_itself(tensor) == (len(set(touched)) < len(touched))


# --- tensors of other libraries --------------------------------------------------------------------------------------


@writable_dlpack
def test_a_dlpack_tensor_is_written_in_place() -> None:
    memory = np.arange(12.0)
    output = as_output(Producer(memory[::3]), "tensor")
    output[...] = -1
    assert memory.tolist() == [-1, 1, 2, -1, 4, 5, -1, 7, 8, -1, 10, 11]


@writable_dlpack
def test_a_dlpack_tensor_that_is_marked_read_only_serves_as_input_only() -> None:
    frozen = np.arange(3)
    frozen.flags.writeable = False
    assert np.shares_memory(as_input(Producer(frozen), "tensor"), frozen)
    with pytest.raises(ArgumentError, match="a read-only array"):
        as_output(Producer(frozen), "tensor")


def test_an_old_dlpack_tensor_is_writable_where_its_own_array_is_the_same_memory() -> None:
    memory = np.arange(12.0).reshape(3, 4)
    output = as_output(ProducerWithArray(memory[:, ::2], memory[:, ::2]), "tensor")
    output[...] = -1
    assert memory[0].tolist() == [-1, 1, -1, 3]


@pytest.mark.parametrize("kind", ["none", "copy", "read-only", "other shape"])
def test_an_old_dlpack_tensor_without_a_writable_array_of_its_own_is_read_only(kind: str) -> None:
    memory = np.arange(4.0)
    frozen = memory.view()
    frozen.flags.writeable = False
    shown = {"copy": memory.copy(), "read-only": frozen, "other shape": memory.reshape(2, 2)}
    tensor = Producer(memory, legacy=True) if kind == "none" else ProducerWithArray(memory, shown[kind])
    assert np.shares_memory(as_input(tensor, "tensor"), memory)
    with pytest.raises(ArgumentError, match="a read-only array"):
        as_output(tensor, "tensor")


@pytest.mark.parametrize(("device", "name"), [((2, 1), "CUDA:1"), ((10, 0), "ROCm:0"), ((99, 3), "DLPack device 99:3")])
def test_a_tensor_on_another_device_is_refused_by_the_devices_name(device: tuple[int, int], name: str) -> None:
    for take in (as_input, as_output):
        with pytest.raises(ArgumentError, match=f"on device {name}, .*CPU memory"):
            take(Producer(np.zeros(1), device), "tensor")


def test_pinned_memory_is_cpu_memory() -> None:
    assert as_input(Producer(np.arange(2), (3, 0)), "tensor").tolist() == [0, 1]


def test_what_a_producer_says_when_it_refuses_is_passed_on() -> None:
    class Refusing(Producer):
        def __dlpack__(self, **options: Any) -> Any:
            raise BufferError("use tensor.detach()")

    with pytest.raises(ArgumentError, match=r"does not hand out \(use tensor.detach\(\)\)") as refusal:
        as_input(Refusing(np.zeros(1)), "tensor")
    assert isinstance(refusal.value.__cause__, BufferError)


class TorchLike(Producer):
    """As much of torch.Tensor as the detour through integers needs."""

    dtype, requires_grad = "torch.bfloat16", False

    def element_size(self) -> int:
        return self.memory.itemsize

    def view(self, dtype: str) -> Producer:
        return Producer(self.memory.view(dtype))


@writable_dlpack
def test_torchs_bfloat16_comes_by_way_of_integers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(Tensor=TorchLike, int16="i2", uint8="u1"))
    memory = np.arange(3).astype(ml_dtypes.bfloat16)
    output = as_output(TorchLike(memory), "tensor")
    assert output.dtype == ml_dtypes.bfloat16
    output[1] = 9
    assert memory.astype(float).tolist() == [0, 9, 2]


def test_torch_itself_hands_out_its_tensors() -> None:
    torch = pytest.importorskip("torch")
    for dtype in (torch.float32, torch.int64, torch.bool, torch.complex64, torch.bfloat16, torch.float8_e4m3fn):
        tensor = torch.zeros(2, 6).to(dtype)[:, ::2]
        as_output(tensor, "tensor")[...] = 1
        assert (tensor.to(torch.complex64) == 1).all()
    with pytest.raises(ArgumentError, match="detach"):
        as_input(torch.zeros(2, requires_grad=True), "tensor")
    with pytest.raises(ArgumentError, match="meta"):
        as_input(torch.zeros(2, device="meta"), "tensor")


# --- flat bytes ------------------------------------------------------------------------------------------------------


def native(tensor: np.ndarray) -> bytes:
    return tensor.astype(tensor.dtype.newbyteorder("=")).tobytes()


@every_array
def test_flat_input_is_the_elements_in_c_order_and_native_byte_order(tensor: np.ndarray) -> None:
    flat = flat_input(tensor)
    assert (flat.dtype, flat.shape) == (np.dtype("u1"), (tensor.nbytes,))
    assert flat.tobytes() == native(tensor)
    moves_as_is = tensor.flags.c_contiguous and tensor.dtype.isnative and tensor.nbytes > 0
    assert np.shares_memory(flat, tensor) == moves_as_is


def test_flat_input_takes_read_only_arrays() -> None:
    frozen = np.arange(3, dtype="u1")
    frozen.flags.writeable = False
    assert not flat_input(frozen).flags.writeable
    assert flat_input(frozen[::2]).tolist() == [0, 2]


def test_flat_bytes_are_the_memory_itself() -> None:
    tensor = np.zeros(2, ml_dtypes.bfloat16)
    flat_bytes(tensor)[:] = [0x80, 0x3F, 0x00, 0x40]
    assert tensor.astype(float).tolist() == [1, 2]


@every_array
def test_what_is_written_to_a_flat_output_arrives_in_the_callers_array(tensor: np.ndarray) -> None:
    expected = np.roll(tensor, 1)
    target = tensor.copy(order="K") if tensor.flags.c_contiguous else np.zeros(60, tensor.dtype)[::-2][: tensor.size]
    target = target.reshape(tensor.shape)
    assert target.flags.owndata or target.base is not None
    output = FlatOutput(as_output(target, "tensor"))
    output.flat[:] = flat_input(expected)
    output.commit()
    assert target.dtype == tensor.dtype
    assert target.tobytes() == expected.tobytes()


@every_array
def test_a_loaded_flat_output_starts_as_the_array_and_commits_it_unchanged(tensor: np.ndarray) -> None:
    output = FlatOutput(as_output(tensor, "tensor"), load=True)
    before = tensor.tobytes()
    assert output.flat.tobytes() == native(tensor)
    output.commit()
    assert tensor.tobytes() == before


def test_commit_leaves_the_gaps_alone() -> None:
    base = np.full(8, -1.0)
    output = FlatOutput(as_output(base[::2], "tensor"))
    output.flat[:] = np.arange(4.0).view("u1")
    assert base.tolist() == [-1] * 8
    output.commit()
    assert base.tolist() == [0, -1, 1, -1, 2, -1, 3, -1]


def test_commit_swaps_bytes_and_keeps_every_bit_of_a_nan() -> None:
    swapped = np.zeros(2, ">u4").view(">f4")
    output = FlatOutput(as_output(swapped, "tensor"))
    output.flat[:] = np.array([0x7FA00001, 0xFF800001], "<u4").view("u1")
    output.commit()
    assert swapped.view(">u4").tolist() == [0x7FA00001, 0xFF800001]


def test_only_a_staged_output_waits_for_its_commit() -> None:
    direct, staged = FlatOutput(np.zeros(2)), FlatOutput(np.zeros(4)[::2])
    assert (direct.direct, staged.direct) == (True, False)
    for output in (direct, staged):
        output.flat[:] = np.ones(2).view("u1")
    assert (direct.array.tolist(), staged.array.tolist()) == ([1, 1], [0, 0])


def test_a_staged_output_commits_while_the_callers_array_is_locked() -> None:
    mine = np.zeros(3, ">i4")
    output = FlatOutput(as_output(mine, "tensor"))
    held = lock([mine])
    output.flat[:] = np.arange(3, dtype="<i4").view("u1")
    output.commit()
    unlock(held)
    assert mine.tolist() == [0, 1, 2]


# --- locks -----------------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def nothing_stays_locked() -> Iterator[None]:
    yield
    assert (arrays._held, arrays._waiting) == ({}, set())


def test_a_write_to_a_locked_array_raises_until_it_is_unlocked() -> None:
    mine = np.zeros(3)
    held = lock([mine])
    with pytest.raises(ValueError, match="read-only"):
        mine[0] = 1
    unlock(held)
    mine[0] = 1
    assert mine.tolist() == [1, 0, 0]


def test_an_array_of_two_operations_is_locked_until_both_have_ended() -> None:
    mine = np.zeros(3)
    first, second = lock([mine]), lock([mine, mine])
    unlock(second)
    assert not mine.flags.writeable
    unlock(first)
    assert mine.flags.writeable


def test_unlocking_twice_counts_once() -> None:
    mine = np.zeros(3)
    first, second = lock([mine]), lock([mine])
    unlock(first)
    unlock(first)
    assert not mine.flags.writeable
    unlock(second)


def test_a_read_only_array_stays_read_only() -> None:
    frozen = np.zeros(3)
    frozen.flags.writeable = False
    unlock(lock([frozen]))
    assert not frozen.flags.writeable


def test_only_the_given_array_is_locked_not_its_base_or_other_views() -> None:
    base = np.zeros(4)
    view, other = base[::2], base[1:]
    held = lock([view])
    assert (view.flags.writeable, base.flags.writeable, other.flags.writeable) == (False, True, True)
    unlock(held)
    assert view.flags.writeable


@pytest.mark.parametrize("base_first", [True, False])
@pytest.mark.parametrize("view_ends_first", [True, False])
def test_a_view_and_its_base_are_restored_in_whatever_order_they_end(base_first: bool, view_ends_first: bool) -> None:
    base = np.zeros(4)
    views = [base[::2], base[1:]]
    if base_first:
        of_base, of_views = lock([base]), lock(views)
    else:
        of_views, of_base = lock(views), lock([base])
    for held in (of_views, of_base) if view_ends_first else (of_base, of_views):
        assert not any(view.flags.writeable for view in views)
        unlock(held)
    assert base.flags.writeable
    assert all(view.flags.writeable for view in views)


def test_a_view_that_waits_for_its_base_can_be_locked_again() -> None:
    base = np.zeros(4)
    view = base[::2]
    of_base = lock([base])
    unlock(lock([view]))
    again = lock([view])
    unlock(of_base)
    assert (base.flags.writeable, view.flags.writeable) == (True, False)
    unlock(again)
    assert view.flags.writeable


@pytest.mark.parametrize(
    "tensor",
    [
        np.frombuffer(bytearray(8)),
        np.asarray(array.array("d", [1.0])),
        np.frombuffer(mmap.mmap(-1, 64)),
        np.asarray(Foreign(np.zeros(3)))[1:],
        np.zeros(3).view(np.recarray),
        np.array(1.0),
    ],
    ids=["bytearray", "array.array", "mmap", "view of foreign memory", "subclass", "0-d"],
)
def test_arrays_over_other_writable_memory_are_locked_and_restored(tensor: np.ndarray) -> None:
    held = lock([tensor])
    assert not tensor.flags.writeable
    unlock(held)
    assert tensor.flags.writeable


def test_what_numpy_would_not_make_writable_again_is_left_alone() -> None:
    memory = np.zeros(3)
    frozen_base = np.zeros(3)
    view = frozen_base[:]
    frozen_base.flags.writeable = False
    for tensor in (np.asarray(Foreign(memory)), view):
        held = lock([tensor])
        assert tensor.flags.writeable
        unlock(held)
        assert tensor.flags.writeable


def test_what_warns_when_written_is_left_alone() -> None:
    narrow, _ = np.broadcast_arrays(np.zeros(3), np.zeros((2, 1)))
    unlock(lock([narrow]))
    with pytest.warns(DeprecationWarning, match="broadcast_array"):
        narrow[0, 0] = 1


def test_what_is_no_array_is_not_locked() -> None:
    data = bytearray(3)
    held = lock([data, b"abc", None, Producer(np.zeros(1))])
    data[0] = 1
    unlock(held)


def test_locks_of_many_threads_are_counted_exactly() -> None:
    mine = [np.zeros(3) for _ in range(4)]
    start = threading.Barrier(4)

    def lock_and_unlock() -> None:
        start.wait(10)
        for _ in range(200):
            unlock(lock(mine))

    threads = [threading.Thread(target=lock_and_unlock) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert all(tensor.flags.writeable for tensor in mine)
