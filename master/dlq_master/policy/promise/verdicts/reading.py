"""Jobs with deadlines, and the kept plan, as the planner of promises sees them.

The kept plan lies with its jobs, as numbers of slots (`Job.slots`). Slot k of the SLO grid is the
term from k T to (k + 1) T. A plan counts from the first slot that has not been decided.
"""

from __future__ import annotations

from collections.abc import Iterable

from dlq_master.model.attempts.attempt import ACTIVE, Attempt, AttemptState, SuspensionPhase
from dlq_master.model.attempts.costs import measured
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.estimates.estimate import Source
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.band import Band, Segment
from dlq_master.model.jobs.job import Job, Pause
from dlq_master.model.jobs.reward import Step
from dlq_master.model.view import View
from dlq_master.policy.promise.capacity.grids import slot_s, type_of
from dlq_master.policy.promise.capacity.leases import FARTHEST, Grid, SloJob, round_up
from dlq_master.policy.promise.capacity.margins import (
    DECLARED,
    MEASURED,
    RunErrors,
    learned_margin,
)
from dlq_master.policy.promise.capacity.rules import Promises, Slots, reserved_s
from dlq_master.policy.promise.slots.plan import SlotPlan, keeps_promise

_LEAST_S = 1e-3  # of work: a job that has not ended needs its slot


def margin(cluster: Cluster, rules: Promises, job: Job | None = None) -> float:
    """The part of an estimate that a new promise adds to it; None: to that of any job."""
    if rules.margin is not None:
        return rules.margin
    known, declared = cluster.profiling, job is None or job.basis.source is Source.DECLARED
    family = "" if job is None else job.family
    own = known.errors.get(family, ()) if family else ()
    inputs = (known.ratios.total, len(known.ratios), known.outcomes.total, rules.keep)
    learned: dict[tuple[str, bool], float] | None = cluster.memo.get("margin", *inputs)
    if learned is None:
        learned = {}
        cluster.memo.put("margin", learned, *inputs)
    kind = (family if own else "", declared)
    if kind not in learned:
        before = DECLARED if declared else MEASURED
        errors = RunErrors(known.ratios, own, known.outcomes, before)
        learned[kind] = learned_margin(errors, rules.keep)
    return learned[kind]


def slo_job(
    cluster: Cluster, job: Job, origin: float, extra: float, *, spare: bool = False
) -> SloJob:
    """A job as it will be when slot `origin` begins, if its leases last until then. A fraction is
    an instant in a slot.

    Of who runs with a lease that ends before only the work counts that it has saved. A plan charges
    every segment one save and one resume. A job that has saved already gets that back. A job that
    has grown beyond its base pays for the way back, whenever that is. `spare`: it is charged one
    more, to be spent when it has to make way for others. Deadlines count as far as plans look.
    """
    attempt = cluster.live_attempt(job)
    save_s, resume_s = pause_of(cluster, job)
    begin_s = origin * slot_s(cluster)
    runs = goes_on(attempt, begin_s)
    rest_s = (
        total_s(job, extra)
        - (
            worked_s(cluster, job, attempt, begin_s)
            if runs
            else saved_s(cluster, job, attempt, begin_s)
        )
    ) / pace(cluster, job)
    if attempt is None or attempt.state not in ACTIVE:
        rest_s -= save_s
    pause_s = save_s + resume_s
    rest_s += pause_s if spare else 0.0
    submit_s, last_s = job.submit_time_s, (FARTHEST - 1) * slot_s(cluster)
    steps = tuple([Step(min(submit_s + at - begin_s, last_s), worth) for at, worth in job.steps])
    return SloJob(
        str(job.job_id),
        job.request.gpus,
        max(rest_s, _LEAST_S),
        steps,
        pause_s,
        runs and not has_grown(job, attempt),
        job.promised,
        job.team or job.user,
    )


