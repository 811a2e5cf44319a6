"""The only functions that change a cluster: they apply plans, requests and reports.

The master and the simulator both use them. Each returns the applied events in order, for the
journal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache, lru_cache
from typing import NamedTuple, assert_never

from dlq_master.model.attempts import attempt_steps, gang, groups, live_resize, suspending
from dlq_master.model.attempts.attempt import LIVE, Attempt, assigned
from dlq_master.model.attempts.attempt_steps import AttemptEvent
from dlq_master.model.attempts.first_failure import on_ailing_gpu
from dlq_master.model.attempts.grace import stop_grace_s
from dlq_master.model.attempts.suspending import SuspendRules
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.estimates.demand import Offer
from dlq_master.model.ids import AttemptKey, Fence, JobId, NodeId
from dlq_master.model.jobs import job_steps
from dlq_master.model.jobs.job import SEVERAL, HoldKind, Job, KeptGpus
from dlq_master.model.jobs.job_steps import JobEvent
from dlq_master.model.lease import Lease, LeaseKind, decision_time_s, renewed_term_end_s
from dlq_master.model.nodes import node_steps as node_machine
from dlq_master.model.nodes.node import Node, NodeFlag
from dlq_master.model.nodes.node_steps import FlagCleared, FlagSet, NodeEvent
from dlq_master.model.order.order import PromoteTo
from dlq_master.model.plan import (
    Admit,
    Change,
    Demote,
    Estimate,
    Lapse,
    Loan,
    Migrate,
    NextSlot,
    Plan,
    Profile,
    Promote,
    Provision,
    Reclaim,
    Reject,
    Release,
    Renew,
    Repack,
    Reserve,
    Resize,
    Return,
    Revoke,
    Scale,
    Start,
    Weigh,
)
from dlq_master.model.resources import Allocation
from dlq_master.model.transitions import StopCause
from dlq_master.model.values import maker
from dlq_master.model.why import ReasonCode


class Happened(NamedTuple):
    """One applied event, with its job, attempt or node. `change`: its cause, if that is a plan.

    The change that rents or releases a machine is an event itself.
    """

    event: JobEvent | AttemptEvent | NodeEvent | Provision | Release
    job_id: JobId | None = None
    attempt: int | None = None
    node_id: NodeId | None = None
    change: Change | None = None


_happened = maker(Happened)
_key, _fence, _lease = maker(AttemptKey), maker(Fence), maker(Lease)


def submit(cluster: Cluster, job: Job) -> Job:
    """Enter a new job (PENDING or HELD) behind all others of its level."""
    if job.job_id in cluster.jobs:
        raise ValueError(f"job {job.job_id} exists already")
    return cluster.put_job(job)


def apply(cluster: Cluster, plan: Plan, now_s: float, epoch: int) -> list[Happened]:
    """Apply a checked plan. At the end of its last part, running jobs that were demoted get their
    places behind the running jobs of their new level.
    """
    happened: list[Happened] = []
    if lapses := [change for change in plan.changes if isinstance(change, Lapse)]:
        _move_ahead(cluster, lapses)
    if cluster.ordering.by_base:  # a resize may use GPUs that another one gives up
        for change in plan.changes:
            if isinstance(change, Resize) and change.grace_s == 0.0:
                happened += _stop_to_resize(cluster, change, now_s)
    for change in plan.changes:
        if type(change) is Renew:  # by far the most: every running job, at every boundary
            happened.append(_renew(cluster, change))
        else:
            _apply(cluster, change, now_s, epoch, happened)
    if not plan.again and cluster.moves.unsettled:
        cluster.settle()
    return happened


def step_job(cluster: Cluster, job_id: JobId, event: JobEvent, now_s: float) -> list[Happened]:
    """Apply one event to a job, and tell its live attempt to stop if the event asks for that."""
    before = cluster.jobs[job_id]
    cluster.put_job(job_steps.step(before, event, at_s=now_s, placing=cluster.moves.after))
    happened = [Happened(event, job_id)]
    cause = job_steps.stops(event)
    if cause is not None and before.live_key is not None:
        happened += stop_attempt(cluster, before.live_key, cause, now_s)
    return happened


def stop_attempt(
    cluster: Cluster, key: AttemptKey, cause: StopCause, now_s: float
) -> list[Happened]:
    """Ask a live attempt to save and leave, with the grace learned for its job."""
    grace_s = stop_grace_s(cluster.attempts[key], cluster.jobs[key.job_id], cause)
    event = attempt_steps.StopRequested(cause=cause, grace_s=grace_s)
    return step_attempt(cluster, key, event, now_s)


def suspend_attempt(
    cluster: Cluster,
    key: AttemptKey,
    now_s: float,
    *,
    for_job: JobId | None,
    why: str,
    until_s: float | None = None,
    lasts_s: float | None = None,
) -> list[Happened]:
    """Ask a running attempt to leave its GPUs without a save, by `until_s` at the latest, and for
    no longer than `lasts_s`.
    """
    attempt = cluster.attempts[key]
    nodes = [cluster.nodes[node_id] for node_id in attempt.place.node_ids]
    event = attempt_steps.SuspendAsked(
        for_job=for_job,
        why=why,
        memory_bytes=sum(cluster.move_costs.nbytes(attempt, node) for node in nodes),
        until_s=until_s,
        lasts_s=lasts_s,
    )
    return step_attempt(cluster, key, event, now_s)


def step_attempt(
    cluster: Cluster, key: AttemptKey, event: AttemptEvent, now_s: float
) -> list[Happened]:
    """Apply one event to an attempt, and to its job what follows from it."""
    before, job = cluster.attempts[key], cluster.jobs[key.job_id]
    after = attempt_steps.step(before, event, at_s=now_s)
    job_id, number = key
    happened = [_happened((event, job_id, number, None, None))]
    if after.lease.allocation is not before.lease.allocation:
        follows = _width_changed(cluster, (before, after), event, job, now_s)
    elif after.state in LIVE:
        follows = _started(cluster, before, after, job, now_s)
    else:
        ended_s = gang.ended_s(before, now_s)
        if ended_s != now_s:  # told late: a copy costs as much as a step
            after = after._replace(ended_time_s=ended_s)
        used = gang.usage(before, event, job, ended_s)
        limited = job.rules.limits.gpu is not None
        ailing = on_ailing_gpu(before, cluster.nodes) if limited else None
        follows = gang.consequence(before, event, job, used, ailing)
        if cluster.ordering.keep_s and type(follows) is job_steps.Requeued:
            follows = replace(follows, kept=_kept(cluster, before, event, job, now_s))
        _charge_share(cluster, before, job, ended_s)
        if follows is None:  # cancelled while it ran: only the books are left to close
            job = job_steps.vacated(job, used)
    if follows is not None:
        job = job_steps.step(job, follows, at_s=now_s, placing=cluster.moves.after)
        if job.ended and job.end_time_s != after.ended_time_s:
            # With its attempt; the job's next state begins now.
            job = job._replace(end_time_s=after.ended_time_s)
        happened.append(_happened((follows, job_id, None, None, None)))
        if before.suspension is not None and (held := _held(before, job)) is not None:
            job = job_steps.step(job, held, at_s=now_s, placing=cluster.moves.after)
            happened.append(_happened((held, job_id, None, None, None)))
    cluster.put(job, after)
    return happened


def _held(suspended: Attempt, job: Job) -> JobEvent | None:
    """A job that a person has suspended does not start by itself, however its attempt has ended."""
    lost = job.waiting and suspended.stop_cause is None
    if not (lost and suspending.stays_paused(suspended.suspension)):
        return None
    return job_steps.Held(kind=HoldKind.PAUSED, reason="its suspended attempt was lost")


def _kept(
    cluster: Cluster, attempt: Attempt, end: AttemptEvent, job: Job, now_s: float
) -> KeptGpus | None:
    """The GPUs that wait for a job: a node has failed it, or another member of its group."""
    keep_s = cluster.ordering.keep_s
    until_s: float | None = None
    if job.group is not None:
        members = [cluster.jobs[it] for it in cluster.groups[job.group.array_id]]
        others = [
            groups.KnownMember(it, cluster.live_attempt(it))
            for it in members
            if it.job_id != job.job_id
        ]
        until_s = groups.keeps_until_s(attempt, end, others, now_s, keep_s)
    elif gang.keeps_gpus(attempt, end, job):
        until_s = now_s + keep_s
    return None if until_s is None else KeptGpus(attempt.lease.allocation, until_s)


def step_node(cluster: Cluster, node_id: NodeId, event: NodeEvent, now_s: float) -> list[Happened]:
    """Apply one event to a node. Its driver decides on the attempts there."""
    cluster.put_node(node_machine.step(cluster.nodes[node_id], event, at_s=now_s))
    return [Happened(event, node_id=node_id)]


def _move_ahead(cluster: Cluster, lapses: list[Lapse]) -> None:
    """Place preempted jobs before all waiting jobs, in the order that they had."""
    jobs = [cluster.jobs[lapse.key.job_id] for lapse in lapses]
    # Each goes to the head, so the last one goes first.
    for job in sorted(jobs, key=lambda job: job.sequence, reverse=True):
        cluster.leave(job.job_id)


def _apply(
    cluster: Cluster, change: Change, now_s: float, epoch: int, happened: list[Happened]
) -> None:
    match change:
        case Start():
            happened.append(_start(cluster, change, now_s, epoch))
            return
        case Renew():
            happened.append(_renew(cluster, change))
            return
        case Lapse():
            steps = _lapse(cluster, change, now_s)
        case Resize():
            if change.grace_s == 0.0:
                happened.append(_restart_resized(cluster, change, now_s, epoch))
                return
            steps = _stop_to_resize(cluster, change, now_s)
        case Revoke():
            stop = attempt_steps.StopRequested(cause=change.cause, grace_s=change.grace_s)
            steps = step_attempt(cluster, change.key, stop, now_s)
        case Migrate():
            stop = attempt_steps.StopRequested(cause=StopCause.PREEMPT, grace_s=change.grace_s)
            steps = step_attempt(cluster, change.key, stop, now_s)
            cluster.migrations.add(change)
        case Provision() | Release():
            happened.append(Happened(change, change=change))
            return
        case Demote() | Promote() | Reserve() | Profile() | Estimate() | Admit() | Reject():
            steps = step_job(cluster, change.job_id, _job_event(cluster, change, now_s), now_s)
        case Loan() | Reclaim() | Return():
            steps = [
                step
                for event in _server_events(cluster.nodes[change.node_id], change)
                for step in step_node(cluster, change.node_id, event, now_s)
            ]
        case NextSlot() | Scale() | Repack() | Weigh():
            _apply_to_cluster(cluster, change)
            return
        case _:
            assert_never(change)
    happened += [_happened((*step[:4], change)) for step in steps]


def _apply_to_cluster(cluster: Cluster, change: NextSlot | Scale | Repack | Weigh) -> None:
    """Apply a change of the cluster itself, which has no event of a job."""
    match change:
        case NextSlot():
            cluster.slot = change.slot
        case Scale():
            cluster.profiling.hour, cluster.profiling.gpus = change.hour, change.gpus
        case Repack():
            cluster.repack(change.packing)
        case Weigh():
            cluster.weigh(change.term, dict(change.standing))


# Change of a server -> the flags that are cleared, and those that are set.
_FLAGS: Mapping[type, tuple[frozenset[NodeFlag], frozenset[NodeFlag]]] = {
    Loan: (frozenset({NodeFlag.LENDING, NodeFlag.RECLAIMED}), frozenset({NodeFlag.LOANED})),
    Reclaim: (frozenset(), frozenset({NodeFlag.RECLAIMED})),
    Return: (frozenset({NodeFlag.LOANED, NodeFlag.RECLAIMED}), frozenset()),
}


def _server_events(node: Node, change: Loan | Reclaim | Return) -> list[NodeEvent]:
    """The changes of a server's flags by a loan, a reclaim or a return."""
    why = change.reason.code.value
    gone, come = _FLAGS[type(change)]
    return [
        *[FlagCleared(flag=flag) for flag in sorted(gone & node.flags)],
        *[FlagSet(flag=flag, reason=why) for flag in sorted(come - node.flags)],
    ]


