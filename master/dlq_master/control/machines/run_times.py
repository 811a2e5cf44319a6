"""Run times on each pool's machines (`policy.rent.times`), with what is learned from the jobs that
have ended.

When the master restarts, it learns from the ended jobs that it has loaded.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from dlq_master.control.loop.turn import Turn
from dlq_master.control.pool_config import node_type
from dlq_master.model.jobs.job import Job, JobState
from dlq_master.model.late import np

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
        rented.times = MachineRunTimes(types, [pool.speed for pool in pools], draw)
        rented.learned_s = -inf
    if turn.now_s >= rented.learned_s + LEARN_EVERY_S:
        rented.learned_s = turn.now_s
        for job in turn.state.cluster.jobs.values():
            if job.state is JobState.COMPLETED and job.job_id not in rented.learned_from:
                rented.learned_from.add(job.job_id)
                rented.times.learn(job, _speed(turn, job))
    return rented.times


def _speed(turn: Turn, job: Job) -> float:
    """Of the GPUs on which it was done: of the pool of that machine, or 1 on own nodes."""
    if job.foretold is None or not job.foretold.pool:
        return 1.0  # no machine was ever chosen for it: nothing is read
    last = max(turn.archive.attempts(job.job_id), key=lambda it: it.key.number, default=None)
    there = () if last is None else last.lease.allocation.node_ids
    speeds = {pool.name: pool.speed for pool in turn.state.config.pools}
    ran_on = [turn.state.machines.fleet.last_of_node(node_id) for node_id in there]
    return next((speeds[one.pool] for one in ran_on if one and one.pool in speeds), 1.0)
