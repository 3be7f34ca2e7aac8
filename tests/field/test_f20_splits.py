"""F20: sizes for all_to_all_single that cannot be. And any call that is wrong on some ranks only, once or in a row."""

from itertools import product
from typing import Any

import numpy as np
import pytest
from harness.cases import (
    after_check,
    error_of,
    errors,
    on_layouts,
    on_unlike_layouts,
    outcomes,
    per_rank,
    ranks,
    values,
    who_called,
)

import hocket


def bad(n: int, rows: int, given: list[int] | None, taken: list[int] | None = None) -> Any:
    def call(client: hocket.Client) -> Any:
        out = np.full(sum(taken or [rows]), -1.0)
        return client.all_to_all_single(out, np.arange(float(rows)), taken, given)

    return call


@on_unlike_layouts(3)
@pytest.mark.parametrize(
    ("rows", "given", "argument", "text"),
    [
        (4, None, "input", "4 rows do not divide equally among 3"),
        (4, [1, 1, 1], "input_split_sizes", "add up to 3"),
        (4, [1, 1], "input_split_sizes", "2 sizes"),
        (4, [1, 1, 1, 1], "input_split_sizes", "4 sizes"),
        (2, [3, -1, 0], "input_split_sizes", "-1"),
        (3, [1, 1, 1.0], "input_split_sizes", "1.0"),
        (3, [2**40, 0, 0], "input_split_sizes", str(2**40)),
        (3, "111", "input_split_sizes", "str"),
    ],
)
async def test_f20abcf_impossible_sizes_are_named_on_every_rank(
    layout: Any, rows: int, given: Any, argument: str, text: str
) -> None:
    async with ranks(layout) as world:
        taken = [1, 1, 1]
        found = await errors(
            world,
            hocket.ArgumentError,
            lambda c: c.all_to_all_single(np.full(3, -1.0), np.arange(float(rows)), taken, given),
            within_s=1.0,
        )
        assert all(error.argument == argument and text in str(error) for error in found), str(found[0])
        await after_check(world)


@on_layouts(2)
async def test_f20d_sizes_that_disagree_between_ranks_are_named_on_both(layout: Any) -> None:
    async with ranks(layout) as world:
        outs = [np.full(1, -1.0), np.full(1, -1.0)]
        inputs = [np.array([1.0, 2.0, 3.0]), np.array([])]
        given = [[1, 2], [0, 0]]
        found = await errors(
            world,
            hocket.MismatchError,
            lambda c: c.all_to_all_single(outs[c.rank], inputs[c.rank], [1, 0], given[c.rank]),
        )
        for error in found:
            assert error.why == "rank 0 sends 2 to rank 1, rank 1 expects 0" or "rank 1 expects 1" in error.why
            assert set(who_called(error)) == {0, 1}
        assert all((out == -1).all() for out in outs)
        await after_check(world)


@on_layouts(2)
async def test_f20d_as_reported_rank_1_expects_one_of_the_two(layout: Any) -> None:
    async with ranks(layout) as world:
        outs = [np.full(1, -1.0), np.full(1, -1.0)]
        found = await errors(
            world,
            hocket.MismatchError,
            per_rank(
                world,
                lambda c: c.all_to_all_single(outs[0], np.array([1.0, 2.0, 3.0]), [1, 0], [1, 2]),
                lambda c: c.all_to_all_single(outs[1], np.array([]), [1, 0], [0, 0]),
            ),
        )
        assert ["rank 0 sends 2 to rank 1, rank 1 expects 1" in e.why or "expects 0" in e.why for e in found] == [
            True
        ] * 2
        assert all((out == -1).all() for out in outs)
        await after_check(world)


