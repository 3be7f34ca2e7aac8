"""How operations are cut into blocks: everything moves once, fits, and is the same on every rank."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.fabric.plan import Plan, Shape, plan_for, shape_for
from hocket.protocol.errors import AbortedError, HocketError, MismatchError
from hocket.protocol.limits import SMALL_NBYTES
from hocket.protocol.signature import NO_ROOT, Signature, encode_signature, withdrawn

BLOCKS = st.sampled_from([512, 1000, 4096, 1 << 16])
DTYPES = st.sampled_from(
    [("int8", 1), ("float16", 2), ("bfloat16", 2), ("float32", 4), ("complex64", 8), ("complex128", 16)]
)


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    """Any member's contribution to any operation."""
    size = draw(st.integers(1, 9))
    dtype, itemsize = draw(DTYPES)
    kind = draw(st.sampled_from(["all_gather", "scan", "all_to_all", "all_reduce", "reduce_scatter", "broadcast"]))
    several = kind in ("all_to_all", "reduce_scatter")
    elements = draw(st.lists(st.integers(0, 5000), min_size=size if several else 1, max_size=size if several else 1))
    op = draw(st.sampled_from(["SUM", "MAX"])) if kind in ("scan", "all_reduce", "reduce_scatter") else ""
    root = 0 if kind == "broadcast" else NO_ROOT
    sends = tuple(count * itemsize for count in elements)
    return Shape(Signature(kind, dtype, itemsize, (), op, root, sends, ()), size, draw(BLOCKS))


@given(shapes())
def test_every_byte_moves_once_and_in_order(shape: Shape) -> None:
    for reader, nbytes in enumerate(shape.signature.sends):
        pieces = [shape.piece(block, reader) for block in range(shape.owed)]
        assert sum(length for _, length in pieces) == nbytes
        assert all(start == sum(length for _, length in pieces[:block]) for block, (start, _) in enumerate(pieces))
        assert shape.piece(shape.owed, reader)[1] == 0


@given(shapes())
def test_the_last_block_that_is_owed_is_not_empty(shape: Shape) -> None:
    if shape.owed:
        assert any(shape.piece(shape.owed - 1, reader)[1] for reader in range(len(shape.signature.sends)))
    else:
        assert not any(shape.signature.sends)


@given(shapes())
def test_pieces_lie_side_by_side_inside_the_slot(shape: Shape) -> None:
    places = [(shape.place(reader), shape.unit) for reader in range(len(shape.signature.sends))]
    for (start, nbytes), (after, _) in itertools.pairwise(places):
        assert start + nbytes <= after
    assert places[-1][0] + places[-1][1] <= shape.block_nbytes


@given(shapes())
def test_results_fit_their_slot_in_the_accumulator_s_dtype(shape: Shape) -> None:
    if shape.reduces:
        parts = len(shape.signature.sends)
        wide = shape.unit // shape.signature.itemsize * shape.wide
        assert [shape.result_place(part) for part in range(parts)] == [part * wide for part in range(parts)]
        assert parts * wide <= shape.block_nbytes


@given(shapes())
def test_reductions_are_cut_at_whole_pairs(shape: Shape) -> None:
    if shape.reduces:
        assert shape.unit % (2 * shape.signature.itemsize) == 0


def test_who_contributes_nothing_owes_nothing() -> None:
    shape = shape_for(Signature("broadcast", "int8", 1, ((5,),), "", 1, (), (0, 5)), 2, 4096)
    assert shape.owed == 0
    assert shape.piece(0) == (0, 0)


# --- plans -----------------------------------------------------------------------------------------------------------


def plan(signatures: list[Signature], block_nbytes: int = 4096) -> Plan | HocketError:
    return plan_for(tuple(encode_signature(signature) for signature in signatures), block_nbytes)


def agreed(signatures: list[Signature], block_nbytes: int = 4096) -> Plan:
    found = plan(signatures, block_nbytes)
    assert isinstance(found, Plan)
    return found


def all_reduce(nbytes: int) -> Signature:
    return Signature("all_reduce", "int8", 1, ((nbytes,),), "SUM", NO_ROOT, (nbytes,), (nbytes,))


def test_a_plan_has_as_many_blocks_as_the_longest_contribution() -> None:
    lengths = (0, 4096, 4097)
    gather = [Signature("all_gather", "int8", 1, (), "", NO_ROOT, (length,), lengths) for length in lengths]
    found = agreed(gather)
    assert [shape.owed for shape in found.shapes] == [0, 1, 2]
    assert found.nblocks == 2
    assert agreed([Signature("barrier")] * 3).nblocks == 0


def test_an_operation_is_small_up_to_the_limit_and_within_one_block() -> None:
    assert agreed([all_reduce(SMALL_NBYTES)] * 2, 1 << 20).small
    assert not agreed([all_reduce(SMALL_NBYTES + 1)] * 2, 1 << 20).small
    assert not agreed([all_reduce(4097)] * 2, 4096).small


@pytest.mark.parametrize(
    ("kind", "readers"),
    [("broadcast", {0, 1, 2}), ("scatter", {0, 1, 2}), ("gather", {1}), ("reduce", {1})],
)
def test_the_root_alone_reads_where_everything_comes_together(kind: str, readers: set[int]) -> None:
    signatures = [Signature(kind, "int8", 1, (), "SUM" if kind == "reduce" else "", 1) for _ in range(3)]
    found = agreed(signatures)
    assert {member for member in range(3) if found.reads(member)} == readers
    assert found.root == 1


def test_everybody_reads_without_a_root() -> None:
    found = agreed([all_reduce(8)] * 3)
    assert all(found.reads(member) for member in range(3))
    assert not found.prefix
    assert (found.kind, found.op.name, found.size) == ("all_reduce", "SUM", 3)


def test_who_disagrees_gets_an_error_in_place_of_a_plan() -> None:
    assert isinstance(plan([all_reduce(8), all_reduce(9)]), MismatchError)
    gone = withdrawn("all_reduce", AbortedError(1, "cancelled"))
    assert isinstance(plan([all_reduce(8), gone]), AbortedError)
