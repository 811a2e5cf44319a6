"""Clients that stay with their jobs: `salloc`, `srun` and `dlq run` say so every few seconds.

The master cancels an attended job after a silence of its client ([jobs] attend_silence). The client
has been killed, or its host or line is gone. Only memory holds the last word of a client. A master
counts from its own start, so its restart ends no job. Agents take no part in it.
"""

from dlq_common.errors import NotFound
from dlq_master.control.loop.turn import Answer, Turn
from dlq_master.control.stimuli import AttendJob
from dlq_master.model.ids import JobId
from dlq_master.model.jobs import job_steps as on_job

CLIENT_GONE = "client_gone"
"""The cause in the journal."""
_BOUND = "interactive: its client stays with it"


def attend(turn: Turn, ask: AttendJob) -> Answer:
    """Its client is there; with `bind` the job is tied to it from now on."""
    job = turn.known_job(ask.job_id)
    if job is None or not ask.caller.owns(job):
        raise NotFound(f"there is no job {ask.job_id}", kind="job", id=ask.job_id)
    if not job.ended:
        if ask.bind and not job.rules.attended:
            rules = job.rules._replace(attended=True)
            bound = on_job.Updated(values=(("rules", rules),), changes=_BOUND)
            turn.step_job(job.job_id, bound, actor=ask.caller.actor)
        if job.rules.attended or ask.bind:
            heard(turn, job.job_id)
    return lambda: turn.job(ask.job_id)


def heard(turn: Turn, job_id: JobId) -> None:
    """The silence of a job's client begins anew."""
    turn.state.jobs.attended[job_id] = turn.now_s


def watch(turn: Turn) -> None:
    """Once a second: end the jobs whose clients are silent."""
    attended = turn.state.jobs.attended
    silence_s = turn.state.config.jobs.attend_silence
    for job_id, heard_s in list(attended.items()):
        job = turn.state.cluster.jobs.get(job_id)
        if job is None or job.ended:
            del attended[job_id]
        elif turn.now_s - heard_s > silence_s:
            del attended[job_id]
            turn.step_job(job_id, on_job.Cancelled(), cause=CLIENT_GONE)
