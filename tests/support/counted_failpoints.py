"""A master that dies at a chosen passage of a failpoint, inside this process, and how many passages there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from dlq_master.control.failpoints import Failpoints
from dlq_master.model.event import JournalEvent


class Crash(BaseException):
    """The process is gone."""


class Counting(Failpoints):
    """Raises instead of killing the process, and counts what was passed."""

    def __init__(self, setting: str) -> None:
        super().__init__(setting, self._crash)
        self.passages: Counter[str] = Counter()

    def _crash(self) -> None:
        raise Crash

    def passed(self, name: str, events: Sequence[JournalEvent] = ()) -> None:
        self.passages[name] += 1
        super().passed(name, events)
