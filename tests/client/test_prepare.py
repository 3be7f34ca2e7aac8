"""Prepared calls, carried out by one to four ranks on one board and compared with numpy."""

from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from one_board import OneBoard

from hocket.client import prepare
from hocket.client.places import Place
from hocket.client.prepare import Prepared
from hocket.protocol.compression import Compression
from hocket.protocol.errors import ArgumentError, MismatchError
from hocket.protocol.reduce_ops import ReduceOp
from hocket.protocol.signature import NO_ROOT, Signature, decode_signature

SMALL, LARGE = 256, 1 << 16
"""Blocks of which an array takes many, or one."""
RECORD = np.dtype([("a", "u8"), ("b", "f4")])
SHAPE = (12, 5)
"""Divides among 1 to 4 ranks, and is longer than a small block."""


def strided(values: np.ndarray) -> np.ndarray:
    base = np.full((*values.shape[:-1], 2 * values.shape[-1]), -1, values.dtype)
    base[..., ::2] = values
    return base[..., ::2]


def backwards(values: np.ndarray) -> np.ndarray:
    return values[::-1].copy()[::-1]


LAYOUTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "plain": np.copy,
    "fortran": np.asfortranarray,
    "strided": strided,
    "backwards": backwards,
    "swapped and strided": lambda values: strided(values.astype(values.dtype.newbyteorder(">"))),
}


def check_gaps(array: np.ndarray) -> None:
    """What lies between the elements of a strided array is as it was."""
    if array.base is not None and array.base.shape[-1] == 2 * array.shape[-1]:
        assert (array.base[..., 1::2] == -1).all()


@pytest.fixture(params=[1, 2, 3, 4], ids=lambda size: f"{size} ranks")
def size(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture(params=[SMALL, LARGE], ids=lambda nbytes: f"blocks of {nbytes}")
def board(request: pytest.FixtureRequest, size: int) -> Iterator[OneBoard]:
    with OneBoard(size, request.param) as board:
        yield board


every_layout = pytest.mark.parametrize(
    ("layout", "board"),
    [*((layout, SMALL) for layout in LAYOUTS.values()), (np.copy, LARGE)],
    ids=[*LAYOUTS, "in one block"],
    indirect=["board"],
)


def values_of(rank: int, dtype: Any = np.float64, shape: tuple[int, ...] = SHAPE) -> np.ndarray:
    return (np.arange(np.prod(shape, dtype=int)).reshape(shape) * 3 + 100 * rank + 1).astype(dtype)


def place_of(rank: int) -> Place:
    """A place in a group of the world ranks 1 and 2."""
    return Place("pair", rank, 2, (1, 2), rank + 1)


# --- against numpy ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "reduced"), [(ReduceOp.SUM, np.sum), (ReduceOp.AVG, np.mean), (ReduceOp.MAX, np.max)], ids=str
)
@every_layout
def test_all_reduce_gives_everyone_the_reduction(board: OneBoard, layout: Any, op: ReduceOp, reduced: Any) -> None:
    mine = [layout(values_of(rank)) for rank in range(board.size)]
    expected = reduced([values_of(rank) for rank in range(board.size)], axis=0)
    dtypes = [array.dtype for array in mine]
    given = board.values([prepare.all_reduce(place, mine[place.rank], op) for place in board.places])
    for rank, array in enumerate(mine):
        assert given[rank] is array
        assert array.dtype == dtypes[rank]
        np.testing.assert_allclose(array, expected)
        check_gaps(array)


@every_layout
def test_reduce_writes_on_the_root_only(board: OneBoard, layout: Any) -> None:
    for root in range(board.size):
        mine = [layout(values_of(rank, np.int64)) for rank in range(board.size)]
        given = board.values([prepare.reduce(place, mine[place.rank], root) for place in board.places])
        for rank, array in enumerate(mine):
            if rank == root:
                np.testing.assert_array_equal(array, sum(values_of(r, np.int64) for r in range(board.size)))
                assert given[rank] is array
            else:
                np.testing.assert_array_equal(array, values_of(rank, np.int64))
                assert given[rank] is None
            check_gaps(array)


