"""The last step of every schedule (section 3.3): idle GPUs go to the jobs that gain most.

The paper's other last step, smaller nodes, needs no code. `ScheduleRows` only knows nodes of the
cheapest type that holds the used GPUs.
"""

from __future__ import annotations

from dlq_master.model.late import np
from dlq_master.policy.priced.catalogue import Floats, Ints
from dlq_master.policy.priced.greedy.batch import ScheduleRows


def give_idle(batch: ScheduleRows, *, to_one: bool = False) -> None:
    """Give all idle GPUs of each node to the job on it whose end comes most seconds sooner, in
    place.

    `to_one`: only the job that gains most in the whole schedule gets GPUs, as in the released
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
    """[row, job]: seconds gained with `more` GPUs; 0 for no more GPUs, or a size that is not
    allowed.
    """
    jobs = np.arange(batch.node.shape[1])
    with_more = np.minimum(np.maximum(batch.gpus, 1) + more, batch.situation.time.shape[2])
    time: Floats = batch.situation.time[jobs, batch.kinds(), with_more - 1]
    wins = batch.runs & (more > 0)
    now = np.where(wins, batch.times(), 0.0)
    gain: Floats = np.maximum(now - np.where(wins, time, 0.0), 0.0)
    return gain


def _winners_of_rows(gain: Floats) -> tuple[Ints, Ints]:
    """Rows and jobs: the job of each row that gains most, if any gains."""
    best = gain.argmax(axis=1)
    rows = np.flatnonzero(gain[np.arange(len(gain)), best] > 0)
    return rows, best[rows]


def _winners_of_nodes(batch: ScheduleRows, gain: Floats) -> tuple[Ints, Ints]:
    """Rows and jobs: the job of each node that gains most, if any gains."""
    rows, jobs = np.nonzero(gain > 0)
    node = batch.node[rows, jobs]
    order = np.lexsort((jobs, -gain[rows, jobs], node, rows))
    rows, jobs, node = rows[order], jobs[order], node[order]
    first = np.ones(len(rows), dtype=bool)
    first[1:] = (rows[1:] != rows[:-1]) | (node[1:] != node[:-1])
    return rows[first], jobs[first]
