"""The SLO leases of the next slot: the kept plan, or a better one that keeps every promise."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import replace

from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.band import Band
from dlq_master.model.jobs.job import Alternative, Job
from dlq_master.model.plan import NextSlot, Reserve
from dlq_master.model.view import View
from dlq_master.model.why import Reason, ReasonCode
from dlq_master.policy.partition.last_chances import last_chances, near_last_chance
from dlq_master.policy.promise.capacity.grids import (
    due_slot,
    grid_of,
    kept_grid,
    several_types,
    slot_s,
    type_of,
)
from dlq_master.policy.promise.capacity.leases import Grid, SloJob, within
from dlq_master.policy.promise.capacity.rules import (
    Promises,
    Selector,
    Selects,
    Slots,
    VerdictGround,
)
from dlq_master.policy.promise.slots.plan import SlotPlan, faults, left_of
from dlq_master.policy.promise.solver.budget import ProgramBudget
from dlq_master.policy.promise.solver.selector import (
    Selection,
    SlotSource,
    select,
    unchanged_if_best,
)
from dlq_master.policy.promise.verdicts.danger import Danger, closed_nodes, given_up
from dlq_master.policy.promise.verdicts.proof import at_risk
from dlq_master.policy.promise.verdicts.reading import (
    band_with,
    ends_by,
    has_overrun,
    margin,
    numbered,
    slo_job,
    total_s,
    worked_s,
)
from dlq_master.policy.promise.verdicts.seen import Table, seen

_NEXT = Reason(ReasonCode.SLOT_OVER)


def next_slot(view: View, rules: Promises) -> list[NextSlot | Reserve]:
    """Decide the slot that is due by now, and change the bands of jobs for it; empty: none is due
    yet.
    """
    cluster = view.cluster
    slot = due_slot(cluster, view.now_s)
    if slot <= cluster.slot:
        return []
    changes: list[Reserve] = []
    told: list[str] = []
    by_type, others = _by_type(view, slot, rules)
    share_s = rules.solver_s / max(1, len(by_type))
    for gpu_type, jobs in sorted(by_type.items()):
        budget = ProgramBudget(share_s, rules.clock)
        chosen, found = _slot(view, gpu_type, jobs, slot, rules, budget)
        changes += found
        if chosen is not None:
            told.append(f"{gpu_type}: {_told(chosen)}")
    changes += [_unplanned(job) for job in others if job.slots or job.band is Band.SLO]
    return [NextSlot(slot, _NEXT._replace(detail="; ".join(told))), *changes]


def _told(chosen: Selection) -> str:
    """The selection in words, for the journal."""
    late = chosen.source is SlotSource.CACHED
    why = "no answer within the limit: cached solution used; " if late else ""
    return (
        f"{why}the {chosen.source.value} plan earns {chosen.objective:.6g} of at most "
        f"{chosen.bound:.6g} (gap {chosen.gap:.2%})"
    )


def _by_type(view: View, slot: int, rules: Promises) -> tuple[dict[str, list[Job]], list[Job]]:
    """The jobs to decide on, by GPU type; and jobs of which nobody knows on which type they would
    run.

    If only guaranteed jobs get slots, other waiting jobs are included only for last chances. No
    slots are planned for jobs without a type.
    """
    cluster = view.cluster
    asked: Iterable[JobId] = cluster.judged
    if rules.selects is not Selects.ALL:
        runs = [job_id for job_id in cluster.running.places if job_id in cluster.judged]
        asked = {*cluster.promised, *cluster.seated, *runs}
        if rules.chances:
            asked |= {*near_last_chance(view, slot, rules)}
    found: dict[str, list[Job]] = defaultdict(list)
    others: list[Job] = []
    for job_id in sorted(asked):
        job = cluster.jobs[job_id]
        line = others if several_types(cluster, job) else found[type_of(cluster, job)]
        line.append(job)
    return found, others


def _unplanned(job: Job) -> Reserve:
    """Drop the slots of a job, which were planned while there was one type."""
    band = Band.SPOT if job.band in (Band.SLO, Band.FILL) else job.band
    return Reserve(job.job_id, band, (), None, job.verdict, _NEXT)


def _slot(
    view: View,
    gpu_type: str,
    jobs: list[Job],
    slot: int,
    rules: Promises,
    budget: ProgramBudget,
) -> tuple[Selection | None, list[Reserve]]:
    """The best plan from this slot on, and the changes that it makes."""
    cluster = view.cluster
    grid, extra = grid_of(cluster, gpu_type, rules, slot), margin(cluster, rules)
    table = seen(cluster, gpu_type, slot, extra, grid)
    over, ending, planned = [], [], []
    for job in jobs:
        one = table.get(job.job_id)
        attempt = cluster.live_attempt(job) if one is None else one.attempt
        reserved_s = total_s(job, extra) if one is None else one.reserved_s
        if has_overrun(view, job, attempt, reserved_s):
            over.append(job)
        elif job.promised is not None and ends_by(view, job, attempt, slot, reserved_s):
            ending.append(job)
        else:
            planned.append(job)
    asked = _asked(cluster, planned, table, grid, slot, rules)
    left = _left(planned, table, slot)
    chosen = _chosen(left, asked, grid, rules, budget) if asked else None
    if chosen is not None and chosen.broken:
        whole = kept_grid(cluster, gpu_type, slot, rules)
        chosen = _spared(chosen, left, asked, grid, whole, rules, budget)
    plan = SlotPlan() if chosen is None else chosen.plan
    if rules.chances:
        late = last_chances(view, gpu_type, planned, slot, rules, plan, asked)
        plan = SlotPlan({**plan.segments, **late.segments})
    broken = () if chosen is None else chosen.broken
    changes = [_place(job, plan, broken, left, slot, rules) for job in planned]
    changes += [_let_end(job) for job in ending]
    changes += [_overrun(view, job, extra) for job in over]
    made = [change for change in changes if change is not None]
    if chosen is not None and chosen.broken and rules.offers:
        made = _explained(view, gpu_type, made, chosen, asked, grid, rules)
    return chosen, made


def _explained(
    view: View,
    gpu_type: str,
    made: list[Reserve],
    chosen: Selection,
    asked: list[SloJob],
    grid: Grid,
    rules: Promises,
) -> list[Reserve]:
    """Add to each promise that is given up why, and the nearest possible promise."""
    dangers, closed = at_risk(view, rules), closed_nodes(view.cluster, gpu_type)
    known = {job.key: job for job in asked}
    begin_s = due_slot(view.cluster, view.now_s) * slot_s(view.cluster)
    told = []
    for change in made:
        if change.reason.code is ReasonCode.PROMISE_BROKEN:
            danger = dangers.get(change.job_id)
            why = _no_room(closed) if danger is None else danger.words(closed)
            own = known[str(change.job_id)]
            instead = given_up(chosen, asked, own, grid, begin_s, why)
            change = change._replace(alternative=instead)
        told.append(change)
    return told


def _no_room(closed: str) -> str:
    """Why a promise is given up, if it is in no danger by itself, in words."""
    words = "no slots are found for it beside the other promises"
    return f"{words}: {closed}" if closed else words


def _chosen(
    left: SlotPlan, asked: list[SloJob], grid: Grid, rules: Promises, budget: ProgramBudget
) -> Selection:
    """The plan of the jobs `asked`.

    With slots as late as possible the plan is not run as it is. So the number of its stops is no
    reason for another plan.
    """
    whole = left.without(left.segments.keys() - {job.key for job in asked})
    late = rules.slots is Slots.LATE
    if not late or (chosen := unchanged_if_best(asked, grid, whole)) is None:
        chosen = _selected(asked, grid, _kept(whole, asked, grid), rules, budget)
    if not late:
        return chosen
    from dlq_master.policy.promise.slots.late import as_late_as_can_be

    return replace(chosen, plan=as_late_as_can_be(chosen.plan, asked, grid, chosen.steps))


def _selected(
    asked: list[SloJob], grid: Grid, kept: SlotPlan, rules: Promises, budget: ProgramBudget
) -> Selection:
    """The plan of the selector that the rules name."""
    if rules.selector is Selector.PREFIX:
        return select(asked, grid, kept)
    from dlq_master.policy.promise.solver.printed_cycle import printed_cycle

    best = rules.selector is Selector.PRINTED
    return printed_cycle(asked, grid, kept, budget, objective=best)


def _spared(
    chosen: Selection,
    left: SlotPlan,
    asked: list[SloJob],
    grid: Grid,
    whole: Grid,
    rules: Promises,
    budget: ProgramBudget,
) -> Selection:
    """Without a promise given up for a floor, if possible.

    Only then promised jobs use all GPUs, and no other jobs get slots.
    """
    if whole == grid:
        return chosen
    held = [job for job in asked if job.promised is not None]
    other = _chosen(left, held, whole, rules, budget)
    return other if len(other.broken) < len(chosen.broken) else chosen


def _left(jobs: list[Job], table: Table, slot: int) -> SlotPlan:
    """The kept plan from this slot on."""
    found = {}
    for job in jobs:
        one = table.get(job.job_id)
        slots = left_of(job.slots, slot) if one is None else one.slots
        if slots:
            found[str(job.job_id) if one is None else one.own.key] = slots
    return SlotPlan(found)


def _asked(
    cluster: Cluster, jobs: list[Job], table: Table, grid: Grid, slot: int, rules: Promises
) -> list[SloJob]:
    """The jobs that may get SLO leases: promised ones, and those that could still meet
    a deadline.
    """
    begin_s, extra = slot * slot_s(cluster), margin(cluster, rules)
    found = []
    for job in jobs:
        if job.promised is not None:
            found.append(table[job.job_id].own)
        elif rules.selects is Selects.ALL and job.keeps_work:
            if job.submit_time_s + job.steps[-1].deadline_s < begin_s:
                continue  # most of those that are late: nothing has to be worked out for them
            own = slo_job(cluster, job, slot, extra)
            if within(own, grid):
                found.append(own)
    return found


def _overrun(view: View, job: Job, extra: float) -> Reserve | None:
    """The job goes on as best effort; None: it already does. A job without a promise loses nothing
    by it.
    """
    if job.promised is None:
        stands = job.band is Band.SPOT and not job.slots
        return None if stands else Reserve(job.job_id, Band.SPOT, (), None, job.verdict, _NEXT)
    attempt = view.cluster.live_attempt(job)
    ran_s = worked_s(view.cluster, job, attempt, view.now_s)
    danger = Danger(needs_s=total_s(job, extra), has_s=ran_s, over=True)
    told = Alternative(detail=danger.words(""))
    reason = Reason(ReasonCode.OVERRUN)
    return Reserve(
        job.job_id, Band.SPOT, (), None, VerdictGround.OVERRUN.value, reason, alternative=told
    )


def _let_end(job: Job) -> Reserve:
    """The job keeps its GPUs for its last seconds, but others have them in the slot."""
    return Reserve(job.job_id, Band.SLO, (), job.promised, job.verdict, _NEXT)


def _kept(whole: SlotPlan, asked: list[SloJob], grid: Grid) -> SlotPlan:
    """The plan so far. Slots of jobs without a promise give way to promises made since."""
    if not faults(whole, asked, grid):
        return whole
    return whole.without([job.key for job in asked if job.promised is None])


def _place(
    job: Job, plan: SlotPlan, lost: Collection[str], left: SlotPlan, slot: int, rules: Promises
) -> Reserve | None:
    """The job's band and slots from this slot on; None: unchanged. `lost`: jobs whose promises are
    given up.
    """
    key, job_id = str(job.job_id), job.job_id
    broken = key in lost
    promised = None if broken else job.promised
    held = plan.segments.get(key, ())
    band = band_with(job.band, promised, rules, planned=bool(held) and held[0].begin == 0)
    if band is job.band and promised == job.promised and held == left.segments.get(key, ()):
        return None
    slots = numbered(plan, job_id, slot)
    code = ReasonCode.PROMISE_BROKEN if broken else ReasonCode.SLOT_OVER
    verdict = VerdictGround.BROKEN.value if broken else job.verdict
    return Reserve(job_id, band, slots, promised, verdict, Reason(code))
