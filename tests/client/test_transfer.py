"""Deadlines: what a late operation says, and that those which end in time leave nothing behind."""

import weakref

import numpy as np
from p2p_wire import GROUP, Wire, begin_recv

from hocket.client.mailbox import Finish, Mailbox
from hocket.protocol.errors import ClosedError, DeadlineError


def test_a_late_receive_says_who_it_waited_for() -> None:
    wire = Wire(4)
    wire.recv(2, "one", np.zeros(1), 1, tag=4, limit_s=2.5)
    wire.recv(2, "any", np.zeros(1), None, limit_s=2.5)
    wire.tick(2.5)
    for name, missing, text in (("one", (1,), "rank 1 (tag 4)"), ("any", (0, 1, 3), "any rank (tag 0)")):
        error = wire.error(name)
        assert isinstance(error, DeadlineError) and (error.limit_s, error.missing) == (2.5, missing)
        assert f"nothing came from {text}" in str(error)


def test_the_limit_that_an_error_names_is_the_one_that_was_given() -> None:
    box, now = Mailbox(GROUP, 1, 2), 1_234_567.891
    begin_recv(box, "h", 1, deadline_s=now + 0.3, now=now)
    [finish] = box.tick(now + 0.3)
    assert isinstance(finish, Finish) and isinstance(finish.error, DeadlineError) and finish.error.limit_s == 0.3


def test_deadlines_of_what_ended_in_time_are_forgotten() -> None:
    wire = Wire(2)
    for i in range(500):
        wire.recv(1, ("recv", i), np.zeros(1), 0, limit_s=300.0 + i)
        wire.send(0, ("send", i), np.ones(1), 1, limit_s=300.0)
        wire.run()
    assert wire.boxes[1].deadline is None
    wire.recv(1, "recv", np.zeros(1), 0, limit_s=7.0)
    assert wire.boxes[1].deadline == 7.0
    wire.cancel(1, "recv")
    assert wire.boxes[1].deadline is None
    assert wire.boxes[1].tick(1e9) == []


class Handle:
    """What a caller may use, and expect to be rid of."""


def test_operations_that_ended_in_time_are_let_go_of() -> None:
    box, alive = Mailbox(GROUP, 1, 2), []
    for _ in range(500):
        handle = Handle()
        alive.append(weakref.ref(handle))
        begin_recv(box, handle, 1, deadline_s=300.0)
        box.cancel(handle, ClosedError(""))
    assert sum(reference() is not None for reference in alive) < 100
