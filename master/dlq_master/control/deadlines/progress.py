"""Corrects the estimate of a job with a deadline by its own steps, whatever the source of the
estimate.

Nothing of it is stored, and no plan goes by it: it moves `slack`, and tells early that a promise is
at risk. When an agent restarts, or the line is silent, the last correction stands until the next
steps. When the master restarts, it learns the correction again from the next beats.
"""

from __future__ import annotations

from dlq_master.control.loop.turn import Turn
from dlq_master.control.stimuli.nodes import Beat
from dlq_master.model.ids import AttemptKey
from dlq_master.policy.trial.judge import told_s
from dlq_master.policy.trial.steps import followed


def hear(turn: Turn, key: AttemptKey, beat: Beat) -> None:
    """A beat of a living attempt. One without an estimate is `trials.py`'s."""
    state, (job_id, number) = turn.state, key
    job, attempt = turn.job(job_id), state.cluster.attempts[key]
    gpus, began_s = attempt.lease.allocation.width, attempt.started_time_s
    if not job.steps or job.ended or not job.timed:
        return
    if gpus != job.request.gpus or began_s is None or beat.time_s < began_s:
        return
    track = followed(state.trials.tracks.get(job_id), number, gpus, beat.step, beat.time_s)
    state.trials.tracks[job_id] = track
    total = job.step_count or beat.total
    found = None if total is None else told_s(job, attempt, track, total)
    if found is not None:
        state.trials.work_by_steps_s[job_id] = found
