"""Public calls made ready for the board: each becomes a signature, flat memory to send and receive, and a commit.

Nothing here waits, sends or locks. Whatever is wrong with a call by itself is raised before any array is touched; its
kind and cause are in `hocket.client.consistency`. Roots are ranks in the group, and the caller is a member of it.

The conventions for ``sends`` and ``recvs`` are those of `Signature` and `Operation`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

import numpy as np

from hocket.client.arrays import Array, FlatOutput, as_input, as_output, flat_input
from hocket.client.consistency import (
    as_list,
    check_apart,
    check_dtype,
    check_dtypes,
    check_gathered,
    check_reduction,
    check_rows,
    check_scattered,
    check_size,
    is_same,
    keep_apart,
    op_name,
    parts,
    row_nbytes,
    row_splits,
    take_inputs,
    take_outputs,
)
from hocket.client.places import Place
from hocket.client.signing import list_shapes, only, sign, sign_barrier, sign_reduction
from hocket.fabric.board import Bytes
from hocket.protocol.compression import compression_name
from hocket.protocol.errors import ArgumentError
from hocket.protocol.reduce_ops import ReduceOp
from hocket.protocol.signature import NO_ROOT, Signature, encode_signature

_NOTHING: Final[Bytes] = np.empty(0, np.uint8)


@dataclass(slots=True)
class Prepared:
    """A call that is ready to be carried out.

    ``commit`` comes after success: it copies staging into the caller's arrays and returns what the await gives, which
    is the output as the caller gave it, or None where this rank receives nothing. Where ``recvs`` is None the board
    makes room for what comes, and ``received`` takes it in commit's stead. ``locked`` are the caller's own arrays,
    inputs and outputs, to be locked meanwhile; ``text`` is the encoded signature.
    """

    signature: Signature
    sends: list[Bytes]
    recvs: list[Bytes] | None
    commit: Callable[[], Any]
    locked: list[Array]
    text: bytes = b""
    received: Callable[[list[Bytes]], Any] | None = None

    def __post_init__(self) -> None:
        if not self.text:
            self.text = encode_signature(self.signature)


# --- reductions in place ---------------------------------------------------------------------------------------------


def all_reduce(place: Place, tensor: object, op: ReduceOp = ReduceOp.SUM, compression: object = None) -> Prepared:
    """Every rank's tensor becomes the reduction of all."""
    return _in_place("all_reduce", tensor, op, NO_ROOT, compression_name(compression))


def reduce(place: Place, tensor: object, root: int, op: ReduceOp = ReduceOp.SUM) -> Prepared:
    """The root's tensor becomes the reduction of all; the others' are only read."""
    if place.rank == root:
        return _in_place("reduce", tensor, op, root)
    array = as_input(tensor, "tensor")
    signature, text = sign_reduction("reduce", array.dtype, (array.shape,), op_name(op), root)
    return Prepared(signature, [flat_input(array)], [], _returns(None), _arrays(tensor), text)


def scan(place: Place, tensor: object, op: ReduceOp = ReduceOp.SUM) -> Prepared:
    """Rank r's tensor becomes the reduction of those of ranks 0 to r."""
    return _in_place("scan", tensor, op, NO_ROOT)


def exscan(place: Place, tensor: object, op: ReduceOp = ReduceOp.SUM) -> Prepared:
    """Rank r's tensor becomes the reduction of those of ranks 0 to r - 1; rank 0's stays as it is."""
    return _in_place("exscan", tensor, op, NO_ROOT)


def _in_place(kind: str, tensor: object, op: ReduceOp, root: int, compression: str = "") -> Prepared:
    array = as_output(tensor, "tensor")
    signature, text = sign_reduction(kind, array.dtype, (array.shape,), op_name(op), root, compression)
    out = FlatOutput(array, load=True)
    return Prepared(signature, [out.flat], [out.flat], _commits(tensor, out), _arrays(tensor), text)


def all_reduce_coalesced(
    place: Place, tensors: object, op: ReduceOp = ReduceOp.SUM, compression: object = None
) -> Prepared:
    """`all_reduce` of several tensors of one dtype at once: they move side by side."""
    arrays = take_outputs(tensors, "tensors")
    _check_coalesced(arrays)
    shapes = tuple(array.shape for array in arrays)
    name = compression_name(compression)
    signature, text = sign_reduction("all_reduce_coalesced", arrays[0].dtype, shapes, op_name(op), NO_ROOT, name)
    staging = np.empty(sum(array.size for array in arrays), arrays[0].dtype.newbyteorder("="))
    pieces = _elements(staging, arrays)
    for piece, array in zip(pieces, arrays, strict=True):
        piece[...] = array

    def commit() -> object:
        for piece, array in zip(pieces, arrays, strict=True):
            array[...] = piece
        return tensors

    flat = flat_input(staging)
    return Prepared(signature, [flat], [flat], commit, _arrays(tensors), text)


