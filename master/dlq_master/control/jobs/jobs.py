"""Requests of users about existing jobs: cancel, hold, release, pause, resume, requeue, signal,
checkpoint, explain.

Commands to running ranks go through the outbox: they survive a restart of the master, and reach a
silent node when that is back. A signal may arrive twice if the line breaks before its answer. A
request to save has a number, so a repeat asks for no second save.
"""

from typing import Final

from dlq_common.errors import Conflict, IllegalTransition, NotFound, PermissionDenied, TryAgain
from dlq_master.control.attempts import work_loss
from dlq_master.control.loop.once import Done, once
from dlq_master.control.loop.turn import Answer, Turn
from dlq_master.control.machines.rent_reasons import rented_reasons
from dlq_master.control.placement import scheduling
from dlq_master.control.stimuli import (
    Caller,
    CancelJob,
    CheckpointJob,
    Explained,
    ExplainJob,
    HoldJob,
    JobEdit,
    PauseJob,
    ReleaseJob,
    RequeueJob,
    ResumeJob,
    SignalJob,
    TakeHookResults,
)
from dlq_master.model.attempts import suspending
from dlq_master.model.attempts.attempt import Attempt, AttemptState
from dlq_master.model.attempts.attempt_steps import WantedBack
from dlq_master.model.cluster import drive
from dlq_master.model.ids import JobId
from dlq_master.model.jobs import job_steps as on_job
from dlq_master.model.jobs.job import HoldKind, Job, JobState
from dlq_master.model.jobs.naming import shown_id
from dlq_master.model.transitions import StopCause
from dlq_master.store.batch import HOOKS_SEEN

MOST_ON_THEIR_WAY: Final = 64  # signals, or saves, of one rank


def standing(turn: Turn, ask: JobEdit) -> Answer:
    """The answer to an edit: the job as it is at the end of the turn."""
    return lambda: turn.job(ask.job_id)


def as_it_stands(turn: Turn, ask: JobEdit, _word: str) -> Answer:
    """The answer to a repeat of an edit: the present job, if the caller may see it."""
    find(turn, ask.caller, ask.job_id)
    return standing(turn, ask)


@once(as_it_stands)
def cancel(turn: Turn, ask: CancelJob) -> Done[Answer]:
    """End a job. `kill` also stops ranks of a job that has ended and still leaves."""
    job = editable(turn, ask)
    # First, because a cancellation gives the ranks time to save: they would be told of that before.
    if ask.kill and job.live_key is not None:
        turn.stop(job.live_key, StopCause.CANCEL, grace_s=0.0, actor=ask.caller.actor)
    if not job.ended:
        turn.step_job(job.job_id, on_job.Cancelled(), actor=ask.caller.actor)
    return Done(standing(turn, ask), job.job_id)


@once(as_it_stands)
def hold(turn: Turn, ask: HoldJob) -> Done[Answer]:
    """Keep a job from starting. A hold replaces only a weaker one (`_WEIGHT`)."""
    job = editable(turn, ask)
    if ask.kind is HoldKind.ADMIN and not ask.caller.sees_all:
        raise PermissionDenied("only operators hold as operators", user=ask.caller.name)
    must_live(job, "held")
    if _WEIGHT[ask.kind] > _WEIGHT[job.hold]:
        turn.step_job(
            job.job_id,
            on_job.Held(kind=ask.kind, reason=ask.reason, by=ask.caller.name),
            actor=ask.caller.actor,
            cause=ask.reason,
        )
    return Done(standing(turn, ask), job.job_id)


# A hold replaces one of lower weight.
_WEIGHT = {
    None: 0,
    HoldKind.DEPENDENCY: 1,
    HoldKind.PAUSED: 1,
    HoldKind.USER: 2,
    HoldKind.POISON: 3,
    HoldKind.ADMIN: 4,
}


def take_hook_results(turn: Turn, told: TakeHookResults) -> None:
    """Apply results of hooks, each once. A hook holds jobs as an operator does."""
    if told.sequence <= turn.state.journal.hooks_seen:
        return
    turn.state.journal.hooks_seen = told.sequence
    turn.batch.meta[HOOKS_SEEN] = str(told.sequence)
    for one in told.results:
        actor, job = f"hook:{one.hook}", turn.known_job(one.key.job_id)
        for note in one.notes:
            turn.note("hook_noted", key=one.key, actor=actor, note=note)
        if one.failed:
            turn.note("hook_failed", key=one.key, actor=actor, cause=one.failed)
        if one.hold and job is not None and not job.ended:
            held = on_job.Held(kind=HoldKind.ADMIN, reason=one.hold, by="")
            if _WEIGHT[held.kind] > _WEIGHT[job.hold]:
                turn.step_job(job.job_id, held, actor=actor, cause=one.hold)


