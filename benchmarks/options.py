"""The command line of `run.py`."""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from cases import OPS, SIZES, parse_size
from places import KINDS, Place, places_for
from systems import SYSTEMS
from tables import BASE

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
PEERS = tuple(system for system in SYSTEMS if system != BASE)
BY_DEFAULT = tuple(system for system in PEERS if SYSTEMS[system].by_default)
QUICK_SIZES = (4, 16 << 10, 1 << 20, 16 << 20)
LAYOUTS = ((2, 1), (2, 2), (4, 1))
SLOW_LAYOUTS = ((2, 1), (2, 2))
OPS_BETWEEN_HOSTS = ("all_reduce",)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Choice:
    """What is to be measured."""

    systems: tuple[str, ...]
    places: tuple[Place, ...]
    ops: tuple[str, ...]
    """on one host"""
    ops_between: tuple[str, ...]
    """between hosts"""
    sizes: tuple[int, ...]
    rounds: int
    minutes: float
    budget_s: float
    limit_s: float
    claims: bool

    def ops_of(self, system: str, place: Place) -> tuple[str, ...]:
        """What one system is to do at a place; empty where it has nothing to do there."""
        asked = self.ops if place.kind == "host" else self.ops_between
        able = SYSTEMS[system]
        return tuple(op for op in asked if op in able.ops) if place.kind in able.kinds else ()


def choose(arguments: Sequence[str] | None, description: str | None) -> tuple[Choice, argparse.Namespace]:
    """Reads the command line."""
    given = _parser(description).parse_args(arguments)
    quick, some = (
        given.quick,
        bool(given.quick or given.peers or given.ops or given.sizes or given.placements or given.ns),
    )
    peers = BY_DEFAULT if given.peers is None else tuple(peer for peer in given.peers if peer != "none")
    kinds = given.placements or (("host",) if quick else tuple(KINDS))
    ns = given.ns or ((2,) if quick else (2, 4))
    places = places_for([kind for kind in kinds if kind != "slow"], ns, given.layouts or LAYOUTS)
    places += places_for([kind for kind in kinds if kind == "slow"], ns, given.layouts or SLOW_LAYOUTS)
    choice = Choice(
        (BASE, *peers),
        () if given.claims == "only" else places,
        given.ops or OPS,
        given.ops or OPS_BETWEEN_HOSTS,
        given.sizes or (QUICK_SIZES if quick else SIZES),
        given.rounds or (1 if quick else 3),
        given.minutes,
        given.budget or (0.05 if quick else 0.1),
        given.limit,
        given.claims != "without" if given.claims else not some,
    )
    return choice, given


def _parser(description: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--quick", action="store_true", help="one short round of few sizes on one host, n = 2")
    parser.add_argument("--rounds", type=_whole, metavar="N", help="times that everything is measured (3)")
    parser.add_argument(
        "--minutes", type=float, default=13.0, metavar="M", help="begin no round that would end later (13)"
    )
    parser.add_argument(
        "--peers", type=_among(PEERS, "none"), metavar="A,B",
        help=f"{','.join(PEERS)} or none ({','.join(BY_DEFAULT)})",
    )  # fmt: skip
    parser.add_argument("--placements", type=_among(KINDS), metavar="A,B", help=f"{','.join(KINDS)} (all)")
    parser.add_argument(
        "--ops", type=_among(OPS), metavar="A,B", help=f"{','.join(OPS)} (all; between hosts all_reduce)"
    )
    parser.add_argument(
        "--sizes", type=_each(parse_size), help="4,1KiB,16KiB,256KiB,1MiB,16MiB,64MiB (all)", metavar="A,B"
    )
    parser.add_argument("--ns", type=_each(_whole), help="numbers of ranks on one host (2,4)", metavar="A,B")
    parser.add_argument(
        "--layouts", type=_each(_layout), metavar="HxR", help="hosts x ranks on each, of veth and slow (2x1,2x2,4x1)"
    )
    parser.add_argument("--budget", type=float, metavar="S", help="seconds for the calls of one case (0.1)")
    parser.add_argument("--limit", type=float, default=120.0, metavar="S", help="seconds that one job may take (120)")
    parser.add_argument(
        "--claims", nargs="?", const="only", choices=("only", "with", "without"),
        help="the programs of one claim each: nothing else, or with what is measured (with everything, if all is)",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print rows as JSON lines instead of tables")
    parser.add_argument("--out", type=Path, default=RESULTS, metavar="FOLDER", help="for results.jsonl and tables.md")
    parser.add_argument("--pictures", action="store_true", help="draw them in that folder as well")
    parser.add_argument("--keep", action="store_true", help="write everything to docs/explanation/performance as well")
    parser.add_argument("--render", action="store_true", help="measure nothing; show what is in the folder once more")
    return parser


def _whole(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(f"{text} is below 1")
    return number


def _layout(text: str) -> tuple[int, int]:
    hosts, _, per_host = text.partition("x")
    if int(hosts) < 2 or int(per_host) < 1:
        raise ValueError(f"{text} is no layout of two hosts or more")
    return int(hosts), int(per_host)


def _each(read: Callable[[str], T]) -> Callable[[str], tuple[T, ...]]:
    def read_all(text: str) -> tuple[T, ...]:
        try:
            return tuple(dict.fromkeys(read(word) for word in text.split(",")))
        except ValueError as wrong:
            raise argparse.ArgumentTypeError(str(wrong)) from None

    return read_all


def _among(*known: Any) -> Callable[[str], tuple[str, ...]]:
    names = [name for group in known for name in ((group,) if isinstance(group, str) else group)]

    def read(word: str) -> str:
        if word not in names:
            raise ValueError(f"{word!r} is none of {', '.join(names)}")
        return word

    return _each(read)
