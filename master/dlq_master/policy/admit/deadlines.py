"""Which deadlines are promised: every job that has any is judged once, when its run time is known."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from typing import NamedTuple

from dlq_master.model.cluster import Cluster
from dlq_master.model.ids import JobId
from dlq_master.model.job import Alternative, Job
from dlq_master.model.lane import Lane, Segment, Segments
from dlq_master.model.plan import Reserve
from dlq_master.model.promise_words import few
from dlq_master.model.view import View
from dlq_master.model.why import Reason, ReasonCode
from dlq_master.policy.promise.admission import Book, Verdict, admit, in_reach
from dlq_master.policy.promise.grounds import Ground
from dlq_master.policy.promise.leases import Grid, SloJob, needed, runtime_s, width
from dlq_master.policy.promise.offer import Offer, offer
from dlq_master.policy.promise.own_gpus import own_types, whole_block
from dlq_master.policy.promise.price import price
from dlq_master.policy.promise.reading import (
    grid_of,
    margin,
    may_make_way,
    numbered,
    pause_of,
    promisable,
    slo_job,
    slot_s,
    type_of,
)
from dlq_master.policy.promise.rules import Guarantees, Promises, Slots
from dlq_master.policy.promise.seen import kept_book

# So many of those who are refused at once are told the very earliest deadline; the others one that is sure.
SEARCHED = 5


def verdicts(view: View, rules: Promises) -> list[Reserve]:
    """Who gets a promise, and whose slots move for that. Jobs are judged in the order of arrival."""
    cluster = view.cluster
    by_type: dict[str, list[Job]] = defaultdict(list)
    for job_id in sorted(cluster.unjudged):
        job = cluster.jobs[job_id]
        by_type[type_of(cluster, job)].append(job)
    made: list[Reserve] = []
    for gpu_type, jobs in sorted(by_type.items()):
        made += _of_type(view, gpu_type, jobs, rules)
    return made


def _of_type(view: View, gpu_type: str, jobs: list[Job], rules: Promises) -> list[Reserve]:
    """The same for those who want GPUs of one type."""
    cluster = view.cluster
    extra, origin = margin(cluster, rules), cluster.slot + 1
    grid = grid_of(cluster, gpu_type, rules, origin)
    before: Book | None = None
    after = Book(grid=grid, quotas=rules.quotas)
    found = []
    for job in jobs:
        asked = _asked(view, grid, job, rules)
        if before is None and not _hopeless(after, asked):
            before = after = book_of(view, gpu_type, rules)
        found.append((job, _judged(after, asked)))
        after = found[-1][1].book
    entered = [_entered(cluster, job, verdict, after, extra, rules) for job, verdict in found]
    if rules.offers:
        book = book_of(view, gpu_type, rules) if before is None else after
        entered = _told(view, book, found, entered, rules)
    return entered if before is None else [*entered, *moved(cluster, before, after)]


class _Asked(NamedTuple):
    """A job as a plan sees it, and the steps that may be promised; or why none may, whatever else has been."""

    own: SloJob
    steps: Sequence[int] | None = None  # None: any
    never: Ground | None = None
    need: float | None = None  # of that ground (`admission.Verdict`)
    have: float | None = None


def _asked(view: View, grid: Grid, job: Job, rules: Promises) -> _Asked:
    cluster = view.cluster
    never = promisable(cluster, job, type_of(cluster, job))
    spare = may_make_way(job, grid)
    own = slo_job(cluster, job, cluster.slot + 1, margin(cluster, rules), spare=spare)
    if never is not None:
        wide = never is Ground.WIDTH
        most = whole_block(cluster, type_of(cluster, job), grid)
        return _Asked(own, None, never, width(own, grid) if wide else None, most if wide else None)
    if rules.guarantees is Guarantees.FITTING:
        return _Asked(own)
    gpu_slots = width(own, grid) * needed(runtime_s(own), grid.term_s)
    each = price(cluster, grid, view.now_s)
    worthy = [step for step, (_, reward) in enumerate(own.steps) if reward >= each * gpu_slots]
    if worthy:
        return _Asked(own, worthy)
    return _Asked(own, worthy, Ground.WORTH, each, max(worth for _, worth in own.steps) / gpu_slots)


def _hopeless(book: Book, asked: _Asked) -> bool:
    """Whether nothing can be promised whatever else has been: nobody has to look what that is."""
    return asked.never is not None or (
        book.quota(asked.own.team) is None and not in_reach(asked.own, book.grid, asked.steps)
    )


def _judged(book: Book, asked: _Asked) -> Verdict:
    if asked.never is not None:
        return Verdict(by=asked.never, book=book, need=asked.need, have=asked.have)
    return admit(book, asked.own, asked.steps)


def judged(view: View, book: Book, job: Job, rules: Promises) -> Verdict:
    """Whether one of its deadlines can be promised beside those of the book."""
    return _judged(book, _asked(view, book.grid, job, rules))


def offered(view: View, job: Job, rules: Promises) -> Offer:
    """What could be promised to a job that was judged and is not guaranteed: the earliest deadline, as seconds
    from now, and the cheapest change with which one would be. Takes longer than a verdict (`promise.offer`)."""
    book = book_of(view, type_of(view.cluster, job), rules)
    return offer_to(view, book, job, judged(view, book, job, rules), rules)


def offer_to(
    view: View, book: Book, job: Job, verdict: Verdict, rules: Promises, *, quick: bool = False
) -> Offer:
    cluster = view.cluster
    own = slo_job(
        cluster,
        job,
        cluster.slot + 1,
        margin(cluster, rules),
        spare=may_make_way(job, book.grid),
    )
    if promisable(cluster, job, type_of(cluster, job)) not in (None, Ground.WIDTH):
        return Offer(earliest_s=None, fix=None)
    narrower = _narrower(job, own.work_s + own.resume_s)  # which may be charged a pause more
    made = offer(book, own, verdict, narrower, out_of_time=lambda: quick)
    until_s = (cluster.slot + 1) * slot_s(cluster) - view.now_s
    fix = made.fix
    if fix is not None and fix.at_s is not None:
        fix = replace(fix, at_s=fix.at_s + until_s)
    earliest_s = None if made.earliest_s is None else made.earliest_s + until_s
    return replace(made, earliest_s=earliest_s, fix=fix)


def _narrower(job: Job, work_s: float) -> dict[int, float]:
    """Its work on fewer GPUs, as far as it says that it runs on them; what a stop costs is reckoned as work."""
    fewer = [gpus for gpus in job.request.sizes if gpus < job.request.gpus]
    return {gpus: work_s / job.speed_on(gpus) for gpus in fewer}


def book_of(view: View, gpu_type: str, rules: Promises) -> Book:
    """What has been promised on GPUs of this type, from the first slot that is not decided."""
    cluster, origin = view.cluster, view.cluster.slot + 1
    grid, extra = grid_of(cluster, gpu_type, rules, origin), margin(cluster, rules)
    return kept_book(cluster, gpu_type, origin, extra, grid, rules)


def _entered(
    cluster: Cluster, job: Job, verdict: Verdict, book: Book, extra: float, rules: Promises
) -> Reserve:
    lane = Lane.FILL if verdict.guaranteed and rules.slots is Slots.EARLY else Lane.SPOT
    slots = numbered(book.plan, job.job_id, cluster.slot + 1) if verdict.guaranteed else ()
    code = ReasonCode.GUARANTEED if verdict.guaranteed else ReasonCode.UNGUARANTEED
    reason = Reason(code, detail=verdict.by.value)
    made = Reserve(job.job_id, lane, slots, verdict.step, verdict.by.value, reason)
    if not verdict.guaranteed:
        return made
    return made._replace(margin=extra, pause=pause_of(cluster, job))


def _told(
    view: View,
    book: Book,
    found: list[tuple[Job, Verdict]],
    entered: list[Reserve],
    rules: Promises,
) -> list[Reserve]:
    """With what could be promised instead to those who are refused."""
    told, refused = [], 0
    for (job, verdict), change in zip(found, entered, strict=True):
        if not verdict.guaranteed:
            made = offer_to(view, book, job, verdict, rules, quick=refused >= SEARCHED)
            told_of = alternative(made, view.now_s, verdict)
            if verdict.by is Ground.TYPE:
                told_of = told_of._replace(detail=", ".join(own_types(view.cluster)))
            change = change._replace(alternative=told_of)
            refused += 1
        told.append(change)
    return told


def alternative(made: Offer, now_s: float, verdict: Verdict) -> Alternative:
    """Instants in whole seconds, none earlier than it was found: people write them down."""
    fix = made.fix
    return Alternative(
        earliest_s=None if made.earliest_s is None else float(ceil(now_s + made.earliest_s)),
        fix="" if fix is None else fix.kind.value,
        fix_s=None if fix is None or fix.at_s is None else float(ceil(now_s + fix.at_s)),
        fix_gpus=None if fix is None else fix.gpus,
        need=verdict.need,
        have=verdict.have,
    )


def moved(cluster: Cluster, before: Book, after: Book) -> list[Reserve]:
    """Who had a promise before, and now other slots."""
    old, new, origin = before.plan.segments, after.plan.segments, cluster.slot + 1
    found: list[Reserve] = []
    if after.plan is before.plan:
        return found
    there = {own.key for own in before.jobs}
    come = [f"job {own.key}" for own in after.jobs if own.key not in there]
    detail = f"made room for {few(come)}; what it was promised stands"
    for own in before.jobs:
        if old.get(own.key) != new.get(own.key):
            job = cluster.jobs[JobId(int(own.key))]
            slots = (*begun(job, origin), *numbered(after.plan, job.job_id, origin))
            reason = Reason(ReasonCode.REPLANNED, detail=detail)
            found.append(Reserve(job.job_id, job.lane, slots, job.promised, job.verdict, reason))
    return found


def begun(job: Job, origin: int) -> Segments:
    """What it holds of the present slot."""
    return tuple([Segment(begin, origin) for begin, end in job.slots if begin < origin <= end])
