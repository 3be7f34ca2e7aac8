"""Signatures that are kept, and those that are not."""

import numpy as np
import pytest

from hocket.client.signing import list_shapes, only, sign, sign_barrier, sign_reduction
from hocket.protocol.errors import ArgumentError, UnsupportedError
from hocket.protocol.signature import NO_ROOT, Signature, decode_signature

F4 = np.dtype(np.float32)


def test_equal_calls_share_one_signature() -> None:
    first, second = (sign("all_gather", F4, ((3,),), "", NO_ROOT, (12,), (12, 12)) for _ in range(2))
    assert first is second
    assert decode_signature(first[1]) == first[0]


def test_every_difference_makes_another_signature() -> None:
    base = ("broadcast", F4, ((3,),), "", 0, (12,), ())
    others = [
        ("all_gather", F4, ((3,),), "", 0, (12,), ()),
        ("broadcast", np.dtype(np.int32), ((3,),), "", 0, (12,), ()),
        ("broadcast", F4, ((3, 1),), "", 0, (12,), ()),
        ("broadcast", F4, ((3,),), "SUM", 0, (12,), ()),
        ("broadcast", F4, ((3,),), "", 1, (12,), ()),
        ("broadcast", F4, ((3,),), "", 0, (), ()),
        ("broadcast", F4, ((3,),), "", 0, (12,), (0,)),
    ]
    found = [sign(*call) for call in (base, *others)]  # type: ignore[arg-type]
    assert len({text for _, text in found}) == len(found)


def test_byte_order_makes_no_difference_to_the_others() -> None:
    swapped = sign("broadcast", F4.newbyteorder(">"), ((3,),), "", 0, (12,), ())
    assert swapped == sign("broadcast", F4, ((3,),), "", 0, (12,), ())


def test_long_lists_of_sizes_are_not_kept() -> None:
    sizes = (4,) * 1000
    first, second = (sign("all_gather", F4, ((1,),), "", NO_ROOT, (4,), sizes) for _ in range(2))
    assert first == second
    assert first[0] is not second[0]


def test_a_reduction_counts_the_bytes_of_all_shapes() -> None:
    signature, _ = sign_reduction("all_reduce_coalesced", F4, ((2, 3), (), (0, 9)), "SUM", NO_ROOT)
    assert signature == Signature("all_reduce_coalesced", "float32", 4, ((2, 3), (), (0, 9)), "SUM", NO_ROOT, (28,), ())


def test_a_refusal_is_not_taken_for_a_signature_the_second_time() -> None:
    for _ in range(2):
        with pytest.raises(UnsupportedError, match="AVG"):
            sign_reduction("all_reduce", np.dtype(np.int64), ((2,),), "AVG", NO_ROOT)


def test_elements_of_no_bytes_count_as_one_for_the_others() -> None:
    signature, text = sign("broadcast", np.dtype("V0"), ((3,),), "", 0, (0,), ())
    assert decode_signature(text) == signature
    assert signature.itemsize == 1


def test_a_signature_that_is_too_long_says_what_to_do() -> None:
    with pytest.raises(ArgumentError, match="too long to describe.*smaller group"):
        sign("all_to_all", F4, ((1,),), "", NO_ROOT, (1 << 40,) * 4096, ())


def test_a_barrier_has_no_sizes() -> None:
    signature, text = sign_barrier()
    assert (signature, decode_signature(text)) == (Signature("barrier"), signature)


def test_only_the_root_has_bytes() -> None:
    assert [only(root, 7, 3) for root in range(3)] == [(7, 0, 0), (0, 7, 0), (0, 0, 7)]


def test_equal_shapes_are_told_once_and_very_many_not_all() -> None:
    assert list_shapes([np.zeros((2, 3))] * 5) == ((2, 3),)
    assert list_shapes([np.zeros(2), np.zeros((1, 2))]) == ((2,), (1, 2))
    many = list_shapes([np.zeros(length) for length in range(1000)])
    assert many == tuple((length,) for length in range(len(many)))
    assert 10 < len(many) < 100
