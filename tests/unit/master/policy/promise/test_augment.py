"""Slot by slot: among jobs of one width nobody who fits in fractions is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlq_master.model.jobs.band import Segment
from dlq_master.model.jobs.reward import strict
from dlq_master.policy.promise.capacity.leases import SloJob, within
from dlq_master.policy.promise.capacity.rules import VerdictGround
from dlq_master.policy.promise.slots.augment import augment
from dlq_master.policy.promise.slots.ledger import PromiseLedger, row
from dlq_master.policy.promise.slots.plan import SlotPlan, faults, free_gpus
from dlq_master.policy.promise.verdicts.admission import PromiseBook, admit
from support.extent import times
from unit.master.policy.promise.drawing import drawn, grid_of


def held(key: str, work_s: float, by_s: float, resume_s: float = 0.0) -> SloJob:
    return SloJob(key=key, gpus=1, work_s=work_s, steps=strict(by_s), resume_s=resume_s, promised=0)


@given(seed=st.integers(0, 10**6), gpus=st.integers(1, 4), whole=st.booleans())
@settings(max_examples=times(15, 40), deadline=None)
def test_jobs_of_one_width_are_never_refused_by_the_plan(seed: int, gpus: int, whole: bool) -> None:
    book = PromiseBook(grid=grid_of(gpus, whole=whole))
    for job in drawn(seed, 20, widths="1", most_slots=9):
        verdict = admit(book, job)
        assert verdict.by is not VerdictGround.PLAN
        book = verdict.book
        assert faults(book.plan, book.jobs, book.grid) == []


@given(seed=st.integers(0, 10**6), resume_s=st.sampled_from([0.0, 0.5, 4.0]))
@settings(max_examples=times(15, 30), deadline=None)
def test_whoever_finds_paths_makes_nobody_late(seed: int, resume_s: float) -> None:
    book, grid = PromiseBook(grid=grid_of(5)), grid_of(5)
    jobs = drawn(seed, 16, resume_s=resume_s, most_slots=9)
    for job in jobs:
        if reach := within(job, grid):
            asked = job._replace(promised=reach[-1])
            rows = (*book.jobs, asked)
            slots = PromiseLedger(rows, book.plan, grid, 1)
            found = augment(book.plan, rows, len(book.jobs), slots, grid)
            if found is not None:
                assert faults(found.plan, rows, grid) == []
                assert (free_gpus(found.plan, rows, grid, len(found.free)) == found.free).all()
                assert slots.demand.feasible()
                book = replace(book, jobs=rows, plan=found.plan)


def test_a_path_goes_over_two_jobs_to_the_free_slot() -> None:
    """The first may only move to the second's slot, the second to the free one."""
    jobs = [held("first", 10, 20), held("second", 10, 30), held("new", 10, 10)]
    plan = SlotPlan({"first": (Segment(0, 1),), "second": (Segment(1, 2),)})
    grid = grid_of(1)
    found = augment(plan, jobs, 2, PromiseLedger(jobs, plan, grid, 3), grid)
    assert found is not None
    assert found.plan.segments == {
        "first": (Segment(1, 2),), "second": (Segment(2, 3),), "new": (Segment(0, 1),)
    }  # fmt: skip


@pytest.mark.parametrize("resume_s", [0.0, 2.0])
def test_nobody_moves_who_would_be_late_by_one_more_resume(resume_s: float) -> None:
    """Slot 4 is free; to use it instead of slot 0 the first job would stop for the slot of the
    wall.
    """
    jobs = [
        held("moves", 30 - resume_s, 50, resume_s),
        held("wall", 8, 40, resume_s),
        held("new", 6, 10, resume_s),
    ]
    plan = SlotPlan({"moves": (Segment(0, 3),), "wall": (Segment(3, 4),)})
    grid = grid_of(1)
    assert row(jobs[0], 0, grid) == (1, 3, 5)
    found = augment(plan, jobs, 2, PromiseLedger(jobs, plan, grid, 5), grid)
    assert (found is not None) == (resume_s == 0)
    if found is not None:
        assert found.plan.segments["moves"] == (Segment(1, 3), Segment(4, 5))
