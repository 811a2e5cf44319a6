"""Reports that the master has not confirmed: the latest of each rank, repeated until it does."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from dlq_nodeagent.model.launch import RankKey
from dlq_nodeagent.model.messages import Fence


class RefusedLaunch(NamedTuple):
    """A launch that this node can never take: another rank has its name."""

    key: RankKey
    fence: Fence


Subject = RankKey | RefusedLaunch


@dataclass(slots=True)
class _Waiting:
    sequence: int
    sent_s: float | None = None


class PendingReports:
    """The numbers of open reports. A report is made from its rank when it is sent."""

    def __init__(self, next_sequence: Callable[[], int]) -> None:
        self._next_sequence = next_sequence
        self._waiting: dict[Subject, _Waiting] = {}

    def add(self, subject: Subject) -> None:
        """Queue a report of this rank. It replaces an earlier one."""
        self._waiting[subject] = _Waiting(self._next_sequence())

    def sequence_of(self, subject: Subject) -> int:
        """The number of the report that waits for this rank; a new one when none does."""
        if subject not in self._waiting:
            self.add(subject)
        return self._waiting[subject].sequence

    def due(self, now_s: float, *, repeat_s: float) -> Iterator[tuple[Subject, int]]:
        """The reports that were not sent in this session, or not confirmed for `repeat_s`; marks
        them sent. They are in the order of their numbers: a confirmation covers all up to its own.
        """
        for subject, waiting in sorted(self._waiting.items(), key=lambda item: item[1].sequence):
            if waiting.sent_s is None or now_s - waiting.sent_s >= repeat_s:
                waiting.sent_s = now_s
                yield subject, waiting.sequence

    def begin(self, said: Iterable[Subject], now_s: float) -> None:
        """Begin a session: its Hello carries these reports, all others are sent again."""
        for waiting in self._waiting.values():
            waiting.sent_s = None
        for subject in said:
            self._waiting[subject].sent_s = now_s

    def confirmed(self, sequence: int) -> list[Subject]:
        """The ranks whose latest report is confirmed now, in order. A report that this session has
        not sent is not confirmed: the number is another report's.
        """
        confirmed = [
            subject
            for subject, waiting in self._waiting.items()
            if waiting.sequence <= sequence and waiting.sent_s is not None
        ]
        for subject in confirmed:
            del self._waiting[subject]
        return confirmed
