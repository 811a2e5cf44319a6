"""What users do with jobs: submit, cancel, hold, release, pause, resume, ask why."""

from dlq_common.errors import (
    Conflict,
    IllegalTransition,
    InvalidRequest,
    NotFound,
    PermissionDenied,
    QuotaExceeded,
    TryAgain,
    Unsatisfiable,
)
from dlq_common.suggest import did_you_mean
from dlq_master.control import gpu_types, scheduling
from dlq_master.control.config import JobsConfig
from dlq_master.control.state import note_unknown_type
from dlq_master.control.stimuli import (
    Caller,
    CancelJob,
    Explained,
    ExplainJob,
    HoldJob,
    JobEdit,
    PauseJob,
    ReleaseJob,
    ResumeJob,
    SubmitJob,
    Submitted,
)
from dlq_master.control.turn import Answer, Turn
from dlq_master.model import job_steps as on_job
from dlq_master.model.ids import JobId
from dlq_master.model.job import HoldKind, Job, JobState, RunRules
from dlq_master.model.machine import StopCause
from dlq_master.model.sentence import sentence
from dlq_master.model.why import Reason, ReasonCode


def submit(turn: Turn, ask: SubmitJob) -> Answer:
    """Accept a job; the same request again is answered with the same job."""
    known = turn.replay(ask)
    if known is not None:
        return _submitted(turn, JobId(int(known)))
    queue = _queue(turn, ask.queue)
    _check_room(turn, ask)
    state = turn.state
    job = Job(
        job_id=JobId(0 if ask.validate_only else state.next_job),
        user=ask.caller.name,
        name=ask.name,
        request=gpu_types.resolved(turn.state.cluster, ask.request),
        submit_time_s=turn.now_s,
        queue=queue,
        rank_base=scheduling.rank_base(state.config, queue),
        time_limit_s=ask.time_limit_s,
        duration_estimate_s=ask.run_estimate_s,
        rules=_with_graces(ask, state.config.jobs),
    )
    never = scheduling.never(turn, job.request)
    if never is not None:
        raise Unsatisfiable(
            "no set of the cluster's nodes could ever hold this job",
            reasons=(sentence(never, job) + _nearest_type(turn, never, job),),
            hint="see what there is: dlq nodes",
        )
    if ask.validate_only:
        return lambda: Submitted(job, ())
    state.next_job += 1
    note_unknown_type(state, job)
    state.cluster.put_job(job)
    turn.plan_due = True
    turn.batch.specs.append((job.job_id, ask.spec))
    turn.remember(ask, job.job_id)
    turn.note("job_submitted", job_id=job.job_id, actor=ask.caller.actor, name=ask.name)
    if ask.hold:
        held = on_job.Held(kind=HoldKind.USER, by=ask.caller.name)
        turn.step_job(job.job_id, held, actor=ask.caller.actor)
    return _submitted(turn, job.job_id)


def cancel(turn: Turn, ask: CancelJob) -> Answer:
    """End a job. One that has ended stays as it is, but a kill reaches what still runs of it."""
    job = _editable(turn, ask)
    if turn.replay(ask) is None:
        turn.remember(ask, job.job_id)
        if not job.ended:
            turn.step_job(job.job_id, on_job.Cancelled(), actor=ask.caller.actor)
        if ask.kill and job.live_key is not None:
            turn.stop(job.live_key, StopCause.CANCEL, grace_s=0.0, actor=ask.caller.actor)
    return lambda: turn.job(ask.job_id)


def hold(turn: Turn, ask: HoldJob) -> Answer:
    """Keep a job from starting. An operator's hold takes the place of any other, a user's that of a
    pause; no hold is ever weakened."""
    job = _editable(turn, ask)
    if ask.kind is HoldKind.ADMIN and not ask.caller.sees_all:
        raise PermissionDenied("only operators hold as operators", user=ask.caller.name)
    if turn.replay(ask) is None:
        _must_live(job, "held")
        turn.remember(ask, job.job_id)
        if _WEIGHT[ask.kind] > _WEIGHT[job.hold]:
            turn.step_job(
                job.job_id,
                on_job.Held(kind=ask.kind, reason=ask.reason, by=ask.caller.name),
                actor=ask.caller.actor,
                cause=ask.reason,
            )
    return lambda: turn.job(ask.job_id)


# A hold takes the place of a lighter one.
_WEIGHT = {
    None: 0,
    HoldKind.DEPENDENCY: 1,
    HoldKind.PAUSED: 1,
    HoldKind.USER: 2,
    HoldKind.POISON: 3,
    HoldKind.ADMIN: 4,
}


def release(turn: Turn, ask: ReleaseJob) -> Answer:
    """Take a hold back; a job that is not held stays as it is. A pause is for `resume` to end."""
    job = _editable(turn, ask)
    if job.hold is HoldKind.PAUSED and turn.replay(ask) is None:
        raise IllegalTransition(
            f"job {job.job_id} is paused, not held",
            hint=f"queue it again: dlq resume {job.job_id}",
            state=job.state.value,
        )
    return _let_go(turn, ask)


