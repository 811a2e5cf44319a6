"""Chronus' workloads over any trace (section 4.1): deadlines, their mixes, and densities."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random
from types import MappingProxyType
from typing import NamedTuple

from dlq_simulator.workload import Trace, TraceJob


class Mix(NamedTuple):
    """Percent of the jobs of each kind (table 1)."""

    strict: int
    soft: int
    best_effort: int


MIXES: Mapping[str, Mix] = MappingProxyType(
    {
        "short": Mix(0, 0, 100),
        "slo": Mix(100, 0, 0),
        "mix1": Mix(70, 0, 30),
        "mix2": Mix(30, 60, 10),
    }
)
# A deadline is this many run times after the submit, drawn uniformly.
_SLACK = (1.2, 2.0)
# Three more deadlines of a soft job, as multiples of its first, with their rewards.
_SOFT = ((1.0, 100.0), (1.1, 80.0), (1.2, 50.0), (1.5, 20.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Chronus:
    """A mix of kinds over the jobs of a trace, thinned or thickened to `density` percent of
    them.
    """

    mix: Mix = MIXES["mix2"]
    density: int = 100

    def workload(self, rng: Random, trace: Trace) -> Trace:
        """Every kind has its exact share, rounded; a job of no duration stays best effort."""
        jobs = _at_density(rng, trace, self.density)
        order = list(range(len(jobs)))
        rng.shuffle(order)
        strict = round(len(jobs) * self.mix.strict / 100)
        soft = strict + round(len(jobs) * self.mix.soft / 100)
        for place, at in enumerate(order):
            job = jobs[at]
            if place >= soft or not job.duration_s:
                jobs[at] = replace(job, kind="be", deadline_s=None, soft_steps=())
            else:
                jobs[at] = _with_deadline(rng, job, soft=place >= strict)
        return Trace.of(trace.path, jobs, trace.notes)


def _at_density(rng: Random, trace: Trace, density: int) -> list[TraceJob]:
    """Below 100 % jobs are left out by chance; above it, jobs drawn by chance come a second time.

    A copy arrives when another job, drawn by chance, does: the pattern of arrivals stays.
    """
    jobs = list(trace.jobs)
    wanted = round(len(jobs) * density / 100)
    if wanted <= len(jobs):
        kept = sorted(rng.sample(range(len(jobs)), wanted))
        return [jobs[at] for at in kept]
    drawn = [rng.randrange(len(jobs)) for _ in range(wanted - len(jobs))]
    copies = [
        replace(
            jobs[at],
            job_id=f"{jobs[at].job_id}+{number}",
            submit_time_s=jobs[rng.randrange(len(jobs))].submit_time_s,
        )
        for number, at in enumerate(drawn, start=1)
    ]
    return jobs + copies


def _with_deadline(rng: Random, job: TraceJob, *, soft: bool) -> TraceJob:
    first_s = round(rng.uniform(*_SLACK) * job.duration_s, 3)
    if not soft:
        return replace(job, kind="strict", deadline_s=first_s, soft_steps=())
    steps = tuple((round(times * first_s, 3), reward) for times, reward in _SOFT)
    return replace(job, kind="soft", deadline_s=first_s, soft_steps=steps)
