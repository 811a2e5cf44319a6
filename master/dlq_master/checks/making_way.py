"""Checks make way for jobs that could run where they are, and for no others.

The policy itself is asked: what would it start now if no check ran? A job that waits for a quota,
for a slot, or for more GPUs than there are gets nothing then. So it ends no check. The
question changes nothing. A check has nothing to save, so its end costs nothing but the check. A
check that goes first makes way for nobody (checks/due.py, `overdue`).
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from contextlib import contextmanager

from dlq_master.checks import starting
from dlq_master.control.loop.incidents import sheltered
from dlq_master.control.loop.turn import Turn
from dlq_master.control.placement.execution import look
from dlq_master.model.attempts.attempt import Attempt
from dlq_master.model.ids import NodeId
from dlq_master.model.jobs import job_steps as on_job
from dlq_master.model.transitions import StopCause
from dlq_master.policy.pipeline import decide


def may_end(turn: Turn) -> bool:
    """Whether there is a check that a job could end."""
    return any(True for _ in _on_open_nodes(turn))


def wanted(turn: Turn) -> Set[NodeId]:
    """The nodes on which jobs would start now if no check ran on an open node."""
    cluster = turn.state.cluster
    if not cluster.waiting.count:
        return frozenset()
    policy = turn.state.placement.offloaded.quick(turn.state.policy)
    cluster.capacity.ready()
    with _set_aside(turn):
        # A policy that fails plans nothing either: nobody waits for these nodes then.
        starts = sheltered(lambda: decide(look(turn), policy).chosen, lambda _: {})
        node_ids = cluster.capacity.node_ids
        return {node_ids[ordinal] for parts in starts.values() for ordinal, _ in parts}


def make_way(turn: Turn, node_ids: Set[NodeId]) -> None:
    """End the checks on these nodes."""
    for attempt in [*_on_open_nodes(turn)]:
        if any(status.node_id in node_ids for status in attempt.ranks):
            cancelled, job_id = on_job.Cancelled(), attempt.key.job_id
            turn.step_job(job_id, cancelled, actor=starting.BY, cause="a job needs its node")
            turn.stop(attempt.key, StopCause.CANCEL, grace_s=0.0, actor=starting.BY)


# --- helpers, in order of use ---------------------------------------------------------------------


@contextmanager
def _set_aside(turn: Turn) -> Iterator[None]:
    """Meanwhile no check holds GPUs of an open node."""
    claims, checks = turn.state.cluster.claims, [*_on_open_nodes(turn)]
    for attempt in checks:
        claims.change(attempt, None)
    try:
        yield
    finally:
        for attempt in checks:
            claims.change(None, attempt)


def _on_open_nodes(turn: Turn) -> Iterator[Attempt]:
    """The checks that run on open nodes, have not been told to end, and do not go first."""
    cluster, checks = turn.state.cluster, turn.state.nodes.checks
    for job_id in sorted(checks.living - checks.first):
        job = cluster.jobs.get(job_id)
        key = None if job is None else job.live_key
        if key is not None and cluster.attempts[key].stop_cause is None:
            attempt = cluster.attempts[key]
            nodes = [cluster.nodes.get(rank.node_id) for rank in attempt.ranks]
            if any(node is not None and node.open for node in nodes):
                yield attempt