@on_layouts(3)
async def test_f20e_the_others_hear_at_once_of_a_rank_whose_call_is_wrong(layout: Any) -> None:
    async with ranks(layout) as world:
        outs = [np.full(3, -1.0) for _ in world]
        found = await outcomes(
            world,
            lambda c: c.all_to_all_single(outs[c.rank], np.arange(3.0), None, [1, 1, 5] if c.rank == 1 else None),
        )
        assert error_of(found[1], hocket.ArgumentError).argument == "input_split_sizes"
        for rank in (0, 2):
            error = error_of(found[rank], hocket.AbortedError)
            assert error.rank == 1 and "input_split_sizes" in error.cause
        assert all((out == -1).all() for out in outs)
        await after_check(world)


def wrong_calls() -> list[Any]:
    x, ones = np.ones(4), [np.ones(1)] * 3
    return [
        lambda c: c.all_reduce([1.0, 2.0]),
        lambda c: c.all_reduce(x, op="SUM"),
        lambda c: c.all_gather(ones, x),
        lambda c: c.all_gather(ones[:2], np.ones(1)),
        lambda c: c.reduce_scatter_tensor(np.ones(1), x),
        lambda c: c.broadcast(x, src=7),
        lambda c: c.scatter(x, None, src=c.rank),
        lambda c: c.all_gather_into_tensor(np.ones(5), x),
        lambda c: c.all_reduce(np.array([object()])),
        lambda c: c.all_reduce(np.ones(3)[np.newaxis].repeat(1, 0).view("V8")),
    ]


@on_layouts(3)
async def test_f20_any_call_that_is_wrong_on_one_rank_ends_for_all(layout: Any) -> None:
    async with ranks(layout) as world:
        x = [np.ones(4) for _ in world]
        for culprit, index in product((0, 2), range(len(wrong_calls()))):
            found = await outcomes(
                world, lambda c, at=culprit, i=index: wrong_calls()[i](c) if c.rank == at else c.all_reduce(x[c.rank])
            )
            for rank, one in enumerate(found):
                if rank != culprit:
                    assert error_of(one, hocket.AbortedError).rank == culprit
                else:
                    assert isinstance(one.error, hocket.UsageError)
        assert all((one == 1).all() for one in x)
        await after_check(world)


@on_unlike_layouts(3)
@pytest.mark.parametrize("culprits", [(1,), (0, 2), (0, 1, 2)])
async def test_f20_many_wrong_calls_in_a_row_keep_the_channel_in_step(layout: Any, culprits: tuple[int, ...]) -> None:
    async with ranks(layout) as world:

        async def call(client: hocket.Client) -> list[str]:
            found, works = [], []
            for turn in range(12):
                wrong = client.rank in culprits and turn % 6 != 5
                try:
                    works.append(client.all_reduce([1.0] if wrong else np.full(2, 1.0)))
                except hocket.ArgumentError:
                    works.append(None)
            for work in works:
                try:
                    found.append("wrong" if work is None else str((await work)[0]))
                except hocket.AbortedError as error:
                    found.append(f"aborted {error.rank}")
            return found

        found = await values(world, call, within_s=5.0)
        for rank, own in enumerate(found):
            assert own[5] == own[11] == "3.0"
            others = own[:5] + own[6:11]
            if rank in culprits:
                assert set(others) == {"wrong"}
            else:
                assert all(one in {f"aborted {culprit}" for culprit in culprits} for one in others), own
        await after_check(world)


@on_layouts(3)
async def test_f20_a_slow_rank_finds_out_how_each_of_many_withdrawn_calls_ended(layout: Any) -> None:
    async with ranks(layout) as world:
        for _ in range(9):
            with pytest.raises(hocket.ArgumentError):
                world[0].all_reduce([1.0])
        early = [world[1].all_reduce(np.ones(1)) for _ in range(9)]
        for work in early:
            with pytest.raises(hocket.AbortedError) as caught:
                await work
            assert caught.value.rank == 0
        for _ in range(9):
            with pytest.raises(hocket.AbortedError) as caught:
                await world[2].all_reduce(np.ones(1))
            assert caught.value.rank == 0
        await after_check(world)
