"""What hocket is meant to reach, and whether a run shows that it does. Pure.

Targets were set for two cores, before the data path was written: hocket's time through ``await`` over the peer's in the
same round. A target holds for a group of sizes; what is reached is the group's worst case.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction

from cases import BF16, KIB, MIB, MOVING, size_text
from places import SLOW_RATE_MBIT, title_of
from reference import REFERENCE, ROUND_TRIP
from tables import BASE, Rounds, number, table

GROUPS = ((0, KIB), (16 * KIB, 16 * KIB), (256 * KIB, MIB), (16 * MIB, 64 * MIB))
"""Sizes from and to, in bytes; a barrier's is 0."""
MPI = ("openmpi", "mpich")
LIMIT_US = 500.0
"""What a small operation may take beyond a round trip, between hosts with a delay."""
LINK_SHARE = 0.93
"""Of the link's rate, which a large operation is to reach between hosts with a limited one."""

Measure = Callable[[Rounds, "Target", int], "float | None"]


@dataclass(frozen=True, slots=True)
class Kind:
    """How a figure is taken from the rounds, whether more of it is better, and how it reads: ``2.1 (≤ 3)``."""

    measure: Measure
    more: bool = False
    form: str = "{}"


@dataclass(frozen=True, slots=True)
class Target:
    """One line of the table. ``bounds`` goes with `GROUPS`; None where nothing is promised."""

    work: str
    op: str
    place: str
    n: int
    kinds: tuple[Kind | None, ...]
    bounds: tuple[Fraction | float | None, ...]
    peers: tuple[str, ...] = ()
    peers_op: str = ""

    @property
    def title(self) -> str:
        """Work, place and peer in words."""
        return f"{self.work}, {title_of(self.place, self.n)}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one target's group of sizes. ``worst`` is None where nothing was measured."""

    bound: Fraction | float
    kind: Kind
    worst: float | None
    nbytes: int = 0

    @property
    def is_met(self) -> bool:
        """Whether it was measured and reached."""
        if self.worst is None:
            return False
        return self.worst >= self.bound if self.kind.more else self.worst <= self.bound


# --- figures ---------------------------------------------------------------------------------------------------------


def _ratio(found: Rounds, target: Target, nbytes: int) -> float | None:
    spot = (target.place, target.n, nbytes)
    theirs = [(peer, target.peers_op or target.op, *spot) for peer in target.peers]
    return found.over_the_best((BASE, target.op, *spot), theirs)


