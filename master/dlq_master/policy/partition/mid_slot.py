"""Last chances within a slot: at each boundary of best effort, on GPUs that the slot leaves free.

Slots are long, so that promised jobs stop seldom. A short job with a near deadline may be late in
the next slot. But holders of the present slot end within it, and best effort gives its GPUs up at
each boundary. So a refused job enters the present slot if the next one is too late for it. From
there on promises must leave it room.

This is decided in every plan, also while another process plans a slot or promises. So it has to be
quick: of a long queue only judged jobs are tested, and again only once one has changed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from math import ceil

from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.band import Band, Segment
from dlq_master.model.jobs.job import Job
from dlq_master.model.jobs.reward import Step
from dlq_master.model.plan import Reserve
from dlq_master.model.view import View
from dlq_master.model.why import Reason, ReasonCode
from dlq_master.policy.partition.last_chances import Chance, entering, may_be_late
from dlq_master.policy.promise.capacity.fluid import Slots, gpus_of
from dlq_master.policy.promise.capacity.grids import kept_grid, several_types, slot_s, type_of
from dlq_master.policy.promise.capacity.leases import Grid, SloJob, runtime_s
from dlq_master.policy.promise.capacity.rules import Promises
from dlq_master.policy.promise.slots.plan import hold, left_of
from dlq_master.policy.promise.verdicts.reading import margin, numbered, slo_job

_ENTERS = Reason(ReasonCode.SLOT_OVER, detail="its last chance: it would be late in the next slot")


def entries(view: View, rules: Promises) -> list[Reserve]:
    """The jobs that hold the present slot from the next boundary of best effort on.

    Empty until the terms that end there have to be decided.
    """
    cluster = view.cluster
    begin_s = _due_s(cluster, view.now_s)
    slot_begin_s, slot_end_s = (at * slot_s(cluster) for at in (cluster.slot, cluster.slot + 1))
    if begin_s is None or not slot_begin_s < begin_s < slot_end_s:
        return []
    by_type: dict[str, list[Chance]] = defaultdict(list)
    for job in _near(view, begin_s, slot_end_s, rules):
        chance = _chance(cluster, job, begin_s, slot_end_s, rules)
        if chance is not None:
            by_type[type_of(cluster, job)].append(chance)
    found: list[Reserve] = []
    for gpu_type, chances in sorted(by_type.items()):
        found += _entered(cluster, gpu_type, chances, begin_s - slot_begin_s, rules)
    return found


def _due_s(cluster: Cluster, now_s: float) -> float | None:
    """The boundary that must be decided now: within the lead, or now if a save takes no time; None:
    none.
    """
    term_s, lead_s = cluster.terms.be_term_s, cluster.saves.lead_s
    begin_s = (now_s + lead_s) // term_s * term_s
    return begin_s if now_s < begin_s or (not lead_s and now_s == begin_s) else None


def _near(view: View, begin_s: float, slot_end_s: float, rules: Promises) -> list[Job]:
    """Jobs that may enter at this boundary; searched again once a judged job has changed."""
    cluster, jobs = view.cluster, view.cluster.jobs
    of = (cluster.judged_changes, begin_s, slot_end_s)
    near: list[JobId] | None = cluster.memo.get("near", *of)
    if near is None:
        judged = [jobs[job_id] for job_id in cluster.judged]
        late = [it for it in judged if may_be_late(view, it, begin_s, slot_end_s, rules)]
        near = [
            job.job_id
            for job in late
            if job.band is not Band.SLO and not several_types(cluster, job)
        ]
        cluster.memo.put("near", near, *of)
    return [jobs[job_id] for job_id in near]


def _chance(
    cluster: Cluster, job: Job, begin_s: float, slot_end_s: float, rules: Promises
) -> Chance | None:
    """The chance of a job from `begin_s` on; None: it would be late, or can wait."""
    own = slo_job(cluster, job, begin_s / slot_s(cluster), margin(cluster, rules, job))
    needs_s = runtime_s(own)
    for step, (deadline_s, reward) in enumerate(own.steps):
        if deadline_s >= needs_s:
            if begin_s + deadline_s - needs_s >= slot_end_s:
                return None
            return Chance(job.job_id, own, step, reward / (own.gpus * needs_s))
    return None


def _entered(
    cluster: Cluster, gpu_type: str, chances: Sequence[Chance], past_s: float, rules: Promises
) -> list[Reserve]:
    """The jobs for which there is room, the most reward for a GPU and its time first. `past_s`: the
    past part of the slot.
    """
    slot = cluster.slot
    grid = kept_grid(cluster, gpu_type, slot, rules)
    asked = [one._replace(own=_from_slot(one.own, past_s)) for one in chances]
    horizon = ceil(max(one.own.steps[one.step].deadline_s for one in asked) / grid.term_s) + 1
    found = []
    for job_id, plan in entering(asked, _free(cluster, gpu_type, grid, horizon), grid).items():
        slots, verdict = numbered(plan, job_id, slot), cluster.jobs[job_id].verdict
        found.append(Reserve(job_id, Band.SLO, slots, None, verdict, _ENTERS))
    return found


def _from_slot(own: SloJob, past_s: float) -> SloJob:
    """The job counted from the begin of the slot. The past part of the slot counts as work."""
    steps = tuple([Step(deadline_s + past_s, reward) for deadline_s, reward in own.steps])
    return own._replace(work_s=own.work_s + past_s, steps=steps)


def _free(cluster: Cluster, gpu_type: str, grid: Grid, slots: int) -> Slots:
    """Free GPUs in the present slot and the slots after it.

    Holders that have ended leave theirs. Holders that are to end within the slot keep them.
    """
    slot, free = cluster.slot, gpus_of(grid, slots)
    for job_id in {**cluster.promised, **cluster.seated}:
        job = cluster.jobs[job_id]
        if type_of(cluster, job) != gpu_type:
            continue
        left = [*left_of(job.slots, slot)]
        if job.band is Band.SLO and not job.planned(slot):
            left.append(Segment(0, 1))
        hold(free, left, grid.wide(job.request.gpus))
    return free