@every_layout
def test_scan_and_exscan_reduce_the_ranks_before(board: OneBoard, layout: Any) -> None:
    sums = list(accumulate(values_of(rank) for rank in range(board.size)))
    for call, expected in ((prepare.scan, sums), (prepare.exscan, [values_of(0), *sums[:-1]])):
        mine = [layout(values_of(rank)) for rank in range(board.size)]
        board.values([call(place, mine[place.rank]) for place in board.places])
        for rank, array in enumerate(mine):
            np.testing.assert_array_equal(array, expected[rank])
            check_gaps(array)


@pytest.mark.parametrize("compression", ["bf16", "int8", Compression("int8", "name")], ids=str)
def test_on_one_host_compression_changes_nothing(board: OneBoard, compression: Any) -> None:
    mine = [np.float32(1 / 3 + place.rank) * np.arange(700, dtype=np.float32) for place in board.places]
    exact = [array.copy() for array in mine]
    calls = [prepare.all_reduce(place, mine[place.rank], ReduceOp.AVG, compression) for place in board.places]
    assert {call.signature.compression for call in calls} == {str(compression)}
    board.values(calls)
    board.values([prepare.all_reduce(place, exact[place.rank], ReduceOp.AVG) for place in board.places])
    assert [array.tobytes() for array in mine] == [array.tobytes() for array in exact]


@every_layout
def test_all_reduce_coalesced_reduces_every_tensor(board: OneBoard, layout: Any) -> None:
    shapes = [SHAPE, (3,), (0, 2), (2, 7)]
    mine = [[layout(values_of(rank, shape=shape)) for shape in shapes] for rank in range(board.size)]
    given = board.values([prepare.all_reduce_coalesced(place, mine[place.rank]) for place in board.places])
    for rank, tensors in enumerate(mine):
        assert given[rank] is tensors
        for tensor, shape in zip(tensors, shapes, strict=True):
            np.testing.assert_array_equal(tensor, sum(values_of(r, shape=shape) for r in range(board.size)))
            check_gaps(tensor)


@every_layout
def test_broadcast_gives_everyone_the_roots_array(board: OneBoard, layout: Any) -> None:
    for root in range(board.size):
        mine = [layout(values_of(rank)) for rank in range(board.size)]
        given = board.values([prepare.broadcast(place, mine[place.rank], root) for place in board.places])
        for rank, array in enumerate(mine):
            assert given[rank] is array
            np.testing.assert_array_equal(array, values_of(root))
            check_gaps(array)


def shape_at(rank: int) -> tuple[int, ...]:
    """Another size for each rank, none of one of them."""
    return (rank * 2 % 5, 7)


@pytest.mark.parametrize("shape_of", [lambda rank: SHAPE, shape_at], ids=["even", "uneven"])
@every_layout
def test_all_gather_fills_every_list(board: OneBoard, layout: Any, shape_of: Any) -> None:
    ranks = range(board.size)
    mine = [layout(values_of(rank, shape=shape_of(rank))) for rank in ranks]
    lists = [[layout(np.zeros(shape_of(rank))) for rank in ranks] for _ in ranks]
    given = board.values([prepare.all_gather(place, lists[place.rank], mine[place.rank]) for place in board.places])
    for rank, outputs in enumerate(lists):
        assert given[rank] is outputs
        for sender, output in enumerate(outputs):
            np.testing.assert_array_equal(output, values_of(sender, shape=shape_of(sender)))


@pytest.mark.parametrize("shape_of", [lambda rank: SHAPE, shape_at], ids=["even", "uneven"])
@every_layout
def test_gather_fills_the_roots_list(board: OneBoard, layout: Any, shape_of: Any) -> None:
    ranks = range(board.size)
    for root in ranks:
        mine = [layout(values_of(rank, shape=shape_of(rank))) for rank in ranks]
        outputs = [layout(np.zeros(shape_of(rank))) for rank in ranks]
        lists = [outputs if rank == root else None for rank in ranks]
        given = board.values(
            [prepare.gather(place, mine[place.rank], lists[place.rank], root) for place in board.places]
        )
        assert [value is outputs for value in given] == [rank == root for rank in ranks]
        assert [value for rank, value in enumerate(given) if rank != root] == [None] * (board.size - 1)
        for sender, output in enumerate(outputs):
            np.testing.assert_array_equal(output, values_of(sender, shape=shape_of(sender)))


