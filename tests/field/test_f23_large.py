"""F23: more than 2^31 elements or bytes. The arithmetic always; the arrays themselves where there is memory."""

import faulthandler
import os
from typing import Any

import numpy as np
import pytest
from harness.processes import Rank, real_service

from hocket.fabric.plan import plan_for
from hocket.protocol.codec import decode, encode
from hocket.protocol.frames import FrameReader, encode_frame
from hocket.protocol.messages import Chunk, P2POffer, Submit
from hocket.protocol.signature import Signature, decode_signature, encode_signature

LENGTHS = (2**31 - 1, 2**31, 2**31 + 3, 2**32 + 1, 2**40)
GIB = 1 << 30


@pytest.mark.parametrize("nbytes", LENGTHS)
def test_f23_a_frame_may_announce_a_payload_of_any_such_length(nbytes: int) -> None:
    announced: list[int] = []

    def sink(_message: Any, length: int) -> None:
        announced.append(length)

    reader = FrameReader(sink, trusted=True)
    head = encode_frame(Chunk(1, "", 1, 0, 1), nbytes)
    reader.buffer()[: len(head)] = head
    reader.took(len(head))
    assert reader.next() is None and announced == [nbytes]
    left = nbytes
    for _ in range(3):
        taken = len(reader.buffer())
        reader.took(taken)
        left -= taken
        assert reader.next() is None
    assert reader._missing == left
    if nbytes <= 2**32 + 1:
        while left:
            taken = min(left, len(reader.buffer()))
            reader.took(taken)
            left -= taken
            found = reader.next()
        assert found == (Chunk(1, "", 1, 0, 1), nbytes) and reader.idle


@pytest.mark.parametrize("nbytes", LENGTHS)
def test_f23_signatures_messages_and_plans_count_beyond_32_bits(nbytes: int) -> None:
    signature = Signature("broadcast", "uint8", 1, ((nbytes,),), "", 0, (nbytes,), ())
    reader = Signature("broadcast", "uint8", 1, ((nbytes,),), "", 0, (), (nbytes, 0))
    assert decode_signature(encode_signature(signature)) == signature and str(nbytes) in str(signature)
    plan = plan_for((encode_signature(signature), encode_signature(reader)), 1 << 20)
    shape = plan.shapes[0]  # type: ignore[union-attr]
    start, size = shape.piece(shape.owed - 1, 1)
    assert start + size == nbytes and 0 < size <= 1 << 20 and start == (shape.owed - 1) * shape.unit
    submit = Submit(1, "", 1, b"", (nbytes,), (nbytes, nbytes), 1.0)
    assert decode(encode(submit)) == submit
    offer = P2POffer(1, "", 0, 1, 0, 1, "uint8", nbytes, nbytes, False)
    assert decode(encode(offer)) == offer


def marked(length: int) -> Any:
    x = np.zeros(length, np.uint8)
    for index, value in zip((0, 2**31 - 1, 2**31, length - 1), (7, 8, 9, 11), strict=True):
        x[index] = value
    return x


def marks(x: Any) -> list[int]:
    """The marked elements and the sum of all."""
    found = [int(x[index]) for index in (0, 2**31 - 1, 2**31, len(x) - 1)]
    return [*found, int(x.sum(dtype=np.uint64))]


async def large(rank: Rank) -> dict[str, Any]:
    import hocket

    length, found = 2**31 + 3, {}
    async with rank.connect(timeout=240) as client:
        x = marked(length) if rank.number == 0 else np.zeros(length, np.uint8)
        await client.broadcast(x, src=0)
        found["broadcast"] = marks(x)
        if rank.number == 1:
            x[:] = 0
        await client.all_reduce(x, op=hocket.ReduceOp.MAX)
        found["all_reduce"] = marks(x)
        if rank.number == 0:
            await client.send(x, dst=1)
        else:
            x[:] = 0
            await client.recv(x, src=0)
        found["send"] = marks(x)
        del x
        part, out = np.full(2**30 + 1, rank.number + 1, np.uint8), np.zeros(2**31 + 2, np.uint8)
        await client.all_gather_into_tensor(out, part)
        found["all_gather"] = [bool((out[: 2**30 + 1] == 1).all()), bool((out[2**30 + 1 :] == 2).all())]
    return found


async def larger(rank: Rank) -> list[int]:
    length = 2**32 + 1
    async with rank.connect(timeout=240) as client:
        x = marked(length) if rank.number == 0 else np.zeros(length, np.uint8)
        await (client.send(x, dst=1) if rank.number == 0 else client.recv(x, src=0))
        return marks(x)


def need(gib: float) -> None:
    """Skips unless these gigabytes are wanted and there. They take minutes, longer than a test may otherwise."""
    if os.environ.get("HOCKET_LARGE_TESTS") != "1":
        pytest.skip("moves 12 GiB through shared memory: set HOCKET_LARGE_TESTS=1")
    faulthandler.cancel_dump_traceback_later()
    pages = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if pages < gib * GIB:
        pytest.skip(f"needs {gib:g} GiB of free memory, there are {pages / GIB:.1f}")


@pytest.mark.slow
@pytest.mark.parametrize("hosts", [1, 2])
def test_f23abc_arrays_of_more_than_two_to_the_31(hosts: int) -> None:
    need(9)
    with real_service(hosts) as service:
        for rank in service.start(large, (0, hosts - 1)):
            found = rank.result(within_s=300)
            for kind in ("broadcast", "all_reduce", "send"):
                assert found[kind] == [7, 8, 9, 11, 35], kind
            assert found["all_gather"] == [True, True]
        assert [line for process in service.workers for line in process.log if "-2147" in line] == []


@pytest.mark.slow
def test_f23d_a_message_of_more_than_two_to_the_32() -> None:
    need(11)
    with real_service(1) as service:
        for rank in service.start(larger, (0, 0)):
            assert rank.result(within_s=300) == [7, 8, 9, 11, 35]
