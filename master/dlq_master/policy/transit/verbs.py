"""The changes of a plan that begin, renew and end leases, each with its reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set

from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.jobs.band import Band
from dlq_master.model.jobs.job import Job
from dlq_master.model.lease import LeaseKind, first_term_end_s, renewed_term_end_s
from dlq_master.model.plan import Lapse, Renew, Resize, Start
from dlq_master.model.resources import Allocation, Slot
from dlq_master.model.values import maker
from dlq_master.model.view import View
from dlq_master.model.why import Reason, ReasonCode
from dlq_master.policy.place.allocation.outcome import Outcome
from dlq_master.policy.transit.taking import LeaseRules, Taking, save_grace_s

_FITS = Reason(ReasonCode.FITS)
_TERM_OVER = Reason(ReasonCode.TERM_OVER)
_OUTRANKED = ReasonCode.OUTRANKED
_MAKES_WAY = ReasonCode.MAKES_WAY
_RESERVED = "its node is reserved in the slot that begins"
_NEVER_S = float("inf")
KINDS = {
    Band.SLO: LeaseKind.SLO,
    Band.PROFILE: LeaseKind.PROFILE,
    Band.SPOT: LeaseKind.BE,
    Band.FILL: LeaseKind.BE,
    Band.BORROW: LeaseKind.BE,
    Band.LIMIT: LeaseKind.BE,
}
_slot, _allocation = maker(Slot), maker(Allocation)
_start, _lapse, _renew = maker(Start), maker(Lapse), maker(Renew)


def starts(cluster: Cluster, outcome: Outcome, kind: LeaseKind, end_s: float) -> list[Start]:
    """A lease of this kind for each chosen job, on exact GPUs, until `end_s`."""
    return [
        _start((job_id, allocation, kind, end_s, reason, False))
        for job_id, allocation, reason in _placed(cluster, outcome)
    ]


def by_band(view: View, outcome: Outcome, lead_s: float) -> list[Start]:
    """The same; the band of each job decides the kind of its lease, and so its end."""
    jobs, terms = view.cluster.jobs, view.cluster.terms
    leases: dict[Band, tuple[LeaseKind, float]] = {}
    found = []
    for job_id, allocation, reason in _placed(view.cluster, outcome):
        band = jobs[job_id].band
        if band not in leases:
            kind = KINDS[band]
            leases[band] = kind, first_term_end_s(view.now_s, kind, terms, lead_s)
        kind, end_s = leases[band]
        found.append(_start((job_id, allocation, kind, end_s, reason, False)))
    return found


def _placed(cluster: Cluster, outcome: Outcome) -> Iterator[tuple[JobId, Allocation, Reason]]:
    node_ids = cluster.capacity.node_ids
    told = outcome.told
    for job_id, parts in outcome.chosen.items():
        reason = _FITS._replace(detail=told[job_id]) if job_id in told else _FITS
        if len(parts) == 1:  # nearly always
            ordinal, mask = parts[0]
            slots: tuple[Slot, ...] = (_slot((node_ids[ordinal], mask)),)
        else:  # priority order is node order
            slots = tuple([_slot((node_ids[ordinal], mask)) for ordinal, mask in parts])
        yield job_id, _allocation((slots,)), reason


def lapses(
    view: View,
    rules: LeaseRules,
    outranked: Mapping[AttemptKey, JobId],
    moving: Set[AttemptKey],
    told: Mapping[JobId, str],
) -> list[Lapse]:
    """End the leases of preempted jobs, at the end of their term or now, with time to save.

    `outranked`: attempt -> the job for which it leaves. `moving`: attempts that start elsewhere at
    once. `told`: the reason of a job that leaves for its own sake.
    """
    jobs, attempts = view.cluster.jobs, view.cluster.attempts
    found = []
    for key, for_job in outranked.items():
        at_s = view.now_s
        if rules.taking is Taking.BOUNDARY:
            at_s = max(attempts[key].lease.term_end_s, at_s)
        grace_s = save_grace_s(rules.taking, jobs[key.job_id])
        code = _MAKES_WAY if key in moving else _OUTRANKED
        rule = told.get(for_job, _RESERVED) if for_job == key.job_id else ""
        if key not in moving:
            rule = rule_of(rules.rule, jobs[key.job_id], jobs[for_job])
        reason = Reason(code, blocking_jobs=(for_job,), detail=rule)
        found.append(_lapse((key, at_s, grace_s, for_job, reason)))
    return found


def resizes(view: View, rules: LeaseRules, outcome: Outcome) -> list[Resize]:
    """Resizes, the shrinking ones first: growing jobs take the GPUs that these give up."""
    cluster, node_ids = view.cluster, view.cluster.capacity.node_ids
    found = []
    for key, parts in outcome.resized.items():
        lease = cluster.attempts[key].lease
        allocation = Allocation(tuple([Slot(node_ids[node], mask) for node, mask in parts]))
        at_s = max(lease.term_end_s, view.now_s) if rules.grid else view.now_s
        grace_s = save_grace_s(rules.resizing, cluster.jobs[key.job_id])
        width, had = allocation.width, lease.allocation.width
        reason = Reason(ReasonCode.RESIZED, "gpus", width, had, (), _why(view, outcome, width, had))
        change = Resize(key, allocation, lease.kind, at_s, grace_s, _NEVER_S, reason)
        found.append((bool((allocation - lease.allocation).slots), key, change))
    return [change for *_, change in sorted(found, key=lambda row: row[:2])]


def _why(view: View, outcome: Outcome, width: int, had: int) -> str:
    if width > had:
        return "GPUs are free"
    if width == had:
        return "its GPUs are others"
    waits = outcome.chosen or outcome.outranked or view.cluster.waiting.count
    return "others wait for their GPUs" if waits else "other elastic jobs gain more"


def returns(view: View, *, grid: bool) -> list[Start]:
    """Starts of jobs that stopped for a resize, if the GPUs that they were promised are free.

    Several such jobs may wait for the same GPUs. The job that stopped last has the first claim,
    since it was promised them last.
    """
    cluster = view.cluster
    cluster.capacity.ready()
    kind, end_s = LeaseKind.BE, _NEVER_S
    if grid:
        end_s = first_term_end_s(view.now_s, kind, cluster.terms, cluster.saves.lead_s)
    found = []
    taken: dict[NodeId, int] = {}
    for job in _last_granted_first(cluster):
        allocation = job.regrant
        assert allocation is not None
        if _is_free(cluster, allocation, taken):
            reason = Reason(ReasonCode.RESIZED, "gpus", allocation.width, allocation.width)
            found.append(Start(job.job_id, allocation, kind, end_s, reason))
            for node_id, mask in allocation.slots:
                taken[node_id] = taken.get(node_id, 0) | mask
    return found


def _last_granted_first(cluster: Cluster) -> list[Job]:
    returning = [cluster.jobs[job_id] for job_id in sorted(cluster.returning)]
    return sorted(returning, key=lambda job: -(job.queued_since_s or 0.0))


def _is_free(cluster: Cluster, allocation: Allocation, taken: Mapping[NodeId, int]) -> bool:
    """Whether all GPUs of the allocation are there and free, without the `taken` ones."""
    if any(taken.get(node_id, 0) & mask for node_id, mask in allocation.slots):
        return False
    capacity = cluster.capacity
    free = sum(
        (capacity.free[gpu_type].masks[node] & mask).bit_count()
        for gpu_type, parts in capacity.parts(allocation).items()
        for node, mask in parts
    )
    return free == allocation.width


def renewals(view: View, keys: list[AttemptKey], lead_s: float) -> list[Renew]:
    """One more term for each attempt. The band of its job decides the kind, which differs from the
    present one after a change of policy.
    """
    jobs = view.cluster.jobs
    attempts, terms = view.cluster.attempts, view.cluster.terms
    # After an absence terms may have ended long ago: none is renewed into what is due now.
    earliest_s = view.now_s + lead_s
    found = []
    # The end of the attempt before is used again: most terms end together.
    over_s, band, kind, end_s = None, None, None, 0.0
    for key in keys:
        was, _, _, ends_s, _ = attempts[key].lease
        now = jobs[key[0]].band
        if ends_s != over_s or now is not band:
            over_s, band, kind = ends_s, now, KINDS[now]
            end_s = renewed_term_end_s(max(ends_s, earliest_s), kind, terms)
        found.append(_renew((key, end_s, _TERM_OVER, None if kind is was else kind)))
    return found


def rule_of(rule: str, loser: Job, winner: Job) -> str:
    """Why the winner comes first, in words; `rule`: the words if only the order decides."""
    if winner.band is Band.SLO:
        return "a promised deadline: the slot is planned for it"
    if winner.band is Band.PROFILE:
        return "a trial, to measure how long it runs"
    if winner.band is Band.LIMIT:
        return "its own team may hold no more, and a better job of it waits"
    if loser.band >= Band.BORROW > winner.band:
        return "quota: its team borrowed these GPUs and gives them back"
    if winner.band != loser.band:
        return "no slot of its promise is now"
    if winner.promoted:
        return "it has waited too long for what it has run"
    if winner.priority_base != loser.priority_base:
        return "the priority of its queue, or its nice"
    return rule
