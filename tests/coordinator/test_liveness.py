from hocket.coordinator.liveness import Liveness


def run(liveness: Liveness, until: float, hearing: tuple[int, ...] = ()) -> tuple[float, dict[int, float]] | None:
    """Ticks when due, with signs of life just before; returns when somebody expired."""
    while liveness.deadline is not None and liveness.deadline <= until:
        now = liveness.deadline
        for host in hearing:
            liveness.heard(host, now)
        expired = liveness.tick(now)
        if expired:
            return now, expired
    return None


def test_silence_beyond_the_limit_expires_and_little_later() -> None:
    liveness = Liveness(5.0, 1.0)
    liveness.heard(1, 0.0)
    found = run(liveness, 20.0)
    assert found is not None
    assert 5.0 < found[0] < 5.1
    assert list(found[1]) == [1]


def test_who_is_heard_does_not_expire_and_the_silent_one_beside_it_does() -> None:
    liveness = Liveness(5.0, 1.0)
    liveness.heard(1, 0.0)
    liveness.heard(2, 0.0)
    found = run(liveness, 20.0, hearing=(1,))
    assert found is not None
    assert list(found[1]) == [2]


def test_the_time_of_an_own_standstill_is_granted_to_everyone() -> None:
    liveness = Liveness(5.0, 1.0)
    liveness.heard(1, 0.0)
    assert liveness.tick(1.0) == {}
    assert liveness.tick(60.0) == {}
    assert liveness.silence(1, 60.0) == 2.0
    found = run(liveness, 100.0)
    assert found is not None
    assert 63.0 < found[0] < 63.1


def test_nobody_to_watch_needs_no_ticks() -> None:
    liveness = Liveness(5.0, 1.0)
    assert liveness.deadline is None
    liveness.heard(1, 0.0)
    liveness.forget(1)
    assert liveness.deadline is None
    assert liveness.tick(99.0) == {}
    assert liveness.silence(1, 99.0) == 0.0


def test_a_tick_before_its_time_does_nothing() -> None:
    liveness = Liveness(0.5, 1.0)
    liveness.heard(1, 0.0)
    assert liveness.tick(0.9) == {}