def test_gather_without_a_list_makes_arrays_like_the_roots_own(board: OneBoard) -> None:
    mine = [values_of(place.rank, ">f4") for place in board.places]
    given = board.values([prepare.gather(place, mine[place.rank], None, 0) for place in board.places])
    assert given[1:] == [None] * (board.size - 1)
    for sender, output in enumerate(given[0]):
        assert (output.dtype, output.shape) == (np.dtype(">f4"), SHAPE)
        np.testing.assert_array_equal(output, mine[sender])


@pytest.mark.parametrize("arrange", ["concatenated", "stacked", "flat"])
@every_layout
def test_all_gather_into_tensor_follows_the_outputs_shape(board: OneBoard, layout: Any, arrange: str) -> None:
    ranks = range(board.size)
    stacked = np.stack([values_of(rank) for rank in ranks])
    expected = {"concatenated": stacked.reshape(-1, SHAPE[1]), "stacked": stacked, "flat": stacked.reshape(-1)}[arrange]
    mine = [layout(values_of(rank)) for rank in ranks]
    outputs = [layout(np.zeros(expected.shape)) for _ in ranks]
    given = board.values(
        [prepare.all_gather_into_tensor(place, outputs[place.rank], mine[place.rank]) for place in board.places]
    )
    for rank, output in enumerate(outputs):
        assert given[rank] is output
        np.testing.assert_array_equal(output, expected)
        np.testing.assert_array_equal(mine[rank], values_of(rank))


@every_layout
def test_all_gather_coalesced_puts_tensor_i_of_rank_r_at_i_r(board: OneBoard, layout: Any) -> None:
    ranks, shapes = range(board.size), [SHAPE, (3,), (2, 0), (4, 1)]
    mine = [[layout(values_of(rank, shape=shape)) for shape in shapes] for rank in ranks]
    lists = [[[layout(np.zeros(shape)) for _ in ranks] for shape in shapes] for _ in ranks]
    given = board.values(
        [prepare.all_gather_coalesced(place, lists[place.rank], mine[place.rank]) for place in board.places]
    )
    for rank in ranks:
        assert given[rank] is lists[rank]
        for i, shape in enumerate(shapes):
            for sender in ranks:
                np.testing.assert_array_equal(lists[rank][i][sender], values_of(sender, shape=shape))


@pytest.mark.parametrize("shape_of", [lambda rank: SHAPE, shape_at], ids=["even", "uneven"])
@every_layout
def test_scatter_gives_each_rank_its_entry(board: OneBoard, layout: Any, shape_of: Any) -> None:
    ranks = range(board.size)
    for root in ranks:
        mine = [layout(np.zeros(shape_of(rank))) for rank in ranks]
        entries = [layout(values_of(rank, shape=shape_of(rank))) for rank in ranks]
        lists = [entries if rank == root else None for rank in ranks]
        given = board.values(
            [prepare.scatter(place, mine[place.rank], lists[place.rank], root) for place in board.places]
        )
        for rank in ranks:
            assert given[rank] is mine[rank]
            for array in (mine[rank], entries[rank]):
                np.testing.assert_array_equal(array, values_of(rank, shape=shape_of(rank)))


@every_layout
def test_reduce_scatter_gives_each_rank_its_uneven_part(board: OneBoard, layout: Any) -> None:
    ranks = range(board.size)
    shapes = [(3 * rank + 1, 7) for rank in ranks]
    lists = [[layout(values_of(rank + part, shape=shapes[part])) for part in ranks] for rank in ranks]
    outputs = [layout(np.zeros(shape)) for shape in shapes]
    given = board.values(
        [prepare.reduce_scatter(place, outputs[place.rank], lists[place.rank]) for place in board.places]
    )
    for part in ranks:
        assert given[part] is outputs[part]
        np.testing.assert_array_equal(outputs[part], sum(values_of(rank + part, shape=shapes[part]) for rank in ranks))
        check_gaps(outputs[part])
        for rank in ranks:
            np.testing.assert_array_equal(lists[rank][part], values_of(rank + part, shape=shapes[part]))


