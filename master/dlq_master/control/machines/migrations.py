"""Migrations of running jobs to machines that were rented for them.

A job saves, leaves its GPUs and starts on the machine. Each step is in a plan that is checked and
applied like the plans of the policy.

When the master restarts before the job has left, the job queues as any other. When its agent
restarts, or the line is silent
- as with any stop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlq_master.control.loop.turn import Turn
from dlq_master.control.placement import execution
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import Job
from dlq_master.model.machines.rented import Machine, MachineState
from dlq_master.policy.rent.starting import leave_for, start_on

if TYPE_CHECKING:
    from dlq_master.policy.rent.market import Put


def put(turn: Turn, put: Put) -> None:
    """Start it there, or have it leave for that, if the machine is up."""
    state = turn.state
    machine, job = state.machines.fleet[put.request_id], state.cluster.jobs[JobId(put.job)]
    if not _takes_work(turn, machine):
        return
    if job.live_key is None:
        _start(turn, job, machine, put.gpus)
        return
    turn.note(
        "job_moves",
        job_id=job.job_id,
        attempt=job.live_attempt,
        node_id=machine.node_id,
        actor="scheduler",
        cause=f"being late costs it more than to go on on {put.gpus} GPUs of {machine.request_id}",
    )
    execution.carry_out(turn, leave_for(state.cluster, job, machine.pool))
    state.machines.on_the_way.add(put)


def arrive(turn: Turn) -> None:
    """Before the policy decides on them: jobs that have left for a machine start there."""
    state = turn.state
    for put in state.machines.on_the_way.arrived(state.cluster):
        machine = state.machines.fleet.get(put.request_id)
        if machine is not None and _takes_work(turn, machine):
            _start(turn, state.cluster.jobs[JobId(put.job)], machine, put.gpus)


def _takes_work(turn: Turn, machine: Machine) -> bool:
    node = turn.state.cluster.nodes.get(machine.node_id)
    if node is None or not node.takes_work:
        return False
    return machine.node_id in turn.state.nodes.sessions and machine.state is MachineState.UP


def _start(turn: Turn, job: Job, machine: Machine, gpus: int) -> None:
    cluster = turn.state.cluster
    node, grid = cluster.nodes[machine.node_id], turn.state.policy.grid
    execution.carry_out(
        turn, start_on(cluster, job, node, gpus, machine.pool, turn.now_s, grid=grid)
    )
