"""Replays jobs on rented nodes: the decisions, their costs, and the late jobs (P1m of the paper).

The policy decides at every submit, at every completion, when a provider takes a type of nodes back,
and when a job's speed becomes known. It also decides after `interval_s` without an event. A node
whose type stays goes on; another is released, and the new one boots unless one of its type is idle
and paid for. A job that keeps its node and its GPUs makes progress all the while; one that gets
others loses `resume_s` (for saving and resuming).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from dlq_master.policy.priced.learning import JobShape
from dlq_master.policy.priced.schedules import faults, settled
from dlq_master.policy.priced.situation import EMPTY, Grant, PricedJob, Schedule, Situation, Solver
from dlq_simulator.errors import SimulateError
from dlq_simulator.priced.instance import RentingInstance
from dlq_simulator.priced.renting import Renting
from dlq_simulator.priced.times import Exact
from dlq_simulator.priced.way import Way

HOUR_S = 3600.0
_DONE = 1e-9  # of a job: a smaller rest is the noise of doubles


@dataclass(frozen=True)
class Bill:
    """$: nodes, and being late; `late_s` sums all jobs' seconds after their due dates. By job
    number: when it finished, and its way."""

    nodes: float
    tardiness: float
    late_s: float
    gpu_s: float
    decisions: int
    finish_s: dict[int, float]
    ways: dict[int, Way]
    hours: dict[str, float]  # of nodes, billed, by type

    @property
    def total(self) -> float:
        """Both."""
        return self.nodes + self.tardiness


@dataclass
class World:
    """One run of all jobs; the same seed gives the same bill.

    `interval_s`: H; inf: only submits and completions count, as in the released program.
    """

    instance: RentingInstance
    solver: Solver
    seed: int = 0
    interval_s: float = HOUR_S
    resume_s: float = 0.0
    times: Exact | None = None  # that the solver gets; None: the true ones
    decisions: int = 0
    schedule: Schedule = EMPTY
    there: dict[int, Way] = field(default_factory=dict)  # submitted and not done, by number
    ways: dict[int, Way] = field(default_factory=dict)
    finish_s: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._draw = np.random.default_rng(self.seed)
        self._times = self.times or Exact(self.instance)
        self.renting = Renting(self.instance.catalogue, self.instance.nodes)
        self._untils = sorted({rented.until_s for rented in self.instance.catalogue.types})

    def run(self) -> Bill:
        """Run to the end of all jobs; SimulateError if the solver's answer is impossible, or no job
        ever runs.
        """
        jobs, submitted, now_s = self.instance.jobs, 0, 0.0
        while submitted < len(jobs) or self.there:
            if not self.there:  # no job needs a node
                self._adopt(EMPTY, now_s)
                now_s = max(now_s, jobs[submitted].submit_s)
            while submitted < len(jobs) and jobs[submitted].submit_s <= now_s:
                self.there[submitted] = self.ways[submitted] = Way()
                submitted += 1
            self._adopt(self._decided(now_s), now_s)
            until_s = jobs[submitted].submit_s if submitted < len(jobs) else math.inf
            now_s = self._advance(now_s, until_s)
        self._adopt(EMPTY, now_s)
        self.renting.close(now_s)
        return self._bill()

    def _decided(self, now_s: float) -> Schedule:
        try:
            situation = Situation(
                now_s,
                tuple(self._priced(number) for number in sorted(self.there)),
                self.instance.catalogue.at(now_s),
                self.instance.nodes,
                self.schedule,
                self.interval_s if math.isfinite(self.interval_s) else 0.0,
                self.resume_s,
            )
        except ValueError as error:
            what, fix = "a job waits for nodes that cannot be had any more", "give a later until_s"
            raise SimulateError(what, str(error), fix) from error
        made = settled(situation, self.solver(situation, self._draw))
        self.decisions += 1
        if wrong := faults(situation, made):
            raise _error("the plan is not possible", wrong[0])
        return made

    def _adopt(self, made: Schedule, now_s: float) -> None:
        """Nodes first, then the leaving and the starting jobs."""
        had = self.schedule
        kept = {n for n, type_ in made.types.items() if had.types.get(n) == type_}
        self.renting.become(made.types, now_s)
        self.schedule = made
        for number, way in self.there.items():
            before, grant = had.grants.get(number), made.grants.get(number)
            if before is not None and before == grant and grant.node in kept:
                continue
            if before is not None:
                way.drop(now_s, goes_on=grant is not None)
            if grant is not None:
                resumed_s = now_s + (self.resume_s if way.spans else 0.0)
                ready_s = max(resumed_s, self.renting.ready_s(grant.node))
                shape = self._shape(grant)
                way.hold(now_s, shape, self._time_s(number, shape), ready_s)

    def _advance(self, now_s: float, until_s: float) -> float:
        """Advance to the next event; returns its instant."""
        ends = {number: self.there[number].end_s(now_s) for number in self.schedule.grants}
        taken_s = min((u for u in self._untils if u > now_s), default=math.inf)
        news_s = [self._times.news_s(self.there[number], now_s) for number in ends]
        then_s = min([until_s, now_s + self.interval_s, taken_s, *ends.values(), *news_s])
        if not math.isfinite(then_s):
            raise _error("jobs wait", "nothing runs, and nothing will ever happen")
        for number, end_s in ends.items():
            way = self.there[number]
            way.advance(now_s, then_s)
            if end_s <= then_s or way.left <= _DONE:
                way.end(then_s)
                self.finish_s[number] = then_s
                self._times.ended(number, way)
                del self.there[number]
        grants = {key: grant for key, grant in self.schedule.grants.items() if key in self.there}
        self.schedule = Schedule(self.schedule.types, grants)
        return then_s

    def _shape(self, grant: Grant) -> JobShape:
        catalogue = self.instance.catalogue
        kind = catalogue.types[self.schedule.types[grant.node]].kind
        return JobShape(catalogue.kinds.index(kind), grant.gpus)

    def _time_s(self, number: int, shape: JobShape) -> float:
        return float(self.instance.jobs[number].time_s[shape.kind, shape.gpus - 1])

    def _priced(self, number: int) -> PricedJob:
        job, way = self.instance.jobs[number], self.there[number]
        return PricedJob(number, job.due_s, job.weight, self._times.told(number, way), way.left)

    def _bill(self) -> Bill:
        jobs = self.instance.jobs
        late = {n: max(0.0, at_s - jobs[n].due_s) for n, at_s in self.finish_s.items()}
        return Bill(
            nodes=self.renting.cost,
            tardiness=math.fsum(jobs[n].weight * late_s for n, late_s in late.items()),
            late_s=math.fsum(late.values()),
            gpu_s=self.renting.gpu_s,
            decisions=self.decisions,
            finish_s=self.finish_s,
            ways=self.ways,
            hours=self.renting.hours,
        )


def _error(what: str, why: str) -> SimulateError:
    return SimulateError(
        f"the replay on rented nodes stands still: {what}",
        why,
        "this is an error of dlq: please report it with the trace",
    )
