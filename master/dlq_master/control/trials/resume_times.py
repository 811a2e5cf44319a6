"""How long jobs need to go on: from given GPUs until the first beat of an attempt that resumes.

Loading the image and the checkpoint is in it, and up to a heartbeat that the beat is on its way. It
lies with the job (`Job.resumes`), so that a master that starts again knows it. A resume whose beat
may have come while no master listened is not measured. The agent's restarts, and a silence, only
make a figure later.
"""

from __future__ import annotations

from dlq_master.control.loop.turn import Turn
from dlq_master.control.stimuli.nodes import Beat
from dlq_master.model.attempts import gang
from dlq_master.model.attempts.attempt import Attempt
from dlq_master.model.ids import AttemptKey
from dlq_master.model.jobs import job_steps as on_job


def hear(turn: Turn, key: AttemptKey, beat: Beat) -> None:
    """A beat of a living attempt, before it takes the place of the last one."""
    attempt = turn.state.cluster.attempts[key]
    if attempt.resume_from is None or not _first(turn, attempt, beat):
        return
    job = turn.job(key.job_id)
    if job.ended or gang.is_reduced(attempt, job):
        return
    resumed = on_job.Resumed(resume_s=round(beat.time_s - attempt.assigned_time_s, 3))
    actor = f"node:{attempt.ranks[0].node_id}"
    turn.step_job(key.job_id, resumed, actor=actor)


def _first(turn: Turn, attempt: Attempt, beat: Beat) -> bool:
    """Whether it is the first of its attempt, and this master would have heard of an earlier
    one.
    """
    began_s, known = attempt.assigned_time_s, turn.state.jobs.beats.get(attempt.key.job_id)
    if began_s < turn.state.started_s or beat.time_s < began_s:
        return False
    return known is None or known.time_s < began_s
