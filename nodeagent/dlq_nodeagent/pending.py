"""Reports that the master has not confirmed: the latest of each rank, repeated until it does."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from dlq_nodeagent.runtimes.port import AttemptKey


@dataclass(slots=True)
class _Waiting:
    sequence: int
    sent_s: float | None = None


class PendingReports:
    """Numbers only; what a report says is made from the rank when it is sent."""

    def __init__(self, next_sequence: Callable[[], int]) -> None:
        self._next_sequence = next_sequence
        self._waiting: dict[AttemptKey, _Waiting] = {}

    def add(self, key: AttemptKey) -> None:
        """Something happened to this rank: an earlier report of it is superseded."""
        self._waiting[key] = _Waiting(self._next_sequence())

    def sequence_of(self, key: AttemptKey) -> int:
        """The number of the report that waits for this rank; a new one when none does."""
        if key not in self._waiting:
            self.add(key)
        return self._waiting[key].sequence

    def due(self, now_s: float, *, repeat_s: float) -> Iterator[tuple[AttemptKey, int]]:
        """Reports never sent in this session, and those not confirmed for `repeat_s`; marks them sent."""
        for key, waiting in list(self._waiting.items()):
            if waiting.sent_s is None or now_s - waiting.sent_s >= repeat_s:
                waiting.sent_s = now_s
                yield key, waiting.sequence

    def mark_sent(self, now_s: float) -> None:
        """All that waits has just been said, in Hello."""
        for waiting in self._waiting.values():
            waiting.sent_s = now_s

    def confirmed(self, sequence: int) -> list[AttemptKey]:
        """The ranks whose latest report is confirmed now, in the order of their reports."""
        keys = [key for key, waiting in self._waiting.items() if waiting.sequence <= sequence]
        for key in keys:
            del self._waiting[key]
        return keys
