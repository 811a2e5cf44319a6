"""A plan of slots: the segments in which each job holds its GPUs. The kept plan is the promise."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING

from dlq_master.model.jobs.band import Segment, Segments
from dlq_master.policy.promise.capacity.leases import NOISE, Grid, SloJob, due_s, width

if TYPE_CHECKING:
    from dlq_master.policy.promise.capacity.fluid import Slots


@dataclass(frozen=True, slots=True)
class SlotPlan:
    """The segments of each job that has any, in slots from the plan's start."""

    segments: Mapping[str, Segments] = field(default_factory=dict)

    def with_job(self, key: str, segments: Segments) -> SlotPlan:
        """The plan with these segments for one job."""
        return SlotPlan({**self.segments, key: segments})

    def without(self, keys: Iterable[str]) -> SlotPlan:
        """The plan without some jobs."""
        gone = frozenset(keys)
        if gone.isdisjoint(self.segments):
            return self
        return SlotPlan({key: made for key, made in self.segments.items() if key not in gone})

    def shifted(self, slots: int) -> SlotPlan:
        """The rest of the plan from slot `slots` on, counted from there."""
        left = {key: left_of(made, slots) for key, made in self.segments.items()}
        return SlotPlan({key: rest for key, rest in left.items() if rest})

    def now(self) -> frozenset[str]:
        """The jobs in the first slot."""
        return frozenset(key for key, made in self.segments.items() if made and made[0].begin == 0)


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of a plan in words. `key`: its job; empty: a slot is too full."""

    key: str
    what: str


def left_of(segments: Segments, slots: int) -> Segments:
    """The rest of segments from slot `slots` on, counted from there."""
    return tuple(
        [
            Segment(begin - slots if begin > slots else 0, end - slots)
            for begin, end in segments
            if end > slots
        ]
    )


def completion_s(job: SloJob, segments: Sequence[Segment], grid: Grid) -> float:
    """The seconds from the plan's start to the end of its work; inf: the segments do
    not suffice.
    """
    rest_s = job.work_s
    for number, (begin, end) in enumerate(segments):
        charge_s = 0.0 if job.running and begin == 0 and not number else job.resume_s
        held_s = (end - begin) * grid.term_s
        if charge_s + rest_s <= held_s + NOISE * grid.term_s:
            return begin * grid.term_s + charge_s + rest_s
        rest_s -= max(0.0, held_s - charge_s)
    return inf


def step_made(job: SloJob, segments: Sequence[Segment], grid: Grid) -> int | None:
    """The step whose deadline it meets; None: it is late, or never ends."""
    done_s = completion_s(job, segments, grid) if segments else inf
    slack_s = NOISE * grid.term_s
    steps = range(len(job.steps))
    return next((step for step in steps if done_s <= due_s(job, step, grid) + slack_s), None)


def steps_made(plan: SlotPlan, jobs: Iterable[SloJob], grid: Grid) -> dict[str, int]:
    """The steps of the jobs that meet one, by key."""
    made = {job.key: step_made(job, plan.segments.get(job.key, ()), grid) for job in jobs}
    return {key: step for key, step in made.items() if step is not None}


def reward(job: SloJob, segments: Sequence[Segment], grid: Grid) -> float:
    """The job's reward in this plan; 1 if it is late."""
    step = step_made(job, segments, grid)
    return 1.0 if step is None else job.steps[step].reward


def keeps_promise(job: SloJob, segments: Sequence[Segment], grid: Grid) -> bool:
    """Whether a job meets its promised step, or a better one. True without a promise."""
    if job.promised is None:
        return True
    step = step_made(job, segments, grid)
    return step is not None and step <= job.promised


def free_gpus(plan: SlotPlan, jobs: Iterable[SloJob], grid: Grid, slots: int) -> Slots:
    """The free GPUs of each of the first `slots` slots; negative where a slot is too full."""
    # Every pipeline knows of plans, few count in them.
    from dlq_master.policy.promise.capacity.fluid import gpus_of

    free = gpus_of(grid, slots + 1)
    change = free * 0
    for job in jobs:
        wide = width(job, grid)
        for begin, end in plan.segments.get(job.key, ()):
            change[min(begin, slots)] += wide
            change[min(end, slots)] -= wide
    left: Slots = free - change.cumsum()
    return left[:slots]


def hold(free: Slots, segments: Iterable[Segment], gpus: int) -> None:
    """Take `gpus` GPUs of these slots out of `free`, in place; a negative number gives
    them back.
    """
    for begin, end in segments:
        free[begin:end] -= gpus


def left_free(plan: SlotPlan, jobs: Iterable[SloJob], grid: Grid) -> Slots:
    """`free_gpus` of all slots of the plan and the grid; no later slot has fewer."""
    return free_gpus(plan, jobs, grid, max(slots_of(plan), len(grid.capacity)))


def slots_of(plan: SlotPlan) -> int:
    """The slots up to the end of the plan."""
    return max((made[-1].end for made in plan.segments.values() if made), default=0)


def stops(plan: SlotPlan, jobs: Iterable[SloJob]) -> int:
    """How often the plan takes GPUs from a job that has not ended."""
    count = 0
    for job in jobs:
        if made := plan.segments.get(job.key):
            count += len(made) - 1 + (job.running and made[0].begin > 0)
    return count


def ordered(segments: Segments) -> bool:
    """Whether segments are in order, not empty, and apart."""
    apart = all(a.end < b.begin for a, b in pairwise(segments))
    return apart and all(0 <= begin < end for begin, end in segments)


def faults(plan: SlotPlan, jobs: Sequence[SloJob], grid: Grid) -> list[Fault]:
    """The faults of a plan: overfull slots, bad segments, and promises that it breaks."""
    found = []
    known = {job.key for job in jobs}
    found += [Fault(key, "no such job") for key in plan.segments if key not in known]
    free = left_free(plan, jobs, grid)
    if free.min(initial=0) < 0:
        full = (free < 0).nonzero()[0]
        found += [Fault("", f"slot {at} wants {-free[at]} GPUs more than it has") for at in full]
    for job in jobs:
        made = plan.segments.get(job.key, ())
        if not ordered(made):
            found.append(Fault(job.key, "its segments overlap, touch or are empty"))
        elif not keeps_promise(job, made, grid):
            found.append(Fault(job.key, "it does not make the step it was promised"))
    return found
