"""Nodes that a job avoids: those on which the cluster failed its attempts, if others could hold it,
and reserved ones (control/reservations/reservations.py).

A job avoids the nodes on which its attempts failed as long as others, all taken together and empty,
could hold it. When there are none (any more) it may go anywhere. A member of a group avoids them
only if the nodes could hold all members that way: the group starts whole, or never. After an
attempt that was preempted in good order nothing is held against any node. When the master restarts,
the nodes are in the job's row. The agents and a silent line have no part in it.
"""

from math import isfinite

from dlq_master.control.loop.incidents import sheltered
from dlq_master.control.loop.turn import Turn
from dlq_master.control.reservations import reservations
from dlq_master.model.ids import NodeId
from dlq_master.model.jobs import job_steps as on_job
from dlq_master.model.jobs.job import Job
from dlq_master.model.nodes.node import NodeState
from dlq_master.policy.place.allocation.room_for_group import could_hold

_THERE = (NodeState.UP, NodeState.SUSPECT)  # a node that is late for a moment is still there


def steer(turn: Turn) -> None:
    """Before a plan: let jobs avoid what they have to."""
    retries, concerned = turn.state.jobs.retries, reservations.concerned(turn)
    if not retries.due and not concerned:
        return
    jobs = turn.state.cluster.jobs
    if retries.due:
        retries.due = False
        for job_id in list(retries.jobs):
            job = jobs.get(job_id)
            if job is None or job.ended or not (job.failed_nodes or job.request.avoid):
                del retries.jobs[job_id]
        concerned += retries.jobs
    for job_id in dict.fromkeys(concerned):
        if jobs[job_id].live_attempt is None:
            _steer(turn, jobs[job_id])


def _steer(turn: Turn, job: Job) -> None:
    fits = job.failed_nodes and _fits_elsewhere(turn, job) and _leaves_room(turn, job)
    failed = job.failed_nodes if fits else ()
    kept = reservations.kept_off(turn.state, job, turn.now_s)
    if isfinite(kept.until_s):
        turn.state.reservations.conflict_watch.due.set(job.job_id, kept.until_s)
    avoid = (*failed, *(node_id for node_id in kept.off if node_id not in failed))
    if avoid != job.request.avoid:
        cause = f"keeps off {', '.join(avoid)}" if avoid else "may go anywhere"
        turn.step_job(job.job_id, on_job.Avoids(node_ids=avoid), actor="master", cause=cause)


def _fits_elsewhere(turn: Turn, job: Job) -> bool:
    capacity = turn.state.cluster.capacity
    capacity.ready()
    out = set(job.failed_nodes) | _gone(turn)
    shape = turn.state.cluster.shape(job)._replace(avoid=())
    pools = [pool.without(out) for _, pool in shape.of_types(capacity.total)]
    find = turn.state.policy.placement.find
    return sheltered(lambda: any(find(pool, shape) is not None for pool in pools), lambda _: False)


def _leaves_room(turn: Turn, job: Job) -> bool:
    """Whether the group of the job can be placed although the job avoids nodes."""
    if job.group is None:
        return True
    cluster, gone = turn.state.cluster, _gone(turn)
    there = [node for node in cluster.nodes.values() if node.node_id not in gone]
    own = cluster.shape(job)._replace(avoid=job.failed_nodes)
    members = [cluster.jobs[it] for it in cluster.groups[job.group.array_id]]
    shapes = [own if it.job_id == job.job_id else cluster.shape(it) for it in members]
    return could_hold(there, shapes) is True


def _gone(turn: Turn) -> set[NodeId]:
    nodes = turn.state.cluster.nodes.values()
    return {node.node_id for node in nodes if node.state not in _THERE or node.closed}
