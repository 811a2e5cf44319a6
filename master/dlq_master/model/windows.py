"""Times in which a node is reserved: nothing runs there then, and what starts before is over by then, or saves."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from dlq_master.model.job import Job
from dlq_master.model.lease import Terms


class Window(NamedTuple):
    """From `begin_s` to `end_s` a node takes no work."""

    begin_s: float
    end_s: float
    reservation_id: str


def expected_left_s(job: Job) -> float | None:
    """Seconds that it still needs, by what is known of it, or its time limit; None: nobody knows."""
    if job.duration_estimate_s is not None:
        return max(0.0, job.duration_estimate_s - job.worked_s)
    if job.time_limit_s is not None:
        return max(0.0, job.time_limit_s - job.total_executed_s)
    return None


def runs_into(job: Job, windows: Iterable[Window], begins_s: float, terms: Terms) -> bool:
    """Whether a job that starts at `begins_s` is to keep off a node with these windows.

    It may start there if it is expected to have ended when the next one begins; or if it can save, and has a whole term
    until then: of the SLO grid, if it holds a promise.
    """
    ahead = [window.begin_s for window in windows if window.end_s > begins_s]
    if not ahead:
        return False
    until_s = min(ahead) - begins_s
    left_s = expected_left_s(job)
    if left_s is not None and left_s + terms.resume_s <= until_s:
        return False
    if not job.keeps_work:
        return True
    return until_s < (terms.be_term_s if job.promised is None else terms.slo_term_s)
