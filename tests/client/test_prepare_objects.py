"""Object collectives, carried out by one to four ranks on one board."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from one_board import OneBoard

from hocket.client import prepare_objects
from hocket.client.places import NOWHERE, Place
from hocket.client.prepare_objects import frame, unframe
from hocket.protocol.errors import ArgumentError, ArgumentTypeError, MismatchError, SerialiseError, WireError
from hocket.protocol.signature import NO_ROOT, decode_signature

OBJECTS: list[Any] = [{"a": [1, (2, None)]}, "ab" * 300, [[1], [2]], None, {}, b"", 1 << 80, 2.5]


class Unknown:
    """Nothing that travels without a pickle."""


@pytest.fixture(params=[1, 2, 3, 4], ids=lambda size: f"{size} ranks")
def size(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture(params=[256, 1 << 16], ids=lambda nbytes: f"blocks of {nbytes}")
def board(request: pytest.FixtureRequest, size: int) -> Iterator[OneBoard]:
    with OneBoard(size, request.param) as board:
        yield board


def place_of(rank: int) -> Place:
    """A place in a group of the world ranks 1 and 2."""
    return Place("pair", rank, 2, (1, 2), rank + 1)


def test_broadcast_fills_every_list_with_the_roots_objects(board: OneBoard) -> None:
    for root in range(board.size):
        lists: list[list[Any]] = [[rank] * len(OBJECTS) for rank in range(board.size)]
        lists[root] = list(OBJECTS)
        given = board.values([prepare_objects.broadcast_object_list(p, lists[p.rank], root) for p in board.places])
        for rank, objects in enumerate(lists):
            assert given[rank] is objects
            assert objects == OBJECTS
        assert all(one is other for one, other in zip(lists[root], OBJECTS, strict=True))


def test_broadcast_of_no_objects_is_still_an_operation(board: OneBoard) -> None:
    lists: list[list[Any]] = [[] for _ in board.places]
    assert board.values([prepare_objects.broadcast_object_list(p, lists[p.rank], 0) for p in board.places]) == lists


def test_all_gather_puts_each_ranks_object_in_its_place_without_flattening(board: OneBoard) -> None:
    lists: list[list[Any]] = [[rank] * board.size for rank in range(board.size)]
    given = board.values([prepare_objects.all_gather_object(p, lists[p.rank], OBJECTS[p.rank]) for p in board.places])
    for rank, objects in enumerate(lists):
        assert given[rank] is objects
        assert objects == OBJECTS[: board.size]
        assert [type(item) for item in objects] == [type(item) for item in OBJECTS[: board.size]]


def test_what_is_gathered_are_copies_even_of_the_ranks_own(board: OneBoard) -> None:
    own = [{"array": np.arange(3)} for _ in board.places]
    given = board.values([prepare_objects.all_gather_object(p, None, own[p.rank]) for p in board.places])
    for objects in given:
        for item in objects:
            item["array"][:] = 9
            item["new"] = 1
    assert [(list(item), item["array"].tolist()) for item in own] == [(["array"], [0, 1, 2])] * board.size


@pytest.mark.parametrize("with_list", [True, False], ids=["into a list", "without a list"])
def test_gather_fills_the_roots_list_only(board: OneBoard, with_list: bool) -> None:
    for root in range(board.size):
        objects: list[Any] | None = [None] * board.size if with_list else None
        given = board.values(
            [
                prepare_objects.gather_object(p, OBJECTS[p.rank], objects if p.rank == root else None, root)
                for p in board.places
            ]
        )
        assert given.pop(root) == OBJECTS[: board.size]
        assert given == [None] * (board.size - 1)
        if with_list:
            assert objects == OBJECTS[: board.size]


def test_scatter_gives_each_rank_its_object_and_leaves_the_rest_of_its_list(board: OneBoard) -> None:
    for root in range(board.size):
        outputs: list[list[Any]] = [["old", "kept"] for _ in board.places]
        inputs: list[Any] = ["ignored"] * board.size
        inputs[root] = OBJECTS[: board.size]
        given = board.values(
            [prepare_objects.scatter_object_list(p, outputs[p.rank], inputs[p.rank], root) for p in board.places]
        )
        for rank, output in enumerate(outputs):
            assert given[rank] is output
            assert output == [OBJECTS[rank], "kept"]


def test_scatter_without_an_output_gives_a_list_of_one(board: OneBoard) -> None:
    given = board.values([prepare_objects.scatter_object_list(p, None, OBJECTS[: p.size], 0) for p in board.places])
    assert given == [[item] for item in OBJECTS[: board.size]]


def test_pickles_travel_only_where_both_sides_allow_them() -> None:
    with pytest.raises(SerialiseError, match="allow_pickle"):
        prepare_objects.all_gather_object(place_of(0), None, Unknown())
    with OneBoard(2) as board:
        given = board.values([prepare_objects.all_gather_object(p, None, Unknown, True) for p in board.places])
        assert given == [[Unknown, Unknown]] * 2
        lists: list[list[Any]] = [[1, 2], [1, 2]]
        calls = [
            prepare_objects.all_gather_object(p, lists[p.rank], (3, Unknown)[p.rank], allow_pickle=p.rank == 1)
            for p in board.places
        ]
        outcomes = board.outcomes(calls)
    assert isinstance(outcomes[0], SerialiseError)
    assert "does not load pickles" in str(outcomes[0])
    assert lists == [[1, 2], [3, Unknown]]


def test_serialise_errors_name_the_rank_that_users_know() -> None:
    for call in (
        lambda p: prepare_objects.all_gather_object(p, None, Unknown()),
        lambda p: prepare_objects.gather_object(p, Unknown(), None, 0),
        lambda p: prepare_objects.broadcast_object_list(p, [1, Unknown()], 1),
        lambda p: prepare_objects.scatter_object_list(p, [None], [1, Unknown()], 1),
    ):
        with pytest.raises(SerialiseError) as caught:
            call(place_of(1))
        assert caught.value.rank == 2
    with pytest.raises(SerialiseError) as caught:
        prepare_objects.all_gather_object(Place("services", 1, 2, (NOWHERE, NOWHERE)), None, Unknown())
    assert caught.value.rank == 1


def test_what_cannot_be_read_names_its_sender_and_fills_nothing() -> None:
    objects: list[Any] = ["old", "old"]
    call = prepare_objects.all_gather_object(place_of(0), objects, 1)
    sent = [
        prepare_objects.all_gather_object(place_of(0), None, 1).sends[0],
        prepare_objects.all_gather_object(place_of(1), None, Unknown, True).sends[0],
    ]
    assert call.received is not None
    with pytest.raises(SerialiseError) as caught:
        call.received(sent)
    assert caught.value.rank == 2
    assert objects == ["old", "old"]


def test_lists_of_other_lengths_are_a_mismatch_and_stay_as_they_are() -> None:
    lists: list[list[Any]] = [[1, 2], [3]]
    with OneBoard(2) as board:
        calls = [prepare_objects.broadcast_object_list(p, lists[p.rank], 0) for p in board.places]
        assert [call.signature.shapes for call in calls] == [((2,),), ((1,),)]
        outcomes = board.outcomes(calls)
    assert isinstance(outcomes[1], MismatchError)
    assert lists == [[1, 2], [3]]


def test_signatures_say_what_is_sent_and_expect_anything() -> None:
    zero, one = place_of(0), place_of(1)
    length = len(prepare_objects.all_gather_object(zero, None, "ab").sends[0])
    for call, root, sends in (
        (prepare_objects.all_gather_object(zero, None, "ab"), NO_ROOT, (length,)),
        (prepare_objects.gather_object(zero, "ab", None, 1), 1, (length,)),
        (prepare_objects.gather_object(one, "ab", None, 1), 1, (length,)),
        (prepare_objects.scatter_object_list(zero, None, ["ab", "cd"], 0), 0, (length, length)),
        (prepare_objects.scatter_object_list(one, None, None, 0), 0, ()),
        (prepare_objects.broadcast_object_list(zero, ["ab"], 0), 0, (length + 16,)),
        (prepare_objects.broadcast_object_list(one, ["ab"], 0), 0, ()),
    ):
        signature = decode_signature(call.text)
        assert signature == call.signature
        assert (signature.dtype, signature.itemsize, signature.recvs) == ("", 1, ())
        assert (signature.root, signature.sends) == (root, sends)
        assert tuple(len(piece) for piece in call.sends) == sends
        assert (call.recvs is None) == (call.received is not None)
        assert call.locked == []


@pytest.mark.parametrize(
    ("call", "argument", "words"),
    [
        (lambda p: prepare_objects.all_gather_object(p, [1], 1), "object_list", ["list of 1 objects", "list of 2"]),
        (lambda p: prepare_objects.gather_object(p, 1, [1] * 3, 0), "gather_list", ["list of 3 objects", "list of 2"]),
        (lambda p: prepare_objects.gather_object(p, 1, [1, 1], 1), "gather_list", ["rank 1", "dst is rank 2"]),
        (
            lambda p: prepare_objects.scatter_object_list(p, [1], [1], 0),
            "input_list",
            ["list of 1 objects", "list of 2"],
        ),
        (lambda p: prepare_objects.scatter_object_list(p, [], [1, 2], 0), "output_list", ["empty list"]),
    ],
)
def test_lists_that_do_not_fit_are_named(call: Any, argument: str, words: list[str]) -> None:
    with pytest.raises(ArgumentError) as caught:
        call(place_of(0))
    assert caught.value.argument == argument
    assert [word for word in words if word not in str(caught.value)] == []


@pytest.mark.parametrize(
    "call",
    [
        lambda p: prepare_objects.broadcast_object_list(p, (1, 2), 1),
        lambda p: prepare_objects.broadcast_object_list(p, None, 1),
        lambda p: prepare_objects.broadcast_object_list(p, "ab", 0),
        lambda p: prepare_objects.all_gather_object(p, (1, 2), 1),
        lambda p: prepare_objects.gather_object(p, 1, np.zeros(2), 0),
        lambda p: prepare_objects.scatter_object_list(p, [1], None, 0),
        lambda p: prepare_objects.scatter_object_list(p, [1], "ab", 0),
        lambda p: prepare_objects.scatter_object_list(p, (1,), None, 1),
    ],
)
def test_what_is_no_list_is_a_type_error(call: Any) -> None:
    with pytest.raises(ArgumentTypeError, match="a list"):
        call(place_of(0))


# --- frames ----------------------------------------------------------------------------------------------------------


@given(st.lists(st.binary(max_size=20)))
def test_frames_keep_every_part(parts: list[bytes]) -> None:
    assert [bytes(part) for part in unframe(frame(parts))] == parts


@given(st.lists(st.binary(max_size=4), max_size=4), st.data())
def test_a_frame_that_was_cut_or_lengthened_is_a_wire_error(parts: list[bytes], data: st.DataObject) -> None:
    whole = frame(parts)
    cut = data.draw(st.integers(0, len(whole) - 1))
    for broken in (whole[:cut], np.append(whole, np.uint8(0))):
        with pytest.raises(WireError):
            unframe(broken)


def test_a_frame_of_absurd_counts_is_refused_without_room_for_them() -> None:
    for words in ([1 << 63], [2, 1 << 62, 1 << 62], [1, (1 << 64) - 1]):
        with pytest.raises(WireError, match="not a list of objects"):
            unframe(np.array(words, "<u8").view(np.uint8))