def _job_event(
    cluster: Cluster,
    change: Demote | Promote | Reserve | Profile | Estimate | Admit | Reject,
    now_s: float,
) -> JobEvent:
    """The event of a job for this change."""
    match change:
        case Demote():
            return job_steps.Demoted(level=change.level)
        case Promote():
            return job_steps.Promoted(keeps=cluster.ordering.promote_to is PromoteTo.HEAD)
        case Reserve():
            _, band, slots, promised, verdict, _, margin, alternative, pause, gpu_type = change
            job = cluster.jobs[change.job_id]
            if not job.verdict and job.steps:
                run_s = job.duration_estimate_s or 0.0
                offer = Offer(now_s, job.request.gpus, run_s, job.steps[0].reward)
                cluster.offers.add(offer)
            return job_steps.Reserved(
                band=band,
                slots=slots,
                promised=promised,
                verdict=verdict,
                margin=margin,
                alternative=alternative,
                pause=pause,
                gpu_type=gpu_type,
            )
        case Profile():
            return job_steps.TrialsPlanned(trials=change.trials)
        case Estimate():
            return job_steps.Estimated(estimate_s=change.estimate_s, basis=change.basis)
        case Admit():
            return job_steps.Admitted()
        case Reject():
            return job_steps.Rejected(reason=change.reason.code.value)


