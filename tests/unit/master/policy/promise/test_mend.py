"""Promises after a loss: what can be kept is kept, and whose promise is not is told."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlq_master.model.jobs.band import Segment
from dlq_master.model.jobs.reward import soft, strict
from dlq_master.policy.promise.capacity.leases import Grid, SloJob
from dlq_master.policy.promise.slots.mend import mended
from dlq_master.policy.promise.slots.plan import SlotPlan, faults, keeps_promise
from dlq_master.policy.promise.solver.selector import select
from dlq_master.policy.promise.verdicts.admission import PromiseBook, admit
from support.extent import times
from unit.master.policy.promise.drawing import drawn, grid_of, revised


def asks(key: str, gpus: int, work_s: float, by_s: float, reward: float = 100) -> SloJob:
    return SloJob(key=key, gpus=gpus, work_s=work_s, steps=soft([(by_s, reward)]))


def book_with(gpus: int, *jobs: SloJob) -> PromiseBook:
    book = PromiseBook(grid=grid_of(gpus))
    for job in jobs:
        verdict = admit(book, job)
        assert verdict.guaranteed, job
        book = verdict.book
    return book


def random_book(seed: int, gpus: int) -> PromiseBook:
    book = PromiseBook(grid=grid_of(gpus))
    for job in drawn(seed, 14, resume_s=2.0):
        book = admit(book, job).book
    return book


def test_a_lost_node_moves_who_can_wait_and_breaks_no_promise() -> None:
    book = book_with(8, asks("now", 4, 20, 20), asks("later", 4, 20, 90))
    after, broken = revised(book, grid_of(4))
    assert broken == ()
    assert after.plan.segments == {"now": (Segment(0, 2),), "later": (Segment(2, 4),)}


def test_who_earns_least_for_its_gpus_loses_its_promise() -> None:
    book = book_with(
        8, asks("dear", 4, 20, 20), asks("cheap", 4, 20, 20, 30), asks("late", 4, 20, 99)
    )
    after, broken = revised(book, grid_of(4))
    assert broken == ("cheap",)
    assert [job.key for job in after.jobs] == ["dear", "late"]
    assert after.plan.segments == {"dear": (Segment(0, 2),), "late": (Segment(2, 4),)}


def test_nobody_loses_its_promise_whose_slots_are_not_lacking() -> None:
    """The cheapest of all comes much later: without it nobody else would be served."""
    book = book_with(
        8, asks("dear", 4, 20, 20), asks("dear too", 4, 20, 20, 90), asks("late", 4, 20, 99, 10)
    )
    after, broken = revised(book, grid_of(4))
    assert broken == ("dear too",)
    assert [job.key for job in after.jobs] == ["dear", "late"]


def test_a_job_that_overran_takes_room_and_one_that_cannot_make_it_is_told() -> None:
    book = book_with(1, asks("a", 1, 20, 40), asks("b", 1, 20, 60))
    longer = book.jobs[0]._replace(work_s=30)
    after, broken = revised(book, jobs=[longer])
    assert broken == ()
    assert after.plan.segments == {"a": (Segment(0, 3),), "b": (Segment(3, 5),)}
    assert revised(book, jobs=[longer._replace(work_s=51)])[1] == ("a",)


def test_a_job_without_a_promise_gives_way_first() -> None:
    """The kept plan of the selector also has slots of jobs without one."""
    jobs = [asks("held", 4, 20, 40, 30)._replace(promised=0), asks("free", 4, 20, 20)]
    plan = SlotPlan({"free": (Segment(0, 2),), "held": (Segment(1, 3),)})
    assert mended(plan, jobs, grid_of(4)) == (SlotPlan({"held": (Segment(1, 3),)}), ())


def test_who_has_ended_leaves_its_slots() -> None:
    book = book_with(4, asks("a", 4, 20, 90), asks("b", 4, 20, 90)).without(["a"])
    assert [job.key for job in book.jobs] == ["b"]
    assert set(book.plan.segments) == {"b"}
    assert admit(book, asks("c", 4, 20, 20)).guaranteed


@given(
    seed=st.integers(0, 10**6), gpus=st.integers(3, 8), lost=st.integers(0, 6), at=st.integers(0, 3)
)
@settings(max_examples=times(15, 30), deadline=None)
def test_no_promise_is_dropped_silently_when_capacity_is_lost(
    seed: int, gpus: int, lost: int, at: int
) -> None:
    book = random_book(seed, gpus)
    grid = Grid(term_s=10, capacity=(*[gpus] * at, max(0, gpus - lost)))
    after, broken = revised(book, grid)
    assert sorted([*broken, *[job.key for job in after.jobs]]) == sorted(
        job.key for job in book.jobs
    )
    assert faults(after.plan, after.jobs, grid) == []
    if not faults(book.plan, book.jobs, grid):
        assert (after.plan, broken) == (book.plan, ())


@given(seed=st.integers(0, 10**6), gpus=st.integers(2, 8))
@settings(max_examples=times(15, 40), deadline=None)
def test_no_promise_is_dropped_silently_when_jobs_overrun(seed: int, gpus: int) -> None:
    book, draw = random_book(seed, gpus), random.Random(seed)
    over = [job._replace(work_s=job.work_s * draw.choice([1.0, 1.2, 2.0])) for job in book.jobs]
    after, broken = revised(book, jobs=over)
    assert sorted([*broken, *[job.key for job in after.jobs]]) == sorted(
        job.key for job in book.jobs
    )
    assert faults(after.plan, after.jobs, book.grid) == []
    kept = [job for job in over if keeps_promise(job, book.plan.segments[job.key], book.grid)]
    if len(kept) == len(over):
        assert broken == ()


@given(seed=st.integers(0, 10**6), gpus=st.integers(3, 8), lost=st.integers(1, 4))
@settings(max_examples=times(15, 30), deadline=None)
def test_a_selection_breaks_no_more_promises_than_a_mended_plan(
    seed: int, gpus: int, lost: int
) -> None:
    book, grid = random_book(seed, gpus), grid_of(max(1, gpus - lost))
    broken = revised(book, grid)[1]
    assert len(select(book.jobs, grid, book.plan).broken) <= len(broken)


def test_a_plan_with_segments_that_touch_is_mended_too() -> None:
    job = asks("a", 1, 20, 50)._replace(promised=0)
    plan = SlotPlan({"a": (Segment(0, 1), Segment(1, 2)), "gone": (Segment(0, 9),)})
    assert mended(plan, [job], grid_of(1)).plan.segments == {"a": (Segment(0, 2),)}


@pytest.mark.parametrize("quotas", [{"*": 4}, {"a": 4, "*": 99}])
def test_teams_that_are_not_named_have_the_limit_of_all_others(quotas: dict[str, int]) -> None:
    job = SloJob(key="j", gpus=8, work_s=10, steps=strict(90), team="a")
    assert not admit(PromiseBook(grid=grid_of(8), quotas=quotas), job).guaranteed
    assert admit(PromiseBook(grid=grid_of(8), quotas=quotas), job._replace(gpus=4)).guaranteed