# --- one piece for all who read --------------------------------------------------------------------------------------


def barrier(place: Place) -> Prepared:
    """Nothing moves."""
    signature, text = sign_barrier()
    return Prepared(signature, [], [], _returns(None), [], text)


def broadcast(place: Place, tensor: object, root: int) -> Prepared:
    """Every rank's tensor becomes the root's."""
    if place.rank == root:
        array = as_input(tensor, "tensor")
        signature, text = sign("broadcast", array.dtype, (array.shape,), "", root, (array.nbytes,), ())
        return Prepared(signature, [flat_input(array)], [], _returns(tensor), _arrays(tensor), text)
    array = as_output(tensor, "tensor")
    recvs = only(root, array.nbytes, place.size)
    signature, text = sign("broadcast", array.dtype, (array.shape,), "", root, (), recvs)
    out = FlatOutput(array)
    flats = [_NOTHING] * place.size
    flats[root] = out.flat
    return Prepared(signature, [], flats, _commits(tensor, out), _arrays(tensor), text)


def all_gather(place: Place, tensor_list: object, tensor: object) -> Prepared:
    """Entry r of every rank's list becomes rank r's tensor; sizes may differ from rank to rank."""
    array, outputs = as_input(tensor, "tensor"), take_outputs(tensor_list, "tensor_list", place.size)
    _check_gather_list(place, outputs, "tensor_list", array)
    return _gather(place, "all_gather", array, outputs, NO_ROOT, tensor_list, _arrays(tensor_list, tensor))


def gather(place: Place, tensor: object, gather_list: object, root: int) -> Prepared:
    """Entry r of the root's list becomes rank r's tensor. None on the root: fresh arrays like its own tensor."""
    array = as_input(tensor, "tensor")
    if place.rank != root:
        check_absent(gather_list, "gather_list", "dst", root, place)
        signature, text = sign("gather", array.dtype, (array.shape,), "", root, (array.nbytes,), ())
        return Prepared(signature, [flat_input(array)], [], _returns(None), _arrays(tensor), text)
    if gather_list is None:
        gather_list = [np.empty(array.shape, array.dtype) for _ in range(place.size)]
    outputs = take_outputs(gather_list, "gather_list", place.size)
    _check_gather_list(place, outputs, "gather_list", array)
    return _gather(place, "gather", array, outputs, root, gather_list, _arrays(gather_list, tensor))


def _check_gather_list(place: Place, outputs: list[Array], argument: str, array: Array) -> None:
    check_dtypes(outputs, argument, array, "tensor")
    check_size(outputs[place.rank], f"{argument}[{place.rank}]", array, "tensor")


def _gather(
    place: Place, kind: str, array: Array, outputs: list[Array], root: int, given: object, locked: list[Array]
) -> Prepared:
    recvs = tuple(output.nbytes for output in outputs)
    signature, text = sign(kind, array.dtype, (array.shape,), "", root, (array.nbytes,), recvs)
    outs = [FlatOutput(output) for output in outputs]
    flats = [out.flat for out in outs]
    return Prepared(signature, _gathered(place, array, flats), flats, _commits(given, *outs), locked, text)


def _gathered(place: Place, source: Array, flats: list[Bytes]) -> list[Bytes]:
    """The input's bytes. It may stand in its own place of the output, where nobody writes anything else."""
    flat = flat_input(source)
    return [flat] if flats and is_same(flat, flats[place.rank]) else keep_apart([flat], flats)


def all_gather_into_tensor(place: Place, output: object, input: object) -> Prepared:
    """Every rank's output becomes the inputs of all, concatenated along dimension 0, stacked, or flat."""
    source, target = as_input(input, "input"), as_output(output, "output")
    check_dtype(target, "output", source, "input")
    check_gathered(target, source, place.size)
    recvs = (source.nbytes,) * place.size
    signature, text = sign(
        "all_gather_into_tensor", source.dtype, (source.shape,), "", NO_ROOT, (source.nbytes,), recvs
    )
    out = FlatOutput(target)
    flats = parts(out.flat, recvs)
    sends = _gathered(place, source, flats)
    return Prepared(signature, sends, flats, _commits(output, out), _arrays(output, input), text)