def _start(cluster: Cluster, start: Start, now_s: float, epoch: int) -> Happened:
    job = cluster.jobs[start.job_id]
    _, allocation, kind, term_end_s, _, _ = start
    number = job.attempts + 1
    lease = _lease(
        (
            kind,
            allocation,
            _fence((epoch, number)),
            term_end_s,
            _hold_s(cluster, job),
        )
    )
    placed = job_steps.Placed(attempt=number)
    after = job_steps.step(job, placed, at_s=now_s, placing=cluster.moves.after)
    attempt = assigned(_key((start.job_id, number)), lease, now_s, job.checkpoint)
    if job.array is not None and job.array.members:
        attempt = attempt._replace(together=True)
    if job.request.live and not live_resize.known_on(
        map(cluster.nodes.__getitem__, allocation.node_ids)
    ):
        attempt = attempt._replace(fixed=True)
    if cluster.speeds.declared:
        speed = cluster.speed_of(allocation)
        pace = cluster.slowest_pace(job, cluster.capacity.parts(allocation))
        measured = pace != job.request.paced(speed)
        attempt = attempt._replace(speed=speed, pace=pace if measured else None)
    cluster.put(after, attempt)
    return _happened((placed, start.job_id, number, None, start))


def _hold_s(cluster: Cluster, job: Job) -> float:
    """Seconds of silence that the job survives. A trial on fewer GPUs does no work of the job, so
    it survives a term at most.
    """
    terms, asked_s = cluster.terms, job.rules.hold_s
    hold_s = terms.hold_s if asked_s is None else asked_s
    if not job.reduced:
        return hold_s
    return min(hold_s, max(terms.be_term_s, terms.unreachable_s + terms.heartbeat_s))