def pause_of(cluster: Cluster, job: Job) -> Pause:
    """The charge of each stop: as promised, or as measured for its own and its family's stops."""
    if job.pause is not None:
        return measured(job, job.pause)
    terms = cluster.terms
    if job.promised is not None or not (job.family or job.saves or job.resumes):
        return measured(job, Pause(terms.save_lead_s, terms.resume_s))
    return cluster.costs.charged(job, terms)


def pace(cluster: Cluster, job: Job) -> float:
    """Seconds of its run time that a second on the GPUs of its promise does."""
    return cluster.pace(job, type_of(cluster, job)) if cluster.speeds.declared else 1.0


def total_s(job: Job, extra: float) -> float:
    """Seconds of work that are reserved for it, by the margin of the day of its promise. A later
    margin would take from others the GPUs of their promises.
    """
    margin = extra if job.margin is None else job.margin
    return reserved_s(job.duration_estimate_s or 0.0, margin)


def has_grown(job: Job, attempt: Attempt | None) -> bool:
    """Whether it holds more than it is promised."""
    return attempt is not None and attempt.lease.allocation.width > job.request.gpus


def goes_on(attempt: Attempt | None, begin_s: float) -> bool:
    """Whether it holds GPUs until `begin_s`, and may then go on there."""
    if attempt is None or attempt.state not in ACTIVE:
        return False
    return attempt.lease.term_end_s >= begin_s


def worked_s(cluster: Cluster, job: Job, attempt: Attempt | None, at_s: float) -> float:
    """The work that it will have done by then, in seconds of its estimate. More GPUs than it asked
    for count no more than those.
    """
    if attempt is None or attempt.started_time_s is None or attempt.state is AttemptState.PAUSING:
        return job.worked_s
    if attempt.suspension is not None and attempt.suspension.phase is not SuspensionPhase.LEAVING:
        return job.worked_s  # it stands still
    begun_s = attempt.started_time_s + (
        pause_of(cluster, job).resume_s if job.goes_on(attempt.key.number) else 0.0
    )
    return job.worked_s + _slowest(job, attempt) * max(0.0, at_s - begun_s)


def saved_s(cluster: Cluster, job: Job, attempt: Attempt | None, until_s: float) -> float:
    """The work that it keeps at any end of its live attempt, in seconds of its estimate. It is the
    content of its checkpoints, as after a node that is lost. `until_s`: a checkpoint whose time is
    later, by another clock, counts no more.
    """
    if attempt is None or attempt.started_time_s is None or attempt.checkpoint is None:
        return job.worked_s
    if attempt.lease.allocation.width < job.request.gpus:
        return job.worked_s
    resume_s = cluster.terms.resume_s if job.goes_on(attempt.key.number) else 0.0
    at_s = min(attempt.checkpoint.time_s, until_s)
    return job.worked_s + _slowest(job, attempt) * max(
        0.0, at_s - attempt.started_time_s - resume_s
    )


def _slowest(job: Job, attempt: Attempt) -> float:
    """How fast it runs at least, 1 on what it asked for, of the type of its run time."""
    width, paced = attempt.lease.allocation.width, attempt.paced(job.request)
    return paced * min(1.0, job.sure_speed_on(width)) if width > job.request.gpus else paced


def may_make_way(job: Job, grid: Grid) -> bool:
    """Whether a promise to it has to leave time for one more pause: once it may be asked to go
    elsewhere.

    A job on whole nodes is in nobody's way.
    """
    return not job.moves and round_up(job.request.gpus, grid.node_gpus) < grid.node_gpus


def can_pause(view: View, job: Job, rules: Promises) -> bool:
    """Whether its plan keeps its promise even if it stops before the present slot, and goes on in
    it.
    """
    cluster, origin = view.cluster, view.cluster.slot
    own = slo_job(cluster, job, origin, margin(cluster, rules))
    if own.promised is None:
        return True
    planned = kept_plan([job], origin).segments.get(own.key, ())
    grid = Grid(term_s=slot_s(cluster), capacity=(1,))
    return keeps_promise(own._replace(running=False), planned, grid)


