"""Requests of users to a running job: go back to the queue, take a signal, save and go on.

All of it goes through the outbox: it survives a restart of the master, and reaches a silent node
when that is back. A signal may come twice when the line breaks before its answer. A request to save
is numbered, and a repeat of it asks for nothing new.
"""

from dlq_common.errors import IllegalTransition
from dlq_master.control.jobs import losses
from dlq_master.control.jobs.jobs import as_it_stands, editable, must_live, standing
from dlq_master.control.loop.once import Done, once
from dlq_master.control.loop.turn import Answer, Turn
from dlq_master.control.stimuli import CheckpointJob, RequeueJob, SignalJob
from dlq_master.model.attempts.attempt import Attempt, AttemptState
from dlq_master.model.ids import JobId
from dlq_master.model.jobs import job_steps as on_job
from dlq_master.model.jobs.job import HoldKind, Job
from dlq_master.model.jobs.naming import shown_id
from dlq_master.model.transitions import StopCause


@once(as_it_stands)
def requeue(turn: Turn, ask: RequeueJob) -> Done[Answer]:
    """Save, leave the GPUs, wait again. A job that waits already stays where it is."""
    job = editable(turn, ask)
    must_live(job, "queued again")
    if job.live_key is None and job.hold is not None and not ask.hold:
        raise IllegalTransition(
            f"job {shown_id(job)} is on hold and not running",
            hint=f"let it start: dlq release {shown_id(job)}",
            state=job.state.value,
        )
    if not ask.accept_loss:
        losses.refuse(turn, [job.live_key], losses.REQUEUE)
    if ask.hold and job.hold in (None, HoldKind.PAUSED, HoldKind.DEPENDENCY):
        held = on_job.Held(kind=HoldKind.USER, by=ask.caller.name)
        turn.step_job(job.job_id, held, actor=ask.caller.actor)
    if job.live_key is not None:
        turn.stop(job.live_key, StopCause.REQUEUE, actor=ask.caller.actor)
    return Done(standing(turn, ask), job.job_id)


@once(as_it_stands)
def signal(turn: Turn, ask: SignalJob) -> Done[Answer]:
    """Journaled when it is asked for, and again by each node that has sent it."""
    job = editable(turn, ask)
    attempt = _running(turn, job, "take a signal")
    _note(turn, ask, job.job_id, attempt, "attempt_signal_asked", signal=ask.signal)
    _tell(turn, attempt, "signal", ask.signal, only_first=not ask.all_ranks)
    return Done(standing(turn, ask), job.job_id)


@once(as_it_stands)
def checkpoint(turn: Turn, ask: CheckpointJob) -> Done[Answer]:
    """Ask for a save now. Whether it comes, the job decides; `job_saved` follows when it has."""
    job = editable(turn, ask)
    attempt = _running(turn, job, "save")
    number = round(turn.now_s * 1000)  # rises also over restarts of the master
    _note(turn, ask, job.job_id, attempt, "attempt_save_asked", number=number)
    _tell(turn, attempt, "save", str(number))
    return Done(standing(turn, ask), job.job_id)


def _running(turn: Turn, job: Job, do: str) -> Attempt:
    attempt = None if job.live_key is None else turn.state.cluster.attempts[job.live_key]
    stopping = attempt is not None and attempt.stop_cause is not None
    if attempt is None or stopping or attempt.state is not AttemptState.RUNNING:
        shown = job.state if attempt is None else attempt.state
        raise IllegalTransition(
            f"job {shown_id(job)} is {shown.value} and cannot {do}: it must be running",
            state=shown.value,
        )
    return attempt


def _note(
    turn: Turn,
    ask: SignalJob | CheckpointJob,
    job_id: JobId,
    attempt: Attempt,
    kind: str,
    **facts: str | int,
) -> None:
    number = attempt.key.number
    turn.note(kind, job_id=job_id, attempt=number, actor=ask.caller.actor, **facts)  # type: ignore[arg-type] # facts have no names of arguments


def _tell(turn: Turn, attempt: Attempt, kind: str, words: str, *, only_first: bool = False) -> None:
    for rank, status in enumerate(attempt.ranks):
        if not status.gone and not (only_first and rank):
            turn.intend(kind, status.node_id, attempt.key, attempt.epoch, rank, cause=words)