def _renew(cluster: Cluster, renew: Renew) -> Happened:
    """One more term. The job does not change, so most indexes are untouched."""
    key, term_end_s, _, kind = renew
    event = _renewed(term_end_s, kind)
    cluster.renew(attempt_steps.renewed(cluster.attempts[key], event))
    return _happened((event, *key, None, renew))


@lru_cache(maxsize=16)
def _renewed(term_end_s: float, kind: LeaseKind | None) -> attempt_steps.Renewed:
    """One event for all attempts whose terms end together."""
    return attempt_steps.Renewed(term_end_s=term_end_s, kind=kind)


def _lapse(cluster: Cluster, lapse: Lapse, now_s: float) -> list[Happened]:
    key = lapse.key
    if cluster.suspends is not None and _may_suspend(cluster, lapse, cluster.suspends):
        for_job = lapse.for_job
        promised = cluster.jobs[for_job].promised is not None
        until_s = now_s + lapse.grace_s if promised else None
        return suspend_attempt(
            cluster, key, now_s, for_job=for_job, why="outranked", until_s=until_s
        )
    stop = attempt_steps.StopRequested(
        cause=StopCause.PREEMPT, grace_s=lapse.grace_s, detail=f"for job {lapse.for_job}"
    )
    happened = step_attempt(cluster, key, stop, now_s)
    happened += step_job(cluster, key.job_id, _leaving(cluster, lapse), now_s)
    if lapse.grace_s == 0.0:  # preemption is free: it has saved already
        happened += step_attempt(cluster, key, attempt_steps.Preempted(), now_s)
    return happened


