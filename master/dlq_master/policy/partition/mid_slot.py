"""Last chances within a slot: at each boundary of best effort, on GPUs that the slot leaves.

Slots are long, so that promised jobs stop seldom. A short job with a near deadline may be late in
the next one. But holders of the present slot end within it, and best effort gives its GPUs up at
each boundary. So a refused job enters the present slot if the next one is too late for it. From
there on promises have to leave it room.

This is decided where all plans are made, also while a slot or promises are worked out elsewhere. So
it has to be quick: of a long queue only the jobs are looked at that have been judged since.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import islice
from math import ceil

from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.band import Band, Segment
from dlq_master.model.jobs.job import Job
from dlq_master.model.jobs.reward import Step
from dlq_master.model.plan import Reserve
from dlq_master.model.view import View
from dlq_master.model.why import Reason, ReasonCode
from dlq_master.policy.partition.last_chances import Chance, in_order, may_be_late
from dlq_master.policy.promise.capacity.fluid import Slots, gpus_of
from dlq_master.policy.promise.capacity.grids import kept_grid, several_types, slot_s, type_of
from dlq_master.policy.promise.capacity.leases import Grid, SloJob, runtime_s, width
from dlq_master.policy.promise.capacity.rules import Promises
from dlq_master.policy.promise.slots.holes import insert
from dlq_master.policy.promise.slots.plan import SlotPlan, hold
from dlq_master.policy.promise.verdicts.reading import margin, numbered, slo_job

_ENTERS = Reason(ReasonCode.SLOT_OVER, detail="its last chance: it would be late in the next slot")


def entries(view: View, rules: Promises) -> list[Reserve]:
    """The jobs that hold the present slot from the next boundary of best effort on. There are none
    before the terms that end there have to be decided.
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
    """The boundary that has to be decided now: within the lead, or now where a save takes no time.
    None: there is none.
    """
    term_s, lead_s = cluster.terms.be_term_s, cluster.saves.lead_s
    begin_s = (now_s + lead_s) // term_s * term_s
    return begin_s if now_s < begin_s or (not lead_s and now_s == begin_s) else None


def _near(view: View, begin_s: float, slot_end_s: float, rules: Promises) -> list[Job]:
    """Jobs that may enter at this boundary. Those seen before at the same are not sought anew."""
    cluster, of = view.cluster, (begin_s, slot_end_s)
    judged, jobs, total = cluster.judged, cluster.jobs, cluster.offers.newest.total
    seen: tuple[int, list[JobId]] | None = cluster.memo.get("near", *of)
    new: Iterable[JobId] = judged
    if seen is not None:  # each job that is judged makes an offer, and stands last
        new = islice(reversed(judged), total - seen[0])
    near = [] if seen is None else seen[1]
    near += [it for it in new if may_be_late(view, jobs[it], begin_s, slot_end_s, rules)]
    cluster.memo.put("near", (total, near), *of)
    found = [jobs[job_id] for job_id in dict.fromkeys(near) if job_id in judged]
    return [job for job in found if job.band is not Band.SLO and not several_types(cluster, job)]


def _chance(
    cluster: Cluster, job: Job, begin_s: float, slot_end_s: float, rules: Promises
) -> Chance | None:
    """The chance of a job that goes on from `begin_s`; None: it is late then, or may well wait."""
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
    """Those for whom there is room, the most reward for a GPU and its time first. `past_s`: of the
    slot."""
    slot = cluster.slot
    grid = kept_grid(cluster, gpu_type, slot, rules)
    asked = [one._replace(own=_from_slot(one.own, past_s)) for one in chances]
    horizon = ceil(max(one.own.steps[one.step].deadline_s for one in asked) / grid.term_s) + 1
    free = _free(cluster, gpu_type, grid, horizon)
    found = []
    for job_id, own, step, _ in in_order(asked):
        held = insert(own, own.steps[step].deadline_s, free, grid)
        if held is not None and held[0].begin == 0:
            hold(free, held, width(own, grid))
            slots = numbered(SlotPlan({own.key: held}), job_id, slot)
            verdict = cluster.jobs[job_id].verdict
            found.append(Reserve(job_id, Band.SLO, slots, None, verdict, _ENTERS))
    return found


def _from_slot(own: SloJob, past_s: float) -> SloJob:
    """The same, counted from the beginning of the slot. Its past part counts as work."""
    steps = tuple([Step(deadline_s + past_s, reward) for deadline_s, reward in own.steps])
    return own._replace(work_s=own.work_s + past_s, steps=steps)


def _free(cluster: Cluster, gpu_type: str, grid: Grid, slots: int) -> Slots:
    """GPUs that nobody holds in the present slot and those after it. Holders that have ended leave
    theirs, and those that are to end within the slot keep them.
    """
    slot, free = cluster.slot, gpus_of(grid, slots)
    for job_id in {**cluster.promised, **cluster.seated}:
        job = cluster.jobs[job_id]
        if type_of(cluster, job) != gpu_type:
            continue
        left = [Segment(max(0, begin - slot), end - slot) for begin, end in job.slots if end > slot]
        if job.band is Band.SLO and not job.planned(slot):
            left.append(Segment(0, 1))
        hold(free, left, grid.wide(job.request.gpus))
    return free
