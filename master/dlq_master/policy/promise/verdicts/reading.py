"""Jobs with deadlines, and the kept plan, as the planner of promises sees them.

The kept plan is stored with its jobs, as numbers of slots (`Job.slots`). Slot k of the SLO grid is
the term from k T to (k + 1) T. A plan counts from the first slot that is not decided.
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
    """The share of an estimate that a new promise adds to it; without `job`, the share
    for any job.
    """
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
    """A job as it will be when slot `origin` begins, if its leases last until then.

    A fractional `origin` is an instant within a slot. If its lease ends earlier, only saved work
    counts. A plan charges every segment one save and one resume. A job that has saved already gets
    that back. A job that has grown beyond its base pays for the way back. `spare`: one more charge,
    for when it has to make way for others. Deadlines count as far as plans look.
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
    """The charge of each stop: as promised, or as measured for the job and its family."""
    if job.pause is not None:
        return measured(job, job.pause)
    terms = cluster.terms
    if job.promised is not None or not (job.family or job.saves or job.resumes):
        return measured(job, Pause(terms.save_lead_s, terms.resume_s))
    return cluster.costs.charged(job, terms)


def pace(cluster: Cluster, job: Job) -> float:
    """Seconds of its run time that one second on the GPUs of its promise does."""
    return cluster.pace(job, type_of(cluster, job)) if cluster.speeds.declared else 1.0


def total_s(job: Job, extra: float) -> float:
    """The seconds of work reserved for a job, with the margin of the day of its promise.

    A later margin would take GPUs from other promises.
    """
    margin = extra if job.margin is None else job.margin
    return reserved_s(job.duration_estimate_s or 0.0, margin)


def has_grown(job: Job, attempt: Attempt | None) -> bool:
    """Whether it holds more GPUs than it is promised."""
    return attempt is not None and attempt.lease.allocation.width > job.request.gpus


def goes_on(attempt: Attempt | None, begin_s: float) -> bool:
    """Whether it holds GPUs until `begin_s`, and may go on there."""
    if attempt is None or attempt.state not in ACTIVE:
        return False
    return attempt.lease.term_end_s >= begin_s


def worked_s(cluster: Cluster, job: Job, attempt: Attempt | None, at_s: float) -> float:
    """The work done by `at_s`, in seconds of its estimate.

    More GPUs than it asked for count no more than those.
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
    """The work that it keeps if its attempt ends in any way, in seconds of its estimate.

    That is the work in its checkpoints. A checkpoint counts as taken at `until_s` at the latest,
    since another clock may be ahead.
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
    """A lower bound of its speed; 1 on the GPUs that it asked for, of the type of its run time."""
    width, paced = attempt.lease.allocation.width, attempt.paced(job.request)
    return paced * min(1.0, job.sure_speed_on(width)) if width > job.request.gpus else paced


def may_make_way(job: Job, grid: Grid) -> bool:
    """Whether a promise to the job must leave time for one more pause, in case it has to move.

    A job on whole nodes never has to.
    """
    return not job.moves and round_up(job.request.gpus, grid.node_gpus) < grid.node_gpus


def can_pause(view: View, job: Job, rules: Promises) -> bool:
    """Whether its plan keeps its promise even if it stops before the present slot and goes on in
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
    """Whether it runs, and will end between now and the begin of that slot."""
    return ends_by(view, job, view.cluster.live_attempt(job), slot, total_s(job, extra))


def ends_by(view: View, job: Job, attempt: Attempt | None, slot: int, reserved_s: float) -> bool:
    """The same for its live attempt and its reserved seconds (`total_s`)."""
    cluster = view.cluster
    begin_s = slot * slot_s(cluster)
    if not goes_on(attempt, begin_s):
        return False
    now_s = worked_s(cluster, job, attempt, view.now_s)
    return now_s < reserved_s <= worked_s(cluster, job, attempt, begin_s) + _LEAST_S


def overruns(view: View, job: Job, extra: float) -> bool:
    """Whether it has used up its reserved time and has not ended."""
    return has_overrun(view, job, view.cluster.live_attempt(job), total_s(job, extra))


def has_overrun(view: View, job: Job, attempt: Attempt | None, reserved_s: float) -> bool:
    """The same for its live attempt and its reserved seconds (`total_s`)."""
    return worked_s(view.cluster, job, attempt, view.now_s) > reserved_s + _LEAST_S


def kept_plan(jobs: Iterable[Job], origin: int) -> SlotPlan:
    """The slots planned for these jobs, from slot `origin` on."""
    return SlotPlan({str(job.job_id): job.slots for job in jobs if job.slots}).shifted(origin)


def numbered(plan: SlotPlan, job_id: JobId, origin: int) -> tuple[Segment, ...]:
    """The slots of a job in a plan that counts from slot `origin`, as the SLO grid numbers them."""
    made = plan.segments.get(str(job_id), ())
    return tuple([Segment(begin + origin, end + origin) for begin, end in made])


def band_of(job: Job, slot: int, rules: Promises) -> Band:
    """The job's band in this slot."""
    return band_with(job.band, job.promised, rules, planned=job.planned(slot))


def band_with(band: Band, promised: int | None, rules: Promises, *, planned: bool) -> Band:
    """The band of a job that was in `band`, has a `promised` step or none, and has the
    slot or not.
    """
    if planned:
        return Band.SLO
    if promised is not None and rules.slots is Slots.EARLY:
        return Band.FILL
    return band if band in (Band.BORROW, Band.LIMIT) else Band.SPOT


def may_grow(cluster: Cluster, job: Job, rules: Promises) -> bool:
    """Whether its plan keeps its promise if it stops now to grow, and once more later to shrink.

    A promise is for the base alone. Another size costs an interruption, and so does the way back,
    which others may demand at any boundary. In its own slots both must fit into the plan's slack.
    Other slots concern no other job. A job is taken to run no slower on more GPUs.
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
    """Those of these elastic jobs that may not get another size beyond their base."""
    jobs = cluster.jobs
    return frozenset(
        [
            job_id
            for job_id in job_ids
            if cluster.elastic(job := jobs[job_id]) and not may_grow(cluster, job, rules)
        ]
    )
