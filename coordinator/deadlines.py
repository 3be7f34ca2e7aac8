"""Deadlines of things that mostly settle long before: a heap that drops settled entries lazily, yet stays small."""

import heapq
from typing import Generic, TypeVar

T = TypeVar("T")
SLACK = 64


class Deadlines(Generic[T]):
    """Items by the time at which they are due. Pure: the caller brings the time."""

    def __init__(self) -> None:
        self._items: dict[int, T] = {}
        self._heap: list[tuple[float, int]] = []
        self._next_token = 1

    def __len__(self) -> int:
        return len(self._items)

    @property
    def first(self) -> float | None:
        """When the next item is due; None where none ever is."""
        while self._heap and self._heap[0][1] not in self._items:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def add(self, due_s: float, item: T) -> int:
        """Notes an item. Returns the token to `discard` it by."""
        token = self._next_token
        self._next_token += 1
        self._items[token] = item
        if due_s != float("inf"):
            heapq.heappush(self._heap, (due_s, token))
        return token

    def discard(self, token: int) -> None:
        """Forgets an item, which need not be there any more."""
        self._items.pop(token, None)
        if len(self._heap) > 2 * len(self._items) + SLACK:
            self._heap = [entry for entry in self._heap if entry[1] in self._items]
            heapq.heapify(self._heap)

    def pop_due(self, now: float) -> T | None:
        """Takes out one item that is due, the earliest first."""
        due = self.first
        if due is None or due > now:
            return None
        return self._items.pop(heapq.heappop(self._heap)[1])
