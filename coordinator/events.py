"""What the coordinator's machines hear, and what they ask of the shell around them.

Effects are performed in the order of the list. Two duties lie in that order: what breaks a barrier is sent before the
end of its group, so that a worker still knows the group when it hears; and a group's end is sent before a new epoch of
the same name, so that no worker ever holds two.
"""

from dataclasses import dataclass

from hocket.protocol.messages import Facts, HostInfo, Message

# --- events ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WorkerJoins:
    """A worker has proved itself and registered. ``info.host`` is a number that no other registration had or gets.

    ``is_local``: it runs on the coordinator's own machine, so that a loopback address means the same there.
    """

    info: HostInfo
    is_local: bool = True


@dataclass(frozen=True, slots=True)
class WorkerSays:
    """A registered worker sent a message."""

    host: int
    message: Message


@dataclass(frozen=True, slots=True)
class WorkerGone:
    """A worker's connection has ended (``cause`` "worker lost") or it fell silent ("unreachable")."""

    host: int
    cause: str
    detail: str


@dataclass(frozen=True, slots=True)
class TimerFired:
    """A deadline may have passed."""


Event = WorkerJoins | WorkerSays | WorkerGone | TimerFired

# --- effects ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Send:
    """A message for a worker."""

    host: int
    message: Message


@dataclass(frozen=True, slots=True)
class Disconnect:
    """A worker is told why and its connection closed. The machines have forgotten it already."""

    host: int
    error: Facts


@dataclass(frozen=True, slots=True)
class Ended:
    """A group has ended; ``errors`` pairs each host that still has members with what they raise.

    It never leaves the core, which breaks the group's barriers on it.
    """

    group: int
    errors: tuple[tuple[int, Facts], ...]


@dataclass(frozen=True, slots=True)
class Log:
    """A line for the log. ``level`` is one of logging's."""

    level: int
    text: str


Effect = Send | Disconnect | Ended | Log
