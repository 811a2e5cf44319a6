"""How good start ranges are: what was foreseen for a job first, against the start that came."""

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from dlq_master.model.ids import JobId
from dlq_master.model.job import Job
from dlq_master.planner.forecasts import Range

KEPT = 1_000  # the newest; of this master, and stored nowhere
MOST_AWAITED = 20_000


class Compared(NamedTuple):
    """A job that has started, and the first range that its user could see."""

    job_id: JobId
    at_s: float  # when that was
    foreseen: Range
    started_s: float

    @property
    def late_s(self) -> float:
        """How much later than the likely start; below 0: earlier."""
        return self.started_s - self.foreseen.likely_s

    @property
    def within(self) -> bool:
        """Whether it started in its range."""
        return self.foreseen.low_s <= self.started_s <= self.foreseen.high_s


class Quality(NamedTuple):
    """Of the newest `jobs` that have started. Seconds; None: there are none."""

    jobs: int
    median_s: float | None  # of how far the likely start was off
    p90_s: float | None
    late_median_s: float | None  # with its sign: above 0, starts come later than said
    within_share: float | None  # that started in their range
    wait_median_s: float | None  # from the estimate to the start


class Starts:
    """First ranges of jobs that wait, and the newest that have started."""

    def __init__(self) -> None:
        self._awaited: dict[JobId, tuple[float, Range]] = {}
        self.compared: deque[Compared] = deque(maxlen=KEPT)

    def foreseen(
        self, starts: Mapping[JobId, Range], at_s: float, jobs: Mapping[JobId, Job]
    ) -> None:
        """New ranges. Only the first counts, and only if a likely start was seen."""
        for job_id, range_ in starts.items():
            job = jobs.get(job_id)
            if job is None or job.first_start_time_s is not None or job_id in self._awaited:
                continue
            if math.isfinite(range_.likely_s) and len(self._awaited) < MOST_AWAITED:
                self._awaited[job_id] = (at_s, range_)

    def moved(self, jobs: Iterable[Job]) -> Sequence[Compared]:
        """Jobs that have changed; returns those that have started since they were foreseen."""
        if not self._awaited:
            return ()
        new: list[Compared] = []
        for job in jobs:
            awaited = self._awaited.get(job.job_id)
            if awaited is None:
                continue
            if job.first_start_time_s is not None:
                new.append(Compared(job.job_id, *awaited, job.first_start_time_s))
            if job.first_start_time_s is not None or job.ended or job.hold is not None:
                del self._awaited[job.job_id]
        self.compared += new
        return new

    def quality(self) -> Quality:
        """What there is to say of the newest."""
        late = sorted(one.late_s for one in self.compared)
        if not late:
            return Quality(0, None, None, None, None, None)
        off = sorted(abs(late_s) for late_s in late)
        waits = sorted(one.started_s - one.at_s for one in self.compared)
        return Quality(
            jobs=len(late),
            median_s=_quantile(off, 0.5),
            p90_s=_quantile(off, 0.9),
            late_median_s=_quantile(late, 0.5),
            within_share=sum(one.within for one in self.compared) / len(late),
            wait_median_s=_quantile(waits, 0.5),
        )


def _quantile(ordered: Sequence[float], share: float) -> float:
    """The nearest rank."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