@once(as_it_stands)
def release(turn: Turn, ask: ReleaseJob) -> Done[Answer]:
    """Take a hold back; a job without one stays as it is. `resume` ends a pause, not this."""
    job = editable(turn, ask)
    if job.hold is HoldKind.PAUSED:
        raise IllegalTransition(
            f"job {shown_id(job)} is paused, not held",
            hint=f"queue it again: dlq resume {shown_id(job)}",
            state=job.state.value,
        )
    return _end_hold(turn, ask)


@once(as_it_stands)
def pause(turn: Turn, ask: PauseJob) -> Done[Answer]:
    """Save, free the GPUs, and stay on hold until `resume`. A running job with another hold is also
    stopped, and keeps that hold.
    """
    job = editable(turn, ask)
    must_live(job, "paused")
    if ask.in_memory:
        return _pause_in_memory(turn, ask, job)
    held_otherwise = job.hold not in (None, HoldKind.PAUSED)
    if held_otherwise and job.live_key is None:
        raise IllegalTransition(f"job {shown_id(job)} is on hold already", state=job.state.value)
    if not ask.accept_loss:
        work_loss.refuse(turn, [job.live_key], work_loss.PAUSE)
    if held_otherwise and job.live_key is not None:
        turn.stop(job.live_key, StopCause.PAUSE, actor=ask.caller.actor)
    elif job.hold is None:
        held = on_job.Held(kind=HoldKind.PAUSED, by=ask.caller.name)
        turn.step_job(job.job_id, held, actor=ask.caller.actor)
    return Done(standing(turn, ask), job.job_id)


@once(as_it_stands)
def resume(turn: Turn, ask: ResumeJob) -> Done[Answer]:
    """Queue a paused job again."""
    job = editable(turn, ask)
    if job.hold not in (None, HoldKind.PAUSED):
        raise IllegalTransition(
            f"job {shown_id(job)} is held, not paused",
            hint=f"take the hold back: dlq release {shown_id(job)}",
            state=job.state.value,
        )
    attempt = None if job.live_key is None else turn.state.cluster.attempts[job.live_key]
    if attempt is not None and attempt.suspension is not None and attempt.stop_cause is None:
        turn.step_attempt(attempt.key, WantedBack(), actor=ask.caller.actor)
    return _end_hold(turn, ask)


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
        work_loss.refuse(turn, [job.live_key], work_loss.REQUEUE)
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
    attempt = _running_attempt(turn, job, "take a signal")
    _check_room(turn, attempt, "signal")
    turn.note("attempt_signal_asked", key=attempt.key, actor=ask.caller.actor, signal=ask.signal)
    _command_ranks(turn, attempt, "signal", ask.signal, only_first=not ask.all_ranks)
    return Done(standing(turn, ask), job.job_id)


@once(as_it_stands)
def checkpoint(turn: Turn, ask: CheckpointJob) -> Done[Answer]:
    """Ask for a save now. Whether it comes, the job decides; `job_saved` follows when it has."""
    job = editable(turn, ask)
    attempt = _running_attempt(turn, job, "save")
    number = round(turn.now_s * 1000)  # rises also over restarts of the master
    _check_room(turn, attempt, "save")
    turn.note("attempt_save_asked", key=attempt.key, actor=ask.caller.actor, number=number)
    _command_ranks(turn, attempt, "save", str(number))
    return Done(standing(turn, ask), job.job_id)


def explain(turn: Turn, ask: ExplainJob) -> Answer:
    """Why it does not run, by the plan of this turn."""
    job_id, waits = ask.job_id, turn.state.jobs.waits
    if turn.job(job_id).ended:
        waited = waits.told(job_id, turn.now_s) or turn.archive.waited(job_id)
        return lambda: Explained(turn.job(job_id), scheduling.reasons(turn, job_id), None, waited)

    def told() -> Explained:
        reasons, ahead = scheduling.explained(turn, job_id)
        rented = rented_reasons(turn, turn.job(job_id))
        return Explained(
            turn.job(job_id), (*rented, *reasons), ahead, waits.told(job_id, turn.now_s)
        )

    return told


# --- helpers, in order of use ---------------------------------------------------------------------


