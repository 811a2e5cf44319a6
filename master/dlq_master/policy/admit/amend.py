"""Other deadlines for a job that is promised one: promised instead, or the old promise stands.

The ideal is a verdict beside all other promises, as for a new job, with its slots given back first.
One deviation: slots that keep the first of the new deadlines as they are stay as they are.
"""

from __future__ import annotations

from typing import NamedTuple

from dlq_master.model.jobs.band import Segments
from dlq_master.model.jobs.job import Alternative, Job
from dlq_master.model.jobs.reward import Steps
from dlq_master.model.plan import Reserve
from dlq_master.model.view import View
from dlq_master.model.why import Reason, ReasonCode
from dlq_master.policy.admit.deadlines import alternative, begun, book_of, judged, moved, offer_to
from dlq_master.policy.promise.capacity.grids import type_of
from dlq_master.policy.promise.capacity.rules import Promises, VerdictGround
from dlq_master.policy.promise.slots.plan import step_made
from dlq_master.policy.promise.verdicts.admission import PromiseBook
from dlq_master.policy.promise.verdicts.reading import (
    kept_plan,
    margin,
    may_make_way,
    numbered,
    slo_job,
)


class Amended(NamedTuple):
    """The promises made instead, first to the job, then to the jobs whose slots move. None: nothing
    could be promised on this ground, and this could.
    """

    changes: tuple[Reserve, ...] = ()
    by: VerdictGround = VerdictGround.HOLES
    instead: Alternative | None = None


def amended(view: View, job: Job, steps: Steps, rules: Promises) -> Amended:
    """A job that is promised one of its deadlines asks for `steps` in their place. Takes as long as
    an admission. The promise that it finds is a sure one, not the earliest.
    """
    cluster, origin = view.cluster, view.cluster.slot + 1
    asks = job._replace(steps=steps, promised=None, verdict="", alternative=None)
    book = book_of(view, type_of(cluster, job), rules)
    others = book.without([str(job.job_id)])
    kept = _kept(view, book, asks, rules)
    if kept == 0:
        return Amended((_reserve(job, job.slots, 0, VerdictGround.HOLES),))
    verdict = judged(view, others, asks, rules)
    if verdict.step is not None and (kept is None or verdict.step < kept):
        made = numbered(verdict.book.plan, job.job_id, origin)
        own = _reserve(job, (*begun(job, origin), *made), verdict.step, verdict.by)
        return Amended((own, *moved(cluster, others, verdict.book)))
    if kept is not None:
        return Amended((_reserve(job, job.slots, kept, VerdictGround.HOLES),))
    found = offer_to(view, others, asks, verdict, rules, quick=True)
    return Amended(by=verdict.by, instead=alternative(found, view.now_s, verdict))


def _kept(view: View, book: PromiseBook, asks: Job, rules: Promises) -> int | None:
    """The first of the deadlines that the slots keep as they are; None: none of them."""
    cluster, origin = view.cluster, view.cluster.slot + 1
    spare = may_make_way(asks, book.grid)
    own = slo_job(cluster, asks, origin, margin(cluster, rules, asks), spare=spare)
    planned = kept_plan([asks], origin).segments.get(own.key, ())
    return step_made(own._replace(promised=None), planned, book.grid)


def _reserve(job: Job, slots: Segments, promised: int, by: VerdictGround) -> Reserve:
    reason = Reason(ReasonCode.GUARANTEED, detail=by.value)
    return Reserve(job.job_id, job.band, slots, promised, by.value, reason, job.margin)
