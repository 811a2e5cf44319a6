"""When waiting jobs will start: the present state simulated several times, with other run times.

Each simulation is called a world.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import inf, isfinite, isinf, sqrt
from statistics import NormalDist
from typing import NamedTuple

from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.eligible import Block
from dlq_master.model.jobs.job import Job
from dlq_master.planner.forecasts import Forecast, Range, StartEstimate
from dlq_master.policy.policy import Policy
from dlq_simulator.errors import SimulateError
from dlq_simulator.twin.arrivals import matter, newcomers
from dlq_simulator.twin.runtimes import RunTimes
from dlq_simulator.twin.world import GRID_S, TwinWorld

WORLDS = 7  # a prime number
# The correlation of run times with the common part of a world (its square: that between two jobs).
# Chosen on replays (`benchmarks.planning.eta`): about four starts of five come in their range.
_COMMON = 0.3
_NORMAL = NormalDist()
# The common quantile of each world: the middle first, for a single world is the middle one.
_WORLD_Z = tuple(_NORMAL.inv_cdf((place + 0.5) / WORLDS) for place in (3, 6, 0, 5, 1, 4, 2))
# A start is not forecast further ahead.
HORIZON_S = 7 * 86_400.0
_LOW, _HIGH = 0.1, 0.9
# Of the time ahead; no run time is known as well as that.
_COARSE = 0.03
# From the decision to start a job until it runs, as a rule.
_PREPARING_S = 15.0


# Gives a state of its own to each world, and the policy that goes on with it.
Thaw = Callable[[], tuple[Cluster, Policy]]
Spent = Callable[[], float]  # the spent part of the budget


class Worlds(NamedTuple):
    """The same state, simulated as often as needed. `recent`: the last submitted jobs."""

    thaw: Thaw
    now_s: float
    run_times: RunTimes
    recent: Sequence[Job] = ()

    def twin(self, number: int, come: Sequence[Job] = ()) -> TwinWorld:
        """One of the worlds. `come`: jobs that do not exist yet."""
        come = [_submitted(job, self.now_s) for job in come]
        cluster, policy = self.thaw()
        others = newcomers(self.recent, self.now_s, number) if matter(policy) else []
        work = _work(self.run_times, number)
        return TwinWorld(cluster, policy, self.now_s, work, come, others, coarse=_COARSE)


def foresee(worlds: Worlds, spent: Spent, come: Sequence[Job] = ()) -> Forecast:
    """Simulate one world after another within the budget. `come`: jobs submitted now.

    The first world may take a third of the budget, and the others simulate as far ahead as it did.
    A world begins only if the rest of the budget suffices, by the cost of the first.
    """
    now_s = worlds.now_s
    first = worlds.twin(0, come)
    until_s = _run(first, now_s + HORIZON_S, partial(_over, spent, 1 / 3))
    seen, ends = [first.starts], [first.deadline_ends()]
    cost = spent()
    for number in range(1, WORLDS):
        if spent() + cost > 1.0:
            break
        world = worlds.twin(number, come)
        _run(world, min(until_s, now_s + HORIZON_S), partial(_over, spent, 1.0))
        seen.append(world.starts)
        ends.append(world.deadline_ends())
    starts, over = _ranges(seen, now_s), _ranges(ends, now_s)
    return Forecast(now_s, starts, until_s, len(seen), ends=over)


def foresee_one(worlds: Worlds, spent: Spent, job: Job) -> StartEstimate:
    """When a job starts and ends, submitted or not. Each world is simulated until the job ends.

    If the budget ends before, the end is computed as if the job ran on undisturbed.
    """
    starts: list[float] = []
    ends: list[float] = []
    cost = 0.0
    likely: Job | None = None  # at its start in the first world
    cluster, _ = worlds.thaw()
    come = () if job.job_id in cluster.jobs else (job,)
    for number in range(WORLDS):
        if number and spent() + cost > 1.0:
            break
        twin = worlds.twin(number, come)
        enough = partial(_over, spent, 1.0 if number else 0.5)
        starts.append(_start(twin, job.job_id, worlds.now_s + HORIZON_S, enough))
        likely = likely or twin.cluster.jobs.get(job.job_id)
        ends.append(_end(twin, job.job_id, worlds.now_s + HORIZON_S, enough))
        cost = cost or spent()
    basis = worlds.run_times.basis(job).value
    now_s = worlds.now_s
    found = StartEstimate(now_s, _found(starts, now_s), _found(ends, now_s), basis)
    if not come or likely is None:
        return found
    return found._replace(judged=bool(likely.verdict), promised=likely.promised)


def _submitted(job: Job, now_s: float) -> Job:
    """The job as if submitted now, or when its begin time lets it wait."""
    if job.blocked is Block.BEGIN_TIME and job.begin_time_s is not None:
        return job._replace(blocked=None, submit_time_s=max(now_s, job.begin_time_s))
    return job._replace(submit_time_s=now_s)


def _over(spent: Spent, most: float) -> bool:
    return spent() > most


def _start(twin: TwinWorld, job_id: JobId, until_s: float, enough: Callable[[], bool]) -> float:
    """Its (next) start in one world; inf: not in that time."""
    _run(twin, until_s, lambda: job_id not in twin.waiting or enough())
    return twin.starts.get(job_id, inf)


def _end(twin: TwinWorld, job_id: JobId, until_s: float, enough: Callable[[], bool]) -> float:
    """Its end in a world that has reached its start; inf: not in that time."""
    end_s: float | None = None
    if job_id not in twin.waiting:
        try:
            end_s = twin.run_out(job_id, until_s, enough)
        except SimulateError:
            end_s = None
        if end_s is None and job_id in twin.courses and twin.courses[job_id].attempt:
            end_s = twin.courses[job_id].finish_s
    return inf if end_s is None else end_s


def _ranges(worlds: Sequence[Mapping[JobId, float]], now_s: float) -> dict[JobId, Range]:
    """The range of each job that is in one of the worlds."""
    jobs = dict.fromkeys(job_id for one in worlds for job_id in one)
    return {job_id: _range([one.get(job_id, inf) for one in worlds], now_s) for job_id in jobs}


def _found(instants_s: list[float], now_s: float) -> Range | None:
    return None if all(isinf(at_s) for at_s in instants_s) else _range(instants_s, now_s)


def _run(twin: TwinWorld, until_s: float, enough: Callable[[], bool]) -> float:
    try:
        return twin.run(until_s, enough)
    except SimulateError:  # it stands still: the earlier forecast is as good as ever
        return float(twin.now_s)


def _work(run_times: RunTimes, world: int) -> Callable[[Job, float], float]:
    return lambda job, done_s: run_times.work_s(job, done_s, quantile_of(world, job.job_id))


def quantile_of(world: int, job_id: JobId) -> float:
    """The place of a job's run time in its distribution, in this world.

    It comes from a normal copula, in which all jobs of a world share a factor. Many jobs together
    are far more certain than one if their run times follow the past. Sometimes they do not, and
    that doubt is common to all. The rest is the job's own. All worlds together cover its whole
    distribution, one in each part of it, in the job's own order (a Latin hypercube). It is the same
    at every refresh, so that only real events change an estimate.
    """
    mixed = _mixed(job_id)
    step, first = 1 + mixed % (WORLDS - 1), (mixed >> 8) % WORLDS
    part = (step * world + first) % WORLDS  # each once, WORLDS being prime
    own = (part + _mixed(job_id * WORLDS + world) / 2**64) / WORLDS
    own_z = _NORMAL.inv_cdf(min(1 - 1e-9, max(1e-9, own)))
    return _NORMAL.cdf(_COMMON * _WORLD_Z[world] + sqrt(1 - _COMMON**2) * own_z)


def _mixed(number: int) -> int:
    """64 bits that look random (splitmix64)."""
    mixed = number * 0x9E3779B97F4A7C15 & _MASK
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB & _MASK
    return mixed ^ (mixed >> 31)


_MASK = 2**64 - 1


def _range(starts_s: list[float], now_s: float) -> Range:
    """The range over the instants of one job in all worlds.

    Of n ordered instants the first stands for the share 1/2n, and so on. A decision comes somewhat
    later than its event, and the agent needs time to start a program.
    """
    ordered = sorted(starts_s)
    count = len(ordered)
    low_s, likely_s, high_s = (ordered[_place(share, count)] for share in (_LOW, 0.5, _HIGH))
    if isfinite(low_s):
        low_s = max(now_s, low_s - max(GRID_S, _COARSE * (low_s - now_s)))
    return Range(low_s, likely_s, high_s + _PREPARING_S)


def _place(share: float, count: int) -> int:
    return min(count - 1, max(0, round(share * count - 0.5)))
