"""Members that called the same go on; members that did not all find the same error, whoever looks."""

import dataclasses

import pytest

from hocket.protocol.errors import AbortedError, ArgumentError, HocketError, MismatchError, SerialiseError, WireError
from hocket.protocol.limits import SIGNATURE_NBYTES
from hocket.protocol.signature import (
    FAMILY,
    Agreement,
    Family,
    Signature,
    agree,
    decode_signature,
    encode_signature,
    withdrawn,
)

REDUCE = Signature("all_reduce", "float32", 4, ((10,),), "SUM", -1, (40,))


def outcome(*signatures: Signature) -> Agreement | HocketError:
    return agree(tuple(encode_signature(signature) for signature in signatures))


def why(*signatures: Signature) -> str:
    found = outcome(*signatures)
    assert isinstance(found, MismatchError)
    return str(found)


def test_a_signature_comes_back_as_it_was() -> None:
    compressed = dataclasses.replace(REDUCE, compression="bf16:gradients")
    other = withdrawn("reduce", ArgumentError("dst", "7", "0 to 3"))
    for signature in (REDUCE, compressed, Signature("barrier"), other):
        assert decode_signature(encode_signature(signature)) == signature


def test_equal_calls_agree() -> None:
    found = outcome(REDUCE, REDUCE, REDUCE)
    assert isinstance(found, Agreement) and found.family is Family.REDUCE


@pytest.mark.parametrize(
    "change",
    [
        {"dtype": "int32"},
        {"shapes": ((5, 2),)},
        {"op": "MAX"},
        {"kind": "scan"},
        {"compression": "int8"},
        {"kind": "barrier"},
        {"shapes": ((20,),), "sends": (80,)},
    ],
)
def test_reductions_must_agree_in_everything(change: dict[str, object]) -> None:
    other = dataclasses.replace(REDUCE, **change)  # type: ignore[arg-type]
    found = outcome(REDUCE, other, REDUCE)
    assert isinstance(found, MismatchError)
    assert found.calls == (((0, 2), str(REDUCE)), ((1,), str(other)))


def test_members_that_compress_differently_are_told_how_each_does() -> None:
    calls = [dataclasses.replace(REDUCE, compression=name) for name in ("int8", "int8", "int8:weights", "")]
    text = why(*calls)
    assert "ranks 0, 1 called all_reduce(float32[10], op=SUM, compression=int8)," in text
    assert "rank 2 called all_reduce(float32[10], op=SUM, compression=int8:weights)," in text
    assert text.endswith("rank 3 called all_reduce(float32[10], op=SUM)")


@pytest.mark.parametrize("change", [{"compression": "int4"}, {"op": "MAX"}, {"dtype": "int32"}, {"kind": "reduce"}])
def test_a_compression_that_cannot_be_is_no_signature(change: dict[str, object]) -> None:
    good = dataclasses.replace(REDUCE, compression="int8")
    with pytest.raises(WireError):
        decode_signature(encode_signature(dataclasses.replace(good, **change)))  # type: ignore[arg-type]


def test_roots_must_agree() -> None:
    calls = [
        Signature("broadcast", "int8", 1, ((4,),), "", root, (4,) if root == r else ()) for r, root in ((0, 0), (1, 1))
    ]
    assert "root=0" in why(*calls) and "root=1" in why(*calls)


def gathered(own: int, expected: tuple[int, ...]) -> Signature:
    return Signature("all_gather", "int8", 1, ((own,),), "", -1, (own,), expected)


def test_uneven_gathers_agree_where_the_outputs_say_so() -> None:
    assert isinstance(outcome(gathered(2, (2, 0)), gathered(0, (2, 0))), Agreement)


def test_a_gather_whose_output_is_too_small_names_sender_and_reader() -> None:
    assert "rank 1 sends 0 to rank 0, rank 0 expects 2" in why(gathered(2, (2, 2)), gathered(0, (2, 2)))


def test_a_leaf_of_a_gather_expects_nothing_and_is_not_asked() -> None:
    root = Signature("gather", "int8", 1, ((3,),), "", 0, (3,), (3, 3))
    leaf = Signature("gather", "int8", 1, ((3,),), "", 0, (3,), ())
    assert isinstance(outcome(root, leaf), Agreement)
    assert "rank 1 sends 4" in why(root, dataclasses.replace(leaf, sends=(4,), shapes=((4,),)))


def test_splits_are_compared_pair_by_pair() -> None:
    first = Signature("all_to_all_single", "int8", 1, ((3,),), "", -1, (1, 2), (1, 0))
    second = Signature("all_to_all_single", "int8", 1, ((0,),), "", -1, (0, 0), (1, 0))
    assert "rank 0 sends 2 to rank 1, rank 1 expects 1" in why(first, second)


def test_parts_of_a_reduce_scatter_must_be_the_same_everywhere() -> None:
    first = Signature("reduce_scatter", "int8", 1, ((1,), (2,)), "SUM", -1, (1, 2), (1,))
    second = dataclasses.replace(first, recvs=(2,))
    assert isinstance(outcome(first, second), Agreement)
    assert "rank 1's input" in why(first, dataclasses.replace(second, sends=(2, 1)))
    assert "rank 1 gets 2 elements, its output has 1" in why(first, first)


def test_a_withdrawn_call_aborts_for_all_and_names_the_rank_and_its_reason() -> None:
    found = outcome(REDUCE, withdrawn("all_reduce", ArgumentError("tensor", "1.0 (float)", "an array")))
    assert isinstance(found, AbortedError) and found.rank == 1 and "1.0 (float)" in found.cause


def test_an_object_that_cannot_travel_is_everybodys_serialise_error() -> None:
    found = outcome(withdrawn("all_gather_object", SerialiseError(0, "function", "no")), Signature("all_gather_object"))
    assert isinstance(found, SerialiseError) and found.rank == 0


def test_a_signature_that_does_not_fit_the_board_is_refused_by_its_size() -> None:
    with pytest.raises(WireError, match=str(SIGNATURE_NBYTES - 8)):
        encode_signature(dataclasses.replace(REDUCE, sends=tuple(range(2**20, 2**20 + SIGNATURE_NBYTES))))


@pytest.mark.parametrize("data", [b"", b"\x91\x01", b"\xc1", encode_signature(REDUCE)[:-3]])
def test_what_is_no_signature_is_a_wire_error(data: bytes) -> None:
    with pytest.raises(WireError):
        decode_signature(data)


def test_negative_sizes_are_refused() -> None:
    with pytest.raises(WireError):
        decode_signature(encode_signature(dataclasses.replace(REDUCE, sends=(-4,))))


def test_every_collective_has_a_family() -> None:
    assert set(FAMILY.values()) == set(Family)
