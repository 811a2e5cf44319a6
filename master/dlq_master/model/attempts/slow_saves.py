"""Running jobs that need longer to save than is usually left, and the time left then."""

from __future__ import annotations

from dlq_master.model.attempts.grace import SAVE_FACTOR, percentile_95
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import Job
from dlq_master.model.lease import Terms

# A lead is at most this part of the best-effort term.
LONGEST_LEAD = 0.9


class SlowSaves:
    """Running jobs that need more than the usual lead; `needs_s`: how much, in seconds."""

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self.needs_s: dict[JobId, float] = {}

    @property
    def lead_s(self) -> float:
        """The lead of the decision before a boundary. It is enough for the slowest save of the
        running jobs. It is never so long that the next term would be decided before this one has
        begun.
        """
        if not self.needs_s:
            return self._terms.save_lead_s
        return min(max(self.needs_s.values()), LONGEST_LEAD * self._terms.be_term_s)

    def index(self, before: Job | None, job: Job) -> None:
        """Go on from one value of a job to the next."""
        if job.live_attempt is None:
            self.needs_s.pop(job.job_id, None)
        elif before is None or before.live_attempt is None or before.saves is not job.saves:
            save_s = SAVE_FACTOR * percentile_95(job.saves)
            if save_s > self._terms.save_lead_s:
                self.needs_s[job.job_id] = save_s
            else:
                self.needs_s.pop(job.job_id, None)
