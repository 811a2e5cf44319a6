"""Run times on each pool's machines (`policy.rent.times`), with what is learned from the jobs that
have ended.

Each completed job is a fact in a row (`model/jobs/machine_runs.py`), written in the
transaction that ends it. So a master that restarts has the same models. With a database of an
earlier version it learns from the ended jobs that it has loaded, and writes the rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from dlq_master.control.loop.turn import Turn
from dlq_master.control.pool_config import node_type, speed_of
from dlq_master.model.attempts.attempt import Attempt
from dlq_master.model.jobs.job import JobState
from dlq_master.model.jobs.machine_runs import KEPT, runs_of
from dlq_master.model.nodes.type_speeds import REFERENCE

if TYPE_CHECKING:
    from dlq_master.policy.rent.times import MachineRunTimes


def run_times(turn: Turn) -> MachineRunTimes:
    """The models, with the facts that count by now."""
    from dlq_master.policy.rent.times import MachineRunTimes

    rented, pools, runs = turn.state.machines, turn.state.config.pools, turn.state.cluster.ran
    if rented.times is None:
        _recall(turn)
        types = [node_type(pool) for pool in pools]
        declared = turn.state.cluster.speeds
        speeds = [speed_of(pool, declared) for pool in pools]
        rented.times = MachineRunTimes(types, speeds, runs, declared)
    rented.times.look(turn.now_s)
    return rented.times


def note_ended(turn: Turn, attempts: Iterable[Attempt]) -> None:
    """Before the commit: jobs that completed in this turn teach how long they took."""
    if not turn.state.config.pools:
        return
    for attempt in attempts:
        job = turn.state.cluster.jobs.get(attempt.key.job_id)
        if job is not None and job.state is JobState.COMPLETED and not attempt.live:
            _recall(turn)
            turn.state.cluster.ran.extend(runs_of(job, turn.now_s, *_speeds(turn, attempt)))


def _recall(turn: Turn) -> None:
    """Once, where nothing has been written yet: the jobs that ended before this turn, as they
    ended. The latest count, as many as are kept.
    """
    cluster, rented = turn.state.cluster, turn.state.machines
    if rented.recalled or cluster.ran.total:
        return
    rented.recalled = True
    done = [
        (job.end_time_s or 0.0, job)
        for job in cluster.jobs.values()
        if job.state is JobState.COMPLETED and (job.end_time_s or 0.0) < turn.now_s
    ]
    for end_s, job in sorted(done)[-KEPT:]:
        attempts = turn.archive.attempts(job.job_id)
        last = max(attempts, key=lambda it: it.key.number, default=None)
        speeds = (REFERENCE, REFERENCE) if last is None else _speeds(turn, last)
        cluster.ran.extend(runs_of(job, end_s, *speeds))


def _speeds(turn: Turn, attempt: Attempt) -> tuple[float, float]:
    """Of the GPUs on which it was done, and the one by which its service counts. On a machine the
    first is that of its pool.
    """
    declared = turn.state.cluster.speeds
    speeds = {pool.name: speed_of(pool, declared) for pool in turn.state.config.pools}
    fleet = turn.state.machines.fleet
    ran_on = [fleet.last_of_node(node_id) for node_id in attempt.lease.allocation.node_ids]
    of_pool = (speeds[one.pool] for one in ran_on if one and one.pool in speeds)
    return next(of_pool, attempt.speed), attempt.speed
