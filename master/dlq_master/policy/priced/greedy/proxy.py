"""The proxy functions that compare schedules: f_OBJ (P1a) and f-bar (1), as scores;
more is better.
"""

from __future__ import annotations

from dlq_master.model.late import np
from dlq_master.policy.priced.catalogue import Floats
from dlq_master.policy.priced.greedy.batch import ScheduleRows
from dlq_master.policy.priced.rules import Proxy, Rules

_HOUR_S = 3600.0
_LEAST = 1e-12  # $, so that what is free is not divided by


def score(batch: ScheduleRows, rules: Rules) -> Floats:
    """The score of each row."""
    if rules.proxy is Proxy.EFFICIENCY:
        return efficiency(batch)
    return -(released_cost(batch, rules) if rules.released else cost(batch, rules))


def cost(batch: ScheduleRows, rules: Rules) -> Floats:
    """f_OBJ of each row as printed: a sum of four parts, with due dates counted from now.

    They are tardiness, rho times the worst tardiness of waiting jobs, mu for each idle GPU, and the
    deployment cost. The worst tardiness is that of a job in its slowest configuration a whole
    interval later. A node's deployment cost lasts until its first job ends (the minimum chooses
    alpha_jn).
    """
    situation = batch.situation
    time, runs = batch.times(), batch.runs
    late = np.where(runs, np.maximum(0.0, np.where(runs, time, 0.0) - situation.due), 0.0)
    worst = np.maximum(0.0, situation.interval_s + situation.slowest - situation.due)
    waiting = np.where(runs, 0.0, worst)
    nodes = (batch.node_prices() / _HOUR_S * first_end(batch)).sum(axis=1)
    idle = rules.mu * batch.idle().sum(axis=1)
    total: Floats = (late + rules.rho * waiting) @ situation.weight + idle + nodes
    return total


def released_cost(batch: ScheduleRows, rules: Rules) -> Floats:
    """f_OBJ of each row in the released program (see `rules`)."""
    situation = batch.situation
    time, runs = batch.times(), batch.runs
    first = time.min(axis=1, initial=np.inf)
    first = np.where(np.isfinite(first), first, 0.0)
    late = np.where(runs, np.maximum(0.0, first[:, None] - situation.due), 0.0)
    worst = np.where(runs, 0.0, np.maximum(0.0, situation.slowest - situation.due))
    nodes = batch.node_prices().sum(axis=1) / _HOUR_S * first
    total: Floats = nodes + (late + rules.rho * worst) @ situation.weight
    return total


def efficiency(batch: ScheduleRows) -> Floats:
    """f-bar of each row: the sum of M_j / (pi_j + w_j tau_j) over running jobs.

    pi_j is the job's share of its node, by the GPUs in use, as in the released program. As printed
    (P1j) each job pays for the whole node, which makes sharing look dear.
    """
    situation = batch.situation
    time, runs = batch.times(), batch.runs
    at = np.maximum(batch.node, 0).astype(np.intp)
    price = np.take_along_axis(batch.node_prices(), at, axis=1) / _HOUR_S
    price = price * batch.gpus / np.maximum(1, np.take_along_axis(batch.used, at, axis=1))
    time = np.where(runs, time, 0.0)
    late = np.maximum(0.0, time - situation.due) * situation.weight
    value = situation.slowest / np.maximum(time * price + late, _LEAST)
    found: Floats = np.where(runs, value, 0.0).sum(axis=1)
    return found


def first_end(batch: ScheduleRows) -> Floats:
    """[row, node]: when the first job on it ends; 0 where nothing runs."""
    time = batch.times()
    first = np.full(batch.used.shape, np.inf)
    rows, jobs = np.nonzero(batch.runs)
    np.minimum.at(first, (rows, batch.node[rows, jobs]), time[rows, jobs])
    return np.where(np.isfinite(first), first, 0.0)
