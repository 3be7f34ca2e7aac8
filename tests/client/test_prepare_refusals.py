"""Calls that are refused before anything is sent, and what the caller is told."""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from hocket.client import prepare
from hocket.client.places import Place
from hocket.protocol.errors import ArgumentError, ArgumentTypeError, UnsupportedError
from hocket.protocol.reduce_ops import ReduceOp

RECORD = np.dtype([("a", "u8"), ("b", "f4")])


def place_of(rank: int) -> Place:
    """A place in a group of the world ranks 1 and 2."""
    return Place("pair", rank, 2, (1, 2), rank + 1)


F, N = np.zeros(4, np.float32), np.zeros(4, np.int64)
REFUSED: dict[str, tuple[Callable[[Place], object], str, tuple[str, ...]]] = {
    "dtypes of output and input": (
        lambda p: prepare.all_to_all_single(p, F, N),
        "output",
        ("float32", "int64", "'input'"),
    ),
    "dtypes of what is gathered": (
        lambda p: prepare.all_gather_into_tensor(p, np.zeros(8), F),
        "output",
        ("float64", "float32", "'input'"),
    ),
    "dtypes of what is scattered": (
        lambda p: prepare.reduce_scatter_tensor(p, N[:2], F),
        "output",
        ("int64", "float32", "'input'"),
    ),
    "dtypes of list and root": (lambda p: prepare.gather(p, F, [F, N], 0), "gather_list[1]", ("int64", "float32")),
    "dtypes of output and list": (lambda p: prepare.scatter(p, F, [F, N], 0), "scatter_list[1]", ("int64", "float32")),
    "dtypes of a reduced list": (lambda p: prepare.reduce_scatter(p, F, [F, N]), "input_list[1]", ("int64", "float32")),
    "dtypes of coalesced outputs": (
        lambda p: prepare.all_gather_coalesced(p, [[F, N]], [F]),
        "output_lists[0][1]",
        ("int64", "float32", "'tensors[0]'"),
    ),
    "dtypes in a list": (
        lambda p: prepare.all_to_all(p, [F, F.copy()], [F, N]),
        "input_list[1]",
        ("int64", "float32", "'input_list[0]'"),
    ),
    "dtypes of list and tensor": (
        lambda p: prepare.all_gather(p, [F, N], F),
        "tensor_list[1]",
        ("int64", "float32", "'tensor'"),
    ),
    "dtypes of coalesced tensors": (
        lambda p: prepare.all_reduce_coalesced(p, [F, N]),
        "tensors[1]",
        ("int64", "float32"),
    ),
    "length of a list": (
        lambda p: prepare.all_gather(p, [F, F.copy(), F.copy()], F),
        "tensor_list",
        ("list of 3 arrays", "list of 2 arrays"),
    ),
    "no list": (lambda p: prepare.all_gather(p, None, F), "tensor_list", ("None", "list of 2 arrays")),
    "array for a list": (lambda p: prepare.all_gather(p, np.zeros((2, 4)), F), "tensor_list", ("ndarray", "list of 2")),
    "own entry of all_gather": (
        lambda p: prepare.all_gather(p, [np.zeros(3, "f4"), F], F),
        "tensor_list[0]",
        ("3 elements", "4 elements"),
    ),
    "own entry of gather": (
        lambda p: prepare.gather(p, F, [np.zeros(3, "f4"), F], 0),
        "gather_list[0]",
        ("3 elements", "4 elements"),
    ),
    "own entry of scatter": (
        lambda p: prepare.scatter(p, F, [F[:3], F], 0),
        "tensor",
        ("4 elements", "3 elements", "'scatter_list[0]'"),
    ),
    "own entry of reduce_scatter": (
        lambda p: prepare.reduce_scatter(p, F, [F[:3], F]),
        "output",
        ("4 elements", "3 elements", "'input_list[0]'"),
    ),
    "own entry of all_to_all": (
        lambda p: prepare.all_to_all(p, [F[:1], F[1:]], [F, F]),
        "output_list[0]",
        ("1 elements", "4 elements"),
    ),
    "own part of all_to_all_single": (
        lambda p: prepare.all_to_all_single(p, F, F, [3, 1], [1, 3]),
        "output",
        ("3 rows", "allowed is 1", "rank 0"),
    ),
    "no room to gather into": (
        lambda p: prepare.all_gather_into_tensor(p, F, F),
        "output",
        ("[4]", "[8] or [2, 4]", "2 times"),
    ),
    "too little to scatter": (
        lambda p: prepare.reduce_scatter_tensor(p, F[:2], F[:2]),
        "input",
        ("2 elements", "4 = 2 x 2"),
    ),
    "rows that do not divide": (
        lambda p: prepare.all_to_all_single(p, F[:3], F[:3]),
        "input",
        ("3 rows", "2 members", "input_split_sizes"),
    ),
    "splits that do not add up": (
        lambda p: prepare.all_to_all_single(p, F, F, None, [1, 2]),
        "input_split_sizes",
        ("add up to 3", "add up to 4"),
    ),
    "a list for gather on another rank": (
        lambda p: prepare.gather(p, F, [F, F.copy()], 1),
        "gather_list",
        ("rank 1", "dst is rank 2"),
    ),
    "a list for scatter on another rank": (
        lambda p: prepare.scatter(p, F, [F, F], 1),
        "scatter_list",
        ("rank 1", "src is rank 2"),
    ),
    "no list for scatter on the root": (
        lambda p: prepare.scatter(p, F, None, 0),
        "scatter_list",
        ("None", "list of 2"),
    ),
    "no tensors": (lambda p: prepare.all_reduce_coalesced(p, []), "tensors", ("empty list", "at least one")),
    "no tensors to gather": (lambda p: prepare.all_gather_coalesced(p, [], []), "tensors", ("empty list",)),
    "lists for other tensors": (
        lambda p: prepare.all_gather_coalesced(p, [[F, F.copy()]], [F, F]),
        "output_lists",
        ("list of 1 lists", "list of 2 lists, one for each of the tensors"),
    ),
    "a list for another group": (
        lambda p: prepare.all_gather_coalesced(p, [[F]], [F]),
        "output_lists[0]",
        ("list of 1 arrays", "list of 2 arrays"),
    ),
    "an output for another tensor": (
        lambda p: prepare.all_gather_coalesced(p, [[np.zeros(4, "f4"), F[:1]]], [F]),
        "output_lists[0][1]",
        ("1 elements", "4 elements, as argument 'tensors[0]' has"),
    ),
    "a number": (lambda p: prepare.all_reduce(p, 1.0), "tensor", ("float", "numpy.array")),
    "a numpy scalar": (lambda p: prepare.broadcast(p, np.float64(1), 1), "tensor", ("numpy.float64",)),
    "a list for a tensor": (lambda p: prepare.all_reduce(p, [1.0, 2.0]), "tensor", ("list of 2 items",)),
    "Python objects": (lambda p: prepare.broadcast(p, np.array([None]), 0), "tensor", ("object",)),
    "values without an index": (
        lambda p: prepare.all_reduce(p, F, ReduceOp.MAXLOC),
        "tensor",
        ("[4]", "MAXLOC", "last dimension is 2"),
    ),
    "room for values without an index": (
        lambda p: prepare.reduce_scatter_tensor(p, F[:1], F[:2].reshape(1, 2), ReduceOp.MAXLOC),
        "output",
        ("[1]", "last dimension is 2"),
    ),
    "a part of values without an index": (
        lambda p: prepare.reduce_scatter_tensor(p, F[:2], F, ReduceOp.MAXLOC),
        "input",
        ("[4]", "last dimension is 2"),
    ),
    "values without an index in a list": (
        lambda p: prepare.reduce_scatter(p, F[:2], [F[:2], F[:3]], ReduceOp.MINLOC),
        "input_list",
        ("[3]", "last dimension is 2"),
    ),
    "an op by its name": (lambda p: prepare.all_reduce(p, F, "sum"), "op", ("'sum'", "ReduceOp.SUM", "PREMUL_SUM(")),  # type: ignore[arg-type]
}