def _may_suspend(cluster: Cluster, lapse: Lapse, rules: SuspendRules) -> bool:
    """Whether a preempted job is suspended: it stays in its host's memory, without a save. The
    winner must be a short job, and the host must have room. Some policies also ask that it is
    cheaper than a save.
    """
    if lapse.reason.code is not ReasonCode.OUTRANKED or lapse.grace_s == 0.0:
        return False
    attempt, job = cluster.attempts[lapse.key], cluster.jobs[lapse.key.job_id]
    nodes = [cluster.nodes[node_id] for node_id in attempt.lease.allocation.node_ids]
    if len(nodes) != 1 or suspending.obstacle(attempt, job, nodes):
        return False  # a gang would wait for all of its GPUs at once
    if not suspending.is_short(cluster.jobs[lapse.for_job], rules, can_save=job.rules.saves):
        return False
    if any(_suspended_bytes(cluster, attempt, node) > node.suspend_bytes for node in nodes):
        return False
    if not rules.only_cheaper:
        return True
    terms, costs = cluster.terms, cluster.costs
    stop_s = costs.pause_s(job, terms) + costs.resume_s(job, terms)
    return 2.0 * cluster.move_costs.seconds(attempt, nodes) < stop_s


def _suspended_bytes(cluster: Cluster, attempt: Attempt, node: Node) -> int:
    """Bytes of GPU memory that the node's host would hold, with those of this attempt."""
    there = 0
    for key, place in cluster.claims.out.items():
        out = cluster.attempts[key].suspension
        if out is not None and node.node_id in place.node_ids:
            there += out.memory_bytes // len(place.node_ids)
    return there + cluster.move_costs.nbytes(attempt, node)


def _leaving(cluster: Cluster, lapse: Lapse) -> JobEvent:
    if lapse.reason.code is ReasonCode.MAKES_WAY:
        return job_steps.MadeWay()
    user = cluster.jobs[lapse.for_job].user
    return job_steps.Displaced(for_job=lapse.for_job, user=user, rule=lapse.reason.detail)


def _stop_to_resize(cluster: Cluster, resize: Resize, now_s: float) -> list[Happened]:
    key, allocation = resize.key, resize.allocation
    obstacle = _live_obstacle(cluster, key, allocation)
    if resize.grace_s > 0.0 and obstacle is None:
        return _resize_live(cluster, resize, now_s)
    why = f"{_why(resize)} (not live: {obstacle})" if obstacle else _why(resize)
    width = cluster.attempts[key].lease.allocation.width
    stop = attempt_steps.StopRequested(
        cause=StopCause.PREEMPT,
        grace_s=resize.grace_s,
        detail=f"to go on with {allocation.width} GPUs instead of {width}: {why}",
        regrant=allocation,
    )
    happened = step_attempt(cluster, key, stop, now_s)
    if resize.grace_s == 0.0:  # it has saved already
        happened += step_attempt(cluster, key, attempt_steps.Preempted(), now_s)
        return [step._replace(change=resize) for step in happened]
    return happened


