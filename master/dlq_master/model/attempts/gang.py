"""Rules from the reports of single ranks to the states of the attempt and its job; pure.

A gang runs when all its ranks run. It is stopped when one of them fails. It has ended when every
rank is confirmed gone.
"""

from __future__ import annotations

from dataclasses import replace

from dlq_master.model.attempts import attempt_steps as on_attempt
from dlq_master.model.attempts import exit_zero, live_resize, unnoticed_ends
from dlq_master.model.attempts.attempt import Attempt, AttemptState, RankPhase, RankStatus
from dlq_master.model.attempts.exit_zero import COMES_BACK
from dlq_master.model.attempts.first_failure import first_failed
from dlq_master.model.attempts.grace import work_at_risk_s
from dlq_master.model.estimates.estimate import Basis, Unmeasured
from dlq_master.model.ids import NodeId
from dlq_master.model.jobs import job_steps as on_job
from dlq_master.model.jobs.job import (
    CAUSE_OF,
    EndReason,
    Job,
    Resizing,
    RestartCause,
    RunRules,
    Taken,
)
from dlq_master.model.lease import LeaseKind
from dlq_master.model.transitions import StopCause

_ORDER = {phase: place for place, phase in enumerate(RankPhase)}
_ASSIGNED = frozenset({RankPhase.ASSIGNED})
_BEFORE_RUNNING = frozenset({AttemptState.ASSIGNED, AttemptState.PREPARING, AttemptState.STARTING})
# How long ranks that were told to save may stay once rank 0 has left with everything saved.
FOLLOW_S = 10.0

# Stops of a trial that no other job caused.
_UNASKED = frozenset({None, StopCause.HOLD_EXPIRED})

# Stops by which others got the GPUs of a job.
_FOR_OTHERS = frozenset({StopCause.PREEMPT, StopCause.RECLAIM})

# Failures of the program itself.
OWN_FAULTS = frozenset({EndReason.USER_ERROR, EndReason.SIGNAL})

# Ends of an attempt that was preempted.
_LEFT = frozenset({EndReason.PREEMPTED, EndReason.PREEMPTED_LOST})

# Events after which no work is lost.
_KEEPS_ALL = frozenset(
    {
        on_attempt.Succeeded,
        on_attempt.Preempted,
        on_attempt.Measured,
        on_attempt.ResizeBegun,
        on_attempt.ResizeSettled,
        on_attempt.Suspended,
        on_attempt.ResumeAsked,
    }
)


def heard(attempt: Attempt, rank: int, status: RankStatus) -> Attempt:
    """The attempt after a report of one rank. An older phase changes nothing.

    It also names the rank that failed first; a later report may show that it was another.
    """
    before = attempt.ranks[rank]
    if before.gone or _ORDER[status.phase] < _ORDER[before.phase]:
        return attempt
    ranks = (*attempt.ranks[:rank], status, *attempt.ranks[rank + 1 :])
    after = attempt._replace(ranks=ranks)
    return after._replace(first_failed_rank=first_failed(after)) if status.failed else after


def progress(attempt: Attempt) -> on_attempt.AttemptEvent | None:
    """The next state of a gang that has not run yet, by the phases of its ranks; None: no change.

    A rank that ended without a start error has run.
    """
    if attempt.state not in _BEFORE_RUNNING:
        return None
    phases = [status.phase for status in attempt.ranks]
    if any(status.start_error or status.lost for status in attempt.ranks):
        return None
    if all(_ORDER[phase] >= _ORDER[RankPhase.RUNNING] for phase in phases):
        return on_attempt.Running()
    if attempt.state is not AttemptState.STARTING and _starts(attempt):
        return on_attempt.Starting()
    if attempt.state is AttemptState.ASSIGNED and not _ASSIGNED.issuperset(phases):
        return on_attempt.Preparing()
    return None


def all_ready(attempt: Attempt) -> bool:
    """Whether a gang may pass its barrier: every rank could start, every node answers."""
    return (
        attempt.at_barrier
        and attempt.stop_cause is None
        and attempt.state in _BEFORE_RUNNING
        and all(_ORDER[status.phase] >= _ORDER[RankPhase.STARTING] for status in attempt.ranks)
    )


