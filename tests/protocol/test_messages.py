"""The format of every message is pinned by the bytes of one example.

After a change that is meant (with a new protocol version): ``python tests/protocol/test_messages.py`` writes the file
anew; look at what it changed.
"""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[1] / "lib"))

from message_examples import example_of

from hocket.protocol.codec import decode, encode
from hocket.protocol.messages import MESSAGES, Message, message

GOLDEN = Path(__file__).with_name("golden_messages.txt")
KINDS = sorted(MESSAGES.values(), key=lambda kind: kind.code)


def golden() -> dict[str, str]:
    return dict(line.split() for line in GOLDEN.read_text().splitlines())


def test_every_message_has_golden_bytes_and_every_golden_line_a_message() -> None:
    assert list(golden()) == [kind.__name__ for kind in KINDS]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_the_bytes_of_a_message_are_the_golden_ones(kind: type[Message]) -> None:
    assert encode(example_of(kind)).hex() == golden()[kind.__name__]
    assert decode(bytes.fromhex(golden()[kind.__name__])) == example_of(kind)


def test_a_code_that_is_taken_is_refused_at_import() -> None:
    with pytest.raises(AssertionError, match="taken"):

        @message(KINDS[0].code)
        class Another(Message):
            pass


def test_messages_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        example_of(KINDS[0]).role = "other"


if __name__ == "__main__":
    GOLDEN.write_text("".join(f"{kind.__name__} {encode(example_of(kind)).hex()}\n" for kind in KINDS))
