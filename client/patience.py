"""How long a call waits for the others before it is gone on with elsewhere: learnt from how often they came in time."""

MISSES = 8
"""Calls in a row in which the others came too late, after which waiting is mostly left out."""
TRY_AGAIN = 16
"""Of so many calls after that, one waits all the same."""


class Patience:
    """See the module. ``willing``: whether waiting can pay at all; not where ranks are threads of one process."""

    __slots__ = ("_missed", "_willing")

    def __init__(self, willing: bool = True) -> None:
        self._willing = willing
        self._missed = 0 if willing else MISSES

    def waits(self) -> bool:
        """Whether the next call should wait."""
        return self._missed < MISSES or (self._willing and self._missed % TRY_AGAIN == 0)

    def came(self) -> None:
        """The others came in time."""
        if self._willing:
            self._missed = 0

    def missed(self) -> None:
        """They did not, or nobody waited."""
        self._missed += 1
