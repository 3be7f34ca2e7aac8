"""What cannot travel is refused with the way to the fault; pickles are made and loaded only where that is allowed."""

import collections
import datetime
import decimal
import enum
import pickle
import sys
import types
import typing
import zoneinfo
from collections.abc import Callable
from typing import Any

import msgpack
import numpy as np
import pytest

from hocket.client.objects import dumps, loads
from hocket.protocol.errors import SerialiseError
from hocket.protocol.limits import OBJECT_DEPTH

RANK = 3


def roundtrip(value: object) -> Any:
    return loads(dumps(value, rank=RANK), rank=RANK)


# --- refusals --------------------------------------------------------------------------------------------------------


class Colour(enum.IntEnum):
    RED = 1


class Point(typing.NamedTuple):
    x: int


class Text(str):
    pass


class MyFloat(np.float64):
    pass


class Zone(datetime.tzinfo):
    def utcoffset(self, moment: Any) -> datetime.timedelta:
        return datetime.timedelta(0)


class Unhashable(type):
    __hash__ = None  # type: ignore[assignment]


class Pretender:
    __class__ = np.float64  # type: ignore[assignment]


SUBCLASSES = {
    "int": Colour.RED,
    "tuple": Point(1),
    "dict": collections.OrderedDict(a=1),
    "str": Text("a"),
    "float": MyFloat(1),
    "numpy.ndarray": np.ma.masked_array([1], [True]),
    "datetime.datetime": type("Stamp", (datetime.datetime,), {})(2024, 1, 1),
}


@pytest.mark.parametrize(("base", "value"), SUBCLASSES.items())
def test_subclasses_are_refused_not_flattened(base: str, value: object) -> None:
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    with pytest.raises(SerialiseError, match=f"a subclass of {base}, which would arrive as a plain one") as refusal:
        dumps([value], rank=RANK)
    assert (refusal.value.rank, refusal.value.type_name) == (RANK, kind)


@pytest.mark.parametrize(
    "value",
    [collections.defaultdict(list), np.zeros(2).view(np.recarray), np.zeros(1, "i4").view(np.recarray)],
    ids=["defaultdict", "recarray", "another recarray"],
)
def test_other_subclasses_are_refused_too(value: object) -> None:
    with pytest.raises(SerialiseError, match="a subclass of"):
        dumps(value, rank=RANK)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (object(), "object"),
        (len, "builtin_function_or_method"),
        (int, "type"),
        (..., "ellipsis"),
        (range(3), "range"),
        (memoryview(b"a"), "memoryview"),
        (decimal.Decimal(1), "decimal.Decimal"),
        (msgpack.Timestamp(1), "msgpack.ext.Timestamp"),
        (types.SimpleNamespace(), "types.SimpleNamespace"),
        (Pretender(), f"{__name__}.Pretender"),
    ],
)
def test_anything_else_is_refused_with_its_type_and_the_remedy(value: object, kind: str) -> None:
    with pytest.raises(SerialiseError) as refusal:
        dumps(value, rank=RANK)
    assert str(refusal.value) == (
        f"rank 3: object of type {kind} cannot be exchanged: not one of the types that travel as they are; "
        "to have it pickled, call connect(allow_pickle=True) on every rank"
    )


@pytest.mark.parametrize(
    ("value", "way"),
    [
        ({"f": [1, 2, len]}, "['f'][2]"),
        ([((len,),)], "[0][0][0]"),
        ({1: {None: {b"k": len}}}, "[1][None][b'k']"),
        ({(1, 2): len, 3: 4}, "[<tuple>]"),
        ({10**5000: len}, "[<int>]"),
        ({"k" * 100: len}, f"['{'k' * 40}']"),
        ({len: 1}, "<key number 0>"),
        ({1: 1, (2, len): 1}, "<key number 1>[1]"),
        ([{len}], "[0]<item of the set>"),
        ({"when": datetime.time(tzinfo=Zone())}, "['when'].tzinfo"),
        ([datetime.datetime(2024, 1, 1, tzinfo=Zone())], "[0].tzinfo"),
        ([1, np.array([len])], "[1]"),
    ],
)
def test_a_refusal_says_where_in_the_object(value: object, way: str) -> None:
    with pytest.raises(SerialiseError) as refusal:
        dumps(value, rank=RANK)
    assert refusal.value.detail.startswith(f"at {way}: ")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (np.array([None]), "dtype object holds Python objects"),
        (np.zeros(1, [("a", "O")]), "holds Python objects"),
        (np.zeros(1, [("a", "O")])[0], "holds Python objects"),
        (np.zeros(1, np.dtype({"names": ["a"], "formats": ["i4"], "titles": [(1, 2)]})), "of a special kind"),
        (np.zeros(1, "M8[0s]"), "its unit has no length"),
        (np.dtype("f8"), "not one of the types"),
    ],
)
def test_arrays_of_what_is_no_plain_memory_are_refused(value: object, said: str) -> None:
    with pytest.raises(SerialiseError, match=said):
        dumps(value, rank=RANK)