def will_end(view: View, job: Job, slot: int, extra: float) -> bool:
    """Whether it runs, and will have completed when that slot begins, but not before now."""
    return ends_by(view, job, view.cluster.live_attempt(job), slot, total_s(job, extra))


def ends_by(view: View, job: Job, attempt: Attempt | None, slot: int, reserved_s: float) -> bool:
    """The same for its live attempt and what is reserved for it (`total_s`)."""
    cluster = view.cluster
    begin_s = slot * slot_s(cluster)
    if not goes_on(attempt, begin_s):
        return False
    now_s = worked_s(cluster, job, attempt, view.now_s)
    return now_s < reserved_s <= worked_s(cluster, job, attempt, begin_s) + _LEAST_S


def overruns(view: View, job: Job, extra: float) -> bool:
    """Whether it has used up what is reserved for it, and has not ended: nobody knows for how much
    longer.
    """
    return has_overrun(view, job, view.cluster.live_attempt(job), total_s(job, extra))


def has_overrun(view: View, job: Job, attempt: Attempt | None, reserved_s: float) -> bool:
    """The same for its live attempt and what is reserved for it (`total_s`)."""
    return worked_s(view.cluster, job, attempt, view.now_s) > reserved_s + _LEAST_S


def kept_plan(jobs: Iterable[Job], origin: int) -> SlotPlan:
    """The rest of the slots that were planned for these jobs, from slot `origin` on."""
    return SlotPlan({str(job.job_id): job.slots for job in jobs if job.slots}).shifted(origin)


def numbered(plan: SlotPlan, job_id: JobId, origin: int) -> tuple[Segment, ...]:
    """The slots of a job in a plan that counts from slot `origin`, as the SLO grid numbers them."""
    made = plan.segments.get(str(job_id), ())
    return tuple([Segment(begin + origin, end + origin) for begin, end in made])


def band_of(job: Job, slot: int, rules: Promises) -> Band:
    """Where it stands in this slot."""
    return band_with(job.band, job.promised, rules, planned=job.planned(slot))


def band_with(band: Band, promised: int | None, rules: Promises, *, planned: bool) -> Band:
    """The same for a job that stood in `band`, may be `promised` a step, and has the slot or
    not.
    """
    if planned:
        return Band.SLO
    if promised is not None and rules.slots is Slots.EARLY:
        return Band.FILL
    return band if band in (Band.BORROW, Band.LIMIT) else Band.SPOT


def may_grow(cluster: Cluster, job: Job, rules: Promises) -> bool:
    """Whether its kept plan keeps its promise even if it stops now for a size beyond its base, and
    once more later.

    A promise counts on the base alone. Another size costs an interruption, and so does the way
    back, which others may ask for at any boundary. In its own slots both have to come out of what
    its plan leaves over. Its use of other slots concerns no other job. A job is taken to run no
    slower on more GPUs than on its base.
    """
    origin = cluster.slot
    if job.promised is None or not job.planned(origin):
        return True
    own = slo_job(cluster, job, origin, margin(cluster, rules))
    stopped = own._replace(running=False, work_s=own.work_s + own.resume_s)
    planned = kept_plan([job], origin).segments.get(own.key, ())
    grid = Grid(term_s=slot_s(cluster), capacity=(1,), whole_leases=rules.whole_leases)
    return keeps_promise(stopped, planned, grid)


def tied(cluster: Cluster, job_ids: Iterable[JobId], rules: Promises) -> frozenset[JobId]:
    """Those of these elastic jobs that may be given no size beyond their base but the one that they
    have.
    """
    jobs = cluster.jobs
    return frozenset(
        [
            job_id
            for job_id in job_ids
            if cluster.elastic(job := jobs[job_id]) and not may_grow(cluster, job, rules)
        ]
    )
