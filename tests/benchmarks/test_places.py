"""Where ranks go, and what the command line makes of it."""

from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return {name: __import__(name) for name in ("options", "places")}


def labels(modules: dict[str, Any], *arguments: str) -> list[tuple[str, int]]:
    choice, _ = modules["options"].choose(arguments, "")
    return [(place.label, place.size) for place in choice.places]


def test_a_full_run_has_one_host_and_hosts_with_and_without_a_limit(modules: dict[str, Any]) -> None:
    between = [("veth-2x1", 2), ("veth-2x2", 4), ("veth-4x1", 4), ("slow-2x1", 2), ("slow-2x2", 4)]
    assert labels(modules) == [("host", 2), ("host", 4), *between]


def test_a_quick_run_stays_on_one_host(modules: dict[str, Any]) -> None:
    assert labels(modules, "--quick") == [("host", 2)]
    assert labels(modules, "--quick", "--placements", "veth", "--layouts", "3x2") == [("veth-3x2", 6)]


def test_claims_run_alone_or_with_everything_and_not_with_a_selection(modules: dict[str, Any]) -> None:
    choose = modules["options"].choose
    assert choose((), "")[0].claims
    assert not choose(("--quick",), "")[0].claims
    assert choose(("--quick", "--claims", "with"), "")[0].claims
    alone = choose(("--claims",), "")[0]
    assert alone.claims and not alone.places


def test_each_system_is_asked_for_what_it_can_do_and_where(modules: dict[str, Any]) -> None:
    choice, _ = modules["options"].choose(("--peers", "gloo,openmpi,pccl"), "")
    local, between = choice.places[0], choice.places[2]
    assert "all_reduce_bf16" in choice.ops_of("hocket", local)
    assert "all_reduce_bf16" not in choice.ops_of("gloo", local)
    assert choice.ops_of("pccl", local) == ("all_reduce",)
    assert (choice.ops_of("gloo", between), choice.ops_of("openmpi", between)) == (("all_reduce",), ())


def test_ranks_count_up_host_by_host(modules: dict[str, Any]) -> None:
    place = modules["places"].Place("veth", 2, 3)
    assert [place.host_of(rank) for rank in range(place.size)] == [0, 0, 0, 1, 1, 1]


def test_a_place_is_named_in_words_after_its_row(modules: dict[str, Any]) -> None:
    title_of = modules["places"].title_of
    assert title_of("host", 4) == "one host, n = 4"
    assert title_of("slow-2x2", 4) == "2 hosts × 2 ranks, 1 Gbit/s + 1 ms"
    assert title_of("veth-4x1", 4) == "4 hosts × 1 rank, veth"
