"""How good start ranges are: the first forecast for a job, against its real start.

When the master dies, no comparison is lost but of ranges younger than a second. A first range is
written in the turn after it was seen, and its result with the start itself. Agents and a silent
line have no part in it.
"""

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import Job
from dlq_master.planner.forecasts import Range
from dlq_master.store.tables.tenants import MOST_COMPARED, Foreseen

MOST_AWAITED = 20_000
WRITTEN_AT_ONCE = 500  # ranges in one turn


class ComparedStart(NamedTuple):
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
    """First ranges of jobs that wait, and the newest that have started. Touched in the loop's
    thread only.
    """

    def __init__(
        self, loaded: Iterable[Foreseen] = (), jobs: Mapping[JobId, Job] | None = None
    ) -> None:
        """`loaded`: rows of earlier masters; `jobs`: the existing jobs;"""
        self._awaited: dict[JobId, Foreseen] = {}
        self._unwritten: dict[JobId, None] = {}  # of the awaited
        self._gone: list[JobId] = []  # rows of which nothing will come any more
        self.compared: deque[ComparedStart] = deque()
        self._within = 0  # of those
        rows = list(loaded)
        started = [row for row in rows if row.started_s is not None]
        for row in sorted(started, key=lambda row: (row.started_s or 0.0, row.job_id)):
            self._keep(row)
        known = {} if jobs is None else jobs
        for row in rows:
            if row.started_s is None and row.job_id in known:
                self._awaited[row.job_id] = row
            elif row.started_s is None:
                self._gone.append(row.job_id)

    def foreseen(
        self, starts: Mapping[JobId, Range], at_s: float, jobs: Mapping[JobId, Job]
    ) -> None:
        """New ranges. Only the first counts, and only if a likely start was seen."""
        for job_id, range_ in starts.items():
            job = jobs.get(job_id)
            if job is None or job.first_start_time_s is not None or job_id in self._awaited:
                continue
            if math.isfinite(range_.likely_s) and len(self._awaited) < MOST_AWAITED:
                self._awaited[job_id] = Foreseen(job_id, at_s, *range_)
                self._unwritten[job_id] = None

    def rows(self, jobs: Iterable[Job]) -> list[Foreseen]:
        """The rows to write in a turn in which these jobs have changed."""
        new: list[Foreseen] = []
        for job in jobs if self._awaited else ():
            awaited = self._awaited.get(job.job_id)
            if awaited is None:
                continue
            if job.first_start_time_s is not None:
                new.append(awaited._replace(started_s=job.first_start_time_s))
                self._keep(new[-1])
            elif job.ended or job.hold is not None:
                self._gone.append(job.job_id)
            else:
                continue
            del self._awaited[job.job_id]
            self._unwritten.pop(job.job_id, None)
        first = list(self._unwritten)[:WRITTEN_AT_ONCE]
        for job_id in first:
            del self._unwritten[job_id]
        return new + [self._awaited[job_id] for job_id in first]

    def dropped(self) -> list[JobId]:
        """Rows that go in this turn."""
        gone, self._gone = self._gone, []
        return gone

    def _keep(self, row: Foreseen) -> None:
        found = compared_of(row)
        if found is None:
            return
        self.compared.append(found)
        self._within += found.within
        if len(self.compared) > MOST_COMPARED:
            oldest = self.compared.popleft()
            self._within -= oldest.within
            self._gone.append(oldest.job_id)

    @property
    def within_share(self) -> float | None:
        """The part of the newest starts that came in their range; None: there are none."""
        return self._within / len(self.compared) if self.compared else None

    def quality(self) -> Quality:
        """The figures of the newest comparisons."""
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
            within_share=self.within_share,
            wait_median_s=_quantile(waits, 0.5),
        )


def compared_of(row: Foreseen) -> ComparedStart | None:
    """The content of a row; None: its job has not started."""
    job_id, at_s, low_s, likely_s, high_s, started_s = row
    if started_s is None:
        return None
    return ComparedStart(job_id, at_s, Range(low_s, likely_s, high_s), started_s)


def _quantile(ordered: Sequence[float], share: float) -> float:
    """The nearest rank."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
