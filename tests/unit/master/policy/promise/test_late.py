"""Slots as late as promises allow: nobody loses a step, nobody comes sooner, no slot is filled
twice.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlq_master.model.jobs.band import Segment
from dlq_master.model.jobs.reward import soft, strict
from dlq_master.policy.promise.capacity.leases import Grid, SloJob
from dlq_master.policy.promise.slots.late import as_late_as_can_be
from dlq_master.policy.promise.slots.plan import SlotPlan, faults, step_made
from dlq_master.policy.promise.solver.selector import select
from support.extent import times
from unit.master.policy.promise.drawing import drawn, grid_of


def asks(key: str, gpus: int, work_s: float, by_s: float, resume_s: float = 0.0) -> SloJob:
    return SloJob(
        key=key, gpus=gpus, work_s=work_s, steps=strict(by_s), resume_s=resume_s, promised=0
    )


def plan_of(**segments: tuple[int, int]) -> SlotPlan:
    return SlotPlan({key: (Segment(*segment),) for key, segment in segments.items()})


def test_a_job_goes_to_its_last_slots_but_one() -> None:
    """20 s of work by 95 s: slots of 10 s would end at 90, and one is left as a cushion."""
    job = asks("a", 2, 20, 95)
    made = as_late_as_can_be(plan_of(a=(0, 2)), [job], grid_of(4))
    assert made == plan_of(a=(6, 8))


def test_a_part_of_the_last_slot_counts() -> None:
    """25 s by 95 s may end within its third slot, at 95: that one is the cushion."""
    job = asks("a", 2, 25, 95)
    made = as_late_as_can_be(plan_of(a=(0, 3)), [job], grid_of(4))
    assert made == plan_of(a=(6, 9))


def test_who_runs_now_is_charged_the_resume_that_it_needs_then() -> None:
    """It has 10 s left, and by 60 s with a resume of 11 s it takes three slots."""
    job = asks("a", 2, 10, 60, resume_s=11)._replace(running=True)
    made = as_late_as_can_be(plan_of(a=(0, 1)), [job], grid_of(4))
    assert made == plan_of(a=(2, 5))


def test_the_latest_deadline_leaves_first_and_others_follow_where_it_was() -> None:
    jobs = [asks("soon", 4, 20, 61), asks("late", 4, 20, 101)]
    made = as_late_as_can_be(plan_of(soon=(0, 2), late=(2, 4)), jobs, grid_of(4))
    assert made == plan_of(soon=(3, 5), late=(7, 9))


def test_a_slot_that_is_full_is_gone_round() -> None:
    jobs = [asks("fixed", 4, 20, 60), asks("a", 2, 20, 71)]
    made = as_late_as_can_be(plan_of(fixed=(4, 6), a=(0, 2)), jobs, grid_of(4))
    assert made == plan_of(fixed=(4, 6), a=(2, 4))


def test_where_nothing_later_is_free_all_stays() -> None:
    jobs = [asks("a", 4, 20, 31), asks("b", 4, 20, 51)]
    plan = plan_of(a=(0, 2), b=(2, 4))
    assert as_late_as_can_be(plan, jobs, grid_of(4)) == plan
    assert as_late_as_can_be(SlotPlan(), jobs, grid_of(4)) == SlotPlan()


def test_two_pieces_become_one() -> None:
    job = asks("a", 2, 15, 81, resume_s=5)
    plan = SlotPlan({"a": (Segment(0, 1), Segment(2, 4))})
    assert as_late_as_can_be(plan, [job], grid_of(4)) == plan_of(a=(5, 7))


def test_the_better_of_two_steps_that_a_plan_makes_is_kept() -> None:
    job = SloJob(key="a", gpus=2, work_s=20, steps=soft([(51, 100), (101, 50)]), promised=1)
    assert as_late_as_can_be(plan_of(a=(0, 2)), [job], grid_of(4)) == plan_of(a=(2, 4))
    assert as_late_as_can_be(plan_of(a=(4, 6)), [job], grid_of(4)) == plan_of(a=(7, 9))


def test_capacity_that_falls_later_is_seen() -> None:
    grid = Grid(term_s=10, capacity=(4, 4, 4, 4, 2), node_gpus=4)
    assert as_late_as_can_be(plan_of(a=(0, 2)), [asks("a", 4, 20, 95)], grid) == plan_of(a=(2, 4))


@pytest.mark.parametrize("whole", [False, True])
@given(
    seed=st.integers(0, 10**6),
    count=st.integers(1, 14),
    gpus=st.integers(1, 9),
    resume_s=st.sampled_from([0.0, 2.0, 12.0]),
)
@settings(max_examples=times(15, 40), deadline=None)
def test_a_plan_without_faults_stays_one_and_nobody_comes_sooner(
    whole: bool, seed: int, count: int, gpus: int, resume_s: float
) -> None:
    grid = grid_of(gpus, whole=whole)
    jobs = drawn(seed, count, resume_s=resume_s)
    plan = select(jobs, grid).plan
    made_before = {job.key: step_made(job, plan.segments.get(job.key, ()), grid) for job in jobs}
    jobs = [job._replace(promised=made_before[job.key]) for job in jobs]
    assert faults(plan, jobs, grid) == []
    late = as_late_as_can_be(plan, jobs, grid)
    assert faults(late, jobs, grid) == []
    assert late.segments.keys() == plan.segments.keys()
    for job in jobs:
        before, after = plan.segments.get(job.key, ()), late.segments.get(job.key, ())
        assert step_made(job, after, grid) == made_before[job.key]
        assert before == after or after[0].begin > before[0].begin
