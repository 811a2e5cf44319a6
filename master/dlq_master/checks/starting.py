"""A check begins: a job of the configured user, started in the same turn on the nodes it checks.

The queue has no part in it, since a quarantined node takes no job of the queue. All else is as for
any job: lease, fence, isolation, accounting. It never runs again. So it ends where its node is
lost, and tells nothing then. When the agent or the master restarts, or the line is silent, it goes
on as any job does, and its result is heard later.
"""

from __future__ import annotations

import math

from dlq_common.errors import Conflict, IllegalTransition, InvalidRequest
from dlq_common.text.suggest import did_you_mean
from dlq_master.checks.due import PAIR
from dlq_master.control.activity_config import CHECK_KINDS
from dlq_master.control.jobs import submitting
from dlq_master.control.loop.once import Done, once
from dlq_master.control.loop.turn import Turn
from dlq_master.control.placement import execution
from dlq_master.control.stimuli import Caller, CheckNodes
from dlq_master.control.stimuli.jobs import CheckOrder
from dlq_master.model.ids import JobId, NodeId
from dlq_master.model.jobs import job_steps as on_job
from dlq_master.model.jobs.job import Job
from dlq_master.model.lease import LeaseKind, first_term_end_s
from dlq_master.model.nodes.node import Node
from dlq_master.model.plan import Admit, Plan, Start
from dlq_master.model.resources import CORE_TYPE, Allocation, Slot
from dlq_master.model.why import Reason, ReasonCode

BY = "master"


def _as_it_stands(turn: Turn, _ask: CheckNodes, word: str) -> Job:
    return turn.job(JobId(int(word)))


@once(_as_it_stands)
def check(turn: Turn, ask: CheckNodes) -> Done[Job]:
    """Begin the check that an operator asks for. Raises Conflict where it cannot be made now."""
    if ask.kind not in CHECK_KINDS:
        told = f"there is no check {ask.kind!r}{did_you_mean(ask.kind, CHECK_KINDS)}"
        raise InvalidRequest(told, field="kind", hint=", ".join(CHECK_KINDS))
    if len(set(ask.node_ids)) != (2 if ask.kind == PAIR else 1):
        many = "two nodes" if ask.kind == PAIR else "one node"
        raise InvalidRequest(f"check {ask.kind} takes {many}", field="node_ids")
    job = begin(turn, ask.kind, ask.node_ids, actor=ask.caller.actor, why="asked")
    return Done(job, job.job_id)


def begin(turn: Turn, kind: str, node_ids: tuple[NodeId, ...], *, actor: str, why: str) -> Job:
    """Submit a check and start it. Raises Conflict where a node is busy or closed."""
    checks = turn.state.nodes.checks
    assert checks.room is not None  # it calls this
    if turn.state.disk_full:
        raise Conflict("the master's disk is nearly full; checks wait")
    kinds = {_devices(turn, node_id) for node_id in node_ids}
    if len(kinds) != 1:
        raise Conflict(f"nodes {' and '.join(node_ids)} have other devices than each other")
    ((gpu_type, count),) = kinds
    order = CheckOrder(_owner(turn), kind, node_ids, gpu_type, count * len(node_ids))
    job = submitting.submit(turn, checks.room.make(order))().job
    checks.living.add(job.job_id)
    turn.note(
        "check_begun", job_id=job.job_id, node_id=node_ids[0], actor=actor, check=kind, why=why
    )
    try:
        execution.carry_out(turn, Plan((Admit(job.job_id, Reason(ReasonCode.ADMISSIBLE)),)))
        execution.carry_out(turn, Plan((_start(turn, job, node_ids, gpu_type, count),)))
    except Conflict as refused:
        turn.step_job(job.job_id, on_job.Cancelled(), actor=BY, cause=refused.what)
    return turn.job(job.job_id)


def usable(turn: Turn, node: Node) -> tuple[str, int]:
    """The type and the number of its devices that a check would get; cores where it has no GPU."""
    for gpu_type, owned in turn.state.cluster.capacity.masks_of(node.node_id).items():
        free = owned & ~node.withheld
        if free and (gpu_type != CORE_TYPE or not node.gpus):
            return gpu_type, free.bit_count()
    return "", 0


# --- helpers, in order of use ---------------------------------------------------------------------


def _devices(turn: Turn, node_id: NodeId) -> tuple[str, int]:
    node = turn.node(node_id)
    if not node.may_be_checked:
        told = ", ".join(sorted(node.flags)) or ("away" if node.away else node.state.value)
        raise Conflict(f"node {node_id} cannot be checked: it is {told}")
    if turn.state.cluster.attempts_on(node_id):
        raise Conflict(
            f"node {node_id} is busy: it was not checked",
            hint="a check takes a whole node: drain it, or wait until it is idle",
        )
    found = usable(turn, node)
    if not found[1]:
        raise Conflict(f"node {node_id} has nothing that takes work: its GPUs are withheld")
    return found


def _owner(turn: Turn) -> Caller:
    name = turn.state.config.checks.user
    user = turn.state.people.users.get(name)
    if user is None:
        raise IllegalTransition(f"[checks] user: there is no user {name}")
    return Caller(user.name, user.role, user.person, user.created_time_s)


def _start(turn: Turn, job: Job, node_ids: tuple[NodeId, ...], gpu_type: str, count: int) -> Start:
    """On the first devices of each node, until the end of a first term."""
    cluster, end_s = turn.state.cluster, math.inf
    if turn.state.policy.grid:
        lead_s = cluster.saves.lead_s
        end_s = first_term_end_s(turn.now_s, LeaseKind.BE, cluster.terms, lead_s)
    slots = []
    for node_id in node_ids:
        mask = cluster.capacity.masks_of(node_id)[gpu_type] & ~cluster.nodes[node_id].withheld
        slots.append(Slot(node_id, mask))
    reason = Reason(ReasonCode.FITS, "gpus", count, count)
    return Start(job.job_id, Allocation(tuple(slots)), LeaseKind.BE, end_s, reason)