def late(
    attempt: Attempt, now_s: float, timeout_s: float, first_ready_s: float | None = None
) -> tuple[int, ...]:
    """The ranks that are not ready in time, or not running in time after the barrier has opened.

    The time counts from the first ready rank, so preparations on all nodes have no limit.
    `first_ready_s`: when the first rank of its group was ready.
    """
    if attempt.stop_cause is not None or attempt.started_time_s is not None:
        return ()
    every = (first_ready_s, *(it.ready_time_s for it in attempt.ranks))
    ready_s = [at_s for at_s in every if at_s is not None]
    since_s = (
        attempt.barrier_time_s if attempt.barrier_time_s is not None else min(ready_s, default=None)
    )
    if since_s is None or now_s < since_s + timeout_s:
        return ()
    wanted = RankPhase.STARTING if attempt.at_barrier else RankPhase.RUNNING
    return tuple(
        rank for rank, status in enumerate(attempt.ranks) if _ORDER[status.phase] < _ORDER[wanted]
    )


def returned(attempt: Attempt) -> on_attempt.AttemptEvent:
    """The event for an UNKNOWN attempt whose nodes all answer again, by the phases of its ranks."""
    if attempt.stop_cause is not None:
        return on_attempt.ReturnedPausing()
    if attempt.suspension is not None:
        return on_attempt.ReturnedSuspended()
    phases = [status.phase for status in attempt.ranks if not status.joining]
    if all(_ORDER[phase] >= _ORDER[RankPhase.RUNNING] for phase in phases):
        return on_attempt.ReturnedRunning()
    if _starts(attempt):
        return on_attempt.ReturnedStarting()
    if not _ASSIGNED.issuperset(phases):
        return on_attempt.ReturnedPreparing()
    return on_attempt.ReturnedAssigned()


def _starts(attempt: Attempt) -> bool:
    """Whether the barrier has opened, or a rank runs (of an agent that knows no barrier)."""
    running = any(status.phase is RankPhase.RUNNING for status in attempt.ranks)
    return running or attempt.barrier_time_s is not None


def must_stop(attempt: Attempt) -> bool:
    """Whether a rank has failed and others still run: these are stopped at once."""
    return (
        attempt.stop_cause is None
        and attempt.live
        and (
            any(status.failed for status in attempt.ranks) or bool(live_resize.spoiled_by(attempt))
        )
        and not over(attempt)
    )


def first_left_saved(attempt: Attempt, rules: RunRules) -> bool:
    """Whether rank 0 has saved and left after a notice, while others may stay beyond FOLLOW_S.

    Rank 0 hosts the rendezvous, so the others cannot train without it. They may not see its
    checkpoint, if that is in a directory of its node.
    """
    if attempt.stop_cause not in COMES_BACK or (attempt.grace_s or 0.0) <= FOLLOW_S:
        return False
    first = attempt.ranks[0]
    kept = first.saved or first.exit_code in rules.requeue_exit_codes
    return first.gone and kept and not over(attempt)


def workers_done(attempt: Attempt) -> bool:
    """Whether only ranks with servers are left: the workers of every rank are done."""
    ranks = attempt.ranks
    return not over(attempt) and all(it.gone or it.workers_done for it in ranks)


def over(attempt: Attempt) -> bool:
    """Whether every rank is confirmed gone."""
    return all(status.gone for status in attempt.ranks)


def silenced(attempt: Attempt) -> bool:
    """Whether a shim ended its rank because its hold was over, and no stop was ordered."""
    return attempt.stop_cause is None and any(status.hold_expired for status in attempt.ranks)


