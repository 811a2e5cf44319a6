"""Ended jobs that memory still holds: the newest, for a while. The others are read from the disk.

A job enters when it has ended and holds nothing any more, and leaves when its time is over or too
many have ended since. A restart loads the same window. Silence and agents do not matter here: an
agent's report of a job that has left is judged by its row (`Turn.known_job`).
"""

import math
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Final

from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import Job
from dlq_master.store.batch import MemoryWindow

# A turn lets go of at most so many beyond those that came: a thousand cost it about 1 ms.
AT_ONCE: Final = 1_000


class Recent:
    """The ids of the window, in the order in which they entered."""

    def __init__(self, window: MemoryWindow) -> None:
        self.window = window
        self.complete_from_s = -math.inf  # all jobs that ended after this are in memory
        self._ends: OrderedDict[JobId, float] = OrderedDict()

    def enter(self, jobs: Iterable[Job]) -> int:
        """Note those that have ended and hold nothing; returns how many these are."""
        before = len(self._ends)
        for job in jobs:
            if job.end_time_s is not None and job.live_attempt is None:
                self._ends.setdefault(job.job_id, job.end_time_s)
        return len(self._ends) - before

    def turned(self, now_s: float, jobs: Iterable[Job]) -> Iterator[JobId]:
        """Let the ended jobs of a turn enter, and those leave whose time is over."""
        return self.leaving(now_s, AT_ONCE + self.enter(jobs))

    def leaving(self, now_s: float, most: int = AT_ONCE) -> Iterator[JobId]:
        """Those whose time is over, the oldest first; they are not in the window any more."""
        for _ in range(most):
            if not self._ends:
                return
            end_s = next(iter(self._ends.values()))
            if len(self._ends) <= self.window.most and end_s > now_s - self.window.kept_s:
                return
            job_id, _ = self._ends.popitem(last=False)
            self.complete_from_s = max(self.complete_from_s, end_s)
            yield job_id

    def __contains__(self, job_id: JobId) -> bool:
        return job_id in self._ends

    def __len__(self) -> int:
        return len(self._ends)
