"""How long a job gets to save, learned from its own saves, and what a kill would lose.

Running jobs that need longer than is usually left are indexed, with the time left then.
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


# Stops after which nothing goes on: nobody waits for a save where a job ends as in Slurm.
_FOR_GOOD = frozenset({StopCause.CANCEL, StopCause.TIME_LIMIT})


def stop_grace_s(attempt: Attempt, job: Job, cause: StopCause = StopCause.PREEMPT) -> float:
    """Seconds that a stop grants: 0 before the attempt runs, then the learned grace. A job of
    Slurm's that is over for good gets Slurm's wait.
    """
    if attempt.started_time_s is None or attempt.state is AttemptState.SUSPENDED:
        return 0.0
    if cause in _FOR_GOOD and job.rules.kill_wait_s is not None:
        return job.rules.kill_wait_s
    return grace_s(job.saves, job.rules)


def limit_left_s(job: Job, attempt: Attempt | None, now_s: float) -> float | None:
    """Seconds of running that its time limit leaves to its living attempt, or to the next one;
    below 0 beyond it. None: it has no limit.

    An attempt that was resized while it ran has begun where it first ran. Time that it was off its
    GPUs in the memory of its hosts is not counted.
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
