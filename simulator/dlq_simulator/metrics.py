"""The measures of a replay: the fields of `dlq simulate --json`, from the jobs' histories."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dlq_master.model.jobs.reward import FULL, missed_share
from dlq_master.policy.reclaim.demand import Toll
from dlq_simulator.workload import TraceJob

Number = int | float
# Instants are sums of seconds as doubles.
NOISE_S = 1e-3


class Span(NamedTuple):
    """The time span in which a job held this number of GPUs."""

    begin_s: Number
    end_s: Number
    gpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOutcome:
    """One finished job's history, in seconds of the trace's clock.

    `queue_s` is the time without GPUs, `overhead_s` the time with GPUs but without progress (saving
    and resuming). jct = queue + overhead + working time; the working time is the duration on the
    reference allocation. `spans`: when it held GPUs, one for each attempt and size.
    """

    job: TraceJob
    start_s: Number
    finish_s: Number
    queue_s: Number
    overhead_s: Number
    preemptions: int  # all interruptions
    resizes: int = 0  # of these, those after which it went on at once with other GPUs
    spans: tuple[Span, ...] = ()
    promised_s: Number | None = None  # the deadline that was guaranteed to it, from its submit
    trial_start_s: Number | None = None  # of the first trial, if it was profiled
    trial_sent_s: Number | None = None  # when it was let in to be profiled
    trials_s: Number = 0  # of the overhead: on fewer GPUs than it asked for, to be measured
    trial_gpu_s: Number = 0  # the GPU-seconds of these trials
    ended_in_trial: bool = False  # before it was known how long it runs
    rented_gpu_s: Mapping[str, Number] | None = (
        None  # held of rented machines, by pool; None: none are rented
    )

    @property
    def overhead_gpu_s(self) -> Number:
        """Its GPU-seconds without progress."""
        own_s = self.overhead_s - self.trials_s
        return self.job.num_gpus * own_s + self.trial_gpu_s

    @property
    def jct_s(self) -> Number:
        return self.finish_s - self.job.submit_time_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """Seconds, shares of 1, or None where the policy or the trace has no such thing.

    `wdmr` is the weighted deadline *miss* rate, mean of (max - got) / (max - min) over the jobs
    with a deadline; `slo_met_ratio` the share of them that finished by their first deadline.
    `gpu_utilization` counts useful work only: GPU-seconds of the finished jobs' durations over GPUs
    x makespan (lent GPUs: x the time they were lent). 1 and more is possible where GPUs are faster
    than the trace's. `cost` is node-hours x price of all priced nodes from the first submit to the
    last finish. `tardiness_cost` is the sum of weight x seconds after the due date.
    `reclaim_preemption_ratio` is preemptions by reclaimed servers over jobs submitted (Aryl, table
    5). The next two are averages over all reclaims (7.2, 7.3). `reclaim_collateral_damage` is the
    GPUs that were vacated besides, over those asked back. `reclaim_flexible_share` is the share of
    the servers with flexible workers only. `preemptions` are all interruptions; `resizes` are those
    after which a job went on at once with other GPUs. `guaranteed` jobs were promised one of their
    deadlines, and `promises_missed` of them ended after it; None where the policy promises nothing.
    `profiler_pending_s`: from the submit of a job that was profiled to its first trial, and
    `ended_in_trial_ratio` the share of them that were done in it; None without such jobs.
    `machine_hours`: of rented machines, billed, by pool; None where none are rented by need.
    """

    jobs: int
    refused: int
    avg_jct_s: float | None
    median_jct_s: float | None
    p95_jct_s: float | None
    avg_queue_s: float | None
    median_queue_s: float | None
    p95_queue_s: float | None
    makespan_s: float | None
    preemptions: int
    overhead_gpu_s: float
    gpu_utilization: float | None
    wdmr: float | None
    slo_met_ratio: float | None
    be_avg_jct_s: float | None
    resizes: int = 0
    cost: float | None = None
    tardiness_cost: float | None = None
    reclaim_preemption_ratio: float | None = None
    reclaim_collateral_damage: float | None = None
    reclaim_flexible_share: float | None = None
    guaranteed: int | None = None
    promises_missed: int | None = None
    avg_profiler_pending_s: float | None = None
    max_profiler_pending_s: float | None = None
    ended_in_trial_ratio: float | None = None
    machine_hours: Mapping[str, float] | None = None


class Billed(NamedTuple):
    """The additions of a cluster with priced nodes or lent servers to a replay."""

    gpu_seconds: Number  # that were there
    cost: float | None = None  # None: nothing has a price
    reclaimed: int | None = None  # preemptions by reclaims; None: nothing is lent
    tolls: Sequence[Toll] = ()  # of every reclaim
    machine_hours: Mapping[str, float] | None = (
        None  # billed, by pool; None: nothing is rented by need
    )


def measure(
    outcomes: Sequence[ReplayOutcome],
    *,
    gpus: int,
    refused: int = 0,
    billed: Billed | None = None,
    promises: bool = False,
) -> Metrics:
    """The metrics of one replay on a cluster of `gpus` GPUs; makespan counts from first submit."""
    jcts = [outcome.jct_s for outcome in outcomes]
    pending = [
        outcome.trial_start_s - outcome.job.submit_time_s
        for outcome in outcomes
        if outcome.trial_start_s is not None
    ]
    queues = [outcome.queue_s for outcome in outcomes]
    bound = [outcome for outcome in outcomes if outcome.job.kind != "be"]
    best_effort = [outcome.jct_s for outcome in outcomes if outcome.job.kind == "be"]
    makespan = _makespan(outcomes)
    there = gpus * makespan if billed is None and makespan else billed and billed.gpu_seconds
    submitted = len(outcomes) + refused
    work = math.fsum(outcome.job.num_gpus * outcome.job.duration_s for outcome in outcomes)
    return Metrics(
        jobs=len(outcomes),
        refused=refused,
        avg_jct_s=mean(jcts),
        median_jct_s=percentile(jcts, 50),
        p95_jct_s=percentile(jcts, 95),
        avg_queue_s=mean(queues),
        median_queue_s=percentile(queues, 50),
        p95_queue_s=percentile(queues, 95),
        makespan_s=makespan,
        preemptions=sum(outcome.preemptions for outcome in outcomes),
        overhead_gpu_s=_settled(math.fsum(outcome.overhead_gpu_s for outcome in outcomes)),
        gpu_utilization=_settled(work / there) if there else None,
        wdmr=mean([_missed_share(outcome) for outcome in bound]),
        slo_met_ratio=mean([float(outcome.jct_s <= _first_deadline(outcome)) for outcome in bound]),
        be_avg_jct_s=mean(best_effort),
        cost=None if billed is None or billed.cost is None else _settled(billed.cost),
        tardiness_cost=_tardiness_cost(outcomes),
        reclaim_preemption_ratio=_settled(billed.reclaimed / submitted)
        if billed is not None and billed.reclaimed is not None and submitted
        else None,
        reclaim_collateral_damage=_mean_toll(billed, "collateral"),
        reclaim_flexible_share=_mean_toll(billed, "flexible"),
        resizes=sum(outcome.resizes for outcome in outcomes),
        guaranteed=sum(o.promised_s is not None for o in outcomes) if promises else None,
        promises_missed=sum(map(_broke_promise, outcomes)) if promises else None,
        avg_profiler_pending_s=mean(pending),
        max_profiler_pending_s=percentile(pending, 100),
        ended_in_trial_ratio=_settled(sum(o.ended_in_trial for o in outcomes) / len(pending))
        if pending
        else None,
        machine_hours=None if billed is None else billed.machine_hours,
    )


def _mean_toll(billed: Billed | None, name: str) -> float | None:
    """The mean over all reclaims; None: there was none."""
    return None if billed is None else mean([getattr(toll, name) for toll in billed.tolls])


def mean(values: Sequence[Number]) -> float | None:
    return _settled(math.fsum(values) / len(values)) if values else None


def percentile(values: Sequence[Number], percent: float) -> float | None:
    """Linear interpolation between the two nearest ranks (numpy's default)."""
    if not values:
        return None
    ordered = sorted(values)
    rank = (len(ordered) - 1) * percent / 100
    low = math.floor(rank)
    high = min(low + 1, len(ordered) - 1)
    return _settled(ordered[low] + (ordered[high] - ordered[low]) * (rank - low))


def _settled(value: Number) -> float:
    """A time, rounded to the microsecond: finer differences are the noise of doubles."""
    return round(float(value), 6)


def _makespan(outcomes: Sequence[ReplayOutcome]) -> float | None:
    if not outcomes:
        return None
    first = min(outcome.job.submit_time_s for outcome in outcomes)
    return _settled(max(outcome.finish_s for outcome in outcomes) - first)


def _tardiness_cost(outcomes: Sequence[ReplayOutcome]) -> float | None:
    """Weight x seconds after the due date, over all jobs that have one; a weight not given is 1."""
    due = [outcome for outcome in outcomes if outcome.job.due_s is not None]
    if not due:
        return None
    return _settled(math.fsum(lateness_cost(outcome) for outcome in due))


def lateness_cost(outcome: ReplayOutcome) -> Number:
    """Weight x seconds after the due date; 0 without one."""
    job = outcome.job
    if job.due_s is None:
        return 0
    return max(0, outcome.jct_s - job.due_s) * (1 if job.weight is None else job.weight)


def _broke_promise(outcome: ReplayOutcome) -> bool:
    promised_s = outcome.promised_s
    return promised_s is not None and outcome.jct_s > promised_s + NOISE_S


def _first_deadline(outcome: ReplayOutcome) -> Number:
    job = outcome.job
    if job.soft_steps:
        return job.soft_steps[0][0]
    return math.inf if job.deadline_s is None else job.deadline_s


def _missed_share(outcome: ReplayOutcome) -> float:
    """0 when the job earned its largest reward, 1 when it earned the least."""
    steps = outcome.job.soft_steps or ((_first_deadline(outcome), FULL),)
    return missed_share(steps, outcome.jct_s)
