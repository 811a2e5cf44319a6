"""A book of promises some slots later, if its jobs ran as planned."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from dlq_master.model.jobs.band import Segment
from dlq_master.model.jobs.reward import Step
from dlq_master.policy.promise.capacity.leases import Grid, SloJob
from dlq_master.policy.promise.verdicts.admission import PromiseBook


def after(job: SloJob, segments: Sequence[Segment], grid: Grid, slots: int) -> SloJob:
    """The job as it is `slots` slots later if it ran as planned; it has not completed by then."""
    rest_s = job.work_s
    for number, (begin, end) in enumerate(segments):
        charge_s = 0.0 if job.running and begin == 0 and not number else job.resume_s
        rest_s -= max(0.0, (min(end, slots) - begin) * grid.term_s - charge_s)
    ran = any(begin < slots <= end for begin, end in segments)
    steps = tuple(Step(at - slots * grid.term_s, worth) for at, worth in job.steps)
    return job._replace(work_s=rest_s, steps=steps, running=ran)


def moved_on(book: PromiseBook, slots: int, jobs: Iterable[SloJob]) -> PromiseBook:
    """The same `slots` slots later: `jobs` are those that have not ended, as they are then."""
    left = tuple(jobs)
    gone = {job.key for job in book.jobs} - {job.key for job in left}
    plan = book.plan.without(gone).shifted(slots)
    capacity = book.grid.capacity[min(slots, len(book.grid.capacity) - 1) :]
    return replace(book, grid=replace(book.grid, capacity=capacity), jobs=left, plan=plan)
