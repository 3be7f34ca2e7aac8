"""Compressed sums among hosts: the same bits everywhere, within the documented bounds, nothing lost in the long run."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hocket.fabric.compression import BLOCK_ELEMENTS, Floats, encoded_nbytes
from hocket.protocol.compression import CODECS
from hocket.protocol.errors import UnsupportedError, WireError
from hocket.protocol.limits import BLOCK_NBYTES
from hocket.protocol.signature import Signature
from hocket.worker.compression import DIRECT_HOSTS, Feedback, Phase, compressed, pack, unpack
from hocket.worker.schedules.schedule import Round

SIZES = (1, 2, 3, 4, 5, 7, 8)


class Wire:
    """What hosts have sent one another."""

    def __init__(self, hosts: int) -> None:
        self.queues: dict[tuple[int, int], deque[list[bytes]]] = {}
        self.sent = [0] * hosts

    def carry(self, phases: Sequence[Phase]) -> None:
        """Carries out one phase on all hosts."""
        waiting: deque[tuple[int, Iterator[Round], Round | None]] = deque()
        for host, phase in enumerate(phases):
            waiting.append((host, phase.choice.rounds(host), None))
        while waiting:
            host, rounds, step = waiting.popleft()
            if step is None:
                step = next(rounds, None)
                if step is None:
                    continue
                self._send(host, step, phases[host])
            if step.source is None or self._receive(host, step, phases[host]):
                step = None
            waiting.append((host, rounds, step))

    def _send(self, host: int, step: Round, phase: Phase) -> None:
        if step.to is not None:
            data = [view.tobytes() for chunk in step.send for view in phase.views_of(chunk)]
            self.sent[host] += sum(map(len, data))
            self.queues.setdefault((host, step.to), deque()).append(data)

    def _receive(self, host: int, step: Round, phase: Phase) -> bool:
        assert step.source is not None
        queue = self.queues.get((step.source, host))
        if not queue:
            return False
        views = [view for chunk in step.recv for view in phase.views_of(chunk)]
        for view, data in zip(views, queue.popleft(), strict=True):
            view[:] = np.frombuffer(data, np.uint8)
        return True


def together(
    codec: str, sums: Sequence[Floats], owed: Sequence[Floats] | None = None
) -> tuple[list[Floats], list[int]]:
    """What each host ends with, and how many bytes each has sent."""
    hosts, accs, wire = len(sums), [part.copy() for part in sums], Wire(len(sums))
    steps = [compressed(codec, acc, owed[h] if owed else None, hosts, h) for h, acc in enumerate(accs)]
    for phases in zip(*steps, strict=True):
        wire.carry(phases)
    assert not any(wire.queues.values())
    return accs, wire.sent


def bound(codec: str, sums: Sequence[Floats]) -> Any:
    """By how much each element may be off, as docs/how-to/compression.md has it; rounding of the additions included."""
    parts = [_largest(codec, part) for part in sums]
    limit = sum(parts) / _divisor(codec)
    if len(sums) > DIRECT_HOSTS:
        total = _largest(codec, np.sum(sums, axis=0, dtype=np.float64))
        again = total + _blockwise_max(codec, limit)
        limit = limit + again / _divisor(codec)
    return limit + sum(parts) * len(sums) * np.finfo(sums[0].dtype).eps + 2.0**-130


def _divisor(codec: str) -> float:
    return 255.9 if codec == "bf16" else 253.0


def _largest(codec: str, array: Any) -> Any:
    return _blockwise_max(codec, np.abs(array.astype(np.float64)))


def _blockwise_max(codec: str, array: Any) -> Any:
    if codec == "bf16":
        return array
    starts = np.arange(0, max(len(array), 1), BLOCK_ELEMENTS)
    return np.repeat(np.maximum.reduceat(array, starts), BLOCK_ELEMENTS)[: len(array)] if len(array) else array


# --- one block -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
@settings(deadline=None, max_examples=120)
@given(
    hosts=st.sampled_from(SIZES),
    elements=st.sampled_from([1, 2, 100, 256, 257, 1000, 2600]),
    dtype=st.sampled_from(["float32", "float64"]),
    seed=st.integers(0, 2**32 - 1),
    outliers=st.booleans(),
)
def test_all_hosts_end_with_the_same_bits_within_the_bound(
    codec: str, hosts: int, elements: int, dtype: str, seed: int, outliers: bool
) -> None:
    random = np.random.default_rng(seed)
    sums = [
        random.standard_normal(elements).astype(dtype) * np.float32(2.0 ** random.integers(-60, 60))
        for _ in range(hosts)
    ]
    if outliers:
        for part in sums:
            part[random.integers(elements)] *= np.float32(1e6)
    found, _ = together(codec, sums)
    assert len({acc.tobytes() for acc in found}) == 1
    assert (np.abs(found[0] - np.sum(sums, axis=0, dtype=np.float64)) <= bound(codec, sums)).all()


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("hosts", [2, 3, 5])
def test_nothing_that_is_not_finite_is_hidden(codec: str, hosts: int) -> None:
    sums = [np.linspace(-1, 1, 3000, dtype=np.float32) for _ in range(hosts)]
    sums[0][7], sums[1][700], sums[hosts - 1][1400] = np.nan, np.inf, -np.inf
    sums[0][2000], sums[1][2000] = np.inf, -np.inf
    found, _ = together(codec, sums)
    with np.errstate(invalid="ignore"):
        expected = np.sum(sums, axis=0)
    broken = ~np.isfinite(expected)
    assert broken.sum() == 4
    for acc in found:
        np.testing.assert_array_equal(acc[broken], expected[broken])
        assert np.isfinite(acc[~broken]).all()
        assert np.abs(acc[~broken] - expected[~broken]).max() < hosts * 2 / 100


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("hosts", SIZES)
def test_hosts_send_as_little_as_the_module_says(codec: str, hosts: int) -> None:
    elements = BLOCK_NBYTES // 4
    _, sent = together(codec, [np.ones(elements, np.float32) for _ in range(hosts)])
    nbytes = encoded_nbytes(codec, elements, 4)
    expected = (hosts - 1) * nbytes if hosts <= DIRECT_HOSTS else 2 * (hosts - 1) * nbytes // hosts
    grain = 0 if hosts <= DIRECT_HOSTS else 2 * hosts * encoded_nbytes(codec, BLOCK_ELEMENTS, 4)
    assert sent == pytest.approx([expected] * hosts, abs=grain)


# --- small operations ------------------------------------------------------------------------------------------------

SIGNATURE = Signature("all_reduce", "float32", 4, ((700,),), "SUM", sends=(2800,), compression="int8")


@pytest.mark.parametrize("codec", CODECS)
def test_a_small_sum_is_one_message_of_each_host(codec: str) -> None:
    signature = replace(SIGNATURE, compression=codec)
    sums = [np.random.default_rng(host).standard_normal(700).astype(np.float32) for host in range(5)]
    partials = [pack(signature, part.copy(), Feedback()) for part in sums]
    assert [len(partial) for partial in partials] == [encoded_nbytes(codec, 700, 4)] * 5
    acc = np.empty(700, np.float32)
    unpack(signature, partials, acc)
    direct = bound(codec, sums)
    assert (np.abs(acc - np.sum(sums, axis=0, dtype=np.float64)) <= direct).all()


def test_a_small_sum_of_another_length_is_refused() -> None:
    acc = np.zeros(700, np.float32)
    partial = pack(SIGNATURE, acc.copy(), Feedback())
    for wrong in (partial[:-1], b"", partial + b"0"):
        with pytest.raises(WireError, match=f"{len(wrong)} bytes of a compressed sum of {len(partial)}"):
            unpack(SIGNATURE, [partial, wrong], acc)


# --- error feedback --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("hosts", [2, 3, 5])
def test_with_feedback_the_sum_over_many_steps_is_off_by_no_more_than_that_of_one(codec: str, hosts: int) -> None:
    """The same sums every step: without feedback the same error is made every time, and adds up."""
    steps, elements = 200, 2000
    sums = [np.random.default_rng(host).standard_normal(elements).astype(np.float32) for host in range(hosts)]
    for part in sums:
        part[::256] *= 100  # what is small beside it would be rounded to nothing, for ever
    truth = steps * np.sum(sums, axis=0, dtype=np.float64)
    owed = [np.zeros(elements, np.float32) for _ in range(hosts)]
    with_feedback, without = np.zeros(elements), np.zeros(elements)
    for _ in range(steps):
        with_feedback += together(codec, sums, owed)[0][0]
        without += together(codec, sums)[0][0]
    one_step = 1.02 * bound(codec, sums) + steps * sum(map(np.abs, sums)) * 2.0**-22
    assert (np.abs(with_feedback - truth) <= one_step).all()
    assert np.abs(without - truth).max() > 10 * np.abs(with_feedback - truth).max()
    assert np.abs(np.sum(owed, axis=0) - (truth - with_feedback)).max() < 1e-3 * steps


def test_what_is_owed_stays_finite_where_the_numbers_do_not() -> None:
    owed = [np.zeros(300, np.float32) for _ in range(2)]
    bad = [np.full(300, value, np.float32) for value in (1.0, 2.0)]
    bad[0][3], bad[1][4] = np.nan, np.inf
    for codec in CODECS:
        together(codec, bad, owed)
        assert all(np.isfinite(part).all() for part in owed)
        found, _ = together(codec, [np.ones(300, np.float32)] * 2, owed)
        assert np.isfinite(found[0]).all()


def named(name: str, elements: int = 100, dtype: str = "float32") -> Signature:
    itemsize = np.dtype(dtype).itemsize
    sends = (elements * itemsize,)
    return Signature("all_reduce", dtype, itemsize, ((elements,),), "AVG", sends=sends, compression=f"int8:{name}")


def test_what_is_owed_is_found_under_its_name() -> None:
    feedback = Feedback()
    first = feedback.array(named("a"))
    assert first is not None
    first += 1
    feedback.keep()
    assert feedback.array(named("a")) is first
    assert feedback.array(named("b")) is not first
    assert feedback.array(SIGNATURE) is None


def test_an_array_of_another_form_is_owed_nothing() -> None:
    feedback = Feedback()
    for signature in (named("a"), named("a", 50), named("a", 50, "float64")):
        found = feedback.array(signature)
        assert found is not None and not found.any() and len(found) == sum(signature.sends) // signature.itemsize
        found += 1
    halves = feedback.array(named("h", 8, "float16"))
    assert halves is not None and halves.dtype == np.float32


def test_an_operation_that_was_not_carried_out_leaves_nothing_under_its_name() -> None:
    feedback = Feedback()
    kept = feedback.array(named("kept"))
    feedback.keep()
    dropped = feedback.array(named("dropped"))
    feedback.drop()
    assert feedback.array(named("kept")) is kept
    assert feedback.array(named("dropped")) is not dropped


def test_once_the_group_has_ended_nothing_is_remembered() -> None:
    feedback = Feedback()
    feedback.array(named("a"))
    feedback.release()
    assert feedback.nbytes == 0
    assert feedback.array(named("a")) is None
    feedback.drop()


def test_what_a_channel_remembers_is_bounded_and_the_refusal_says_by_what() -> None:
    feedback = Feedback(limit_nbytes=10_000)
    for name in ("a", "b"):
        feedback.array(named(name, 1000))
        feedback.keep()
    for _ in range(3):
        with pytest.raises(
            UnsupportedError, match="error feedback 'c' of 4256 bytes beside 8512 of other names; 10000"
        ):
            feedback.array(named("c", 1000))
    assert feedback.nbytes == 8512
    feedback.array(named("a", 1200))  # in place of what was there
    assert feedback.nbytes <= 10_000


def test_names_cost_something_so_that_there_cannot_be_any_number_of_them() -> None:
    feedback = Feedback(limit_nbytes=10_000)
    with pytest.raises(UnsupportedError):
        for number in range(1000):
            feedback.array(named(str(number), 1))
