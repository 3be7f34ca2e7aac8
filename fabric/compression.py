"""Partial sums made small for slow links: encode, and decode to the same bits on every host.

    bf16    each element rounded to the nearest bfloat16, of two equally near ones the even: 2 bytes for an element
    int8    blocks of `BLOCK_ELEMENTS`: each has a scale, the block's largest magnitude / 127, and its elements are
            the nearest multiples of the scale: 1 byte for an element, and the scale, in the array's own dtype

With x an element, B the largest finite magnitude in its block and f(x) what decoding makes of it, for finite x:

    bf16    |f(x) - x| <= 2^-8 (1 + 2^-16) |x| + 2^-134     beyond 3.3961e38, where bfloat16 ends, f(x) is infinite
    int8    |f(x) - x| <= B / 253 + 2^-142                  (B / 247 in a block that holds NaN or an infinity)

NaN stays NaN and an infinity stays the same infinity, each at its own place. In int8, a block with such elements has a
negative scale, by which its finite elements take 124 levels on each side and three further ones stand for the others.
"""

from functools import lru_cache
from typing import Any, Final

import ml_dtypes
import numpy as np
import numpy.typing as npt

from hocket.fabric.board import Bytes

Floats = npt.NDArray[np.floating[Any]]
"""float32[n] or float64[n], contiguous: an accumulator."""

BLOCK_ELEMENTS: Final = 256
"""Smaller blocks follow the data more closely, and cost more for their scales: here 1/64 of float32's elements."""
SLAB_ELEMENTS: Final = 32 << 10
"""As many go through all steps at once as fit into a core's cache with what the steps leave."""

_LEVELS, _FEW_LEVELS = 127, 124
_PLUS_INFINITY, _MINUS_INFINITY, _NAN = 127, -127, -128


