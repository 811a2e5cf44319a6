"""Promises under overload: a replay of arrivals, admissions and leases with exact run times.

    python -m benchmarks.planning.admission [--days 3] [--gpus 960] [--resume 0]
        [--seeds 2] [--json]

Poisson arrivals offer LOAD times the cluster's capacity, in the mix of `slo_jobs` without its tilt.
Each job asks for its last deadline when it comes. At every slot's end the guaranteed jobs get a new
plan if one serves all of them and ends no later. Else they keep theirs, and run one slot by it.
Times are CPU time of an admission, new plans included. Goals: no guaranteed job misses; an
admission takes 5 ms in the median and 30 ms at the 99th percentile. At most 2 % of the refusals are
by the plan, where fractions would have fitted.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from statistics import median

from benchmarks.papers import slo_jobs
from benchmarks.planning.slots_later import after, moved_on
from benchmarks.support.conditions import percentile
from benchmarks.support.report import Report
from dlq_master.model.jobs.reward import Step
from dlq_master.policy.promise.capacity.leases import Grid, SloJob
from dlq_master.policy.promise.capacity.rules import VerdictGround
from dlq_master.policy.promise.slots.plan import completion_s, faults
from dlq_master.policy.promise.verdicts.admission import PromiseBook, admit, renewed
from dlq_master.policy.promise.verdicts.offer import earliest_deadline

LOAD = 2.0  # the cluster starts empty: with less three days hardly fill it
OFFERS = 20  # refusals that are also asked for the earliest deadline


@dataclass(slots=True)
class Told:
    """The results of one replay."""

    by: Counter[VerdictGround] = field(default_factory=Counter)
    check_ms: list[float] = field(default_factory=list)
    offer_ms: list[float] = field(default_factory=list)
    missed: int = 0
    completed: int = 0
    busy: float = 0.0  # GPU-slots held
    offered: float = 0.0  # GPU-slots there


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    options.add_argument("--days", type=float, default=3.0)
    options.add_argument("--gpus", type=int, default=960)
    options.add_argument("--resume", type=float, default=0.0, help="seconds of each segment")
    options.add_argument("--seeds", type=int, default=len(slo_jobs.REPLAY_SEEDS))
    report = Report.begin("planning.admission", options)
    slots = round(report.options.days * 86_400 / slo_jobs.TERM_S)
    for seed in slo_jobs.REPLAY_SEEDS[: report.options.seeds]:
        told = replay(report.options.gpus, slots, seed, report.options.resume)
        tell(report, f"{report.options.gpus} GPUs, {report.options.days:g} days, seed {seed}", told)
    report.end()


def replay(gpus: int, slots: int, seed: int, resume_s: float) -> Told:
    """Arrivals and leases, slot after slot; the rest at the end runs out."""
    draw, told = random.Random(seed), Told()
    every = sum(slo_jobs.WIDTHS[w] * w for w in slo_jobs.WIDTHS)
    sample = [slo_jobs.draw_one(random.Random(n)).runtime_s for n in range(2000)]
    rate = LOAD * gpus * slo_jobs.TERM_S / (every * sum(sample) / len(sample))  # jobs per slot
    book, number, due = PromiseBook(grid=Grid(term_s=slo_jobs.TERM_S, capacity=(gpus,))), 0, 0.0
    slot = 0
    while slot < slots or book.jobs:
        due += draw.expovariate(rate) if not slot else 0.0
        while due < slot + 1 and slot < slots:
            number += 1
            book = _ask(book, told, _arrival(draw, number, slot + 1 - due, resume_s))
            due += draw.expovariate(rate)
        # Arrivals of this slot wait for the next: their deadlines count from there.
        book = renewed(book)
        if slots // 2 <= slot < slots:
            now = book.plan.now()
            told.busy += sum(job.gpus for job in book.jobs if job.key in now)
            told.offered += gpus
        book = _run_slot(book, told)
        slot += 1
    return told


def _arrival(draw: random.Random, number: int, waited: float, resume_s: float) -> SloJob:
    """A job that came `waited` slots before the book's first slot."""
    wide = slo_jobs.width(draw.random(), 0.0)
    job = slo_jobs.draw_one(draw, wide)
    steps = tuple(Step(at - waited * slo_jobs.TERM_S, reward) for at, reward in job.steps)
    return SloJob(
        key=f"{number:06d}", gpus=wide, work_s=job.runtime_s, steps=steps, resume_s=resume_s
    )


def _ask(book: PromiseBook, told: Told, job: SloJob) -> PromiseBook:
    last = [len(job.steps) - 1]
    begun_s = time.thread_time()
    verdict = admit(book, job, last)
    told.check_ms.append(1e3 * (time.thread_time() - begun_s))
    told.by[verdict.by] += 1
    if verdict.by in (VerdictGround.FLUID, VerdictGround.PLAN) and len(told.offer_ms) < OFFERS:
        begun_s = time.thread_time()
        earliest_deadline(book, job)
        told.offer_ms.append(1e3 * (time.thread_time() - begun_s))
    return verdict.book


def _run_slot(book: PromiseBook, told: Told) -> PromiseBook:
    """One slot by the plan, with exact run times."""
    if wrong := faults(book.plan, book.jobs, book.grid):
        raise SystemExit(f"the kept plan is wrong: {wrong[0]}")
    left = []
    for job in book.jobs:
        held = book.plan.segments[job.key]
        done_s = completion_s(job, held, book.grid)
        if done_s <= book.grid.term_s:
            told.completed += 1
            told.missed += done_s > job.steps[job.promised or 0].deadline_s + 1e-6
        else:
            left.append(after(job, held, book.grid, 1))
    return moved_on(book, 1, left)


def tell(report: Report, name: str, told: Told) -> None:
    """The figures of one replay."""
    refused = sum(told.by[why] for why in (VerdictGround.FLUID, VerdictGround.PLAN))
    admitted = sum(
        told.by[why] for why in (VerdictGround.HOLES, VerdictGround.MOVED, VerdictGround.REPLAN)
    )
    report.say(
        f"{name}: {admitted} admitted ({told.by[VerdictGround.HOLES]} into holes, "
        f"{told.by[VerdictGround.MOVED]} as others made room, "
        f"{told.by[VerdictGround.REPLAN]} by a new plan). "
        f"{refused} refused for capacity, {told.by[VerdictGround.REACH]} out of reach alone. "
        f"{told.completed} completed. "
        f"{100 * told.busy / told.offered:.1f} % of the GPUs held in the second half"
    )
    report.figure(f"{name}: guaranteed jobs missed", told.missed, "jobs", at_most=0)
    report.figure(f"{name}: admission, median", median(told.check_ms), "ms", at_most=5)
    report.figure(f"{name}: admission, p99", percentile(told.check_ms, 0.99), "ms", at_most=30)
    report.figure(f"{name}: admission, longest", max(told.check_ms), "ms")
    share = 100 * told.by[VerdictGround.PLAN] / max(1, refused)
    report.figure(
        f"{name}: refused by the plan only", share, "% of refusals", at_most=2,
        note=f"{told.by[VerdictGround.PLAN]} of {refused}",
    )  # fmt: skip
    if told.offer_ms:
        report.figure(f"{name}: earliest deadline, median", median(told.offer_ms), "ms")


if __name__ == "__main__":
    main()