def test_a_zone_without_a_key_is_refused() -> None:
    for folder in zoneinfo.TZPATH:
        try:
            file = open(f"{folder}/Europe/Berlin", "rb")  # noqa: SIM115
        except FileNotFoundError:
            continue
        with file:
            zone = zoneinfo.ZoneInfo.from_file(file)
        with pytest.raises(SerialiseError, match="a time zone without a key"):
            dumps(zone, rank=RANK)
        return
    pytest.skip("no time zones on this machine")


def test_a_class_that_cannot_be_hashed_is_refused() -> None:
    strange = Unhashable("strange", (), {})()
    for value in (strange, [1, strange]):
        with pytest.raises(SerialiseError, match="unhashable type") as refusal:
            dumps(value, rank=RANK)
        assert isinstance(refusal.value.__cause__, TypeError)


def nested(depth: int, wrap: Callable[[Any], Any]) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = wrap(value)
    return value


WRAPPERS = {
    "list": lambda value: [value],
    "tuple": lambda value: (value,),
    "dict": lambda value: {"a": value},
    "dict of ints": lambda value: {1: value},
    "dict's key": lambda value: {(value,): 1} if type(value) is int else (value, 1),
    "frozenset": lambda value: frozenset([value]),
}


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS.keys())
def test_nesting_is_bounded(wrap: Callable[[Any], Any]) -> None:
    if wrap is not WRAPPERS["dict's key"]:
        value, back = nested(OBJECT_DEPTH, wrap), roundtrip(nested(OBJECT_DEPTH, wrap))
        for _ in range(OBJECT_DEPTH):
            assert type(back) is type(value)
            value, back = (next(iter(level.values() if type(level) is dict else level)) for level in (value, back))
        assert back == 1
    for depth in (OBJECT_DEPTH + 1, 5000):
        with pytest.raises(SerialiseError, match="nested more than 200 deep") as refusal:
            dumps(nested(depth, wrap), rank=RANK)
        assert len(str(refusal.value)) < 500


def test_a_deeply_nested_dtype_is_refused() -> None:
    dtype = np.dtype("f8")
    for _ in range(600):
        dtype = np.dtype([("a", dtype)])
    with pytest.raises(SerialiseError, match=r"nested too deep|recursion limit"):
        dumps(np.zeros(1, dtype), rank=RANK)


def test_little_stack_left_is_said_and_not_overflown() -> None:
    def deeper(frames: int) -> bytes:
        return dumps(nested(OBJECT_DEPTH, lambda value: [value]), rank=RANK) if frames == 0 else deeper(frames - 1)

    used = len(list(iter_frames()))
    with pytest.raises(SerialiseError, match="nested too deep for what is left of the call stack"):
        deeper(sys.getrecursionlimit() - used - 100)


def iter_frames() -> Any:
    frame = sys._getframe()
    while frame is not None:
        yield frame
        frame = frame.f_back  # type: ignore[assignment]


def test_what_contains_itself_is_refused() -> None:
    items: list[Any] = [1, []]
    items[1].append({"x": items})
    for value in (items, {"a": items}, (items,)):
        with pytest.raises(SerialiseError, match=r"\[1\]\[0\]\['x'\]: contains itself"):
            dumps(value, rank=RANK)


def test_what_is_contained_twice_is_not_recursive() -> None:
    shared: list[Any] = [[1.5, "a"], (1,)]
    assert roundtrip([shared, shared, {"a": shared}]) == [shared, shared, {"a": shared}]


# --- pickles ---------------------------------------------------------------------------------------------------------


class Thing:
    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Thing) and self.value == other.value

    __hash__ = None  # type: ignore[assignment]


class MuteError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Refusing:
    def __init__(self, error: Exception) -> None:
        self.error = error

    def __reduce__(self) -> Any:
        raise self.error