def all_gather_coalesced(place: Place, output_lists: object, tensors: object) -> Prepared:
    """Entry i, r of every rank's lists becomes tensor i of rank r; shapes are the same on all ranks."""
    arrays = take_inputs(tensors, "tensors")
    _check_coalesced(arrays)
    lists = as_list(output_lists, "output_lists", len(arrays), "lists, one for each of the tensors")
    outputs = [take_outputs(one, f"output_lists[{i}]", place.size) for i, one in enumerate(lists)]
    for i, (array, row) in enumerate(zip(arrays, outputs, strict=True)):
        check_dtypes(row, f"output_lists[{i}]", array, f"tensors[{i}]")
        for r, output in enumerate(row):
            check_size(output, f"output_lists[{i}][{r}]", array, f"tensors[{i}]")
    every = [(f"output_lists[{i}][{r}]", output) for i, row in enumerate(outputs) for r, output in enumerate(row)]
    check_apart([output for _, output in every], [argument for argument, _ in every])
    nbytes = sum(array.nbytes for array in arrays)
    shapes = tuple(array.shape for array in arrays)
    recvs = (nbytes,) * place.size
    signature, text = sign("all_gather_coalesced", arrays[0].dtype, shapes, "", NO_ROOT, (nbytes,), recvs)
    dtype = arrays[0].dtype.newbyteorder("=")
    staging = np.empty((place.size, sum(array.size for array in arrays)), dtype)

    def commit() -> object:
        for r in range(place.size):
            row = [output_row[r] for output_row in outputs]
            for piece, output in zip(_elements(staging[r], row), row, strict=True):
                output[...] = piece
        return output_lists

    sends = [np.concatenate([flat_input(array) for array in arrays])]
    flats = [flat_input(row) for row in staging]
    return Prepared(signature, sends, flats, commit, _arrays(tensors, *lists), text)


# --- a piece for each ------------------------------------------------------------------------------------------------


def scatter(place: Place, tensor: object, scatter_list: object, root: int) -> Prepared:
    """Rank r's tensor becomes entry r of the root's list; sizes may differ from rank to rank."""
    target = as_output(tensor, "tensor")
    sources: list[Array] = []
    if place.rank != root:
        check_absent(scatter_list, "scatter_list", "src", root, place)
    else:
        sources = take_inputs(scatter_list, "scatter_list", place.size)
        check_dtypes(sources, "scatter_list", target, "tensor")
        check_size(target, "tensor", sources[root], f"scatter_list[{root}]")
    sends = tuple(source.nbytes for source in sources)
    recvs = only(root, target.nbytes, place.size)
    signature, text = sign("scatter", target.dtype, (target.shape,), "", root, sends, recvs)
    out = FlatOutput(target)
    flats = [_NOTHING] * place.size
    flats[root] = out.flat
    pieces = keep_apart([flat_input(source) for source in sources], [out.flat])
    locked = _arrays(tensor, scatter_list if sources else None)
    return Prepared(signature, pieces, flats, _commits(tensor, out), locked, text)


def all_to_all(place: Place, output_list: object, input_list: object) -> Prepared:
    """Entry s of rank r's outputs becomes entry r of rank s's inputs; any sizes."""
    sources = take_inputs(input_list, "input_list", place.size)
    targets = take_outputs(output_list, "output_list", place.size)
    check_dtypes(sources, "input_list", sources[0], "input_list[0]")
    check_dtypes(targets, "output_list", sources[0], "input_list[0]")
    me = place.rank
    check_size(targets[me], f"output_list[{me}]", sources[me], f"input_list[{me}]")
    sends, recvs = tuple(source.nbytes for source in sources), tuple(target.nbytes for target in targets)
    signature, text = sign("all_to_all", sources[0].dtype, list_shapes(sources), "", NO_ROOT, sends, recvs)
    outs = [FlatOutput(target) for target in targets]
    flats = [out.flat for out in outs]
    pieces = keep_apart([flat_input(source) for source in sources], flats)
    return Prepared(signature, pieces, flats, _commits(output_list, *outs), _arrays(output_list, input_list), text)


def all_to_all_single(
    place: Place, output: object, input: object, output_split_sizes: object = None, input_split_sizes: object = None
) -> Prepared:
    """Rows of the input go to each rank in turn, rows of the output come from each; equally many without sizes."""
    source, target = as_input(input, "input"), as_output(output, "output")
    check_dtype(target, "output", source, "input")
    check_rows(target, source)
    given = row_splits(source, "input", input_split_sizes, place.size)
    taken = row_splits(target, "output", output_split_sizes, place.size)
    me = place.rank
    if given[me] != taken[me]:
        allowed = f"{given[me]}, the rows that argument 'input' has for it"
        raise ArgumentError("output", f"with room for {taken[me]} rows from rank {me}, which is this one", allowed)
    row = row_nbytes(source)
    sends, recvs = tuple(row * rows for rows in given), tuple(row * rows for rows in taken)
    signature, text = sign("all_to_all_single", source.dtype, (source.shape,), "", NO_ROOT, sends, recvs)
    out = FlatOutput(target)
    [flat] = keep_apart([flat_input(source)], [out.flat])
    return Prepared(
        signature, parts(flat, sends), parts(out.flat, recvs), _commits(output, out), _arrays(output, input), text
    )