def verdict(attempt: Attempt, rules: RunRules) -> on_attempt.AttemptEvent:
    """The end of an attempt whose ranks are all gone (docs/concepts/pause.md, step 5).

    During a stop for another job, the only proofs of a save are a checkpoint committed after the
    notice, and a requeue exit code. `exit_zero` decides about exit 0 then. Outside a stop, a
    requeue exit code asks for another run. A declared code of completion always means finished. A
    rank that ended before its notice is judged on its own (`unnoticed_ends`).
    """
    if unnoticed_ends.before_stop(attempt):
        attempt = attempt._replace(stop_cause=None)
    cause = attempt.stop_cause
    ranks = attempt.ranks
    if cause is StopCause.CANCEL:
        return on_attempt.Cancelled()
    if cause is StopCause.TIME_LIMIT:
        if rules.limit_each and _agreed(attempt, rules):
            return _own_failure(attempt, rules)
        return on_attempt.TimedOut()
    if cause is StopCause.TRIAL:
        return on_attempt.Measured(work_s=attempt.measured_s, unmeasured=attempt.unmeasured)
    if _finished(attempt, rules):
        return on_attempt.Succeeded()
    if any(status.lost and not status.left for status in ranks):
        return on_attempt.NodeLost()
    if cause in COMES_BACK or any(status.hold_expired for status in ranks):
        return _taken_off(attempt, rules)
    broken = _start_error(attempt)
    if broken and attempt.started_time_s is None:
        return on_attempt.StartFailed(detail=broken)
    if live_resize.spoiled_by(attempt):
        return on_attempt.Failed(reason=EndReason.JOIN_FAILED)
    return _own_failure(attempt, rules)


_DONE_WITH = frozenset({on_attempt.Cancelled, on_attempt.TimedOut})  # its work is not repeated


def usage(attempt: Attempt, end: on_attempt.AttemptEvent, job: Job, until_s: float) -> on_job.Usage:
    """The usage of a live attempt that ended at `until_s` (`ended_s`): GPU-seconds of the
    reference, seconds, and seconds of its job's run time.
    """
    executed_s = attempt.executed_s(until_s)
    width = attempt.place.width
    gpus = job.request.weighed(width) * attempt.speed
    lost_s = 0.0 if type(end) in _KEEPS_ALL else work_at_risk_s(attempt, until_s)
    worked_s = executed_s - lost_s
    if is_reduced(attempt, job):
        # It does not count against the time limit.
        return on_job.Usage(executed_s * width * attempt.speed, 0.0, 0.0, 0.0)
    if isinstance(end, on_attempt.Preempted) and end.worked_s is not None:
        worked_s = end.worked_s
    else:
        if width != job.request.gpus:
            worked_s *= job.sure_speed_on(width)
        worked_s *= attempt.paced(job.request)
    again_s = 0.0 if type(end) in _DONE_WITH else lost_s
    return on_job.Usage(executed_s * gpus, executed_s, again_s * gpus, worked_s)


def is_reduced(attempt: Attempt, job: Job) -> bool:
    """Whether this is a trial on fewer GPUs than requested: it does no work of the job, and its
    checkpoints are not resumed.
    """
    lease = attempt.lease
    return lease.kind is LeaseKind.PROFILE and lease.allocation.width != job.request.gpus


def ended_s(attempt: Attempt, now_s: float) -> float:
    """When the last rank ended, by the reports of its node (`now_s`: unknown); not before the
    start. So the delay of a report is not charged.
    """
    last_s = 0.0
    for status in attempt.ranks:
        if status.exited_time_s is None:
            return now_s
        last_s = max(last_s, status.exited_time_s)
    started_s = attempt.started_time_s
    return min(now_s, max(last_s, attempt.assigned_time_s if started_s is None else started_s))


def consequence(
    attempt: Attempt,
    end: on_attempt.AttemptEvent,
    job: Job,
    used: on_job.Usage,
    ailing: NodeId | None = None,
) -> on_job.JobEvent | None:
    """The event for a job whose attempt has ended; None: the job has ended already.

    `ailing`: the node on whose ailing GPU it failed, if its job has a limit for that.
    """
    if job.ended:
        return None
    if ailing is not None and isinstance(end, on_attempt.Failed):
        event = _on_ailing_gpu(end, attempt, job, used, ailing)
    else:
        event = _job_end(end, attempt, job, used)
    if job.rules.attended or job.rules.once:
        return _once(event)
    if isinstance(event, on_job.Requeued):
        if attempt.regrant is not None and not event.failed_nodes:
            event = replace(event, regrant=attempt.regrant, resizing=_resizing(attempt))
        if event.reason in _LEFT and (taken := _taken(job, used)) is not None:
            event = replace(event, taken=taken)
        if _got_on(attempt, job, used):
            return replace(event, forgives=True)
    return event


def keeps_gpus(attempt: Attempt, end: on_attempt.AttemptEvent, job: Job) -> bool:
    """Whether a gang ended because of one of its nodes, so that its other GPUs wait for its job.
    A group decides for its members (`model/attempts/groups.py`).
    """
    if len(attempt.lease.allocation.slots) < 2 or is_reduced(attempt, job):
        return False
    return ended_by_node(attempt, end)