def _live_obstacle(cluster: Cluster, key: AttemptKey, then: Allocation) -> str | None:
    """Why the resize is not live; "": the job does not ask for that; None: it is live."""
    attempt, job = cluster.attempts[key], cluster.jobs[key.job_id]
    if not (job.request.live and cluster.resizes_live):
        return ""
    nodes = [cluster.nodes[name] for name in then.node_ids]
    return live_resize.obstacle(attempt, job, then, nodes) or None


def _resize_live(cluster: Cluster, resize: Resize, now_s: float) -> list[Happened]:
    """Begin a live resize. If its term is due, the attempt is renewed too."""
    key, lead_s = resize.key, cluster.saves.lead_s
    begun = attempt_steps.ResizeBegun(
        allocation=resize.allocation, grace_s=resize.grace_s, detail=_why(resize)
    )
    happened = step_attempt(cluster, key, begun, now_s)
    lease = cluster.attempts[key].lease
    if decision_time_s(lease.term_end_s, lead_s) <= now_s:
        earliest_s = max(lease.term_end_s, now_s + lead_s)
        end_s = renewed_term_end_s(earliest_s, lease.kind, cluster.terms)
        happened.append(_renew(cluster, Renew(key, end_s, resize.reason)))
    return happened


def _why(resize: Resize) -> str:
    return resize.reason.detail or resize.reason.code.value


def _restart_resized(cluster: Cluster, resize: Resize, now_s: float, epoch: int) -> Happened:
    job_id, allocation = resize.key.job_id, resize.allocation
    again = Start(job_id, allocation, resize.kind, resize.term_end_s, resize.reason)
    return _start(cluster, again, now_s, epoch)._replace(change=resize)


def _width_changed(
    cluster: Cluster,
    change: tuple[Attempt, Attempt],
    event: AttemptEvent,
    job: Job,
    now_s: float,
) -> JobEvent | None:
    before, after = change
    _charge_share(cluster, before, job, now_s)
    if job.ended:
        return None
    used = gang.usage(before, event, job, gang.ended_s(before, now_s))
    has = before if after.is_out else after
    return job_steps.WidthChanged(usage=used, gpu_type=_gpu_type(cluster, has, job))


def _charge_share(cluster: Cluster, attempt: Attempt, job: Job, until_s: float) -> None:
    if cluster.shares is not None and attempt.started_time_s is not None:
        gpus = job.request.weighed(attempt.lease.allocation.width) * attempt.speed
        cluster.shares.ledger.charge(job.account, gpus, attempt.started_time_s, until_s)


def _started(
    cluster: Cluster, before: Attempt, after: Attempt, job: Job, now_s: float
) -> JobEvent | None:
    """The event of a job when its attempt begins to run; None: it ran before."""
    if before.started_time_s is not None or after.started_time_s is None or job.ended:
        return None
    was, gpus = job.resizing, after.lease.allocation.width
    if was is None or was.gpus == gpus:
        return _ran(_gpu_type(cluster, after, job))
    cost_s = round(max(0.0, now_s - was.since_s), 3)
    resized = job_steps.Resized(was.gpus, gpus, cost_s, was.why)
    return job_steps.Ran(resized=resized, gpu_type=_gpu_type(cluster, after, job))


@cache
def _ran(gpu_type: str) -> job_steps.Ran:
    """One event for all jobs on this type."""
    return job_steps.Ran(gpu_type=gpu_type)


def _gpu_type(cluster: Cluster, attempt: Attempt, job: Job) -> str:
    """The type of all its GPUs, or SEVERAL; "" for a job without a family (nothing is learned)."""
    if not job.family:
        return ""
    found = [*cluster.capacity.parts(attempt.lease.allocation)]
    return found[0] if len(found) == 1 else SEVERAL