@pytest.mark.parametrize(("call", "argument", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_a_call_that_contradicts_itself_names_both_sides(
    call: Callable[[Place], object], argument: str, words: tuple[str, ...]
) -> None:
    with pytest.raises(ArgumentError) as caught:
        call(place_of(0))
    assert caught.value.argument == argument
    assert [word for word in words if word not in str(caught.value)] == []


def test_what_is_no_reduce_op_is_a_type_error() -> None:
    for op in ("SUM", None, 0, ReduceOp):
        with pytest.raises(ArgumentTypeError):
            prepare.all_reduce(place_of(0), np.zeros(2), op)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("dtype", "op"),
    [
        (np.int64, ReduceOp.AVG),
        (np.bool_, ReduceOp.AVG),
        (np.complex64, ReduceOp.MAX),
        (np.float32, ReduceOp.BXOR),
        (RECORD, ReduceOp.SUM),
        (ml_dtypes.float8_e5m2, ReduceOp.SUM),
        ("M8[ns]", ReduceOp.MAX),
    ],
    ids=str,
)
def test_a_dtype_that_does_not_reduce_is_refused_in_every_reduction(dtype: Any, op: ReduceOp) -> None:
    array, other = np.zeros(2, dtype), np.zeros(4, dtype)
    for call in (
        lambda p: prepare.all_reduce(p, array, op),
        lambda p: prepare.reduce(p, array, 0, op),
        lambda p: prepare.reduce(p, array, 1, op),
        lambda p: prepare.scan(p, array, op),
        lambda p: prepare.exscan(p, array, op),
        lambda p: prepare.all_reduce_coalesced(p, [array], op),
        lambda p: prepare.reduce_scatter(p, array, [array, other], op),
        lambda p: prepare.reduce_scatter_tensor(p, array, other, op),
    ):
        with pytest.raises(UnsupportedError, match=op.name):
            call(place_of(0))


@pytest.mark.parametrize(
    ("dtype", "op", "words"),
    [("i4", ReduceOp.SUM, "int32 does not support compression bf16"), ("f4", ReduceOp.MIN, "reduce op MIN with")],
)
def test_what_cannot_be_compressed_is_refused_before_anything_moves(dtype: str, op: ReduceOp, words: str) -> None:
    array = np.zeros(2, dtype)
    for call in (
        lambda p: prepare.all_reduce(p, array, op, "bf16"),
        lambda p: prepare.all_reduce_coalesced(p, [array], op, "bf16"),
    ):
        with pytest.raises(UnsupportedError, match=words):
            call(place_of(0))


def test_a_compression_that_is_none_is_refused() -> None:
    with pytest.raises(ArgumentError, match="'compression' is 'gzip', allowed is None, 'bf16' or 'int8'"):
        prepare.all_reduce(place_of(0), np.zeros(2), ReduceOp.SUM, "gzip")
    with pytest.raises(ArgumentTypeError, match="compression"):
        prepare.all_reduce_coalesced(place_of(0), [np.zeros(2)], ReduceOp.SUM, 8)


def test_an_input_may_be_read_only_and_an_output_may_not() -> None:
    array = np.zeros(4)
    array.flags.writeable = False
    prepare.broadcast(place_of(0), array, 0)
    prepare.reduce(place_of(1), array, 0)
    prepare.gather(place_of(1), array, None, 0)
    for call in (
        lambda: prepare.broadcast(place_of(1), array, 0),
        lambda: prepare.all_reduce(place_of(0), array),
        lambda: prepare.all_gather_into_tensor(place_of(0), array, np.zeros(2)),
    ):
        with pytest.raises(ArgumentError, match="read-only"):
            call()


def test_a_call_too_long_to_describe_is_refused_before_anything_moves() -> None:
    tensors = [np.zeros((1,) * 30) for _ in range(2000)]
    with pytest.raises(ArgumentError, match="too long to describe"):
        prepare.all_reduce_coalesced(place_of(0), tensors)
