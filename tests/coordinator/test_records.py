import pytest

from hocket.coordinator.records import (
    GROUP_TABLE,
    SESSION_TABLE,
    Group,
    GroupChange,
    GroupState,
    Session,
    SessionChange,
    SessionState,
)
from hocket.protocol.messages import GroupInfo, HostInfo

INFO = GroupInfo(1, "x", "world", 1, -1, (), ())


def test_every_state_is_in_its_table_and_every_change_leads_somewhere() -> None:
    assert set(GROUP_TABLE) == set(GroupState)
    assert set(SESSION_TABLE) == set(SessionState)
    assert {change for row in GROUP_TABLE.values() for change in row} == set(GroupChange)
    assert {change for row in SESSION_TABLE.values() for change in row} == set(SessionChange)


def test_nothing_leaves_the_last_states() -> None:
    assert GROUP_TABLE[GroupState.ENDED] == {}
    assert SESSION_TABLE[SessionState.GONE] == {}


def test_what_is_not_in_the_table_is_a_fault() -> None:
    group = Group(INFO, 0.0)
    group.change(GroupChange.COMPLETE)
    group.change(GroupChange.MEMBER_LOST)
    with pytest.raises(AssertionError, match="group 1 is ended: member left is illegal"):
        group.change(GroupChange.MEMBER_LEFT)
    host = HostInfo(1, "a", "127.0.0.1", 1, 1, "i")
    session = Session(host, 4, "x", "", 1, 0.0, SessionState.JOINED)
    session.change(SessionChange.GONE)
    with pytest.raises(AssertionError, match="is gone: gone is illegal"):
        session.change(SessionChange.GONE)
