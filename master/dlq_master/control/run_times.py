"""How long a job takes on each pool's machines: what its user says, and what earlier jobs have shown.

t(job, type, g) is `policy.priced.learning`, fitted anew as jobs end: of a job with an estimate it says how that changes with
the type and the number of GPUs, of one without how long it takes. What happens when: the master restarts - it learns from
the ended jobs that it has loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from math import inf, nan
from typing import TYPE_CHECKING, cast

from dlq_master.control.pool_config import PoolConfig
from dlq_master.control.pool_state import Kept, Value
from dlq_master.control.turn import Turn
from dlq_master.model.ids import JobId
from dlq_master.model.job import Job, JobState
from dlq_master.policy.rent.own import InLine

if TYPE_CHECKING:
    from dlq_master.policy.priced.catalogue import Bools, Floats
    from dlq_master.policy.priced.learning import Kin, Learned

LEARN_EVERY_S = 30.0
_LEAST_S = 1.0  # that is left of a job, whatever was said of it


def left_s(turn: Turn, jobs: Sequence[Job]) -> list[Floats]:
    """Of each job by pool and GPUs - 1: what is left of it there; inf where it may not run."""
    _learned(turn)
    rented = turn.state.pools
    rented.lefts = _kept(rented.lefts, jobs, partial(_left_s, turn))
    return [left for _, left in rented.lefts.values()]


def in_line(turn: Turn, jobs: Sequence[Job]) -> list[InLine]:
    """Each of them as it stands in line for the cluster's own nodes."""
    _learned(turn)
    rented = turn.state.pools
    rented.lines = _kept(rented.lines, jobs, lambda new: [_in_line(turn, job) for job in new])
    return [one for _, one in rented.lines.values()]


def _kept(
    before: Kept[Value], jobs: Sequence[Job], work_out: Callable[[list[Job]], Iterable[Value]]
) -> Kept[Value]:
    """In the order of the jobs: what is known of those that are the same values as before, and of the others anew."""
    found = {job.job_id: before.get(job.job_id) for job in jobs}
    new = [job for job in jobs if (one := found[job.job_id]) is None or one[0] is not job]
    found.update(zip([job.job_id for job in new], zip(new, work_out(new), strict=True), strict=True))  # fmt: skip
    return cast("Kept[Value]", found)


def _left_s(turn: Turn, jobs: list[Job]) -> Iterable[Floats]:
    import numpy as np

    if not jobs:
        return []
    whole = np.stack([_table(turn, job) for job in jobs])
    every = np.arange(len(jobs))
    asked = [min(job.request.gpus, whole.shape[2]) - 1 for job in jobs]
    told_s = np.array([nan if job.duration_estimate_s is None else job.duration_estimate_s for job in jobs])  # fmt: skip
    scale = np.where(np.isnan(told_s), 1.0, told_s / whole[every, -1, asked])
    whole = whole * scale[:, None, None]
    worked_s = np.array([job.worked_s for job in jobs])
    done = np.minimum(1.0, worked_s / whole[every, -1, asked])
    left = np.maximum(whole * (1.0 - done)[:, None, None], _LEAST_S)
    may = cache(partial(_may_run, turn.state.config.pools, whole.shape[2]))
    allowed = np.stack([may(job.request.gpu_type, job.request.sizes or (job.request.gpus,)) for job in jobs])  # fmt: skip
    return np.where(allowed, left[:, :-1], inf)


def _may_run(
    pools: tuple[PoolConfig, ...], width: int, gpu_type: str | None, sizes: tuple[int, ...]
) -> Bools:
    """By pool and GPUs - 1: whether who asks for such GPUs, in one of these numbers, may run there."""
    import numpy as np

    count = np.arange(1, width + 1)
    typed = np.array([gpu_type in (None, pool.gpu_type) for pool in pools])
    gpus = np.array([pool.gpus for pool in pools])
    may: Bools = typed[:, None] & np.isin(count, sizes) & (count <= gpus[:, None])
    return may


def _in_line(turn: Turn, job: Job) -> InLine:
    """With what is left of it on what it asks for."""
    whole_s = job.duration_estimate_s
    if whole_s is None:
        table = _table(turn, job)
        whole_s = float(table[-1, min(job.request.gpus, table.shape[1]) - 1])
    return InLine(int(job.job_id), job.gpus_now, max(_LEAST_S, whole_s - job.worked_s))


def _table(turn: Turn, job: Job) -> Floats:
    """Seconds of jobs of its kin by pool, and on GPUs of speed 1 last, and by GPUs - 1; the same until more is known."""
    known, kin = _learned(turn), _kin(job)
    found = turn.state.pools.tables.get(kin)
    if found is None:
        found = turn.state.pools.tables[kin] = known.times(kin)
    return found


def _learned(turn: Turn) -> Learned:
    """The models, with what has ended since they were last looked at."""
    import numpy as np

    from dlq_master.policy.priced.learning import Learned

    rented = turn.state.pools
    pools = turn.state.config.pools
    if rented.learned is None:
        speeds = (*(pool.speed for pool in pools), 1.0)
        most = max(pool.gpus for pool in pools)
        rented.learned = Learned(speeds, most, np.random.default_rng(turn.state.epoch))
        rented.learned_s = -inf
    if turn.now_s >= rented.learned_s + LEARN_EVERY_S:
        rented.learned_s = turn.now_s
        for job in turn.state.cluster.jobs.values():
            if job.state is JobState.COMPLETED and job.job_id not in rented.learned_from:
                rented.learned_from.add(job.job_id)
                rented.forget_times()
                _learn(turn, rented.learned, job)
    return rented.learned


def _learn(turn: Turn, learned: Learned, job: Job) -> None:
    """Of one that ran through on one number of GPUs: mixtures say nothing of either."""
    from dlq_master.policy.priced.learning import Took

    if job.preemptions or job.resizes or job.total_executed_s <= 0.0:
        return
    gpus = round(job.total_gpu_s / job.total_executed_s)
    if 1 <= gpus <= learned.most:
        took = Took(gpus, _speed(turn, job.job_id), job.total_executed_s)
        learned.add(_kin(job), [took], str(job.job_id))


def _speed(turn: Turn, job_id: JobId) -> float:
    """Of the GPUs that it had: of the pool from which a machine was rented for it, else 1."""
    rented_from = {one.pool for one in turn.state.pools.machines.values() if job_id in one.jobs}
    speeds = {pool.name: pool.speed for pool in turn.state.config.pools}
    return next((speeds[name] for name in sorted(rented_from) if name in speeds), 1.0)


def _kin(job: Job) -> Kin:
    from dlq_master.policy.priced.learning import Kin

    return Kin(job.family or f"{job.user}/", job.step_count)
