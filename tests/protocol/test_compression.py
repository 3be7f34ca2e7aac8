"""How a compression is spelt, and which operations take one."""

from typing import Any

import pytest

from hocket.protocol.compression import CODECS, DTYPES, Compression, check_compression, compression_name
from hocket.protocol.errors import ArgumentError, ArgumentTypeError, UnsupportedError, WireError
from hocket.protocol.limits import IDENTITY_NBYTES
from hocket.protocol.reduce_ops import ReduceOp


@pytest.mark.parametrize("name", ["", "layer 1", "a:b", "ä" * (IDENTITY_NBYTES // 2)])
@pytest.mark.parametrize("codec", CODECS)
def test_a_compression_comes_back_as_it_was(codec: str, name: str) -> None:
    compression = Compression(codec, name)
    assert Compression.from_wire(compression.to_wire()) == compression
    assert compression_name(compression) == str(compression)


def test_a_codec_s_name_is_as_good_and_none_is_none() -> None:
    assert compression_name("int8") == compression_name(Compression("int8")) == "int8"
    assert compression_name(None) == ""
    assert compression_name(Compression("bf16", "w")) == "bf16:w"


@pytest.mark.parametrize("text", ["", "int4", "int8:", "INT8", ":name", "int8:" + "n" * (IDENTITY_NBYTES + 1)])
def test_what_is_no_compression_is_a_wire_error(text: str) -> None:
    with pytest.raises(WireError):
        Compression.from_wire(text)


@pytest.mark.parametrize("value", ["fp4", "int8:name", ""])
def test_a_codec_that_is_none_is_refused_by_name(value: str) -> None:
    with pytest.raises(ArgumentError, match="allowed is None, 'bf16' or 'int8'"):
        compression_name(value)


@pytest.mark.parametrize("value", [8, True, ["int8"], b"int8"])
def test_anything_else_is_of_a_wrong_type(value: Any) -> None:
    with pytest.raises(ArgumentTypeError, match="compression"):
        compression_name(value)


def test_names_are_bounded_strings() -> None:
    with pytest.raises(ArgumentError, match=f"at most {IDENTITY_NBYTES} bytes"):
        Compression("int8", "ä" * IDENTITY_NBYTES)
    for name in ("one\nline", "\ud800"):
        with pytest.raises(ArgumentError, match="printed"):
            Compression("int8", name)
    number: Any = 1
    with pytest.raises(ArgumentTypeError, match="error_feedback"):
        Compression("int8", number)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("dtype", sorted(DTYPES))
def test_sums_of_floats_may_be_compressed(dtype: str, codec: str) -> None:
    for op in (ReduceOp.SUM, ReduceOp.AVG):
        check_compression("all_reduce", dtype, op, codec)
        check_compression("all_reduce_coalesced", dtype, op, f"{codec}:name")


@pytest.mark.parametrize(
    ("kind", "dtype", "op", "words"),
    [
        ("all_reduce", "int32", ReduceOp.SUM, "int32 does not support compression int8; leave it out, or convert"),
        ("all_reduce", "complex64", ReduceOp.SUM, "complex64 does not support compression int8"),
        ("all_reduce", "float32", ReduceOp.MAX, "reduce op MAX with compression int8; use SUM or AVG"),
        ("all_reduce", "float32", ReduceOp.PREMUL_SUM(2.0), "reduce op PREMUL_SUM with compression int8"),
        ("reduce", "float32", ReduceOp.SUM, "compression in reduce"),
    ],
)
def test_what_may_not_is_unsupported_and_says_what_to_do(kind: str, dtype: str, op: ReduceOp, words: str) -> None:
    with pytest.raises(UnsupportedError, match=words):
        check_compression(kind, dtype, op, "int8")
    check_compression(kind, dtype, op, "")
