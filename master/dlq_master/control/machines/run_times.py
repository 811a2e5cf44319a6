"""Run times on each pool's machines (`policy.rent.times`), with what is learned from the jobs that
have ended.

When the master restarts, it learns from the ended jobs that it has loaded.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from dlq_master.control.loop.turn import Turn
from dlq_master.control.pool_config import node_type, speed_of
from dlq_master.model.jobs.job import Job, JobState
from dlq_master.model.late import np
from dlq_master.model.nodes.type_speeds import REFERENCE

if TYPE_CHECKING:
    from dlq_master.policy.rent.times import MachineRunTimes

LEARN_EVERY_S = 30.0


def run_times(turn: Turn) -> MachineRunTimes:
    """The models, with what has ended since they were last looked at."""
    from dlq_master.policy.rent.times import MachineRunTimes

    rented, pools = turn.state.machines, turn.state.config.pools
    if rented.times is None:
        draw = np.random.default_rng(turn.state.epoch)
        types = [node_type(pool) for pool in pools]
        declared = turn.state.cluster.speeds
        speeds = [speed_of(pool, declared) for pool in pools]
        rented.times = MachineRunTimes(types, speeds, draw, declared)
        rented.learned_s = -inf
    if turn.now_s >= rented.learned_s + LEARN_EVERY_S:
        rented.learned_s = turn.now_s
        for job in turn.state.cluster.jobs.values():
            if job.state is JobState.COMPLETED and job.job_id not in rented.learned_from:
                rented.learned_from.add(job.job_id)
                rented.times.learn(job, *_speeds(turn, job))
    return rented.times


def _speeds(turn: Turn, job: Job) -> tuple[float, float]:
    """Of the GPUs on which it was done, and the one by which its service counts. On a machine the
    first is that of its pool.
    """
    declared = turn.state.cluster.speeds
    if not declared.declared and (job.foretold is None or not job.foretold.pool):
        return REFERENCE, REFERENCE  # no machine was ever chosen for it: nothing is read
    last = max(turn.archive.attempts(job.job_id), key=lambda it: it.key.number, default=None)
    if last is None:
        return REFERENCE, REFERENCE
    speeds = {pool.name: speed_of(pool, declared) for pool in turn.state.config.pools}
    there = last.lease.allocation.node_ids
    ran_on = [turn.state.machines.fleet.last_of_node(node_id) for node_id in there]
    of_pool = (speeds[one.pool] for one in ran_on if one and one.pool in speeds)
    return next(of_pool, last.speed), last.speed