def encoded_nbytes(codec: str, elements: int, itemsize: int) -> int:
    """Nbytes of what `encode` makes of so many elements of an accumulator of ``itemsize`` bytes."""
    if codec == "bf16":
        return 2 * elements
    return -(-elements // BLOCK_ELEMENTS) * itemsize + elements


def encode(codec: str, array: Floats, out: Bytes | None = None) -> Bytes:
    """Compresses an array.

    Args:
        codec: one of `hocket.protocol.compression.CODECS`.
        array: what to compress; left alone.
        out: room for it, uint8[encoded_nbytes(...)]; None: fresh.

    Returns:
        ``out``.
    """
    if out is None:
        out = np.empty(encoded_nbytes(codec, len(array), array.itemsize), np.uint8)
    with np.errstate(all="ignore"):
        if codec == "bf16":
            out.view(ml_dtypes.bfloat16)[:] = array
        else:
            scales, levels = _parts(out, len(array), array.dtype)
            scratch = np.empty(min(SLAB_ELEMENTS, len(array)), array.dtype)
            for start in range(0, len(array), SLAB_ELEMENTS):
                stop, blocks = start + SLAB_ELEMENTS, start // BLOCK_ELEMENTS
                _quantise(array[start:stop], scales[blocks : stop // BLOCK_ELEMENTS], levels[start:stop], scratch)
    return out


def decode(codec: str, data: Bytes, out: Floats, *, add: bool = False) -> None:
    """Takes back what `encode` compressed.

    Args:
        codec: the one it was encoded by.
        data: uint8[encoded_nbytes(...)].
        out: where it goes, with as many elements, and of the dtype, of the array encoded.
        add: whether it is added to what is there.
    """
    assert len(data) == encoded_nbytes(codec, len(out), out.itemsize), f"{len(data)} bytes of {len(out)} elements"
    scales, levels = _parts(data, len(out), out.dtype) if codec == "int8" else (None, data.view(ml_dtypes.bfloat16))
    scratch = np.empty(SLAB_ELEMENTS if add else 0, out.dtype)
    with np.errstate(all="ignore"):
        for start in range(0, len(out), SLAB_ELEMENTS):
            stop, blocks = start + SLAB_ELEMENTS, start // BLOCK_ELEMENTS
            into = scratch[: len(out) - start] if add else out[start:stop]
            if scales is None:
                into[:] = levels[start:stop]
            else:
                _multiply(into, scales[blocks : stop // BLOCK_ELEMENTS], levels[start:stop])
            if add:
                out[start:stop] += into


def _parts(data: Bytes, elements: int, dtype: "np.dtype[Any]") -> "tuple[Floats, npt.NDArray[np.int8]]":
    """The scales and the levels in an encoded array."""
    start = -(-elements // BLOCK_ELEMENTS) * dtype.itemsize
    return data[:start].view(dtype), data[start:].view(np.int8)


def _rows(array: Any) -> tuple[Any, Any]:
    """The whole blocks of a slab as rows, and the shorter block at its end."""
    whole = len(array) - len(array) % BLOCK_ELEMENTS
    return array[:whole].reshape(-1, BLOCK_ELEMENTS), array[whole:].reshape(1, -1)


def _quantise(array: Floats, scales: Floats, levels: "npt.NDArray[np.int8]", scratch: Floats) -> None:
    for rows, into in zip(_rows(array), _rows(levels), strict=True):
        if rows.size:
            count = len(rows)
            _quantise_rows(rows, scales[:count], into, scratch[: rows.size].reshape(rows.shape))
            scales = scales[count:]


def _quantise_rows(rows: Floats, scales: Floats, levels: "npt.NDArray[np.int8]", work: Floats) -> None:
    np.abs(rows, out=work)
    largest = work.max(axis=1)
    scales[:] = _scales(largest, _LEVELS)
    np.divide(rows, np.where(scales > 0, scales, 1)[:, None], out=work)
    np.rint(work, out=work)
    if (scales < _limits(rows.dtype, _LEVELS)[0]).any():  # so coarse are scales there that a quotient may leave int8
        np.clip(work, -_LEVELS, _LEVELS, out=work)
    np.copyto(levels, work, casting="unsafe")
    broken = np.flatnonzero(~np.isfinite(largest))
    if len(broken):
        scales[broken], levels[broken] = _quantise_broken(rows[broken])


@lru_cache(8)
def _limits(dtype: "np.dtype[Any]", levels: int) -> tuple[Any, Any]:
    """The smallest normal number, and the largest scale whose last level is finite."""
    of = np.finfo(dtype)
    return of.tiny, np.nextafter(of.max / dtype.type(levels), dtype.type(0))


def _scales(largest: Floats, levels: int) -> Floats:
    """What stands for one level where the largest magnitude is that of the last level.

    It is kept from rounding up so far that the largest numbers there are would come back as infinities.
    """
    one = largest.dtype.type(levels)
    scales: Floats = np.minimum(largest / one, _limits(largest.dtype, levels)[1])
    return scales


def _quantise_broken(rows: Floats) -> "tuple[Floats, npt.NDArray[np.int8]]":
    """The scales, negative, and the levels of blocks with elements that are not finite."""
    finite = np.where(np.isfinite(rows), rows, 0)
    scales = _scales(np.abs(finite).max(axis=1), _FEW_LEVELS)
    work = np.rint(finite / np.where(scales > 0, scales, 1)[:, None])
    levels = np.clip(work, -_FEW_LEVELS, _FEW_LEVELS).astype(np.int8)
    levels[np.isposinf(rows)], levels[np.isneginf(rows)] = _PLUS_INFINITY, _MINUS_INFINITY
    levels[np.isnan(rows)] = _NAN
    return -scales, levels


def _multiply(out: Floats, scales: Floats, levels: "npt.NDArray[np.int8]") -> None:
    for rows, from_ in zip(_rows(out), _rows(levels), strict=True):
        if rows.size:
            mine, scales = scales[: len(rows)], scales[len(rows) :]
            np.multiply(from_, mine[:, None], out=rows)
            broken = np.flatnonzero(np.signbit(mine))
            if len(broken):
                rows[broken] = _multiply_broken(from_[broken], -mine[broken])


def _multiply_broken(levels: "npt.NDArray[np.int8]", scales: Floats) -> Floats:
    rows: Floats = levels * scales[:, None]
    rows[levels == _PLUS_INFINITY], rows[levels == _MINUS_INFINITY] = np.inf, -np.inf
    rows[levels == _NAN] = np.nan
    return rows
