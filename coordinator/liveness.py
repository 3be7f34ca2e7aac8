"""Which workers have been silent for too long. Pure: the caller brings the time.

Time during which the coordinator itself stood still (a suspended machine, a stopped process, a blocked loop) is
nobody's silence: what came in meanwhile has not been read yet. It shows as a tick that comes late, and is granted to
everyone.
"""

GRAIN_S = 0.001
"""How long after a limit it is looked whether it has passed."""


class Liveness:
    """When each host was last heard; it wants `tick` at least every ``tick_s`` seconds."""

    def __init__(self, limit_s: float, tick_s: float) -> None:
        self._limit_s, self._tick_s = limit_s, tick_s
        self._heard: dict[int, float] = {}
        self._next_tick: float | None = None

    @property
    def deadline(self) -> float | None:
        """When to call `tick`; None while there is nobody to watch."""
        return self._next_tick

    def heard(self, host: int, now: float) -> None:
        """A host gave a sign of life."""
        self._heard[host] = now
        if self._next_tick is None:
            self._next_tick = now + self._tick_s

    def forget(self, host: int) -> None:
        """A host need not be watched any more."""
        self._heard.pop(host, None)
        if not self._heard:
            self._next_tick = None

    def silence(self, host: int, now: float) -> float:
        """Seconds since a host was heard, less those that were granted."""
        return max(0.0, now - self._heard.get(host, now))

    def tick(self, now: float) -> dict[int, float]:
        """Hosts that have been silent beyond the limit, and for how long. Does nothing before its time."""
        if self._next_tick is None or now < self._next_tick:
            return {}
        late_s = now - self._next_tick
        if late_s > self._tick_s / 2:
            self._heard = {host: min(now, heard + late_s) for host, heard in self._heard.items()}
        expired = {host: now - heard for host, heard in self._heard.items() if now - heard > self._limit_s}
        first_due = (
            min((heard for host, heard in self._heard.items() if host not in expired), default=now) + self._limit_s
        )
        self._next_tick = min(now + self._tick_s, max(now, first_due) + GRAIN_S)
        return expired
