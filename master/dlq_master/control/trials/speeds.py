"""How fast elastic jobs run on the sizes on which they have run, from the steps that they tell.

The size stage goes by it as soon as two sizes are known (`model/estimates/scaling.py`); until then
speed is taken to be linear. When an agent restarts, or the line is silent, the learned speeds
stand. When the master restarts, the learned speeds lie with the job, on disk. Only the steps of a
size under measurement are counted anew.
"""

from __future__ import annotations

from dlq_master.control.loop.turn import Turn
from dlq_master.control.stimuli.nodes import Beat
from dlq_master.model.attempts.attempt import Attempt
from dlq_master.model.attempts.gang import is_reduced
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.estimates.scaling import SizePace, speeds, with_pace
from dlq_master.model.ids import AttemptKey
from dlq_master.model.jobs.job import Job
from dlq_master.policy.trial.judge import steady
from dlq_master.policy.trial.steps import followed, pace

_NEWS = 0.05  # a pace that differs by less is no news: every piece of it is a write


def hear(turn: Turn, key: AttemptKey, beat: Beat) -> None:
    """A beat of a living attempt."""
    state, job = turn.state, turn.job(key.job_id)
    if not job.request.sizes or job.ended:
        return
    attempt = state.cluster.attempts[key]
    began_s = attempt.started_time_s
    if began_s is None or beat.time_s < began_s or is_reduced(attempt, job):
        return
    if attempt.resize is not None:  # it has GPUs that do not work for it yet, or no more
        return
    gpus, gpu_type = attempt.lease.allocation.width, _type_of(state.cluster, attempt)
    known_type, known = state.trials.elastic_tracks.get(job.job_id, (gpu_type, None))
    track = (
        known if known_type == gpu_type else None
    )  # another type's steps say nothing of this one
    track = followed(track, key.number, gpus, beat.step, beat.time_s)
    state.trials.elastic_tracks[job.job_id] = (gpu_type, track)
    found = pace(track)
    if found is None or not steady(found):
        return
    heard = SizePace(gpus, found.step_s, gpu_type)
    if not _known(job, heard):
        state.cluster.put_job(learned(job._replace(paces=with_pace(job.paces, heard))))


def learned(job: Job) -> Job:
    """The job with the speeds that its paces tell of its sizes."""
    request = job.request
    return job._replace(speeds=speeds(request.sizes, request.gpus, job.paces))


def _known(job: Job, heard: SizePace) -> bool:
    return any(
        (it.gpus, it.gpu_type) == (heard.gpus, heard.gpu_type)
        and abs(it.step_s - heard.step_s) <= _NEWS * it.step_s
        for it in job.paces
    )


def _type_of(cluster: Cluster, attempt: Attempt) -> str:
    return "+".join(sorted(cluster.capacity.parts(attempt.lease.allocation)))
