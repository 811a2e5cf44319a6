"""Instants at which something becomes due: a heap whose stale entries are skipped."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

from dlq_master.model.ids import AttemptKey, JobId, NodeId

K = TypeVar("K", JobId, NodeId, AttemptKey)


class Timers(Generic[K]):
    """At most one instant per key, such as a job; setting it again replaces it."""

    __slots__ = ("_heap", "at")

    def __init__(self) -> None:
        self.at: dict[K, float] = {}
        self._heap: list[tuple[float, K]] = []

    def set(self, key: K, at_s: float) -> None:
        if self.at.get(key) == at_s:
            return
        self.at[key] = at_s
        heappush(self._heap, (at_s, key))
        if len(self._heap) > 64 + 2 * len(self.at):
            self._compact()

    def clear(self, key: K) -> None:
        self.at.pop(key, None)

    def next_s(self) -> float | None:
        """The earliest instant, or None. Drops stale entries on the way."""
        heap = self._heap
        while heap:
            at_s, key = heap[0]
            if self.at.get(key) == at_s:
                return at_s
            heappop(heap)
        return None

    def due(self, now_s: float) -> list[K]:
        """Keys due at `now_s`, the earliest first, ties by key; they stay set."""
        first = self.next_s()
        if first is None or first > now_s:
            return []
        found: list[tuple[float, K]] = []
        stack = [0]
        heap = self._heap
        # A heap's due entries form a subtree at its root: visit it without popping.
        while stack:
            position = stack.pop()
            if position < len(heap) and heap[position][0] <= now_s:
                at_s, key = heap[position]
                if self.at.get(key) == at_s:
                    found.append((at_s, key))
                stack += (2 * position + 1, 2 * position + 2)
        found.sort()
        return list(dict.fromkeys(key for _, key in found))

    def _compact(self) -> None:
        self._heap = [(at_s, key) for key, at_s in self.at.items()]
        heapify(self._heap)