def pause(turn: Turn, ask: PauseJob) -> Answer:
    """Checkpoint, free the GPUs, stay on hold until `resume`. A job that runs although it is held is
    taken off its GPUs too, and keeps its hold."""
    job = _editable(turn, ask)
    if turn.replay(ask) is None:
        _must_live(job, "paused")
        held_otherwise = job.hold not in (None, HoldKind.PAUSED)
        if held_otherwise and job.live_key is None:
            raise IllegalTransition(f"job {job.job_id} is on hold already", state=job.state.value)
        turn.remember(ask, job.job_id)
        if held_otherwise and job.live_key is not None:
            turn.stop(job.live_key, StopCause.PAUSE, actor=ask.caller.actor)
        elif job.hold is None:
            held = on_job.Held(kind=HoldKind.PAUSED, by=ask.caller.name)
            turn.step_job(job.job_id, held, actor=ask.caller.actor)
    return lambda: turn.job(ask.job_id)


def resume(turn: Turn, ask: ResumeJob) -> Answer:
    """Queue a paused job again."""
    job = _editable(turn, ask)
    if job.hold not in (None, HoldKind.PAUSED):
        raise IllegalTransition(
            f"job {job.job_id} is held, not paused",
            hint=f"take the hold back: dlq release {job.job_id}",
            state=job.state.value,
        )
    return _let_go(turn, ask)


def explain(turn: Turn, ask: ExplainJob) -> Answer:
    """Why it does not run, by the plan of this turn."""
    if turn.job(ask.job_id).ended:
        return lambda: Explained(turn.job(ask.job_id), scheduling.reasons(turn, ask.job_id), None)
    return lambda: Explained(turn.job(ask.job_id), *scheduling.explained(turn, ask.job_id))


def stop_overdue(turn: Turn) -> None:
    """Once a second: attempts whose job has run for its time limit are asked to stop."""
    for attempt in list(turn.state.cluster.attempts.values()):
        limit_s = turn.state.cluster.jobs[attempt.key.job_id].time_limit_s
        if limit_s is None or attempt.stop_cause in (StopCause.TIME_LIMIT, StopCause.CANCEL):
            continue
        job = turn.job(attempt.key.job_id)
        if job.total_executed_s + attempt.executed_s(turn.now_s) >= limit_s:
            turn.stop(attempt.key, StopCause.TIME_LIMIT, actor="master")


# --- helpers, in order of use ---------------------------------------------------------------------


def _submitted(turn: Turn, job_id: JobId) -> Answer:
    return lambda: Submitted(turn.job(job_id), scheduling.reasons(turn, job_id))


def _with_graces(ask: SubmitJob, jobs: JobsConfig) -> RunRules:
    """A user's grace stands until saves have been seen, and no learned one is cut below it."""
    asked_s = ask.grace_s
    return ask.rules._replace(
        first_grace_s=float(jobs.first_grace) if asked_s is None else asked_s,
        grace_floor_s=float(jobs.grace_floor),
        grace_cap_s=max(float(jobs.grace_cap), asked_s or 0.0),
    )


def _nearest_type(turn: Turn, never: Reason, job: Job) -> str:
    if never.code is not ReasonCode.GPU_TYPE:
        return ""
    return did_you_mean(job.request.gpu_type or "", gpu_types.known(turn.state.cluster))


def _queue(turn: Turn, name: str) -> str:
    config = turn.state.config
    known = [queue.name for queue in config.queues]
    wanted = name or config.jobs.default_queue
    if wanted not in known:
        raise InvalidRequest(
            f"there is no queue {wanted!r}{did_you_mean(wanted, known)}", field="spec.queue"
        )
    return wanted


def _check_room(turn: Turn, ask: SubmitJob) -> None:
    limit = turn.state.config.jobs.queued_per_user
    used = turn.state.unended.get(ask.caller.name, 0)
    if used >= limit:
        raise QuotaExceeded(
            f"{ask.caller.name} has {used} jobs that have not ended; the limit is {limit}",
            limit=limit,
            used=used,
            asked=1,
        )
    if turn.state.disk_full:
        raise TryAgain("the master's disk is nearly full; ends and cancels are still taken")


def _editable(turn: Turn, ask: JobEdit) -> Job:
    job = find(turn, ask.caller, ask.job_id)
    if ask.expected_version and ask.expected_version != job.version and turn.replay(ask) is None:
        raise Conflict(f"job {job.job_id} has changed", version=job.version)
    return job


def find(turn: Turn, caller: Caller, job_id: JobId) -> Job:
    """The caller's job; another user's is as good as none."""
    job = turn.known_job(job_id)
    if job is None or not (caller.sees_all or job.user == caller.name):
        raise NotFound(f"there is no job {job_id}", kind="job", id=job_id)
    return job


def _must_live(job: Job, done: str) -> None:
    if job.ended:
        raise IllegalTransition(
            f"job {job.job_id} has ended ({job.state.value}) and cannot be {done}",
            state=job.state.value,
        )


def _let_go(turn: Turn, ask: ReleaseJob | ResumeJob) -> Answer:
    job = _editable(turn, ask)
    if job.hold is HoldKind.ADMIN and not ask.caller.sees_all:
        raise PermissionDenied(f"job {job.job_id} is held by an operator", user=ask.caller.name)
    if turn.replay(ask) is None:
        _must_live(job, "released")
        turn.remember(ask, job.job_id)
        if job.state is JobState.HELD:
            turn.step_job(job.job_id, on_job.Released(), actor=ask.caller.actor)
    return lambda: turn.job(ask.job_id)
