"""Admission: promises only with a plan, and what could be promised instead."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
from benchmarks.planning.slots_later import after, moved_on
from hypothesis import given, settings
from hypothesis import strategies as st

from dlq_master.model.jobs.band import Segment
from dlq_master.model.jobs.reward import Step, soft, strict
from dlq_master.policy.promise.capacity.leases import SloJob, within
from dlq_master.policy.promise.capacity.rules import VerdictGround
from dlq_master.policy.promise.slots.plan import SlotPlan, completion_s, faults
from dlq_master.policy.promise.slots.realise import FIRM, STICKY
from dlq_master.policy.promise.verdicts.admission import PromiseBook, admit, renewed, replan
from dlq_master.policy.promise.verdicts.offer import FixKind, earliest_deadline, offer
from support.extent import times
from unit.master.policy.promise.drawing import drawn, grid_of


def asks(key: str, gpus: int, work_s: float, by_s: float, team: str = "") -> SloJob:
    return SloJob(key=key, gpus=gpus, work_s=work_s, steps=strict(by_s), team=team)


def book_with(gpus: int, *jobs: SloJob, quotas: dict[str, int] | None = None) -> PromiseBook:
    book = PromiseBook(grid=grid_of(gpus), quotas=quotas)
    for job in jobs:
        verdict = admit(book, job)
        assert verdict.guaranteed, job
        book = verdict.book
    return book


def test_each_test_that_decides() -> None:
    book = book_with(4, asks("a", 4, 40, 50))
    assert admit(book, asks("wide", 8, 10, 99)).by is VerdictGround.WIDTH
    assert admit(book, asks("early", 1, 50, 40)).by is VerdictGround.REACH
    assert admit(book, asks("full", 4, 20, 50)).by is VerdictGround.FLUID
    assert admit(book, asks("after", 4, 20, 60)).by is VerdictGround.HOLES
    late = SlotPlan({"a": (Segment(1, 5),)})  # a hole of one slot in front
    verdict = admit(replace(book, plan=late), asks("now", 4, 10, 10))
    assert verdict.by is VerdictGround.HOLES
    wide = replace(book, plan=SlotPlan({"a": (Segment(0, 4),)}))
    verdict = admit(wide, asks("now", 4, 10, 15))
    assert verdict.by is VerdictGround.MOVED
    assert verdict.book.plan.segments == {"now": (Segment(0, 1),), "a": (Segment(1, 5),)}


def test_fractions_that_no_slots_keep_are_refused_by_the_plan() -> None:
    """Two slots of all GPUs and five of half of them are 18 of 24 GPU-slots, but overlap in one
    slot.
    """
    book = book_with(4, asks("a", 2, 50, 60))
    assert admit(book, asks("b", 4, 20, 40)).by is VerdictGround.PLAN
    assert admit(book, asks("b", 4, 10, 40)).by is VerdictGround.MOVED
    assert admit(book, asks("b", 4, 30, 40)).by is VerdictGround.FLUID


def test_a_new_plan_serves_where_nobody_can_make_room() -> None:
    book = PromiseBook(grid=grid_of(4))
    for job in drawn(156, 5):
        book = admit(book, job).book
    verdict = admit(book, drawn(156, 6)[5])
    assert verdict.by is VerdictGround.REPLAN
    assert faults(verdict.book.plan, verdict.book.jobs, book.grid) == []


def test_one_job_makes_room_and_all_others_stay() -> None:
    """The one that has other slots: not the one that must run in every slot, nor the one that runs
    now.
    """
    book = book_with(3, asks("must", 1, 50, 50), asks("runs", 1, 40, 90), asks("later", 1, 30, 99))
    plan = SlotPlan({"must": (Segment(0, 5),), "runs": (Segment(0, 4),), "later": (Segment(1, 4),)})
    verdict = admit(replace(book, plan=plan), asks("wants", 1, 30, 40))
    assert verdict.by is VerdictGround.MOVED
    assert verdict.book.plan.segments == {
        **plan.segments,
        "wants": (Segment(0, 3),),
        "later": (Segment(3, 6),),
    }


def test_a_promise_that_is_lost_keeps_nobody_else_from_being_promised_anything() -> None:
    """One job of the book has lost its work and needs more slots than there are: it is told so when
    the next slot is decided, and until then holds those that it had."""
    book = book_with(4, asks("lost", 2, 30, 40), asks("kept", 2, 20, 60))
    lost = book.jobs[0]._replace(work_s=500.0)
    book = replace(book, jobs=(lost, book.jobs[1]))
    verdict = admit(book, asks("new", 2, 20, 50))
    assert verdict.by is VerdictGround.HOLES
    assert verdict.book.plan.segments["lost"] == book.plan.segments["lost"]
    assert verdict.book.demand(9).feasible()
    assert admit(verdict.book, asks("wide", 4, 20, 50)).by is VerdictGround.PLAN
    assert admit(verdict.book, asks("wide", 4, 40, 50)).by is VerdictGround.FLUID


@given(
    seed=st.integers(0, 10**6), gpus=st.integers(2, 8), resume_s=st.sampled_from([0.0, 2.0, 12.0])
)
@settings(max_examples=times(15, 30), deadline=None)
def test_what_is_kept_between_admissions_is_what_a_new_book_works_out(
    seed: int, gpus: int, resume_s: float
) -> None:
    book = PromiseBook(grid=grid_of(gpus))
    for job in drawn(seed, 14, resume_s=resume_s):
        book = admit(book, job).book
        kept, fresh = book.ledger(), replace(book).ledger(book.ledger().horizon)
        slots = min(kept.horizon, fresh.horizon)
        for name in ("wide", "needed", "last"):
            assert (getattr(kept, name) == getattr(fresh, name)).all()
        assert (kept.free[:slots] == fresh.free[:slots]).all()
        assert (kept.demand.left[:slots] == fresh.demand.left[:slots]).all()


@given(seed=st.integers(0, 10**6), gpus=st.integers(2, 8), resume_s=st.sampled_from([0.0, 2.0]))
@settings(max_examples=times(15, 30), deadline=None)
def test_orders_that_serve_everybody_are_plans_without_faults(
    seed: int, gpus: int, resume_s: float
) -> None:
    """What makes a second look at a new plan needless."""
    book = PromiseBook(grid=grid_of(gpus))
    for job in drawn(seed, 10, resume_s=resume_s):
        book = admit(book, job).book
    plan = replan(book.jobs, book.grid, (*FIRM, *STICKY))
    assert plan is None or faults(plan, book.jobs, book.grid) == []


def test_the_best_step_that_fits_is_promised() -> None:
    book = book_with(4, asks("a", 4, 40, 40))
    job = SloJob(key="s", gpus=4, work_s=20, steps=soft([(20, 100), (60, 80), (90, 20)]))
    assert admit(book, job).step == 1
    assert admit(book, job, steps=[2]).step == 2
    assert admit(book, job, steps=[0]).by is VerdictGround.FLUID


def test_a_team_has_a_quota_of_guaranteed_gpus_and_is_told_when_it_opens() -> None:
    book = book_with(
        8, asks("a", 3, 20, 99, "vision"), asks("b", 2, 40, 99, "vision"), quotas={"vision": 6}
    )
    job = asks("c", 4, 10, 99, "vision")
    verdict = admit(book, job)
    assert verdict.by is VerdictGround.QUOTA
    fix = offer(book, job, verdict).fix
    assert fix is not None
    assert (fix.kind, fix.at_s) == (FixKind.WAIT_FOR_QUOTA, 20)
    assert offer(book, job._replace(gpus=7), verdict).fix is None
    narrow = offer(book, job._replace(gpus=7), verdict, {1: 60.0, 4: 15.0}).fix
    assert narrow is not None
    assert (narrow.kind, narrow.gpus) == (FixKind.FEWER_GPUS, 1)
    assert admit(book, job._replace(team="speech")).guaranteed


def test_fewer_gpus_come_before_a_later_deadline() -> None:
    book = book_with(4, asks("a", 2, 50, 60))
    job = asks("b", 4, 20, 40)
    verdict = admit(book, job)
    assert verdict.by is VerdictGround.PLAN
    both = offer(book, job, verdict, {2: 35.0, 1: 90.0})
    assert both.earliest_s == 70
    assert both.fix is not None
    assert (both.fix.kind, both.fix.gpus) == (FixKind.FEWER_GPUS, 2)
    later = offer(book, job, verdict).fix
    assert later is not None
    assert (later.kind, later.at_s) == (FixKind.LATER_DEADLINE, 70)


def test_the_margin_and_the_resumes_are_inside_the_promise() -> None:
    job = SloJob(key="a", gpus=1, work_s=18, steps=strict(20), resume_s=3)
    assert admit(PromiseBook(grid=grid_of(1)), job).by is VerdictGround.REACH
    assert admit(PromiseBook(grid=grid_of(1)), job._replace(running=True)).guaranteed


@given(seed=st.integers(0, 10**6), gpus=st.integers(2, 8), whole=st.booleans())
@settings(max_examples=times(15, 40), deadline=None)
def test_every_promise_is_kept_and_every_offer_is_true(seed: int, gpus: int, whole: bool) -> None:
    """Whoever is refused is admitted with the deadline offered; nobody before loses by it."""
    book = PromiseBook(grid=grid_of(gpus, whole=whole))
    for job in drawn(seed, 14, resume_s=2.0):
        verdict = admit(book, job)
        book = verdict.book
        assert faults(book.plan, book.jobs, book.grid) == []
        assert verdict.guaranteed == (job.key in book.plan.segments)
        if verdict.guaranteed or job.gpus > gpus:
            continue
        at_s = earliest_deadline(book, job)
        assert at_s is not None
        again = admit(book, job._replace(steps=(Step(at_s, 100.0),)))
        assert again.guaranteed, (at_s, again.by)
        lasts = [step.deadline_s for step in job.steps]
        assert verdict.by is VerdictGround.PLAN or at_s > max(lasts) - 10 * whole


@given(seed=st.integers(0, 10**6), gpus=st.integers(3, 8))
@settings(max_examples=times(8, 20), deadline=None)
def test_nobody_guaranteed_misses_while_others_come(seed: int, gpus: int) -> None:
    """Slot after slot: arrivals, admission, a new plan where it is no worse, one slot of work."""
    book, ended = PromiseBook(grid=grid_of(gpus)), 0
    for slot in range(12):
        for job in drawn(seed + slot, 3, resume_s=2.0):
            book = admit(book, job._replace(key=f"{slot}{job.key}", running=False)).book
        book = renewed(book)
        assert faults(book.plan, book.jobs, book.grid) == []
        left = []
        for job in book.jobs:
            held = book.plan.segments[job.key]
            done_s = completion_s(job, held, book.grid)
            assert done_s <= job.steps[job.promised or 0].deadline_s + 1e-6
            if done_s > book.grid.term_s:
                left.append(after(job, held, book.grid, 1))
        ended += len(book.jobs) - len(left)
        book = moved_on(book, 1, left)
    assert ended


@pytest.mark.parametrize("gpus", [1, 3])
def test_too_wide_for_ever_has_no_earliest_deadline(gpus: int) -> None:
    book = PromiseBook(grid=grid_of(gpus))
    job = asks("a", 4, 10, 20)
    assert earliest_deadline(book, job) is None
    assert not within(job, book.grid)
    assert completion_s(job, (), book.grid) == inf