def ended_by_node(attempt: Attempt, end: on_attempt.AttemptEvent) -> bool:
    """Whether a node ended it: it was lost, could not start the rank, or drains (by an operator, an
    ailing GPU or a quarantine).
    """
    match end:
        case on_attempt.NodeLost():
            return True
        case on_attempt.StartFailed():
            return any(map(_failed_by_node, attempt.ranks))
        case on_attempt.Preempted() | on_attempt.PreemptedLost():
            return attempt.stop_cause is StopCause.DRAIN
    return False


def _once(event: on_job.JobEvent) -> on_job.JobEvent:
    """The event for a job that runs once: it fails instead of waiting again."""
    match event:
        case on_job.Requeued(reason=reason, usage=usage, exit_code=code, signal=signal):
            return on_job.Failed(reason=reason, usage=usage, exit_code=code, signal=signal)
        case on_job.Poisoned(reason=reason, usage=usage):
            return on_job.Failed(reason=reason, usage=usage)
    return event


def _resizing(attempt: Attempt) -> Resizing:
    """The resize for which it stopped, since the time of its notice."""
    told_s = [at_s for at_s in (attempt.notice_time_s, attempt.notice_due_s) if at_s is not None]
    why = attempt.stop_detail.partition(": ")[2]
    return Resizing(attempt.lease.allocation.width, max(told_s, default=0.0), why)


def _taken(job: Job, used: on_job.Usage) -> Taken | None:
    """The preemption of the job, with the lost work; None: it was not preempted."""
    taken = job.taken
    if taken is None or taken.lost_s is not None:
        return None
    lost_s = used.lost_gpu_s * used.executed_s / used.gpu_s if used.gpu_s else 0.0
    return taken._replace(lost_s=round(lost_s, 3))


def _start_error(attempt: Attempt) -> str:
    """Why it could not start, in the words of the rank that failed first."""
    first = attempt.first_failed_rank
    named = attempt.ranks if first is None else (attempt.ranks[first], *attempt.ranks)
    return next((status.start_error for status in named if status.start_error), "")


def _finished(attempt: Attempt, rules: RunRules) -> bool:
    """Whether it has finished: by a declared exit code of the first failed rank, or of rank 0;
    else by exit 0 of all ranks.
    """
    if attempt.ranks[attempt.first_failed_rank or 0].exit_code in rules.done_exit_codes:
        return True
    if not all(map(exit_zero.is_clean, attempt.ranks)):
        return False
    found = exit_zero.judged(attempt, rules)
    return found is None or found.done


def _taken_off(attempt: Attempt, rules: RunRules) -> on_attempt.AttemptEvent:
    codes = [status.exit_code for status in attempt.ranks]
    code = next((code for code in codes if code), codes[0])
    never_ran = attempt.started_time_s is None
    saved = any(status.saved for status in attempt.ranks)
    if never_ran or saved or _agreed(attempt, rules):
        if attempt.state in (AttemptState.PAUSING, AttemptState.UNKNOWN):
            return on_attempt.Preempted(exit_code=code)
    elif attempt.state in (AttemptState.PAUSING, AttemptState.UNKNOWN):
        return on_attempt.PreemptedLost(exit_code=code)
    # The shim stopped it after a silence; the master had ordered no stop.
    return on_attempt.Failed(reason=EndReason.PREEMPTED if saved else EndReason.PREEMPTED_LOST)


def _agreed(attempt: Attempt, rules: RunRules) -> bool:
    """Whether exit codes say that all was saved. Rank 0 saves, so its failure outweighs the codes
    of the others.
    """
    first = attempt.ranks[0]
    if first.failed:
        return first.exit_code in rules.requeue_exit_codes
    return any(status.exit_code in rules.requeue_exit_codes for status in attempt.ranks)


