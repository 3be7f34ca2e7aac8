"""Few combinations that cover every pair of values of many parameters."""

import itertools
import random
from collections.abc import Iterator, Sequence

TRIES = 30


def pairwise(parameters: Sequence[Sequence[object]], seed: int = 0) -> Iterator[tuple[object, ...]]:
    """Rows, one value of each parameter, in which each two values of two parameters stand side by side at least once.

    Greedy: each row is the best of some that are drawn at random around a pair that is still missing.
    """
    draw = random.Random(seed)
    columns = range(len(parameters))
    missing = {
        (a, i, b, j)
        for a, b in itertools.combinations(columns, 2)
        for i in range(len(parameters[a]))
        for j in range(len(parameters[b]))
    }
    while missing:
        wanted = min(missing)
        rows = [_row(parameters, wanted, draw) for _ in range(TRIES)]
        best = max(rows, key=lambda row: len(_pairs(row) & missing))
        missing -= _pairs(best)
        yield tuple(parameters[column][value] for column, value in enumerate(best))


def _row(parameters: Sequence[Sequence[object]], wanted: tuple[int, int, int, int], draw: random.Random) -> list[int]:
    row = [draw.randrange(len(values)) for values in parameters]
    row[wanted[0]], row[wanted[2]] = wanted[1], wanted[3]
    return row


def _pairs(row: Sequence[int]) -> set[tuple[int, int, int, int]]:
    return {(a, row[a], b, row[b]) for a, b in itertools.combinations(range(len(row)), 2)}
