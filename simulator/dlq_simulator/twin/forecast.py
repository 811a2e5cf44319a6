"""When waiting jobs will start: the same state continued in several worlds, that differ in how long jobs run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import inf, isinf

from dlq_master.model.cluster import Cluster
from dlq_master.model.ids import JobId
from dlq_master.model.job import Job
from dlq_master.planner.forecasts import Estimate, Forecast, Range
from dlq_master.policy.policy import Policy
from dlq_simulator.errors import SimulateError
from dlq_simulator.twin.runtimes import RunTimes
from dlq_simulator.twin.world import Twin

# The quantile of the run time, by job. The first world is the likely one: a run that is cut short has it.
LIKELY = 0.5
WORLDS = 7
# A start is not foreseen further ahead.
HORIZON_S = 7 * 86_400.0
_LOW, _HIGH = 0.1, 0.9


# Gives a state of its own to each world, and the policy that goes on with it.
Thaw = Callable[[], tuple[Cluster, Policy]]
Spent = Callable[[], float]  # the part of what may be spent that is


def foresee(
    thaw: Thaw, now_s: float, run_times: RunTimes, spent: Spent, *, come: Sequence[Job] = ()
) -> Forecast:
    """The worlds one after another, as far as time allows.

    The likely one may take a third of it. The others go as far ahead as that did, and no world is begun
    that would probably not end: how long one takes is known from the first.
    """
    cluster, policy = thaw()
    likely = Twin(cluster, policy, now_s, _work(run_times, 0), come)
    until_s = _run(likely, now_s + HORIZON_S, lambda: spent() > 1 / 3)
    seen = [likely.starts]
    cost = spent()
    for number in range(1, WORLDS):
        if spent() + cost > 1.0:
            break
        cluster, policy = thaw()
        world = Twin(cluster, policy, now_s, _work(run_times, number), come)
        _run(world, min(until_s, now_s + HORIZON_S), lambda: spent() > 1.0)
        seen.append(world.starts)
    jobs = dict.fromkeys(job_id for starts in seen for job_id in starts)
    starts = {job_id: _range([one.get(job_id, inf) for one in seen]) for job_id in jobs}
    return Forecast(now_s, starts, until_s, len(seen))


def foresee_one(thaw: Thaw, now_s: float, run_times: RunTimes, spent: Spent, job: Job) -> Estimate:
    """When a job starts and ends: one that is there, or one that would be submitted now.

    A world ends with the job. Where time runs out before, its end is as if it were left alone from then on.
    """
    starts: list[float] = []
    ends: list[float] = []
    cost = 0.0
    for number in range(WORLDS):
        if number and spent() + cost > 1.0:
            break
        cluster, policy = thaw()
        come = () if job.job_id in cluster.jobs else (job._replace(submit_time_s=now_s),)
        twin = Twin(cluster, policy, now_s, _work(run_times, number), come)
        most = 0.5 if number == 0 else 1.0
        start_s, end_s = _life(twin, job.job_id, now_s + HORIZON_S, partial(_over, spent, most))
        starts.append(start_s)
        ends.append(end_s)
        cost = cost or spent()
    basis = run_times.basis(job).value
    return Estimate(now_s, _found(starts), _found(ends), basis)


def _over(spent: Spent, most: float) -> bool:
    return spent() > most


def _life(
    twin: Twin, job_id: JobId, until_s: float, enough: Callable[[], bool]
) -> tuple[float, float]:
    """When it starts (next) and ends in one world; inf: not in that time."""
    _run(twin, until_s, lambda: job_id not in twin.waiting or enough())
    start_s = twin.starts.get(job_id, inf)
    end_s: float | None = None
    if job_id not in twin.waiting:
        try:
            end_s = twin.run_out(job_id, until_s, enough)
        except SimulateError:
            end_s = None
        if end_s is None and job_id in twin.courses and twin.courses[job_id].attempt:
            end_s = twin.courses[job_id].finish_s
    return start_s, inf if end_s is None else end_s


def _found(instants_s: list[float]) -> Range | None:
    return None if all(isinf(at_s) for at_s in instants_s) else _range(instants_s)


def _run(twin: Twin, until_s: float, enough: Callable[[], bool]) -> float:
    try:
        return twin.run(until_s, enough)
    except SimulateError:  # it stands still: what was seen before is as good as ever
        return float(twin.now_s)


def _work(run_times: RunTimes, world: int) -> Callable[[Job, float], float]:
    return lambda job, done_s: run_times.work_s(job, done_s, quantile_of(world, job.job_id))


def quantile_of(world: int, job_id: JobId) -> float:
    """Where in the distribution a job's run time lies in a world: the same at every refresh, so that only
    what happens moves an estimate. Numbers spread like random ones (splitmix64)."""
    if world == 0:
        return LIKELY
    mixed = (job_id * 0x9E3779B97F4A7C15 + world * 0xD1B54A32D192ED03) & _MASK
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB & _MASK
    return (mixed ^ (mixed >> 31)) / 2**64


_MASK = 2**64 - 1


def _range(starts_s: list[float]) -> Range:
    """Of the same job in all worlds, the likely one first."""
    ordered = sorted(starts_s)
    last = len(ordered) - 1
    low_s, high_s = ordered[round(_LOW * last)], ordered[round(_HIGH * last)]
    likely_s = ordered[last // 2] if last > 1 else starts_s[0]
    return Range(low_s, likely_s, inf if isinf(likely_s) else high_s)