def _own_failure(attempt: Attempt, rules: RunRules) -> on_attempt.AttemptEvent:
    failed = [status for status in attempt.ranks if status.failed]
    first = attempt.first_failed_rank
    if first is None and not failed:
        # A power cut took the record of its end: it is unknown how it ended.
        return on_attempt.NodeLost()
    status = attempt.ranks[first] if first is not None else failed[0]
    code, signal = status.exit_code, status.signal
    if code in rules.requeue_exit_codes:
        return on_attempt.Failed(reason=EndReason.REQUEUE_EXIT, exit_code=code)
    if status.oom_killed:
        return on_attempt.Failed(reason=EndReason.OOM_HOST, exit_code=code, signal=signal)
    if status.gpu_oom:
        return on_attempt.Failed(reason=EndReason.OOM_GPU, exit_code=code, signal=signal)
    if signal:
        return on_attempt.Failed(reason=EndReason.SIGNAL, signal=signal)
    return on_attempt.Failed(reason=EndReason.USER_ERROR, exit_code=code)


def _job_end(
    end: on_attempt.AttemptEvent, attempt: Attempt, job: Job, usage: on_job.Usage
) -> on_job.JobEvent:
    reduced = is_reduced(attempt, job)
    if reduced and attempt.stop_cause in _UNASKED and _left(end):
        return _infra(EndReason.NODE_LOST, attempt, job, usage)
    match end:
        case on_attempt.Succeeded() if not reduced:
            return on_job.Completed(usage=usage)
        # A trial on fewer GPUs has no result, but its run time is measured.
        case on_attempt.Succeeded():
            return _profiled(usage.gpu_s / attempt.lease.allocation.width, usage)
        case on_attempt.Measured():
            return _profiled(end.work_s, usage, end.unmeasured)
        case on_attempt.TimedOut():
            return on_job.TimedOut(usage=usage)
        case on_attempt.Preempted():
            return _taken_off_gpus(EndReason.PREEMPTED, end.exit_code, attempt, job, usage)
        case on_attempt.PreemptedLost():
            return _taken_off_gpus(EndReason.PREEMPTED_LOST, end.exit_code, attempt, job, usage)
        case on_attempt.NodeLost():
            return _infra(EndReason.NODE_LOST, attempt, job, usage)
        case on_attempt.StartFailed():
            return _infra(EndReason.START_FAILED, attempt, job, usage)
        case on_attempt.Failed() if reduced:  # perhaps only for being so small
            return on_job.Requeued(
                reason=end.reason,
                usage=usage,
                exit_code=end.exit_code,
                signal=end.signal,
                counts=False,
                basis=Basis(unmeasured=Unmeasured.TRIAL_FAILED),
            )
        case on_attempt.Failed():
            return _after_failure(end, attempt, job, usage)
        case _:
            # Cancelled: only a cancelled job's attempt ends so, and that job has ended already.
            raise ValueError(f"{type(end).__name__} does not end the attempt of a living job")


def _taken_off_gpus(
    reason: EndReason, exit_code: int | None, attempt: Attempt, job: Job, usage: on_job.Usage
) -> on_job.JobEvent:
    """It queues again; a job that goes on with other GPUs of its own made way for nobody."""
    if attempt.stop_cause not in _FOR_OTHERS or attempt.regrant is not None:
        return on_job.Requeued(reason=reason, usage=usage, exit_code=exit_code)
    cause = RestartCause.PREEMPTION
    if used_up := _used_up(job, cause, job.restart_counts.preemption):
        return on_job.Poisoned(reason=reason, usage=usage, cause=cause, detail=used_up)
    return on_job.Requeued(reason=reason, usage=usage, exit_code=exit_code, cause=cause)


def _used_up(job: Job, cause: RestartCause, count: int) -> str:
    """The words about a limit of this cause that leaves no restart; empty: there is none."""
    most = job.rules.limits.of(cause)
    return "" if most is None or count < most else _used_up_words(cause, count, most)


def _used_up_words(cause: RestartCause, count: int, most: int) -> str:
    return f"cause {cause.value}: {count} of {most} restarts are used up"


def _left(end: on_attempt.AttemptEvent) -> bool:
    """It has left its GPUs: where nobody asked for them, the shim ended it after a silence."""
    if isinstance(end, on_attempt.Failed):
        return end.reason in _LEFT
    return isinstance(end, on_attempt.Preempted | on_attempt.PreemptedLost)


def _profiled(
    work_s: float | None, usage: on_job.Usage, unmeasured: Basis | None = None
) -> on_job.JobEvent:
    reason = EndReason.PROFILED
    return on_job.Requeued(reason=reason, usage=usage, measured_s=work_s, basis=unmeasured)


