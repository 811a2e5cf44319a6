"""Does a plan of slots break a promise? Counted anew, slot by slot, independent of the plan's
maker.

Making a plan may take a second, counting takes milliseconds. So the receiver of a plan need not
trust its maker. A fault that existed before (a node is gone, a job takes too long) may remain.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from types import MappingProxyType

from dlq_master.model.attempts.attempt import Attempt
from dlq_master.model.attempts.deadlines import due_s, left_s
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import Job
from dlq_master.model.plan import Change, NextSlot, Reserve
from dlq_master.model.view import View
from dlq_master.policy.promise.capacity.grids import kept_grid, next_decision_s, type_of
from dlq_master.policy.promise.capacity.leases import FARTHEST, Grid
from dlq_master.policy.promise.capacity.rules import Promises
from dlq_master.policy.promise.slots.plan import SlotPlan, keeps_promise, ordered
from dlq_master.policy.promise.verdicts.danger import NOISE_S, Danger, is_silent, outlook
from dlq_master.policy.promise.verdicts.reading import (
    goes_on,
    kept_plan,
    margin,
    may_make_way,
    overruns,
    pace,
    slo_job,
    total_s,
    will_end,
    worked_s,
)

_NEEDLESS = "loses a promise that its slots would keep"

Jobs = Mapping[JobId, Job]


def broken(view: View, changes: Iterable[Change], rules: Promises) -> str:
    """The promises that these changes would break, in words; empty: none."""
    cluster = view.cluster
    reserves = {change.job_id: change for change in changes if isinstance(change, Reserve)}
    slots = [change.slot for change in changes if isinstance(change, NextSlot)]
    origin = max(slots, default=cluster.slot + 1)
    before: dict[str, dict[JobId, Job]] = defaultdict(dict)
    for job_id in {*cluster.judged, *reserves}:
        job = cluster.jobs.get(job_id)
        if job is not None:
            change = reserves.get(job_id)
            stands = "" if change is None else change.gpu_type
            before[stands or type_of(cluster, job)][job_id] = job
    for gpu_type, jobs in sorted(before.items()):
        after = {job_id: _after(job, reserves.get(job_id)) for job_id, job in jobs.items()}
        if not slots:  # before the next slot is decided, slots without a promise may be taken
            jobs = _promised(jobs, after)
            after = {job_id: after[job_id] for job_id in jobs}
        fault = _fault(view, gpu_type, jobs, after, origin, rules)
        if fault:
            return f"{gpu_type}: {fault}"
    return ""


def _promised(before: Jobs, after: Jobs) -> dict[JobId, Job]:
    """The jobs with a promise before or after."""
    both = (before, after)
    return {
        job_id: job
        for job_id, job in before.items()
        if any(jobs[job_id].promised is not None for jobs in both)
    }


def _after(job: Job, change: Reserve | None) -> Job:
    """The job after a change."""
    if change is None:
        return job
    added = job.margin if change.margin is None else change.margin
    pause = change.pause or job.pause
    return job._replace(slots=change.slots, promised=change.promised, margin=added, pause=pause)


def _fault(
    view: View, gpu_type: str, before: Jobs, after: Jobs, origin: int, rules: Promises
) -> str:
    """The fault of changes on one GPU type, in words; empty: none."""
    changed = {job_id: job for job_id, job in after.items() if job is not before[job_id]}
    for job_id, job in changed.items():
        made = kept_plan([job], origin).segments.get(str(job_id), ())
        if made and not (ordered(made) and made[-1].end < FARTHEST):
            return f"the slots of job {job_id} overlap, touch, or are too far ahead"
    grid = kept_grid(view.cluster, gpu_type, origin, rules)
    asked = _demand_changes(before.values(), origin, grid)
    wanted = asked.copy()
    _count_demand(wanted, [before[job_id] for job_id in changed], origin, grid, times=-1)
    _count_demand(wanted, changed.values(), origin, grid)
    slots = sorted(wanted)  # where either changes
    full = _over(asked, grid, slots)
    for slot, gpus in _over(wanted, grid, slots).items():
        if gpus > full.get(slot, 0):
            return f"slot {origin + slot} wants {gpus} GPUs more than it has"
    for job_id, job in changed.items():
        short = _in_any(before[job_id], full, origin)
        fault = _loses(view, before[job_id], job, origin, grid, rules, short=short)
        if fault == _NEEDLESS and (full or _late(view, before, origin, grid, rules)):
            continue  # not all promises can be kept, and the maker chooses
        if fault:
            return f"job {job_id} {fault}"
    return ""


def _late(view: View, jobs: Jobs, origin: int, grid: Grid, rules: Promises) -> bool:
    """Whether any promise is not kept by its own slots any more."""
    held = [job for job in jobs.values() if job.promised is not None]
    return not all(_keeps(view, job, origin, grid, rules) for job in held)


def _demand_changes(jobs: Iterable[Job], origin: int, grid: Grid) -> Counter[int]:
    """By how many GPUs the demand of a slot exceeds that of the slot before."""
    change = Counter[int]()
    _count_demand(change, jobs, origin, grid)
    return change


def _count_demand(
    change: Counter[int], jobs: Iterable[Job], origin: int, grid: Grid, times: int = 1
) -> None:
    """Add the demand of these jobs; with `times` -1 subtract it."""
    for job in jobs:
        wide = times * grid.wide(job.request.gpus)
        for begin, end in job.slots:
            if end > origin:
                change[max(0, begin - origin)] += wide
                change[end - origin] -= wide


def _over(change: Counter[int], grid: Grid, slots: Sequence[int]) -> dict[int, int]:
    """The overfull slots among these, and by how many GPUs."""
    held = accumulate(change[slot] for slot in slots)
    return {
        slot: gpus - grid.at(slot)
        for slot, gpus in zip(slots, held, strict=True)
        if gpus > grid.at(slot)
    }


def at_risk(
    view: View, rules: Promises, told_s: Mapping[JobId, float] = MappingProxyType({})
) -> dict[JobId, Danger]:
    """The promises that the kept plan does not keep as the cluster is now, and why.

    There are fewer GPUs than planned, too few slots are left, or the job has overrun its
    reservation. The next slot's plan mends that, or gives promises up. `told_s`: the time of all of
    a job's work by its own steps. A job that will overrun its reservation is at risk before it has.
    """
    cluster, origin = view.cluster, view.cluster.slot + 1
    by_type: dict[str, dict[JobId, Job]] = defaultdict(dict)
    for job_id in cluster.promised:
        job = cluster.jobs[job_id]
        by_type[type_of(cluster, job)][job_id] = job
    found = {}
    for gpu_type, jobs in by_type.items():
        grid = kept_grid(cluster, gpu_type, origin, rules)
        wanted = _demand_changes(jobs.values(), origin, grid)
        full = _over(wanted, grid, sorted(wanted))
        for job_id, job in jobs.items():
            danger = _danger(view, job, full, origin, rules, told_s.get(job_id))
            if danger is not None:
                found[job_id] = danger
    return found


def _danger(
    view: View,
    job: Job,
    full: Mapping[int, int],
    origin: int,
    rules: Promises,
    told_s: float | None,
) -> Danger | None:
    """The danger of one promise; None: it is safe. `full`: overfull slots, and by how many GPUs."""
    cluster, extra = view.cluster, margin(view.cluster, rules)
    attempt = cluster.live_attempt(job)
    silent = is_silent(attempt)
    if not silent and overruns(view, job, extra):
        has_s = worked_s(cluster, job, attempt, view.now_s)
        return Danger(needs_s=total_s(job, extra), has_s=has_s, over=True)
    lack = max([full[slot] for slot in full if _in_any(job, (slot,), origin)], default=0)
    if lack:
        return Danger(lack=lack)
    ahead = outlook(view, job, extra)
    if not ahead.in_time:
        return Danger(needs_s=ahead.needs_s, has_s=ahead.has_s, silent=silent)
    if told_s is None or silent or not _outruns(view, job, attempt, ahead.needs_s, told_s):
        return None
    return Danger(needs_s=told_s, has_s=job.duration_estimate_s or 0.0, steps=True)


def _outruns(
    view: View, job: Job, attempt: Attempt | None, reserved_s: float, told_s: float
) -> bool:
    """Whether by its own steps it needs more than the `reserved_s` left to it, and will not end in
    time before the next decision.
    """
    needs_s = (left_s(job, attempt, view.now_s, told_s) or 0.0) / pace(view.cluster, job)
    if needs_s <= reserved_s + NOISE_S:
        return False
    ends_s = view.now_s + needs_s
    by_s = min(due_s(job, job.promised or 0), next_decision_s(view.cluster))
    return ends_s > by_s + NOISE_S or not goes_on(attempt, ends_s)


def _in_any(job: Job, slots: Iterable[int], origin: int) -> bool:
    """Whether it holds one of these slots, which count from `origin`."""
    return any(begin <= slot + origin < end for begin, end in job.slots for slot in slots)


def _loses(
    view: View, before: Job, after: Job, origin: int, grid: Grid, rules: Promises, *, short: bool
) -> str:
    """A forbidden change of its promise; empty: none.

    `short`: its slots are overfull, and some job has to give way.
    """
    if after.promised is None and before.promised is None:
        return ""
    kept = not short and before.promised is not None
    kept = kept and _keeps(view, before, origin, grid, rules)
    if after.promised is None or before.promised not in (None, after.promised):
        over = overruns(view, before, margin(view.cluster, rules))
        return _NEEDLESS if kept and not over else ""
    if before.promised is not None and not kept:
        return ""  # no worse than it was
    return "" if _keeps(view, after, origin, grid, rules) else "would not make what it is promised"


def _keeps(view: View, job: Job, origin: int, grid: Grid, rules: Promises) -> bool:
    """Whether the job's own slots keep its promise."""
    cluster, extra = view.cluster, margin(view.cluster, rules)
    if not job.slots and will_end(view, job, origin, extra):
        return True
    spare = may_make_way(job, grid)
    own = slo_job(cluster, job, origin, extra, spare=spare)
    planned: SlotPlan = kept_plan([job], origin)
    return keeps_promise(own, planned.segments.get(own.key, ()), grid)
