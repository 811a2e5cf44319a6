"""How long a job runs, from the steps that it tells: who has made enough of them is taken to go on like that.

Only of jobs of which nobody said it: with `--steps`, or with deadlines and beats that tell their total. It is
found once, from steps of one attempt on the GPUs that the job asked for; from then on its deadlines can be
promised. Nothing but the estimate is stored: after a restart of the master, of the agent, or of the job
the steps are counted anew; a silent line only delays them.
"""

from __future__ import annotations

from dlq_master.control.state import Anchor
from dlq_master.control.turn import Turn
from dlq_master.model import job_steps as on_job
from dlq_master.model.attempt import Attempt, AttemptState
from dlq_master.model.job import Job, JobState

LEAST_S = 60.0  # between the steps that are compared
LEAST_STEPS = 10


def watch(turn: Turn) -> None:
    """Once a second."""
    state = turn.state
    for job_id, beat in list(state.beats.items()):
        job = state.cluster.jobs.get(job_id)
        if job is None or job.duration_estimate_s is not None or beat.step is None:
            continue
        attempt = state.cluster.live_attempt(job)
        total = job.step_count or (beat.total if job.steps else None)
        if total is None or attempt is None or not _measurable(job, attempt):
            continue
        if beat.time_s < (attempt.started_time_s or 0.0):
            continue  # it is of an earlier attempt
        anchor = state.anchors.get(job_id)
        if anchor is None or anchor.attempt != attempt.key.number or beat.step < anchor.step:
            state.anchors[job_id] = Anchor(attempt.key.number, beat.step, beat.time_s)
            continue
        made, took_s = beat.step - anchor.step, beat.time_s - anchor.time_s
        if made < LEAST_STEPS or took_s < LEAST_S:
            continue
        del state.anchors[job_id]
        done_s = job.worked_s + attempt.executed_s(beat.time_s)
        whole_s = done_s + max(0, total - beat.step) * took_s / made
        cause = f"{made} steps took {took_s:.0f} s, and {total - beat.step} of {total} are left"
        estimated = on_job.Estimated(estimate_s=whole_s)
        turn.step_job(job_id, estimated, actor="master", cause=cause)


def _measurable(job: Job, attempt: Attempt) -> bool:
    """Whether its steps come as they would on what it asked for."""
    runs = attempt.state is AttemptState.RUNNING and job.state is JobState.QUEUED
    return runs and not job.trials and attempt.lease.allocation.width == job.request.gpus
