from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from hocket.cli.bench_cases import Case, Cases
from hocket.cli.bench_data import fill
from hocket.cli.bench_plan import OPERATIONS, Settings, counts
from hocket.client.client import Client

RANKS = 3
FORMS = [(name, form) for name, one in OPERATIONS.items() for form in one.forms if name != "barrier"]


class Idle:
    """A client whose operations do nothing."""

    size = RANKS

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.called: list[str] = []

    def __getattr__(self, name: str) -> Any:
        async def call(*_arguments: Any, **_options: Any) -> None:
            self.called.append(name)

        return call


def cases(name: str, form: str, settings: Settings | None = None) -> list[tuple[Idle, Case]]:
    given = settings or Settings(operations=(name,), smallest_nbytes=8192, largest_nbytes=60_000, root=1)
    count = counts(OPERATIONS[name], given, RANKS)[-1]
    clients = [Idle(rank) for rank in range(RANKS)]
    return [(one, Cases(cast(Client, one), given, np.empty).make(OPERATIONS[name], form, count)) for one in clients]


@pytest.mark.parametrize(("name", "form"), FORMS)
async def test_an_operation_that_does_nothing_is_found_out(name: str, form: str) -> None:
    found = []
    for _, case in cases(name, form):
        case.prepare()
        await case.call()
        found.append(case.wrong())
    assert sum(found) > RANKS * 100


@pytest.mark.parametrize(("name", "form"), FORMS)
async def test_what_an_earlier_call_left_behind_does_not_count(name: str, form: str) -> None:
    found = []
    for _, case in cases(name, form):
        for array, period in case.expected:
            fill(array, period)
        assert case.wrong() == 0
        case.prepare()
        await case.call()
        found.append(case.wrong())
    assert sum(found) > RANKS * 100


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_buffers_are_blank_once_they_were_checked(name: str, form: str) -> None:
    for _, case in cases(name, form):
        case.prepare()
        case.blank()
        assert not any(array.any() for array, _ in case.filled)


def test_in_place_means_the_matching_part_of_the_same_memory() -> None:
    for name in ("all_gather", "reduce_scatter", "all_to_all"):
        for form, shared in (("in_place", True), ("out_of_place", False)):
            for _, case in cases(name, form):
                [source, *_], [target, *_] = case.filled[-1], case.expected[-1]
                parts = [part for part, _ in [*case.filled, *case.expected]]
                assert np.shares_memory(source.base, target.base) is shared, (name, form)
                assert len({part.size for part in parts}) == 1


async def test_every_operation_makes_the_call_of_its_name() -> None:
    called = {}
    for name, one in OPERATIONS.items():
        client, case = cases(name, one.forms[0])[0]
        await case.call()
        called[name] = sorted(client.called)
    assert called == {
        "all_reduce": ["all_reduce"],
        "reduce": ["reduce"],
        "broadcast": ["broadcast"],
        "all_gather": ["all_gather_into_tensor"],
        "reduce_scatter": ["reduce_scatter_tensor"],
        "all_to_all": ["all_to_all_single"],
        "gather": ["gather"],
        "scatter": ["scatter"],
        "sendrecv": ["isend", "recv"],
        "barrier": ["barrier"],
    }


async def test_compression_is_passed_on() -> None:
    given: list[dict[str, Any]] = []

    async def all_reduce(_tensor: Any, _op: Any, **options: Any) -> None:
        given.append(options)

    client = cast(Client, SimpleNamespace(rank=0, size=RANKS, all_reduce=all_reduce))
    for compression in (None, "bf16"):
        made = Cases(client, Settings(compression=compression), np.empty)
        await made.make(OPERATIONS["all_reduce"], "in_place", 5).call()
    assert given == [{"compression": None}, {"compression": "bf16"}]
