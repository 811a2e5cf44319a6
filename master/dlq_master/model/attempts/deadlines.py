"""The state of a job's deadlines at an instant: its remaining work and its slack."""

from __future__ import annotations

from dlq_master.model.attempts.attempt import Attempt
from dlq_master.model.jobs.job import Job


def due_s(job: Job, step: int) -> float:
    return job.submit_time_s + job.steps[step].deadline_s


def left_s(
    job: Job, attempt: Attempt | None, now_s: float, told_s: float | None = None
) -> float | None:
    """Seconds that it still has to run on what it asked for, never below 0; None: nobody knows, or
    there is only a guess. They are those of its run time (`TypeSpeeds`), not of a clock. `told_s`:
    the time of all its work by its own steps, which counts where it is more than the estimate.
    """
    if job.duration_estimate_s is None or not job.timed:
        return None
    done_s = job.worked_s
    if attempt is not None and not job.reduced:
        done_s += attempt.executed_s(now_s) * attempt.paced(job.request)
    return max(0.0, max(job.duration_estimate_s, told_s or 0.0) - done_s)


def slack_s(
    job: Job, attempt: Attempt | None, now_s: float, told_s: float | None = None
) -> float | None:
    """Slack in seconds if it ran from now on. It counts until the promised deadline, or else the
    first that it can still keep, or else its last one; None: nobody knows how long it runs, or it
    has no deadline. `told_s`: as of `left_s`.
    """
    left = left_s(job, attempt, now_s, told_s)
    if left is None or not job.steps or job.ended:
        return None
    if attempt is not None:
        left /= attempt.paced(job.request)
    spare = [due_s(job, step) - now_s - left for step in range(len(job.steps))]
    if job.promised is not None:
        return spare[job.promised]
    return next((seconds for seconds in spare if seconds >= 0.0), spare[-1])


def lost_s(job: Job, attempt: Attempt | None, now_s: float, pace: float = 1.0) -> float:
    """The instant after which its last deadline cannot be kept any more, as far as is known. For a
    running job this is the deadline itself, for another one the last moment to go on. `job` has
    deadlines. `pace`: seconds of its run time that a second does on the fastest GPUs that it may
    get.
    """
    last_s = due_s(job, len(job.steps) - 1)
    if attempt is not None:
        return last_s
    return last_s - (left_s(job, None, now_s) or 0.0) / pace
