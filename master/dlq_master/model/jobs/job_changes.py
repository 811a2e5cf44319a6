"""Changes that several events of a job have in common: its fields by name, with new values."""

from __future__ import annotations

from dlq_master.model.estimates.estimate import Basis
from dlq_master.model.ids import NodeId
from dlq_master.model.jobs.band import Band
from dlq_master.model.jobs.job import (
    CAUSE_OF,
    SEVERAL,
    EndReason,
    HoldKind,
    Job,
    RestartCause,
    Taken,
)
from dlq_master.model.values import Changes, changer

SAVES_KEPT = 20
FAILED_NODES_KEPT = 8

_INFRA = frozenset({EndReason.NODE_LOST, EndReason.START_FAILED, EndReason.JOIN_FAILED})
_PREEMPTED = frozenset({EndReason.PREEMPTED, EndReason.PREEMPTED_LOST})
_RESTARTED = frozenset(
    {EndReason.USER_ERROR, EndReason.OOM_HOST, EndReason.OOM_GPU, EndReason.SIGNAL}
)

changed = changer(Job)


def at_position(job: Job, sequence: int) -> Job:
    """The job, elsewhere in its level; no step of its machine."""
    return changed(job, {"sequence": sequence})


def waits_no_more(job: Job, at_s: float) -> Changes:
    """Waiting before the first run does not count: PROMOTEKNOB compares waiting with execution."""
    changes: Changes = {"queued_since_s": None, "promoted": False}
    changes["regrant"] = changes["kept"] = None
    since_s = job.queued_since_s
    if since_s is not None:
        waited_s = at_s - since_s
        changes["queued_s"] = job.queued_s + waited_s
        if job.executed_s:
            changes["waited_s"] = job.waited_s + waited_s
    return changes


def ran_on(job: Job, gpu_type: str) -> Changes:
    """Nothing changes where the type is the one that it always had."""
    if not gpu_type or job.gpu_type_ran == gpu_type:
        return {}
    return {"gpu_type_ran": SEVERAL if job.gpu_type_ran else gpu_type}


def charged(job: Job, usage: tuple[float, float, float, float]) -> Changes:
    """Its consumption goes into the books."""
    gpu_s, executed_s, lost_gpu_s, worked_s = usage
    return {
        "attained_gpu_s": job.attained_gpu_s + gpu_s,
        "executed_s": job.executed_s + executed_s,
        "total_gpu_s": job.total_gpu_s + gpu_s,
        "total_executed_s": job.total_executed_s + executed_s,
        "lost_gpu_s": job.lost_gpu_s + lost_gpu_s,
        "worked_s": job.worked_s + worked_s,
    }


def vacated(
    job: Job,
    usage: tuple[float, float, float, float],
    reason: EndReason,
    exit_code: int | None = None,
    signal: int | None = None,
) -> Changes:
    changes = charged(job, usage)
    changes["live_attempt"] = None
    changes["end_reason"], changes["exit_code"], changes["signal"] = reason, exit_code, signal
    return changes


def ended_so(
    job: Job,
    usage: tuple[float, float, float, float],
    at_s: float,
    reason: EndReason,
    exit_code: int | None = None,
    signal: int | None = None,
) -> Changes:
    """It is over for good, with its attempt."""
    changes = vacated(job, usage, reason, exit_code, signal)
    changes["end_time_s"] = at_s
    changes["hold"] = changes["blocked"] = changes["queued_since_s"] = None
    return changes


def ended(at_s: float) -> Changes:
    return {"end_time_s": at_s, "hold": None, "blocked": None, "queued_since_s": None}


def counted(
    job: Job, reason: EndReason, cause: RestartCause | None, *, forgives: bool = False
) -> Changes:
    """One more end of this kind that was not the end of the job. `cause`: where the reason does not
    tell it. A cause with a limit of its own counts in no other limit.
    """
    cause = cause or CAUSE_OF.get(reason)
    shared = cause is None or job.rules.limits.of(cause) is None
    counts = job.restart_counts.forgiven() if forgives else job.restart_counts
    infra_failures = 0 if forgives else job.infra_failures
    return {
        "preemptions": job.preemptions + (reason in _PREEMPTED),
        "infra_failures": infra_failures + (shared and reason in _INFRA),
        "requeues": job.requeues + (reason is EndReason.REQUEUE_EXIT),
        "restarts": job.restarts + (shared and reason in _RESTARTED),
        "restart_counts": counts.after(cause),
    }


def blamed(before: tuple[NodeId, ...], node_ids: tuple[NodeId, ...]) -> tuple[NodeId, ...]:
    """Nodes on which the cluster, and not the job, failed."""
    others = [node_id for node_id in before if node_id not in node_ids]
    return (*others, *node_ids)[-FAILED_NODES_KEPT:]


def held(kind: HoldKind | None, reason: str = "", by: str = "") -> Changes:
    """Something keeps it from starting, or (None) no longer does."""
    return {"hold": kind, "hold_reason": reason, "held_by": by}


def left_for(job: Job, taken: Taken | None) -> Changes:
    """It has left its GPUs: for whom, if that was why, and what it lost."""
    if taken is not None:
        return {"taken": taken, "displaced": job.displaced + 1}
    if job.taken is not None and job.taken.lost_s is None:
        return {"taken": None}  # it ended otherwise before it could
    return {}


def measured(job: Job, measured_s: float) -> Changes:
    left = job.trials[1:]
    changes: Changes = {"measured_s": (*job.measured_s, measured_s), "trials": left}
    return changes if left else changes | {"band": Band.SPOT}


def unmeasured(job: Job, basis: Basis) -> Changes:
    """Nobody tries any more to find out how long it runs. A guess stays one."""
    if job.basis.guess:
        basis = job.basis._replace(unmeasured=basis.unmeasured, step_s=basis.step_s)
    return {"basis": basis, "measured_s": (), **without_trials(job)}


def without_trials(job: Job) -> Changes:
    return {"trials": (), "band": Band.SPOT} if job.band is Band.PROFILE else {"trials": ()}
