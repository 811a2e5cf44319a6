"""Random small sets of jobs with deadlines."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace

from dlq_master.model.jobs.reward import soft
from dlq_master.policy.promise.capacity.leases import Grid, SloJob
from dlq_master.policy.promise.slots.mend import mended
from dlq_master.policy.promise.verdicts.admission import PromiseBook


def drawn(
    seed: int, count: int, *, resume_s: float = 0.0, most_slots: int = 6, widths: str = "1124"
) -> list[SloJob]:
    """Jobs of some slots of 10 s, half of them soft; some cannot make their deadlines."""
    draw = random.Random(seed)
    jobs = []
    for number in range(count):
        work_s = draw.uniform(3, 10 * most_slots)
        first_s = work_s * draw.uniform(0.9, 2.2) + 10
        rewards = [100, 80, 50, 20] if draw.random() < 0.5 else [100]
        steps = soft([(first_s * (1 + 0.3 * at), reward) for at, reward in enumerate(rewards)])
        jobs.append(
            SloJob(
                key=f"j{number:02d}",
                gpus=int(draw.choice(widths)),
                work_s=work_s,
                steps=steps,
                resume_s=resume_s,
                running=draw.random() < 0.3,
            )
        )
    return jobs


def grid_of(gpus: int, *, whole: bool = False) -> Grid:
    return Grid(term_s=10, capacity=(gpus,), whole_leases=whole)


def revised(
    book: PromiseBook, grid: Grid | None = None, jobs: Iterable[SloJob] = ()
) -> tuple[PromiseBook, tuple[str, ...]]:
    """The book with another capacity, or with jobs as they now are (one that overran has more
    work). Also the keys of jobs whose promises are no longer kept. They are not in the book any
    more, and all others are."""
    now = {job.key: job for job in jobs}
    left = tuple([now.get(job.key, job) for job in book.jobs])
    made = mended(book.plan, left, grid or book.grid)
    changed = replace(book, grid=grid or book.grid, jobs=left, plan=made.plan)
    return changed.without(made.broken), made.broken
