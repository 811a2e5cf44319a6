"""Time limits: a job is warned before its limit, and stopped at it.

Only time in RUNNING counts, without trials on fewer GPUs. The limit holds for all attempts
together, or for each attempt (`RunRules.limit_each`, as in Slurm).

When an agent restarts or is silent, the commands wait in the outbox. An attempt is warned once,
also over restarts of the master. A master that has just started stops no job before its nodes have
reported the ends of meanwhile.

A job is checked after each of its steps, and then when its limit may be near, but at least once a
minute. So running jobs cost nothing, and a missed change is found within a minute.
"""

from dlq_master.control.loop.turn import Steps, Turn
from dlq_master.model.attempts.attempt import Attempt, AttemptState
from dlq_master.model.attempts.gang import is_reduced
from dlq_master.model.attempts.grace import limit_left_s, stop_grace_s
from dlq_master.model.jobs.job import Job
from dlq_master.model.transitions import StopCause

# A signal in a launcher's first seconds would kill it raw.
STARTUP_S = 20.0
LONGEST_S = 60.0  # between two looks
_NO_MORE = (StopCause.TIME_LIMIT, StopCause.CANCEL)
_EARLY_S = 1e-3  # sums of instants are not exact


def stepped(turn: Turn, steps: Steps) -> None:
    """Have changed jobs checked in the next watch."""
    jobs, looks = turn.state.cluster.jobs, turn.state.jobs.limit_looks
    for one in steps.happened:
        if one.job_id is not None and jobs[one.job_id].time_limit_s is not None:
            looks.set(one.job_id, turn.now_s)


def watch(turn: Turn) -> None:
    """Once a second: warn and stop attempts by the time limits of their jobs."""
    cluster, looks = turn.state.cluster, turn.state.jobs.limit_looks
    for job_id in looks.due(turn.now_s):
        job = cluster.jobs.get(job_id)
        attempt = None if job is None else cluster.live_attempt(job)
        looks.clear(job_id)
        if job is None or attempt is None or job.time_limit_s is None:
            continue
        left_s = limit_left_s(job, attempt, turn.now_s)
        if left_s is not None and attempt.stop_cause not in _NO_MORE:
            rest_s = _look(turn, job, attempt, left_s)
            looks.set(job_id, turn.now_s + min(LONGEST_S, max(0.0, rest_s - _EARLY_S)))


def _look(turn: Turn, job: Job, attempt: Attempt, left_s: float) -> float:
    """Warn or stop the attempt if that is due. Returns the seconds until the next check."""
    if not _heard_from(turn, attempt) or is_reduced(attempt, job):
        return 0.0
    if left_s <= 0.0:
        turn.stop(attempt.key, StopCause.TIME_LIMIT, grace_s=_grace_s(turn, job, attempt))
    elif _must_warn(turn, job, attempt, left_s):
        _warn(turn, job, attempt, left_s)
    unwarned = attempt.warned_time_s is None
    return left_s - (_warning_s(turn, job) or 0.0) if unwarned else left_s


def _warning_s(turn: Turn, job: Job) -> float | None:
    """Seconds from the warning to the limit; None: there is no warning."""
    interactive = turn.state.config.interactive
    if job.rules.warn_s is None and job.queue == interactive.queue:
        return float(interactive.warning)
    return job.rules.warn_s


def _heard_from(turn: Turn, attempt: Attempt) -> bool:
    """Whether all its nodes have reported since this master started."""
    return all(rank.gone or rank.node_id in turn.state.nodes.greeted for rank in attempt.ranks)


def _must_warn(turn: Turn, job: Job, attempt: Attempt, left_s: float) -> bool:
    warn_s = _warning_s(turn, job)
    if warn_s is None or left_s > warn_s or attempt.warned_time_s is not None:
        return False
    running = attempt.state is AttemptState.RUNNING and attempt.stop_cause is None
    return running and attempt.executed_s(turn.now_s) >= STARTUP_S


def _warn(turn: Turn, job: Job, attempt: Attempt, left_s: float) -> None:
    """Send the job's signal to the main process of every rank. An interactive job without one gets
    no signal: only the event tells its owner.
    """
    turn.put_attempt(attempt._replace(warned_time_s=turn.now_s))
    key = attempt.key
    turn.note("attempt_warned", key=key, cause="time_limit", left_s=left_s)
    for rank, status in enumerate(attempt.ranks if job.rules.warn_s is not None else ()):
        if not status.gone:
            turn.intend("signal", status.node_id, key, attempt.epoch, rank)


def _grace_s(turn: Turn, job: Job, attempt: Attempt) -> float:
    """The grace of the stop at the limit. A job with a warning had time to save, so it gets Slurm's
    KillWait at most.
    """
    learned_s = stop_grace_s(attempt, job, StopCause.TIME_LIMIT)
    if attempt.warned_time_s is None or job.rules.warn_s is None:
        return learned_s
    return min(learned_s, float(turn.state.config.jobs.kill_wait))
