"""The grace of a job, learned from its own saves; its time limit, and the work at risk.

`SlowSaves` indexes running jobs with saves that are longer than the usual lead.
"""

from __future__ import annotations

from dlq_master.model.attempts.attempt import Attempt, AttemptState
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import Job, RunRules
from dlq_master.model.lease import Terms
from dlq_master.model.transitions import StopCause

SAVE_FACTOR = 1.5
SAVE_MARGIN_S = 15.0


def grace_s(saves: tuple[float, ...], rules: RunRules) -> float:
    """clamp(1.5 x p95 of the observed saves + 15, floor, cap); the first grace before any save."""
    if not saves:
        return min(rules.first_grace_s, rules.grace_cap_s)
    learned_s = SAVE_FACTOR * percentile_95(saves) + SAVE_MARGIN_S
    return min(max(learned_s, rules.grace_floor_s), rules.grace_cap_s)


# Stops that end a job for good: a Slurm job then gets Slurm's KillWait.
_FOR_GOOD = frozenset({StopCause.CANCEL, StopCause.TIME_LIMIT})


def stop_grace_s(attempt: Attempt, job: Job, cause: StopCause = StopCause.PREEMPT) -> float:
    """The grace of a stop in seconds: 0 before the attempt runs, then the learned grace. A Slurm
    job that ends for good gets Slurm's KillWait.
    """
    if attempt.started_time_s is None or attempt.state is AttemptState.SUSPENDED:
        return 0.0
    if cause in _FOR_GOOD and job.rules.kill_wait_s is not None:
        return job.rules.kill_wait_s
    return grace_s(job.saves, job.rules)


def limit_left_s(job: Job, attempt: Attempt | None, now_s: float) -> float | None:
    """Seconds until the time limit of its live attempt, or of the next one; below 0: it is over.
    None: there is no limit.

    An attempt counts from its first run, also after live resizes. Suspended time does not count.
    """
    limit_s = job.time_limit_s
    if limit_s is None or attempt is None or attempt.started_time_s is None:
        return job.limit_at_start_s
    if not job.rules.limit_each:
        return limit_s - job.total_executed_s - attempt.executed_s(now_s)
    began_s = attempt.started_time_s if job.start_time_s is None else job.start_time_s
    ran_s = now_s - min(began_s, attempt.started_time_s) - attempt.off_gpus_s(now_s)
    return limit_s - max(0.0, ran_s)


def work_at_risk_s(attempt: Attempt, now_s: float) -> float:
    """Seconds of execution that a kill at `now_s` would lose; 0 before it runs."""
    if attempt.started_time_s is None:
        return 0.0
    safe_s, carried_s = attempt.started_time_s, attempt.carried_s
    if attempt.checkpoint is not None and attempt.checkpoint.time_s >= safe_s:
        safe_s, carried_s = attempt.checkpoint.time_s, 0.0
    if attempt.is_out:
        return carried_s
    until_s = now_s if attempt.ended_time_s is None else attempt.ended_time_s
    return carried_s + max(0.0, until_s - safe_s)


def percentile_95(values: tuple[float, ...]) -> float:
    """Linear interpolation between the closest ranks; `values` is not empty."""
    ordered = sorted(values)
    position = 0.95 * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])


# A lead is at most this part of the best-effort term.
LONGEST_LEAD = 0.9


class SlowSaves:
    """Running jobs with saves longer than the usual lead; `needs_s`: job -> seconds."""

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self.needs_s: dict[JobId, float] = {}

    @property
    def lead_s(self) -> float:
        """The lead of the decision before a boundary: enough for the slowest save of the running
        jobs, and less than a term.
        """
        if not self.needs_s:
            return self._terms.save_lead_s
        return min(max(self.needs_s.values()), LONGEST_LEAD * self._terms.be_term_s)

    def index(self, before: Job | None, job: Job) -> None:
        """Update the index for a changed job; `before`: its value until now."""
        if job.live_attempt is None:
            self.needs_s.pop(job.job_id, None)
        elif before is None or before.live_attempt is None or before.saves is not job.saves:
            save_s = SAVE_FACTOR * percentile_95(job.saves)
            if save_s > self._terms.save_lead_s:
                self.needs_s[job.job_id] = save_s
            else:
                self.needs_s.pop(job.job_id, None)
