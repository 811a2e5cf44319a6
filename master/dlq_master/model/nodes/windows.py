"""Times in which a node is reserved: nothing runs there then, and what starts before is over by
then, or saves.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf, nextafter
from typing import NamedTuple

from dlq_master.model.jobs.job import Job
from dlq_master.model.lease import Terms


class Window(NamedTuple):
    """From `begin_s` to `end_s` a node takes no work."""

    begin_s: float
    end_s: float
    reservation_id: str


def expected_left_s(job: Job, pace: float = 1.0) -> float | None:
    """Seconds that it still needs, by its estimate or its time limit; None: not known. `pace`:
    seconds of its run time that a second on those GPUs does.
    """
    if job.duration_estimate_s is not None and job.timed:
        return max(0.0, job.duration_estimate_s - job.worked_s) / pace
    return job.limit_at_start_s


def says_it_saves(job: Job) -> bool:
    """Whether a stop costs it little: it has saved before, or its spec says how it does."""
    return job.keeps_work and (job.rules.saves or bool(job.saves) or job.checkpoint is not None)


def runs_into(
    job: Job, windows: Iterable[Window], begins_s: float, terms: Terms, pace: float = 1.0
) -> bool:
    """Whether a job that starts at `begins_s` is to keep off a node with these windows. `pace`: as
    of `expected_left_s`.
    """
    needs_s = _needs_s(job, terms, pace)
    return any(
        window.end_s > begins_s and begins_s > window.begin_s - needs_s for window in windows
    )


def runs_into_later_s(
    job: Job, windows: Iterable[Window], now_s: float, terms: Terms, pace: float = 1.0
) -> float:
    """The next instant at which `runs_into` becomes true of one more of them; inf: never."""
    needs_s = _needs_s(job, terms, pace)
    last = [window.begin_s - needs_s for window in windows]
    return nextafter(min([at_s for at_s in last if at_s >= now_s], default=inf), inf)


def _needs_s(job: Job, terms: Terms, pace: float) -> float:
    """Seconds that have to be left until a window when the job starts.

    A job that says how it saves needs a whole term (of the SLO grid, if it holds a promise, or is
    planned for slots). It needs less if it is expected to be over before. Another job has to be
    over: by its time limit, as in Slurm, else by its estimate. Where both are unknown it needs a
    term, unless it is known to lose its work.
    """
    planned = job.promised is not None or bool(job.slots)
    term_s = terms.slo_term_s if planned else terms.be_term_s
    if says_it_saves(job):
        left_s = expected_left_s(job, pace)
        return term_s if left_s is None else min(term_s, left_s + terms.resume_s)
    left_s = job.limit_at_start_s
    if left_s is None:
        left_s = expected_left_s(job, pace)
    if left_s is not None:
        return left_s + terms.resume_s
    return term_s if job.keeps_work else inf
