"""FIFO, EDF and priority scheduling as the paper compares with them: one job per node, to its end.

When a node is free, a waiting job gets the cheapest node type and number of GPUs that meet its due
date, else the fastest. It keeps them.
"""

from __future__ import annotations

from collections.abc import Callable

from dlq_master.model.late import np
from dlq_master.policy.priced.greedy.configurations import configurations, ranked_configurations
from dlq_master.policy.priced.situation import Grant, Schedule, Situation

Order = Callable[[Situation, int], float]  # of the job with this number; the least first


def fifo(situation: Situation, draw: np.random.Generator) -> Schedule:
    """Jobs in the order of submission."""
    return _one_each(situation, lambda at, job: 0.0)


def edf(situation: Situation, draw: np.random.Generator) -> Schedule:
    """The earliest due date first."""
    return _one_each(situation, lambda at, job: float(at.due[job]))


def ps(situation: Situation, draw: np.random.Generator) -> Schedule:
    """The largest tardiness weight first (priority scheduling)."""
    return _one_each(situation, lambda at, job: -float(at.weight[job]))


def _one_each(situation: Situation, order: Order) -> Schedule:
    """Running jobs go on; the other jobs take the free nodes in order, ties by key."""
    jobs, running = situation.jobs, situation.running
    here = {job.key for job in jobs}
    offered = situation.catalogue.offered
    grants = {
        key: grant
        for key, grant in running.grants.items()
        if key in here and running.types[grant.node] in offered
    }
    types = {grant.node: running.types[grant.node] for grant in grants.values()}
    waiting = [n for n, job in enumerate(jobs) if job.key not in grants]
    free = [node for node in range(situation.nodes) if node not in types]
    chosen = sorted(waiting, key=lambda n: (order(situation, n), jobs[n].key))[: len(free)]
    if not chosen:
        return Schedule(types, grants)
    found = ranked_configurations(situation)
    there_are = configurations(situation.catalogue)
    for job, node in zip(chosen, free, strict=False):
        types[node], _, gpus = there_are[int(found.best[job, 0])]
        grants[jobs[job].key] = Grant(node, gpus)
    return Schedule(types, grants)
