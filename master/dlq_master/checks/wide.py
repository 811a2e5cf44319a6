"""A wide start comes after checks of the idle nodes, or when its time is over.

One rule holds for jobs, tasks and groups. Where so many GPUs start together, each of their jobs has
a begin, `wide_wait` after its submission. When all checks for it are over, the begins are
taken away, in one turn. Other jobs come first: a node on which one could start is not checked. A
check that hangs, a silent node and a restart of the master delay it no further than its begin. A
user may take the begin away at once (`dlq update JOB begin=none`).
"""

from __future__ import annotations

from collections.abc import Iterable

from dlq_master.checks.due import WIDE, DueCheck
from dlq_master.control.loop.turn import Turn
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.eligible import Block
from dlq_master.model.nodes.node import LastCheck

BY = "master"


def mark(turn: Turn) -> None:
    """Ask for checks of the nodes that have not passed of late, once for each wide start."""
    state, checks = turn.state, turn.state.nodes.checks
    for job_id in [one for one in checks.wide if not _holds(turn, one)]:
        _forget(turn, job_id)
    if new := checks.wide.keys() - checks.asked_for:
        checks.asked_for |= new
        since_s = turn.now_s - state.config.checks.wide_age
        kinds = [kind for kind, rule in state.config.checks.kinds.items() if WIDE in rule.when]
        for node_id in state.cluster.nodes:
            last = checks.last.get(node_id, {})
            if not all(_is_fresh(last.get(kind), since_s) for kind in kinds):
                checks.marked.setdefault(node_id, {})[WIDE] = turn.now_s


def let_begin(turn: Turn, found: Iterable[DueCheck], running: int) -> None:
    """Let wide jobs begin for which no check is due any more. So many checks still run, on nodes
    that answer.
    """
    checks = turn.state.nodes.checks
    if running or any(one.why == WIDE for one in found):
        return
    for job_id in list(checks.wide):
        _forget(turn, job_id)
        gates, cluster = turn.state.jobs.gates, turn.state.cluster
        job = cluster.jobs[job_id]
        cluster.put_job(job._replace(begin_time_s=None, version=job.version + 1))
        gates.begins.clear(job_id)
        gates.stirred[job_id] = None
        turn.plan_due = True
        waited_s = round(turn.now_s - job.submit_time_s, 1)
        cause = "the checks of the idle nodes are over"
        turn.note("job_begin_cleared", job_id=job_id, actor=BY, cause=cause, waited_s=waited_s)


# --- helpers, in order of use ---------------------------------------------------------------------


def _holds(turn: Turn, job_id: JobId) -> bool:
    """Whether the job still waits for the begin that it got for checks."""
    job = turn.state.cluster.jobs.get(job_id)
    if job is None or job.ended or job.blocked is not Block.BEGIN_TIME:
        return False
    return job.begin_time_s == turn.state.nodes.checks.wide[job_id]


def _forget(turn: Turn, job_id: JobId) -> None:
    checks = turn.state.nodes.checks
    checks.wide.pop(job_id, None)
    checks.asked_for.discard(job_id)


def _is_fresh(told: LastCheck | None, since_s: float) -> bool:
    return told is not None and bool(told.passed) and told.time_s > since_s