# --- reductions of which each reads its own --------------------------------------------------------------------------


def reduce_scatter(place: Place, output: object, input_list: object, op: ReduceOp = ReduceOp.SUM) -> Prepared:
    """Rank r's output becomes the reduction of entry r of all lists; entries may differ in size."""
    sources, target = take_inputs(input_list, "input_list", place.size), as_output(output, "output")
    check_dtypes(sources, "input_list", target, "output")
    check_size(target, "output", sources[place.rank], f"input_list[{place.rank}]")
    name = op_name(op)
    check_reduction(target.dtype, name, [source.shape for source in sources], "input_list")
    sends = tuple(source.nbytes for source in sources)
    signature, text = sign("reduce_scatter", target.dtype, list_shapes(sources), name, NO_ROOT, sends, (target.nbytes,))
    out = FlatOutput(target)
    pieces = _scattered(place, [flat_input(source) for source in sources], out)
    return Prepared(signature, pieces, [out.flat], _commits(output, out), _arrays(output, input_list), text)


def _scattered(place: Place, pieces: list[Bytes], out: FlatOutput) -> list[Bytes]:
    """The inputs' bytes. The output may stand in this rank's own piece, which nobody else reads."""
    return pieces if is_same(pieces[place.rank], out.flat) else keep_apart(pieces, [out.flat])


def reduce_scatter_tensor(place: Place, output: object, input: object, op: ReduceOp = ReduceOp.SUM) -> Prepared:
    """Rank r's output becomes part r of the reduction of all inputs, which are cut into equal parts."""
    source, target = as_input(input, "input"), as_output(output, "output")
    check_dtype(target, "output", source, "input")
    check_scattered(target, source, place.size)
    name = op_name(op)
    check_reduction(source.dtype, name, [source.shape], "input")
    check_reduction(target.dtype, name, [target.shape], "output")
    sends, recvs = (target.nbytes,) * place.size, (target.nbytes,)
    signature, text = sign("reduce_scatter_tensor", source.dtype, (source.shape,), name, NO_ROOT, sends, recvs)
    out = FlatOutput(target)
    pieces = _scattered(place, parts(flat_input(source), sends), out)
    return Prepared(signature, pieces, [out.flat], _commits(output, out), _arrays(output, input), text)


# --- what they share -------------------------------------------------------------------------------------------------


def _returns(value: object) -> Callable[[], Any]:
    return lambda: value


def _commits(given: object, *outs: FlatOutput) -> Callable[[], Any]:
    staged = [out for out in outs if not out.direct]
    if not staged:
        return lambda: given

    def commit() -> object:
        for out in staged:
            out.commit()
        return given

    return commit


def _arrays(*values: object) -> list[Array]:
    """The caller's own arrays among the values and in those that are lists."""
    found: list[Array] = []
    for value in values:
        if isinstance(value, np.ndarray):
            found.append(value)
        elif isinstance(value, list | tuple):
            found += [item for item in value if isinstance(item, np.ndarray)]
    return found


def _elements(staging: Array, arrays: Sequence[Array]) -> list[Array]:
    """Consecutive views of flat ``staging``, shaped like the arrays."""
    ends = list(accumulate(array.size for array in arrays))
    starts = [0, *ends[:-1]]
    return [staging[start:end].reshape(array.shape) for start, end, array in zip(starts, ends, arrays, strict=True)]


def _check_coalesced(arrays: list[Array]) -> None:
    if not arrays:
        raise ArgumentError("tensors", "an empty list", "at least one array")
    check_dtypes(arrays, "tensors", arrays[0], "tensors[0]")


def check_absent(value: object, argument: str, name: str, root: int, place: Place) -> None:
    """Returns where a list that only the root needs is not given elsewhere (an empty one is as good as none)."""
    if value is not None and not (isinstance(value, list | tuple) and not value):
        given = f"given on rank {place.shown(place.rank)}, but {name} is rank {place.shown(root)}"
        raise ArgumentError(argument, given, "None on all other ranks")
