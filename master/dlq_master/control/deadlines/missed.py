"""`--on-miss cancel`: a job whose last deadline cannot be kept any more is ended instead of run for
nothing.

Nothing of it is stored but the wish, in the job. A job that holds GPUs is left alone until the
deadline itself, whatever its estimate says. A waiting job is ended once even a start at once would
be too late. An agent that restarts or is silent changes nothing. A master that has just started
ends nobody before the job's nodes have told what became of it meanwhile.
"""

from __future__ import annotations

from dlq_common.text.instants import format_instant
from dlq_master.control.loop.turn import Turn
from dlq_master.model.attempts.deadlines import due_s, lost_s
from dlq_master.model.jobs import job_steps as on_job
from dlq_master.model.jobs.job import Job

CAUSE = "its last deadline cannot be kept any more"


def watch(turn: Turn) -> None:
    """Once a second."""
    state = turn.state
    for job_id in list(state.deadlines.cancel_late):
        job = state.cluster.jobs.get(job_id)
        if job is None or job.ended or not (job.steps and job.rules.cancel_late):
            del state.deadlines.cancel_late[job_id]
        elif _lost(turn, job):
            last = format_instant(due_s(job, len(job.steps) - 1))
            if job.promised is not None:
                turn.note("promise_broken", job_id=job_id, cause=f"{CAUSE}: {last}")
            turn.step_job(job_id, on_job.Cancelled(), actor="master", cause=f"{CAUSE}: {last}")
            state.jobs.gates.untrack(job)


def _lost(turn: Turn, job: Job) -> bool:
    attempt = turn.state.cluster.live_attempt(job)
    if attempt is not None:
        back = turn.state.nodes.greeted
        if not all(rank.gone or rank.node_id in back for rank in attempt.ranks):
            return False
    pace = turn.state.cluster.fastest_pace(job)
    return turn.now_s > lost_s(job, attempt, turn.now_s, pace)
