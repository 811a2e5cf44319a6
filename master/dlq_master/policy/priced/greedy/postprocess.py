"""The last steps of every schedule (section 3.3): smaller nodes, and idle GPUs to the jobs that
gain most.

Nodes are always of the cheapest type that holds the used GPUs (`ScheduleRows` knows no other). So
only the second part is left to do.
"""

from __future__ import annotations

from dlq_master.model.late import np
from dlq_master.policy.priced.catalogue import Floats, Ints
from dlq_master.policy.priced.greedy.batch import ScheduleRows


def give_idle(batch: ScheduleRows, *, to_one: bool = False) -> None:
    """All idle GPUs of a node to the job on it that ends the most seconds sooner, in place.

    `to_one`: only the job that gains most in the whole schedule gets any, as in the released
    program.
    """
    if not batch.node.size:
        return
    idle = np.take_along_axis(batch.idle(), np.maximum(batch.node, 0).astype(np.intp), axis=1)
    gain = _gain(batch, np.where(batch.runs, idle, 0))
    rows, jobs = _winners_of_rows(gain) if to_one else _winners_of_nodes(batch, gain)
    node, more = batch.node[rows, jobs], idle[rows, jobs].astype(np.int16)
    batch.gpus[rows, jobs] += more
    batch.used[rows, node] += more


def _gain(batch: ScheduleRows, more: Ints) -> Floats:
    """[row, job]: seconds won with so many more GPUs; 0 where there are none, or it may not have
    them.
    """
    jobs = np.arange(batch.node.shape[1])
    with_more = np.minimum(np.maximum(batch.gpus, 1) + more, batch.situation.time.shape[2])
    time: Floats = batch.situation.time[jobs, batch.kinds(), with_more - 1]
    wins = batch.runs & (more > 0)
    now = np.where(wins, batch.times(), 0.0)
    gain: Floats = np.maximum(now - np.where(wins, time, 0.0), 0.0)
    return gain


def _winners_of_rows(gain: Floats) -> tuple[Ints, Ints]:
    best = gain.argmax(axis=1)
    rows = np.flatnonzero(gain[np.arange(len(gain)), best] > 0)
    return rows, best[rows]


def _winners_of_nodes(batch: ScheduleRows, gain: Floats) -> tuple[Ints, Ints]:
    rows, jobs = np.nonzero(gain > 0)
    node = batch.node[rows, jobs]
    order = np.lexsort((jobs, -gain[rows, jobs], node, rows))
    rows, jobs, node = rows[order], jobs[order], node[order]
    first = np.ones(len(rows), dtype=bool)
    first[1:] = (rows[1:] != rows[:-1]) | (node[1:] != node[:-1])
    return rows[first], jobs[first]
