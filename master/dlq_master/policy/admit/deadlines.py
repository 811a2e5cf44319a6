"""Decides which deadlines are promised: every job with deadlines is judged once, when its run time
is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil, inf
from typing import NamedTuple

from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.band import Band, Segment, Segments
from dlq_master.model.jobs.job import Alternative, Job
from dlq_master.model.plan import Reserve
from dlq_master.model.view import View
from dlq_master.model.why import Reason, ReasonCode
from dlq_master.model.words.promise_words import few
from dlq_master.policy.promise.capacity.grids import (
    grid_of,
    own_types,
    promisable,
    slot_s,
    type_of,
    whole_block,
)
from dlq_master.policy.promise.capacity.leases import Grid, SloJob, needed, runtime_s, width
from dlq_master.policy.promise.capacity.rules import (
    Guarantees,
    Promises,
    Selector,
    Slots,
    VerdictGround,
)
from dlq_master.policy.promise.capacity.types import free_gpus, on_type, types_for
from dlq_master.policy.promise.solver.budget import ProgramBudget
from dlq_master.policy.promise.solver.price import price
from dlq_master.policy.promise.verdicts.admission import (
    AdmissionVerdict,
    PromiseBook,
    admit,
    in_reach,
)
from dlq_master.policy.promise.verdicts.offer import PromiseOffer, offer
from dlq_master.policy.promise.verdicts.printed_admission import admit_by_program
from dlq_master.policy.promise.verdicts.reading import (
    margin,
    may_make_way,
    numbered,
    pause_of,
    slo_job,
)
from dlq_master.policy.promise.verdicts.seen import kept_book

# So many of those who are refused at once are told the very earliest deadline; the others one that
# is sure.
SEARCHED = 5


def verdicts(view: View, rules: Promises) -> list[Reserve]:
    """The new promises, and the jobs whose slots move for them. Jobs are judged in the order of
    arrival.
    """
    cluster = view.cluster
    benches: dict[str, _Bench] = {}
    budget = ProgramBudget(rules.solver_s, rules.clock)
    for job_id in cluster.to_judge():
        _hear(view, benches, cluster.jobs[job_id], rules, budget)
    made: list[Reserve] = []
    for _, bench in sorted(benches.items()):
        made += bench.ruled()
    return made


def _hear(
    view: View, benches: dict[str, _Bench], job: Job, rules: Promises, budget: ProgramBudget
) -> None:
    """The first type on which it can be promised anything; else it is told what could be on the
    first of all. Types on which it would start now come before others. For a job that names none,
    the types with the least promised come first.
    """
    ways = _ways(view.cluster, job)
    for _, gpu_type in ways:
        if gpu_type not in benches:
            benches[gpu_type] = _Bench(view, gpu_type, rules, budget)
    if len(ways) > 1:
        gpus, named = job.request.gpus, job.request.gpu_types is not None
        asked = [(asks, benches[gpu_type]) for asks, gpu_type in ways]
        asked.sort(key=lambda way: (way[1].free < gpus, 0.0 if named else way[1].load()))
    else:
        asked = [(asks, benches[gpu_type]) for asks, gpu_type in ways]
    heard = []
    for asks, bench in asked:
        heard.append((bench, asks, bench.hear(asks)))
        if heard[-1][2].guaranteed:
            break
    bench, asks, verdict = heard[-1] if heard[-1][2].guaranteed else heard[0]
    bench.enter(asks, verdict)


def _ways(cluster: Cluster, job: Job) -> list[tuple[Job, str]]:
    """The job as it would be promised GPUs of each type on which it may be."""
    if len(job.request.gpu_types or ()) == 1:
        return [(job, type_of(cluster, job))]
    found = [(on_type(job, gpu_type), gpu_type) for gpu_type in types_for(cluster, job)]
    return found or [(job, type_of(cluster, job))]


class _Bench:
    """The verdicts of one plan on promises that would stand on GPUs of one type."""

    def __init__(self, view: View, gpu_type: str, rules: Promises, budget: ProgramBudget) -> None:
        self._view, self._gpu_type, self._rules = view, gpu_type, rules
        self._grid = grid_of(view.cluster, gpu_type, rules, view.cluster.slot + 1)
        self._before: PromiseBook | None = (
            None  # what was promised before, once anybody has to look
        )
        self._after = PromiseBook(grid=self._grid, quotas=rules.quotas)
        self._found: list[tuple[Job, AdmissionVerdict]] = []
        self._budget = budget
        self.free = free_gpus(
            view.cluster, gpu_type
        )  # now, but for those who have been promised some

    def load(self) -> float:
        """Seconds of work that are promised to each of its GPUs."""
        if self._before is None:
            self._before = self._after = book_of(self._view, self._gpu_type, self._rules)
        promised = sum(job.gpus * job.work_s for job in self._after.jobs)
        return promised / max(1, self._grid.at(0))

    def enter(self, job: Job, verdict: AdmissionVerdict) -> None:
        """That is what becomes of it."""
        self._found.append((job, verdict))
        if verdict.guaranteed and job.live_attempt is None:
            self.free -= job.request.gpus

    def hear(self, job: Job) -> AdmissionVerdict:
        """The verdict on one more job; a guaranteed one is in the book from here on."""
        asked = _asked(self._view, self._grid, job, self._rules)
        if self._before is None and not _hopeless(self._after, asked):
            self._before = self._after = book_of(self._view, self._gpu_type, self._rules)
        verdict = _judged(self._after, asked, self._rules, self._budget)
        self._after = verdict.book
        return verdict

    def ruled(self) -> list[Reserve]:
        """The changes of the judged jobs, and of the jobs that made room for them."""
        view, rules, after = self._view, self._rules, self._after
        made = [_entered(view.cluster, job, each, after, rules) for job, each in self._found]
        if rules.offers:
            looked = self._before is not None
            book = after if looked else book_of(view, self._gpu_type, rules)
            made = _told(view, book, self._found, made, rules)
        if self._before is None:
            return made
        return [*made, *moved(view.cluster, self._before, after)]


class _Asked(NamedTuple):
    """A job as a plan sees it, and the steps that may be promised; or why none may, whatever else
    has been.
    """

    own: SloJob
    steps: Sequence[int] | None = None  # None: any
    never: VerdictGround | None = None
    need: float | None = None  # of that ground (`admission.Verdict`)
    have: float | None = None


def _asked(view: View, grid: Grid, job: Job, rules: Promises) -> _Asked:
    cluster = view.cluster
    never = promisable(cluster, job, type_of(cluster, job))
    spare = may_make_way(job, grid)
    extra = margin(cluster, rules, job)
    own = slo_job(cluster, job, cluster.slot + 1, extra, spare=spare)
    if never is not None:
        wide = never is VerdictGround.WIDTH
        most = whole_block(cluster, type_of(cluster, job), grid)
        return _Asked(own, None, never, width(own, grid) if wide else None, most if wide else None)
    if rules.guarantees is Guarantees.FITTING:
        return _Asked(own)
    gpu_slots = width(own, grid) * needed(runtime_s(own), grid.term_s)
    each = price(cluster, grid, view.now_s)
    worthy = [step for step, (_, reward) in enumerate(own.steps) if reward >= each * gpu_slots]
    if worthy:
        return _Asked(own, worthy)
    return _Asked(
        own, worthy, VerdictGround.WORTH, each, max(worth for _, worth in own.steps) / gpu_slots
    )


def _hopeless(book: PromiseBook, asked: _Asked) -> bool:
    """Whether nothing can be promised whatever else has been: nobody has to look what that is."""
    return asked.never is not None or (
        book.quota(asked.own.team) is None and not in_reach(asked.own, book.grid, asked.steps)
    )


def _judged(
    book: PromiseBook, asked: _Asked, rules: Promises, budget: ProgramBudget
) -> AdmissionVerdict:
    if asked.never is not None:
        return AdmissionVerdict(by=asked.never, book=book, need=asked.need, have=asked.have)
    if rules.selector is not Selector.PREFIX:
        return admit_by_program(book, asked.own, asked.steps, budget)
    return admit(book, asked.own, asked.steps)


def judged(view: View, book: PromiseBook, job: Job, rules: Promises) -> AdmissionVerdict:
    """Whether one of its deadlines can be promised beside those of the book. Of the program of the
    paper the cached solution alone is asked.
    """
    return _judged(book, _asked(view, book.grid, job, rules), rules, ProgramBudget(0.0))


def offered(view: View, job: Job, rules: Promises) -> PromiseOffer:
    """The possible promise to a job that was judged and is not guaranteed. It is the earliest
    deadline, as seconds from now, and the cheapest change with which one would be promised. Takes
    longer than a verdict (`promise.offer`).
    """
    made = []
    for asks, gpu_type in _ways(view.cluster, job):
        book = book_of(view, gpu_type, rules)
        made.append(offer_to(view, book, asks, judged(view, book, asks, rules), rules))
    return min(made, key=lambda one: inf if one.earliest_s is None else one.earliest_s)


def offer_to(
    view: View,
    book: PromiseBook,
    job: Job,
    verdict: AdmissionVerdict,
    rules: Promises,
    *,
    quick: bool = False,
) -> PromiseOffer:
    cluster = view.cluster
    own = slo_job(
        cluster,
        job,
        cluster.slot + 1,
        margin(cluster, rules, job),
        spare=may_make_way(job, book.grid),
    )
    if promisable(cluster, job, type_of(cluster, job)) not in (None, VerdictGround.WIDTH):
        return PromiseOffer(earliest_s=None, fix=None)
    narrower = _narrower(job, own.work_s + own.resume_s)  # which may be charged a pause more
    # The paper offers nothing: too many programs would have to be solved (its footnote 3).
    quick = quick or rules.selector is not Selector.PREFIX
    made = offer(book, own, verdict, narrower, out_of_time=lambda: quick)
    until_s = (cluster.slot + 1) * slot_s(cluster) - view.now_s
    fix = made.fix
    if fix is not None and fix.at_s is not None:
        fix = replace(fix, at_s=fix.at_s + until_s)
    earliest_s = None if made.earliest_s is None else made.earliest_s + until_s
    return replace(made, earliest_s=earliest_s, fix=fix)


def _narrower(job: Job, work_s: float) -> dict[int, float]:
    """Its work on fewer GPUs, as far as it says that it runs on them; the cost of a stop counts as
    work.
    """
    fewer = [gpus for gpus in job.request.sizes if gpus < job.request.gpus]
    return {gpus: work_s / job.speed_on(gpus) for gpus in fewer}


def book_of(view: View, gpu_type: str, rules: Promises) -> PromiseBook:
    """The promises on GPUs of this type, from the first slot that is not decided."""
    cluster, origin = view.cluster, view.cluster.slot + 1
    grid, extra = grid_of(cluster, gpu_type, rules, origin), margin(cluster, rules)
    return kept_book(cluster, gpu_type, origin, extra, grid, rules)


def _entered(
    cluster: Cluster,
    job: Job,
    verdict: AdmissionVerdict,
    book: PromiseBook,
    rules: Promises,
) -> Reserve:
    band = Band.FILL if verdict.guaranteed and rules.slots is Slots.EARLY else Band.SPOT
    slots = numbered(book.plan, job.job_id, cluster.slot + 1) if verdict.guaranteed else ()
    code = ReasonCode.GUARANTEED if verdict.guaranteed else ReasonCode.UNGUARANTEED
    reason = Reason(code, detail=verdict.by.value)
    made = Reserve(job.job_id, band, slots, verdict.step, verdict.by.value, reason)
    if not verdict.guaranteed:
        return made
    extra, pause = margin(cluster, rules, job), pause_of(cluster, job)
    return made._replace(margin=extra, pause=pause, gpu_type=job.gpu_type_promised)


def _told(
    view: View,
    book: PromiseBook,
    found: list[tuple[Job, AdmissionVerdict]],
    entered: list[Reserve],
    rules: Promises,
) -> list[Reserve]:
    """With what could be promised instead to those who are refused."""
    told, refused = [], 0
    for (job, verdict), change in zip(found, entered, strict=True):
        if not verdict.guaranteed:
            made = offer_to(view, book, job, verdict, rules, quick=refused >= SEARCHED)
            told_of = alternative(made, view.now_s, verdict)
            if verdict.by is VerdictGround.TYPE:
                told_of = told_of._replace(detail=", ".join(own_types(view.cluster)))
            change = change._replace(alternative=told_of)
            refused += 1
        told.append(change)
    return told


def alternative(made: PromiseOffer, now_s: float, verdict: AdmissionVerdict) -> Alternative:
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


def moved(cluster: Cluster, before: PromiseBook, after: PromiseBook) -> list[Reserve]:
    """Jobs that had a promise before, and now have other slots."""
    old, new, origin = before.plan.segments, after.plan.segments, cluster.slot + 1
    found: list[Reserve] = []
    if after.plan is before.plan:
        return found
    there = {own.key for own in before.jobs}
    come = [f"job {own.key}" for own in after.jobs if own.key not in there]
    detail = f"made room for {few(come)}; its own promise stands"
    for own in before.jobs:
        if old.get(own.key) != new.get(own.key):
            job = cluster.jobs[JobId(int(own.key))]
            slots = (*begun(job, origin), *numbered(after.plan, job.job_id, origin))
            reason = Reason(ReasonCode.REPLANNED, detail=detail)
            found.append(Reserve(job.job_id, job.band, slots, job.promised, job.verdict, reason))
    return found


def begun(job: Job, origin: int) -> Segments:
    """Its part of the present slot."""
    return tuple([Segment(begin, origin) for begin, end in job.slots if begin < origin <= end])