class Breaking:
    def __reduce__(self) -> Any:
        return int, ("not a number",)


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A module of which pickle can find the classes (this file has no name that can be imported)."""
    found = types.ModuleType("things_to_pickle")
    for kind in (Thing, Refusing, Breaking, MuteError):
        monkeypatch.setattr(kind, "__module__", found.__name__)
        setattr(found, kind.__name__, kind)
    monkeypatch.setitem(sys.modules, found.__name__, found)
    return found


def test_an_unknown_object_travels_as_a_pickle_where_that_is_allowed(module: types.ModuleType) -> None:
    shared = [1]
    for value in (Thing(3), {"a": [Thing(1)]}, collections.OrderedDict(a=1), Colour, [Thing(shared), Thing(shared)]):
        back = loads(dumps(value, rank=RANK, allow_pickle=True), rank=RANK, allow_pickle=True)
        assert (type(back), back) == (type(value), value)
    assert back[0].value is back[1].value


def test_what_contains_itself_travels_as_a_pickle() -> None:
    items: list[Any] = []
    items.append(items)
    back = loads(dumps(items, rank=RANK, allow_pickle=True), rank=RANK, allow_pickle=True)
    assert back[0] is back


def test_what_needs_no_pickle_is_never_pickled() -> None:
    for value in (None, [1, (2.5, {"a": {1}})], np.arange(3), b"x" * 100_000):
        assert dumps(value, rank=RANK, allow_pickle=True) == dumps(value, rank=RANK)


def test_a_pickle_is_never_loaded_where_that_is_not_allowed(module: types.ModuleType) -> None:
    data = dumps({"a": Thing(1)}, rank=RANK, allow_pickle=True)
    module.Thing = None  # type: ignore[attr-defined]
    with pytest.raises(SerialiseError) as refusal:
        loads(data, rank=2)
    assert str(refusal.value) == (
        "rank 2: object of type things_to_pickle.Thing cannot be exchanged: rank 2 pickled it, and this rank does not "
        "load pickles: call connect(allow_pickle=True) on every rank"
    )


def test_a_missing_class_is_named_with_the_rank_that_sent_it(module: types.ModuleType) -> None:
    data = dumps([{"a": Thing(1)}], rank=RANK, allow_pickle=True)
    del module.Thing
    with pytest.raises(SerialiseError, match="the pickle from rank 2 cannot be loaded here: AttributeError") as refusal:
        loads(data, rank=2, allow_pickle=True)
    assert (refusal.value.rank, refusal.value.type_name) == (2, "things_to_pickle.Thing")
    assert isinstance(refusal.value.__cause__, AttributeError)


def test_a_missing_module_is_named(module: types.ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    data = dumps(Thing(1), rank=RANK, allow_pickle=True)
    monkeypatch.delitem(sys.modules, "things_to_pickle")
    with pytest.raises(SerialiseError, match="ModuleNotFoundError: No module named 'things_to_pickle'") as refusal:
        loads(data, rank=2, allow_pickle=True)
    assert refusal.value.type_name == "things_to_pickle.Thing"


def test_an_object_that_fails_while_it_is_loaded_is_named_by_its_type(module: types.ModuleType) -> None:
    data = dumps({"f": Breaking()}, rank=RANK, allow_pickle=True)
    with pytest.raises(
        SerialiseError, match="from rank 3 cannot be loaded here: ValueError: invalid literal"
    ) as refusal:
        loads(data, rank=RANK, allow_pickle=True)
    assert refusal.value.type_name == "things_to_pickle.Breaking"


def test_a_broken_pickle_is_a_serialise_error() -> None:
    data = dumps(Ellipsis, rank=RANK, allow_pickle=True)
    for broken in (data[:-1], data[:-3]):
        with pytest.raises(SerialiseError, match="cannot be loaded here"):
            loads(broken, rank=RANK, allow_pickle=True)


def test_what_cannot_be_pickled_is_named_with_the_way_to_it() -> None:
    with pytest.raises(SerialiseError) as refusal:
        dumps({"f": [lambda: 0]}, rank=RANK, allow_pickle=True)
    assert (refusal.value.rank, refusal.value.type_name) == (RANK, "function")
    assert refusal.value.detail.startswith("at ['f'][0]: not one of the types that travel as they are; pickling failed")
    assert isinstance(refusal.value.__cause__, (pickle.PicklingError, AttributeError))


def test_the_first_unknown_object_is_not_blamed_where_another_one_fails(module: types.ModuleType) -> None:
    with pytest.raises(SerialiseError, match=r"pickling failed: .*lambda") as refusal:
        dumps({"a": Thing(1), "f": lambda: 0}, rank=RANK, allow_pickle=True)
    assert refusal.value.type_name == "dict"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (RuntimeError("this one"), "RuntimeError: this one"),
        (KeyError(), "KeyError"),
        (RecursionError("deep"), "RecursionError: deep"),
        (MuteError(), r"MuteError: \(its own text raises an error\)"),
    ],
)
def test_whatever_pickling_raises_is_a_serialise_error(error: Exception, said: str) -> None:
    with pytest.raises(SerialiseError, match=f"pickling failed, too: {said}$") as refusal:
        dumps(Refusing(error), rank=RANK, allow_pickle=True)
    assert refusal.value.__cause__ is error
    assert refusal.value.type_name.endswith("Refusing")