def _median(values: list[float]) -> float | None:
    values.sort()
    return (values[(len(values) - 1) // 2] + values[len(values) // 2]) / 2 if values else None


def _beyond_round_trip_us(found: Rounds, target: Target, nbytes: int) -> float | None:
    trips = found.times_us((REFERENCE, ROUND_TRIP[0], target.place, target.n, ROUND_TRIP[1]))
    mine = found.times_us((BASE, target.op, target.place, target.n, nbytes))
    return _median([mine[at] - trips[at] for at in mine if at in trips])


def _share_of_link(found: Rounds, target: Target, nbytes: int) -> float | None:
    """Of a link's nominal rate: each host sends what a ring of hosts does, 2(h - 1)/h of the array."""
    hosts = int(target.place.partition("-")[2].partition("x")[0])
    sent = 2 * (hosts - 1) * nbytes / hosts
    mine = found.times_us((BASE, target.op, target.place, target.n, nbytes))
    return _median([sent / (SLOW_RATE_MBIT / 8 * us) for us in mine.values()])


RATIO = Kind(_ratio)
BEYOND = Kind(_beyond_round_trip_us, form="round trip + {} µs")
SHARE = Kind(_share_of_link, more=True, form="{} of the link")


# --- targets ---------------------------------------------------------------------------------------------------------


def _beside(
    work: str, op: str, place: str, n: int, peers: tuple[str, ...], *bounds: Fraction | float | None, peers_op: str = ""
) -> Target:
    return Target(work, op, place, n, (RATIO,) * len(GROUPS), bounds, peers, peers_op)


def _all_targets() -> Iterator[Target]:
    gloo = ("gloo",)
    to_mpi, to_gloo = "all_reduce / the better MPI", "all_reduce / gloo"
    local = (Fraction(1, 30), Fraction(1, 20), Fraction(1, 8), 0.4)
    yield _beside(to_mpi, "all_reduce", "host", 2, MPI, 3, 1, 0.8, 0.5)
    yield _beside(to_gloo, "all_reduce", "host", 2, gloo, *local)
    yield _beside(to_mpi, "all_reduce", "host", 4, MPI, 3, 1, 0.8, 0.5)
    for op in MOVING[1:]:
        for n in (2, 4):
            yield _beside(f"{op} / the better MPI", op, "host", n, MPI, 3, 1, 1, 1)
    in_bf16 = "all_reduce of bfloat16 / gloo’s of float32"
    yield _beside(in_bf16, BF16, "host", 2, gloo, None, *local[1:], peers_op="all_reduce")
    for n in (2, 4):
        yield _beside("barrier / gloo", "barrier", "host", n, gloo, Fraction(1, 10), None, None, None)
    yield _beside(to_gloo, "all_reduce", "veth-2x1", 2, gloo, 0.8, 0.6, 0.5, 1)
    yield _beside(to_gloo, "all_reduce", "veth-2x2", 4, gloo, 0.5, 0.4, 0.4, 0.5)
    bounds = (LIMIT_US, None, None, LINK_SHARE)
    yield Target("all_reduce", "all_reduce", "slow-2x2", 4, (BEYOND, None, None, SHARE), bounds)


TARGETS = tuple(_all_targets())


def outcomes(found: Rounds, target: Target) -> list[Outcome | None]:
    """What came of each group of sizes; None where nothing is promised."""
    sizes = found.spots().get((target.op, target.place, target.n), [])
    result: list[Outcome | None] = []
    for (low, high), kind, bound in zip(GROUPS, target.kinds, target.bounds, strict=True):
        if kind is None or bound is None:
            result.append(None)
            continue
        measured = [
            (value, at) for at in sizes if low <= at <= high and (value := kind.measure(found, target, at)) is not None
        ]
        worst, nbytes = (min if kind.more else max)(measured, default=(None, 0))
        result.append(Outcome(bound, kind, worst, nbytes))
    return result


# --- the table -------------------------------------------------------------------------------------------------------


def render_targets(found: Rounds) -> list[str]:
    """The table of all targets, as lines of markdown; empty where none was measured."""
    lines = [(target, outcomes(found, target)) for target in TARGETS]
    all_of_them = [outcome for _, results in lines for outcome in results if outcome is not None]
    measured = [outcome for outcome in all_of_them if _is_measured(outcome)]
    if not measured:
        return []
    met = sum(outcome.is_met for outcome in measured)
    shown = [(target, results) for target, results in lines if any(map(_is_measured, results))]
    body = [[target.title, *map(_cell, results)] for target, results in shown]
    heads = ["hocket’s time over the peer’s", *map(_group_text, GROUPS)]
    said = f"{met} of {len(measured)} targets that were measured are met"
    missing = len(all_of_them) - len(measured)
    said += f"; {missing} were not measured." if missing else "."
    how = "In each cell: what is reached, at the worst of its sizes; the target in brackets; whether it is met."
    return ["### Targets", "", f"{said} {how}", "", *table(heads, body)]


def _is_measured(outcome: Outcome | None) -> bool:
    return outcome is not None and outcome.worst is not None


def _group_text(group: tuple[int, int]) -> str:
    low, high = group
    return size_text(high) if low == high else f"{size_text(low or 4)} – {size_text(high)}"


def _cell(outcome: Outcome | None) -> str:
    if outcome is None:
        return ""
    sign = "≥" if outcome.kind.more else "≤"
    bound = str(outcome.bound) if isinstance(outcome.bound, Fraction) else f"{outcome.bound:g}"
    if outcome.worst is None:
        return f"not measured ({sign} {bound})"
    reached = outcome.kind.form.format(number(outcome.worst))
    return f"{reached} ({sign} {bound}) yes" if outcome.is_met else f"**{reached}** ({sign} {bound}) **no**"
