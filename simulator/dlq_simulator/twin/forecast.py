"""When waiting jobs will start: the same state continued in several worlds, that differ in how long jobs run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, isinf
from typing import NamedTuple

from dlq_master.model.cluster import Cluster
from dlq_master.model.ids import JobId
from dlq_master.model.job import Job
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


class Range(NamedTuple):
    """When it will start, at best, probably and at worst, in seconds of the master's axis. `inf`: later than
    was looked ahead."""

    low_s: float
    likely_s: float
    high_s: float


class Forecast(NamedTuple):
    """Of the jobs that wait at `at_s`; those that never start in any world are not there.

    `complete_to_s`: up to then the likely world was worked out. `worlds`: how many were.
    """

    at_s: float
    starts: dict[JobId, Range]
    complete_to_s: float
    worlds: int


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
