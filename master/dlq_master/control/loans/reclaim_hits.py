"""The effects of a reclaim on each job: how long it may save, what it loses, whether a deadline is
touched.
"""

from collections.abc import Iterable, Iterator

from dlq_common.text.hostlist import compress_hostlist
from dlq_common.text.units import format_span
from dlq_master.control.stimuli.loans import Hit
from dlq_master.model.attempts.attempt import Attempt, AttemptState
from dlq_master.model.attempts.deadlines import due_s
from dlq_master.model.attempts.grace import grace_s, work_at_risk_s
from dlq_master.model.ids import AttemptKey, NodeId
from dlq_master.model.plan import Change, Plan, Resize, Revoke
from dlq_master.model.view import View
from dlq_master.policy.reclaim.tenants import lost_s


def hits_of(
    view: View, plan: Plan, servers: Iterable[NodeId], within_s: float | None
) -> Iterator[Hit]:
    """Everybody on these servers, as the plan has it; `within_s`: jobs that take longer are killed
    then.
    """
    cluster = view.cluster
    changes = {change.key: change for change in plan.changes if isinstance(change, Revoke | Resize)}
    keys = {key for node_id in servers for key in cluster.attempts_on(node_id)}
    for key in sorted(keys | changes.keys()):
        yield _hit(view, key, changes.get(key), within_s)


def clipped(plan: Plan, within_s: float | None) -> Plan:
    """The same, with nobody saving for longer than that."""
    if within_s is None:
        return plan
    return plan._replace(changes=tuple(_clip(change, within_s) for change in plan.changes))


def left_s(attempt: Attempt, now_s: float) -> float:
    """How much longer somebody may take who has been told to leave."""
    told_s = attempt.notice_time_s if attempt.notice_due_s is None else attempt.notice_due_s
    return max(0.0, (now_s if told_s is None else told_s) + (attempt.grace_s or 0.0) - now_s)


def words_of(hit: Hit, servers: Iterable[NodeId]) -> str:
    """The message to its owner."""
    does = {"shrink": f"it goes on with {hit.kept_gpus} GPUs"}.get(
        hit.action, "it is ended then" if hit.killed else "it saves and queues again"
    )
    lost = format_span(round(hit.lost_s))
    back = compress_hostlist(servers)
    return f"reclaimed for the inference side ({back}): {does}, about {lost} are lost"


# --- helpers, in order of use ---------------------------------------------------------------------


def _clip(change: Change, within_s: float) -> Change:
    if isinstance(change, Revoke | Resize):
        return change._replace(grace_s=min(change.grace_s, within_s))
    return change


def _hit(
    view: View, key: AttemptKey, change: Revoke | Resize | None, within_s: float | None
) -> Hit:
    cluster, now_s = view.cluster, view.now_s
    attempt, job = cluster.attempts[key], cluster.jobs[key.job_id]
    silent = attempt.state is AttemptState.UNKNOWN or (
        change is None and attempt.stop_cause is None
    )
    if silent:  # it hears of it later, however it is told
        own_s = attempt.lease.hold_s + grace_s(job.saves, job.rules)
    else:
        own_s = left_s(attempt, now_s) if change is None else change.grace_s
    killed = within_s is not None and own_s > within_s
    return Hit(
        job_id=key.job_id,
        user=job.user,
        name=job.name,
        action=_action(attempt, change),
        gpus=attempt.lease.allocation.width,
        kept_gpus=change.allocation.width if isinstance(change, Resize) else 0,
        grace_s=own_s if within_s is None or silent else min(own_s, within_s),
        lost_s=work_at_risk_s(attempt, now_s) if killed else lost_s(view, attempt),
        killed=killed,
        deadline_s=next(
            (at for at in (due_s(job, step) for step in range(len(job.steps))) if at >= now_s), None
        ),
    )


def _action(attempt: Attempt, change: Revoke | Resize | None) -> str:
    if isinstance(change, Resize):
        return "shrink"
    return "preempt" if change is not None or attempt.stop_cause is None else "leaving"
