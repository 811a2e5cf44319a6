"""Instants at which something becomes due: a heap whose stale entries are skipped."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from dlq_master.model.ids import JobId


class Timers:
    """At most one instant per job; setting it again replaces it."""

    __slots__ = ("_heap", "at")

    def __init__(self) -> None:
        self.at: dict[JobId, float] = {}
        self._heap: list[tuple[float, JobId]] = []

    def set(self, job_id: JobId, at_s: float) -> None:
        if self.at.get(job_id) == at_s:
            return
        self.at[job_id] = at_s
        heappush(self._heap, (at_s, job_id))
        if len(self._heap) > 64 + 2 * len(self.at):
            self._compact()

    def clear(self, job_id: JobId) -> None:
        self.at.pop(job_id, None)

    def next_s(self) -> float | None:
        """The earliest instant, or None. Drops stale entries on the way."""
        heap = self._heap
        while heap:
            at_s, job_id = heap[0]
            if self.at.get(job_id) == at_s:
                return at_s
            heappop(heap)
        return None

    def due(self, now_s: float) -> list[JobId]:
        """Jobs due at `now_s`, the earliest first, ties by job; they stay set."""
        first = self.next_s()
        if first is None or first > now_s:
            return []
        found: list[tuple[float, JobId]] = []
        stack = [0]
        heap = self._heap
        # A heap's due entries form a subtree at its root: visit it without popping.
        while stack:
            position = stack.pop()
            if position < len(heap) and heap[position][0] <= now_s:
                at_s, job_id = heap[position]
                if self.at.get(job_id) == at_s:
                    found.append((at_s, job_id))
                stack += (2 * position + 1, 2 * position + 2)
        found.sort()
        return list(dict.fromkeys(job_id for _, job_id in found))

    def _compact(self) -> None:
        self._heap = [(at_s, job_id) for job_id, at_s in self.at.items()]
        heapify(self._heap)