def _infra(
    reason: EndReason,
    attempt: Attempt,
    job: Job,
    usage: on_job.Usage,
    also: tuple[NodeId, ...] = (),
) -> on_job.JobEvent:
    """Not the job's fault, unless it happens again and again, if possible on other nodes."""
    failed = [*also]
    failed += [it.node_id for it in attempt.ranks if not it.left and _failed_by_node(it)]
    if any(rank.given_up or rank.no_room for rank in attempt.ranks):
        return on_job.Requeued(reason=reason, usage=usage, failed_nodes=tuple(failed), counts=False)
    got_on = _got_on(attempt, job, usage)
    before = 0 if got_on else job.infra_failures
    if is_reduced(attempt, job) and before:
        lost = Basis(unmeasured=Unmeasured.TRIAL_LOST)
        return on_job.Requeued(reason=reason, usage=usage, failed_nodes=tuple(failed), basis=lost)
    cause = CAUSE_OF[reason]
    used_up = _used_up(job, cause, 0 if got_on else job.restart_counts.of(cause))
    again = before + 1 < job.rules.max_infra_failures
    if job.rules.limits.of(cause) is not None:
        again = not used_up
    if again:
        return on_job.Requeued(reason=reason, usage=usage, failed_nodes=tuple(failed))
    return on_job.Poisoned(reason=reason, usage=usage, failed_nodes=tuple(failed), detail=used_up)


def _on_ailing_gpu(
    end: on_attempt.Failed, attempt: Attempt, job: Job, usage: on_job.Usage, node_id: NodeId
) -> on_job.JobEvent:
    """Not the job's fault either, within the limit that it has for that."""
    if end.reason not in OWN_FAULTS or is_reduced(attempt, job):
        return _job_end(end, attempt, job, usage)
    cause, nodes = RestartCause.GPU, (node_id,)
    count = 0 if _got_on(attempt, job, usage) else job.restart_counts.gpu
    if used_up := _used_up(job, cause, count):
        return on_job.Poisoned(
            reason=end.reason, usage=usage, failed_nodes=nodes, cause=cause, detail=used_up
        )
    return on_job.Requeued(
        reason=end.reason,
        usage=usage,
        exit_code=end.exit_code,
        signal=end.signal,
        failed_nodes=nodes,
        cause=cause,
    )


def _failed_by_node(status: RankStatus) -> bool:
    """Whether the job is to avoid the node. A mistake in its spec would fail on any."""
    return status.lost or (bool(status.start_error) and not status.nowhere)


def _got_on(attempt: Attempt, job: Job, usage: on_job.Usage) -> bool:
    """Whether it ran long enough, or saved, to show that it is not the job that fails."""
    return attempt.checkpoint is not None or usage.executed_s >= job.rules.forgive_after_s


def _after_failure(
    end: on_attempt.Failed, attempt: Attempt, job: Job, usage: on_job.Usage
) -> on_job.JobEvent:
    if end.reason is EndReason.JOIN_FAILED:
        return _infra(end.reason, attempt, job, usage, live_resize.spoiled_by(attempt))
    detail = ""
    if end.reason in CAUSE_OF:
        cause = CAUSE_OF[end.reason]
        count, most = _own_restarts(job, cause)
        again = count < most
        detail = _used_up_words(cause, count, most) if most and not again else ""
    else:
        again = (
            end.reason is not EndReason.REQUEUE_EXIT
            or _got_on(attempt, job, usage)
            or job.requeues < job.rules.max_requeues
        )
    code, signal = end.exit_code, end.signal
    if again:
        return on_job.Requeued(reason=end.reason, usage=usage, exit_code=code, signal=signal)
    return on_job.Failed(
        reason=end.reason, usage=usage, exit_code=code, signal=signal, detail=detail
    )


def _own_restarts(job: Job, cause: RestartCause) -> tuple[int, int]:
    """Restarts after failures of its program, so far and at most. Without a limit of its own a
    cause counts in `max_restarts`, together with the others.
    """
    most = job.rules.limits.of(cause)
    if most is None:
        return job.restarts, job.rules.max_restarts
    return job.restart_counts.of(cause), most
