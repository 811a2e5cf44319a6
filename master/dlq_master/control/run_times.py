"""How long a job takes on each pool's machines: what its user says, and what earlier jobs have shown.

t(job, type, g) is `policy.priced.learning`, fitted anew as jobs end: of a job with an estimate it says how that changes with
the type and the number of GPUs, of one without how long it takes. What happens when: the master restarts - it learns from
the ended jobs that it has loaded.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from dlq_master.control.turn import Turn
from dlq_master.model.ids import JobId
from dlq_master.model.job import Job, JobState

if TYPE_CHECKING:
    from dlq_master.policy.priced.catalogue import Floats
    from dlq_master.policy.priced.learning import Kin, Learned

LEARN_EVERY_S = 30.0
_LEAST_S = 1.0  # that is left of a job, whatever was said of it


def left_s(turn: Turn, job: Job) -> Floats:
    """By pool and GPUs - 1: what is left of it there; inf where it may not run."""
    import numpy as np

    pools, request = turn.state.config.pools, job.request
    table = _table(turn, job)
    whole_s = job.duration_estimate_s
    if whole_s is not None:
        table = table * (whole_s / table[-1, min(request.gpus, table.shape[1]) - 1])
    done = min(1.0, job.worked_s / table[-1, min(request.gpus, table.shape[1]) - 1])
    left = np.maximum(table * (1.0 - done), _LEAST_S)
    found = np.full((len(pools), table.shape[1]), inf)
    for n, pool in enumerate(pools):
        if request.gpu_type in (None, pool.gpu_type):
            for gpus in request.sizes or (request.gpus,):
                if gpus <= pool.gpus:
                    found[n, gpus - 1] = left[n, gpus - 1]
    return found


def lasts_s(turn: Turn, job: Job) -> float:
    """What is left of it on what it asks for, on the cluster's own nodes."""
    whole_s = job.duration_estimate_s
    if whole_s is None:
        table = _table(turn, job)
        whole_s = float(table[-1, min(job.request.gpus, table.shape[1]) - 1])
    return max(_LEAST_S, whole_s - job.worked_s)


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
                rented.tables.clear()
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