def editable(turn: Turn, ask: JobEdit) -> Job:
    """The caller's job, in the version that the caller means."""
    job = find(turn, ask.caller, ask.job_id)
    if ask.expected_version and ask.expected_version != job.version:
        raise Conflict(f"job {shown_id(job)} has changed", version=job.version)
    return job


def find(turn: Turn, caller: Caller, job_id: JobId) -> Job:
    """The caller's job; another user's is as good as none."""
    job = turn.known_job(job_id)
    if job is None or not caller.may_see(job):
        raise NotFound(f"there is no job {job_id}", kind="job", id=job_id)
    return job


def _pause_in_memory(turn: Turn, ask: PauseJob, job: Job) -> Done[Answer]:
    """Suspend a job; one that is suspended already stays so."""
    cluster = turn.state.cluster
    attempt = None if job.live_key is None else cluster.attempts[job.live_key]
    if attempt is None or attempt.suspension is None:
        if attempt is None:
            why = "it does not run"
        else:
            nodes = [cluster.nodes[node_id] for node_id in attempt.place.node_ids]
            why = suspending.obstacle(attempt, job, nodes)
        if why or attempt is None:
            raise IllegalTransition(
                f"job {shown_id(job)} cannot leave its GPUs without a save: {why}",
                hint=f"let it save: dlq pause {shown_id(job)}",
                state=job.state.value,
            )
        why = f"by {ask.caller.name}"
        lasts_s = turn.state.config.suspend.by_person or None
        happened = drive.suspend_attempt(
            cluster, attempt.key, turn.now_s, for_job=None, why=why, lasts_s=lasts_s
        )
        turn.follow(happened, actor=ask.caller.actor)
    elif not suspending.stays_paused(attempt.suspension):
        raise IllegalTransition(
            f"job {shown_id(job)} is off its GPUs already, and comes back by itself",
            hint=f"pause it once it runs again, or let it go: dlq pause {shown_id(job)}",
            state=job.state.value,
        )
    return Done(standing(turn, ask), job.job_id)


def must_live(job: Job, done: str) -> None:
    """IllegalTransition for a job that has ended; `done` says what was to be done with it."""
    if job.ended:
        raise IllegalTransition(
            f"job {shown_id(job)} has ended ({job.state.value}) and cannot be {done}",
            state=job.state.value,
        )


def _end_hold(turn: Turn, ask: ReleaseJob | ResumeJob) -> Done[Answer]:
    """Release a held job. Only operators may end an operator's hold."""
    job = editable(turn, ask)
    if job.hold is HoldKind.ADMIN and not ask.caller.sees_all:
        raise PermissionDenied(f"job {shown_id(job)} is held by an operator", user=ask.caller.name)
    must_live(job, "resumed" if isinstance(ask, ResumeJob) else "released")
    if job.state is JobState.HELD:
        turn.step_job(job.job_id, on_job.Released(), actor=ask.caller.actor)
        if job.blocked is not None:
            turn.state.jobs.gates.stirred[job.job_id] = None  # its dependency may never come true
    return Done(standing(turn, ask), job.job_id)


def _running_attempt(turn: Turn, job: Job, do: str) -> Attempt:
    """The running attempt of a job, or IllegalTransition; `do`: the action, for the error."""
    attempt = None if job.live_key is None else turn.state.cluster.attempts[job.live_key]
    stopping = attempt is not None and attempt.stop_cause is not None
    if attempt is None or stopping or attempt.state is not AttemptState.RUNNING:
        shown = job.state if attempt is None else attempt.state
        raise IllegalTransition(
            f"job {shown_id(job)} is {shown.value} and cannot {do}: it must be running",
            state=shown.value,
        )
    return attempt


def _check_room(turn: Turn, attempt: Attempt, kind: str) -> None:
    """TryAgain while the nodes have not taken many earlier ones: after each hello an agent is sent
    all that is open.
    """
    waiting = turn.state.attempts.outbox.most_of_a_rank(attempt.key, kind)
    if waiting >= MOST_ON_THEIR_WAY:
        raise TryAgain(
            f"{waiting} commands ({kind}) to one rank of {attempt.key} are on their way",
            hint="its node takes them one after another; ask again in a second",
            retry_after_s=1,
            limit="commands of a rank",
            used=waiting,
        )


def _command_ranks(
    turn: Turn, attempt: Attempt, kind: str, words: str, *, only_first: bool = False
) -> None:
    """Put a command to all ranks into the outbox, or to rank 0 alone (`only_first`)."""
    for rank, status in enumerate(attempt.ranks):
        if not status.gone and not (only_first and rank):
            turn.intend(kind, status.node_id, attempt.key, attempt.epoch, rank, cause=words)