@every_layout
def test_reduce_scatter_tensor_cuts_the_reduction_into_equal_parts(board: OneBoard, layout: Any) -> None:
    ranks = range(board.size)
    mine = [layout(values_of(rank, np.int32)) for rank in ranks]
    outputs = [layout(np.zeros((SHAPE[0] // board.size, SHAPE[1]), np.int32)) for _ in ranks]
    given = board.values(
        [prepare.reduce_scatter_tensor(place, outputs[place.rank], mine[place.rank]) for place in board.places]
    )
    total = sum(values_of(rank, np.int32) for rank in ranks)
    for rank, part in enumerate(np.split(total, board.size)):
        assert given[rank] is outputs[rank]
        np.testing.assert_array_equal(outputs[rank], part)
        np.testing.assert_array_equal(mine[rank], values_of(rank, np.int32))


@every_layout
def test_all_to_all_exchanges_uneven_lists(board: OneBoard, layout: Any) -> None:
    ranks = range(board.size)

    def entry(sender: int, reader: int) -> np.ndarray:
        return values_of(10 * sender + reader, shape=(sender + 2 * reader, 6))

    inputs = [[layout(entry(rank, reader)) for reader in ranks] for rank in ranks]
    outputs = [[layout(np.zeros_like(entry(sender, rank))) for sender in ranks] for rank in ranks]
    given = board.values([prepare.all_to_all(place, outputs[place.rank], inputs[place.rank]) for place in board.places])
    for rank in ranks:
        assert given[rank] is outputs[rank]
        for sender in ranks:
            np.testing.assert_array_equal(outputs[rank][sender], entry(sender, rank))
            np.testing.assert_array_equal(inputs[rank][sender], entry(rank, sender))


@every_layout
def test_all_to_all_single_exchanges_equal_parts(board: OneBoard, layout: Any) -> None:
    ranks = range(board.size)
    mine = [layout(values_of(rank)) for rank in ranks]
    outputs = [layout(np.zeros(SHAPE)) for _ in ranks]
    given = board.values(
        [prepare.all_to_all_single(place, outputs[place.rank], mine[place.rank]) for place in board.places]
    )
    for rank in ranks:
        assert given[rank] is outputs[rank]
        expected = np.concatenate([np.split(values_of(sender), board.size)[rank] for sender in ranks])
        np.testing.assert_array_equal(outputs[rank], expected)
        np.testing.assert_array_equal(mine[rank], values_of(rank))
        check_gaps(outputs[rank])


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_all_to_all_single_exchanges_rows_by_any_splits(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 4))
    ranks = range(size)
    counts = data.draw(
        st.lists(st.lists(st.integers(0, 9), min_size=size, max_size=size), min_size=size, max_size=size)
    )
    mine = [values_of(rank, np.int32, (sum(counts[rank]), 3)) for rank in ranks]
    taken = [[counts[sender][rank] for sender in ranks] for rank in ranks]
    outputs = [np.zeros((sum(taken[rank]), 3), np.int32) for rank in ranks]
    with OneBoard(size, 128) as board:
        board.values(
            [
                prepare.all_to_all_single(p, outputs[p.rank], mine[p.rank], taken[p.rank], np.array(counts[p.rank]))
                for p in board.places
            ]
        )
    for rank in ranks:
        expected = [np.split(mine[sender], np.cumsum(counts[sender])[:-1])[rank] for sender in ranks]
        np.testing.assert_array_equal(outputs[rank], np.concatenate(expected))


def test_a_barrier_moves_nothing(board: OneBoard) -> None:
    assert board.values([prepare.barrier(place) for place in board.places]) == [None] * board.size
    call = prepare.barrier(board.places[0])
    assert (call.signature, call.sends, call.recvs, call.locked) == (Signature("barrier"), [], [], [])


# --- unusual arrays --------------------------------------------------------------------------------------------------


def test_0_dimensional_arrays_keep_their_shape() -> None:
    with OneBoard(3) as board:
        places, ranks = board.places, range(3)

        def zeros() -> list[np.ndarray]:
            return [np.zeros(()) for _ in ranks]

        def mine() -> list[np.ndarray]:
            return [np.array(rank + 1.0) for rank in ranks]

        sums, means, copies = mine(), mine(), mine()
        board.values([prepare.all_reduce(p, sums[p.rank]) for p in places])
        board.values([prepare.all_reduce(p, means[p.rank], ReduceOp.AVG) for p in places])
        board.values([prepare.broadcast(p, copies[p.rank], 2) for p in places])
        lists, into, own, parted = [zeros() for _ in ranks], [np.zeros(3) for _ in ranks], zeros(), zeros()
        board.values([prepare.all_gather(p, lists[p.rank], mine()[p.rank]) for p in places])
        board.values([prepare.all_gather_into_tensor(p, into[p.rank], mine()[p.rank]) for p in places])
        board.values([prepare.scatter(p, own[p.rank], mine() if p.rank == 1 else None, 1) for p in places])
        board.values([prepare.reduce_scatter_tensor(p, parted[p.rank], np.arange(3.0)) for p in places])
        root = board.values([prepare.gather(p, mine()[p.rank], None, 0) for p in places])[0]
    for rank in ranks:
        assert [array[rank].shape for array in (sums, means, copies, root, own, parted)] == [()] * 6
        assert (sums[rank], means[rank], copies[rank]) == (6.0, 2.0, 3.0)
        assert (root[rank], own[rank], parted[rank]) == (rank + 1, rank + 1, 3 * rank)
        assert lists[rank] == [1, 2, 3]
        assert into[rank].tolist() == [1, 2, 3]


@pytest.mark.parametrize("shape", [(1, 0, 2), (0,)])
def test_empty_arrays_pass_through_every_collective(shape: tuple[int, ...]) -> None:
    def empty() -> np.ndarray:
        return np.empty(shape, np.float32)

    with OneBoard(3) as board:

        def everyone(call: Callable[[Place], Prepared]) -> list[Any]:
            return board.values([call(place) for place in board.places])

        for call in (
            lambda p: prepare.all_reduce(p, empty()),
            lambda p: prepare.broadcast(p, empty(), 1),
            lambda p: prepare.reduce(p, empty(), 0),
            lambda p: prepare.scan(p, empty()),
            lambda p: prepare.scatter(p, empty(), [empty() for _ in range(3)] if p.rank == 2 else None, 2),
            lambda p: prepare.all_gather_into_tensor(p, np.empty((3, *shape), np.float32), empty()),
            lambda p: prepare.reduce_scatter_tensor(p, empty(), empty()),
            lambda p: prepare.all_reduce_coalesced(p, [empty(), empty()]),
        ):
            everyone(call)
        for call in (
            lambda p: prepare.all_gather(p, [empty() for _ in range(3)], empty()),
            lambda p: prepare.gather(p, empty(), None, 0),
            lambda p: prepare.all_to_all(p, [empty() for _ in range(3)], [empty() for _ in range(3)]),
        ):
            found = everyone(call)[0]
            assert [(array.shape, array.dtype) for array in found] == [(shape, np.dtype(np.float32))] * 3
        everyone(lambda p: prepare.all_to_all_single(p, np.empty((0, 2)), np.empty((0, 2))))
        ones = [np.ones(2) for _ in range(3)]
        everyone(lambda p: prepare.all_reduce(p, ones[p.rank]))
        assert [one.tolist() for one in ones] == [[3, 3]] * 3


@pytest.mark.parametrize(
    "source",
    [
        np.array([(1, 0.5), (2, 1.5)], RECORD),
        np.array(["ab", "c"], ">U5"),
        np.array(["2024-02-29", "NaT"], "M8[ns]"),
        np.array([1.5, 2.5], ml_dtypes.float8_e4m3fn),
        np.array([True, False]),
        np.empty(3, "V0"),
        np.array([1, 2.5], ">f8"),
    ],
    ids=lambda array: str(array.dtype),
)
def test_any_dtype_moves_exactly_into_either_byte_order(source: np.ndarray) -> None:
    native = np.zeros(source.shape, source.dtype.newbyteorder("="))
    swapped = np.zeros(source.shape, source.dtype.newbyteorder(">"))
    with OneBoard(3) as board:
        board.values([prepare.broadcast(p, (source, native, swapped)[p.rank], 0) for p in board.places])
    assert native.tobytes() == source.astype(native.dtype).tobytes()
    assert swapped.tobytes() == source.astype(swapped.dtype).tobytes()


def test_pairs_of_value_and_index_stay_together_across_blocks() -> None:
    mine = [np.stack([np.arange(40.0) * (-1) ** rank, np.full(40, rank)], axis=1) for rank in range(3)]
    with OneBoard(3, 256) as board:
        board.values([prepare.all_reduce(p, mine[p.rank], ReduceOp.MINLOC) for p in board.places])
    expected = np.stack([-np.arange(40.0), np.full(40, 1.0)], axis=1)
    expected[0] = (0, 0)
    for array in mine:
        np.testing.assert_array_equal(array, expected)


def test_memory_that_is_no_ndarray_is_returned_as_given_and_not_locked() -> None:
    given = [bytearray([1, 2]), bytearray([3, 4])]
    with OneBoard(2) as board:
        calls = [prepare.all_reduce(p, given[p.rank]) for p in board.places]
        assert [call.locked for call in calls] == [[], []]
        found = board.values(calls)
    assert [value is one for value, one in zip(found, given, strict=True)] == [True, True]
    assert given == [bytearray([4, 6])] * 2


# --- shared memory ---------------------------------------------------------------------------------------------------


def test_all_to_all_single_works_in_place(board: OneBoard) -> None:
    both = [values_of(rank) for rank in range(board.size)]
    board.values([prepare.all_to_all_single(p, both[p.rank], both[p.rank]) for p in board.places])
    for rank, array in enumerate(both):
        parts = [np.split(values_of(sender), board.size)[rank] for sender in range(board.size)]
        np.testing.assert_array_equal(array, np.concatenate(parts))


@pytest.mark.parametrize("shift", [-1, 0, 1])
def test_an_input_that_overlaps_the_output_is_read_before_it_is_overwritten(board: OneBoard, shift: int) -> None:
    """The same memory, a row further on or back."""
    memory = [values_of(rank, shape=(14, 5)) for rank in range(board.size)]
    before = [array.copy() for array in memory]
    targets, sources = [array[1:13] for array in memory], [array[1 + shift : 13 + shift] for array in memory]
    board.values([prepare.all_to_all_single(p, targets[p.rank], sources[p.rank]) for p in board.places])
    for rank, target in enumerate(targets):
        parts = [np.split(array[1 + shift : 13 + shift], board.size)[rank] for array in before]
        np.testing.assert_array_equal(target, np.concatenate(parts))


def test_gathering_into_memory_that_holds_the_input_works(board: OneBoard) -> None:
    outputs = [np.zeros((board.size, *SHAPE)) for _ in board.places]
    for rank, output in enumerate(outputs):
        output[rank] = values_of(rank)
    rows = [list(output) for output in outputs]
    board.values([prepare.all_gather_into_tensor(p, outputs[p.rank], outputs[p.rank][p.rank]) for p in board.places])
    for output in outputs:
        np.testing.assert_array_equal(output, [values_of(rank) for rank in range(board.size)])
    wrong = [rows[p.rank][(p.rank + 1) % board.size] for p in board.places]
    board.values([prepare.all_gather(p, rows[p.rank], wrong[p.rank]) for p in board.places])
    for output in outputs:
        np.testing.assert_array_equal(output, [values_of((rank + 1) % board.size) for rank in range(board.size)])


def test_reduce_scatter_and_scatter_take_an_output_within_their_input(board: OneBoard) -> None:
    ranks, rows = range(board.size), SHAPE[0] // board.size
    mine = [values_of(rank) for rank in ranks]
    total = sum(values_of(rank) for rank in ranks)
    outputs = [array[:rows] for array in mine]
    board.values([prepare.reduce_scatter_tensor(p, outputs[p.rank], mine[p.rank]) for p in board.places])
    for output, part in zip(outputs, np.split(total, board.size), strict=True):
        np.testing.assert_array_equal(output, part)
    entries = [values_of(rank) for rank in ranks]
    targets = [entries[-1], *(np.zeros(SHAPE) for _ in ranks[1:])]
    board.values([prepare.scatter(p, targets[p.rank], entries if p.rank == 0 else None, 0) for p in board.places])
    for rank, target in enumerate(targets):
        np.testing.assert_array_equal(target, values_of(rank))


def test_outputs_that_overlap_each_other_are_refused() -> None:
    memory = np.zeros(6)
    calls: list[Callable[[], object]] = [
        lambda: prepare.all_gather(place_of(0), [memory[:3], memory[2:5]], np.zeros(3)),
        lambda: prepare.gather(place_of(0), np.zeros(6), [memory, memory], 0),
        lambda: prepare.all_to_all(place_of(0), [memory, memory[::2]], [np.zeros(6), np.zeros(3)]),
        lambda: prepare.all_reduce_coalesced(place_of(0), [memory, np.zeros(2), memory[:1]]),
        lambda: prepare.all_gather_coalesced(
            place_of(0), [[memory[:2], memory[2:4]], [memory[3:4], memory[5:]]], [np.zeros(2), np.zeros(1)]
        ),
    ]
    for call in calls:
        with pytest.raises(ArgumentError, match="shares memory"):
            call()


# --- what others are told --------------------------------------------------------------------------------------------


def test_signatures_say_what_moves() -> None:
    a, b = np.zeros((2, 3), np.float32), np.zeros((4, 3), ">f4")
    zero, one = place_of(0), place_of(1)

    def said(call: Prepared) -> tuple[Any, ...]:
        signature = call.signature
        assert call.text != b""
        assert decode_signature(call.text) == signature
        assert (signature.dtype, signature.itemsize, signature.error) == ("float32", 4, None)
        return signature.shapes, signature.op, signature.root, signature.sends, signature.recvs

    both = ((2, 3), (4, 3))
    assert said(prepare.all_reduce(zero, a, ReduceOp.PREMUL_SUM(0.5))) == (
        ((2, 3),),
        "PREMUL_SUM(0.5)",
        NO_ROOT,
        (24,),
        (),
    )
    assert said(prepare.reduce(zero, a, 1, ReduceOp.MAX)) == (((2, 3),), "MAX", 1, (24,), ())
    assert said(prepare.reduce(one, a, 1, ReduceOp.MAX)) == (((2, 3),), "MAX", 1, (24,), ())
    assert said(prepare.scan(one, a)) == (((2, 3),), "SUM", NO_ROOT, (24,), ())
    assert said(prepare.broadcast(zero, b, 0)) == (((4, 3),), "", 0, (48,), ())
    assert said(prepare.broadcast(one, b, 0)) == (((4, 3),), "", 0, (), (48, 0))
    assert said(prepare.all_gather(one, [a, b.copy()], b)) == (((4, 3),), "", NO_ROOT, (48,), (24, 48))
    assert said(prepare.gather(zero, a, [a.copy(), b], 0)) == (((2, 3),), "", 0, (24,), (24, 48))
    assert said(prepare.gather(one, b, None, 0)) == (((4, 3),), "", 0, (48,), ())
    assert said(prepare.all_gather_into_tensor(zero, b, a)) == (((2, 3),), "", NO_ROOT, (24,), (24, 24))
    assert said(prepare.scatter(zero, a, [a, b], 0)) == (((2, 3),), "", 0, (24, 48), (24, 0))
    assert said(prepare.scatter(one, b, [], 0)) == (((4, 3),), "", 0, (), (48, 0))
    assert said(prepare.reduce_scatter(one, b, [a, b])) == (both, "SUM", NO_ROOT, (24, 48), (48,))
    assert said(prepare.reduce_scatter_tensor(one, a, b)) == (((4, 3),), "SUM", NO_ROOT, (24, 24), (24,))
    assert said(prepare.all_to_all(zero, [a, a.copy()], [a, b])) == (both, "", NO_ROOT, (24, 48), (24, 24))
    assert said(prepare.all_to_all_single(zero, a, b, [1, 1], [1, 3])) == (((4, 3),), "", NO_ROOT, (12, 36), (12, 12))
    assert said(prepare.all_reduce_coalesced(zero, [a, b])) == (both, "SUM", NO_ROOT, (72,), ())
    lists = [[a, a.copy()], [b, b.copy()]]
    assert said(prepare.all_gather_coalesced(zero, lists, [a, b])) == (both, "", NO_ROOT, (72,), (72, 72))


def test_flat_memory_fits_the_signature() -> None:
    a, b = np.zeros((2, 3)), np.zeros((4, 3))
    receiver = prepare.broadcast(place_of(1), a, 0)
    assert receiver.sends == []
    assert receiver.recvs is not None
    assert [len(flat) for flat in receiver.recvs] == [48, 0]
    assert receiver.recvs[0].dtype == np.uint8
    assert np.shares_memory(receiver.recvs[0], a)
    for call in (prepare.broadcast(place_of(0), a, 0), prepare.reduce(place_of(1), a, 0)):
        assert [len(flat) for flat in call.sends] == [48]
        assert call.recvs == []
    single = prepare.all_to_all_single(place_of(0), a, b, [1, 1], [1, 3])
    assert single.recvs is not None
    assert [len(flat) for flat in single.sends] == [24, 72]
    assert [len(flat) for flat in single.recvs] == [24, 24]


def test_the_callers_own_arrays_are_to_be_locked() -> None:
    a, b, c = np.zeros(2), np.zeros(4)[::2], np.zeros(4)
    for call, expected in (
        (prepare.all_reduce(place_of(0), b), [b]),
        (prepare.reduce(place_of(1), a, 0), [a]),
        (prepare.broadcast(place_of(0), a, 0), [a]),
        (prepare.all_gather(place_of(0), (a, b), c[:2]), [a, b]),
        (prepare.all_gather_into_tensor(place_of(0), c, a), [c, a]),
        (prepare.scatter(place_of(0), c[:2], [a, b], 0), [a, b]),
        (prepare.all_reduce_coalesced(place_of(0), [a, b]), [a, b]),
    ):
        held = {id(array) for array in call.locked}
        assert {id(array) for array in expected} <= held


def test_a_repeated_call_finds_its_signature_again() -> None:
    first, second = (prepare.all_reduce(place_of(0), np.zeros(3)) for _ in range(2))
    assert first.signature is second.signature
    assert first.text is second.text


def test_members_that_call_with_other_shapes_learn_of_it() -> None:
    arrays = [np.ones(3), np.ones(4)]
    with OneBoard(2) as board:
        for call in (
            lambda p: prepare.all_reduce(p, arrays[p.rank]),
            lambda p: prepare.broadcast(p, arrays[p.rank], 0),
            lambda p: prepare.scan(p, arrays[p.rank]),
            lambda p: prepare.gather(p, arrays[p.rank], None, 0),
            lambda p: prepare.reduce_scatter(p, arrays[p.rank], [arrays[p.rank]] * 2),
        ):
            outcomes = board.outcomes([call(place) for place in board.places])
            assert [type(outcome) for outcome in outcomes] == [MismatchError] * 2
    assert [array.tolist() for array in arrays] == [[1, 1, 1], [1, 1, 1, 1]]


def test_splits_that_differ_between_members_are_named() -> None:
    ins, outs = [np.arange(1, 4), np.arange(0)], [np.zeros(1, int), np.zeros(1, int)]
    splits = [([1, 0], [1, 2]), ([1, 0], [0, 0])]
    with OneBoard(2) as board:
        outcomes = board.outcomes(
            [prepare.all_to_all_single(p, outs[p.rank], ins[p.rank], *splits[p.rank]) for p in board.places]
        )
    for outcome in outcomes:
        assert isinstance(outcome, MismatchError)
        assert "rank 0 sends 2 to rank 1, rank 1 expects 1" in str(outcome)
    assert [out.tolist() for out in outs] == [[0], [0]]


def test_an_input_in_its_own_place_of_the_output_is_not_copied() -> None:
    place = Place("world", 1, 3, (0, 1, 2))
    output = np.zeros((3, 4), np.float32)
    for prepared in (
        prepare.all_gather_into_tensor(place, output, output[1]),
        prepare.all_gather(place, list(output), output[1]),
    ):
        assert np.shares_memory(prepared.sends[0], output)
    whole = np.zeros(12, np.float32)
    for prepared in (
        prepare.reduce_scatter_tensor(place, whole[4:8], whole),
        prepare.reduce_scatter(place, whole[4:8], [whole[:4], whole[4:8], whole[8:]]),
    ):
        assert all(np.shares_memory(send, whole) for send in prepared.sends)
    # elsewhere in it, others' pieces would be written over what is still to be read
    assert not np.shares_memory(prepare.all_gather_into_tensor(place, output, output[2]).sends[0], output)
    assert not np.shares_memory(prepare.reduce_scatter_tensor(place, whole[:4], whole).sends[0], whole)
