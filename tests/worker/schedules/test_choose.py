"""The chooser: sensible, deterministic, and every schedule that it can choose is right and as dear as it says."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hocket.worker.schedules.choose import Candidate, Kind, Link, candidates, choose
from hocket.worker.schedules.contract import verify

SIZES = (*range(1, 18), 23, 32, 33)
MiB = 1 << 20


def names(kind: Kind, nbytes: int, sizes: range, link: Link | None = None) -> set[str]:
    return {choose(kind, nbytes, size, link=link or Link()).name for size in sizes}


def verified_cost_s(kind: Kind, candidate: Candidate, size: int, nbytes: int, root: int, *, buffered: bool) -> float:
    """Seconds that the simulator needs, over a link of 1 s and 100 bytes/s."""
    chunks = candidate.choice.chunks
    pieces = size if kind is Kind.ALL_TO_ALL else max(chunks, 1)

    def duration(count: int) -> float:
        return 1 + count * nbytes / pieces / 100

    outcome = verify(kind, size, chunks, candidate.choice.rounds, root, buffered=buffered, duration=duration)
    return outcome.elapsed


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("size", SIZES)
def test_every_candidate_is_right_and_takes_exactly_as_long_as_estimated(kind: Kind, size: int) -> None:
    root = size // 3
    for candidate in candidates(kind, size, root):
        estimate_s = candidate.cost_s(700, Link(1, 100))
        assert verified_cost_s(kind, candidate, size, 700, root, buffered=True) == pytest.approx(estimate_s)


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("size", [2, 3, 5, 6, 7, 8, 13])
def test_every_candidate_ends_for_any_root_where_messages_leave_only_when_awaited(kind: Kind, size: int) -> None:
    for root in range(size):
        for candidate in candidates(kind, size, root):
            estimate_s = candidate.cost_s(700, Link(1, 100))
            assert verified_cost_s(kind, candidate, size, 700, root, buffered=False) == pytest.approx(estimate_s)


@settings(deadline=None, max_examples=60)
@given(
    kind=st.sampled_from(Kind),
    nbytes=st.sampled_from([0, 1, 4, 4096, MiB, 64 * MiB, 8192 * MiB]),
    size=st.integers(1, 12),
    root=st.integers(0, 11),
    latency_s=st.sampled_from([0.0, 1e-6, 50e-6, 0.1]),
)
def test_whatever_is_chosen_is_right_and_nothing_is_cheaper(
    kind: Kind, nbytes: int, size: int, root: int, latency_s: float
) -> None:
    link = Link(latency_s, 1e9)
    choice = choose(kind, nbytes, size, root % size, link)
    verify(kind, size, choice.chunks, choice.rounds, root % size)
    costs_s = {c.choice.name: c.cost_s(nbytes, link) for c in candidates(kind, size, root % size)}
    assert costs_s[choice.name] == min(costs_s.values())


def test_all_reduce_of_four_bytes_doubles_recursively() -> None:
    assert names(Kind.ALL_REDUCE, 4, range(2, 65)) == {"recursive_doubling"}


def test_all_reduce_of_64_mib_halves_where_hosts_are_a_power_of_two_and_goes_round_a_ring_elsewhere() -> None:
    for size in range(3, 65):
        expected = "halving_doubling" if size.bit_count() == 1 else "ring"
        assert choose(Kind.ALL_REDUCE, 64 * MiB, size).name == expected


def test_all_reduce_of_medium_arrays_avoids_both_the_long_ring_and_whole_copies() -> None:
    assert choose(Kind.ALL_REDUCE, MiB, 64).name == "halving_doubling"


@pytest.mark.parametrize(
    ("kind", "small", "large"),
    [
        (Kind.REDUCE, "binomial", "ring_gather"),
        (Kind.BROADCAST, "binomial", "scatter_bruck"),
        (Kind.ALL_GATHER, "bruck", "bruck"),
        (Kind.GATHER, "binomial", "binomial"),
        (Kind.SCATTER, "binomial", "binomial"),
        (Kind.REDUCE_SCATTER, "ring", "ring"),
        (Kind.ALL_TO_ALL, "bruck", "pairwise"),
        (Kind.BARRIER, "dissemination", "dissemination"),
    ],
)
def test_small_and_large_arrays_get_what_suits_them(kind: Kind, small: str, large: str) -> None:
    assert names(kind, 4, range(6, 33)) == {small}
    assert names(kind, 64 * MiB, range(6, 33)) == {large}


def test_two_hosts_exchange_the_whole_array_since_halving_it_saves_nothing() -> None:
    assert names(Kind.ALL_REDUCE, 64 * MiB, range(2, 3)) == {"recursive_doubling"}


def test_equal_costs_go_to_the_first_candidate() -> None:
    free = Link(0.0, float("inf"))
    for kind in Kind:
        assert choose(kind, MiB, 6, link=free).name == candidates(kind, 6)[0].choice.name


def test_a_slow_start_favours_fewer_rounds_and_a_slow_wire_fewer_bytes() -> None:
    assert choose(Kind.ALL_REDUCE, MiB, 6, link=Link(1.0, 2e9)).name == "recursive_doubling"
    assert choose(Kind.ALL_REDUCE, MiB, 6, link=Link(50e-6, 1e6)).name == "ring"


@pytest.mark.parametrize("kind", Kind)
def test_a_single_host_has_nothing_to_do(kind: Kind) -> None:
    choice = choose(kind, 64 * MiB, 1)
    assert list(choice.rounds(0)) == []
    assert choice.chunks == (0 if kind is Kind.BARRIER else 1)


@pytest.mark.parametrize("kind", Kind)
def test_names_tell_the_candidates_of_a_kind_apart(kind: Kind) -> None:
    found = [candidate.choice.name for candidate in candidates(kind, 6)]
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("kind", Kind)
def test_only_recursive_doubling_reduces_into_a_chunk_that_it_sends_in_the_same_round(kind: Kind) -> None:
    for size in (2, 3, 8, 11):
        for candidate in candidates(kind, size):
            turns = [turn for host in range(size) for turn in candidate.choice.rounds(host)]
            overlaps = any(set(turn.send) & set(turn.recv) for turn in turns)
            assert overlaps == (candidate.choice.name == "recursive_doubling")


@pytest.mark.parametrize("root", [-1, 3])
def test_a_root_that_is_no_host_is_refused(root: int) -> None:
    with pytest.raises(AssertionError, match=f"root {root} of 3 hosts"):
        choose(Kind.BROADCAST, 4, 3, root)
