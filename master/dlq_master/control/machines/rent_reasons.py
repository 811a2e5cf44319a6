"""The machine being rented for a waiting job, or why none can be: the first of its reasons."""

from __future__ import annotations

from dlq_master.control.loop.turn import Turn
from dlq_master.control.machines.state import pool_of
from dlq_master.model.jobs.job import Job, JobState
from dlq_master.model.machines.rented import Machine, MachineState
from dlq_master.model.why import Reason, ReasonCode

_HERE = (MachineState.STARTING, MachineState.UP)


def rented_reasons(turn: Turn, job: Job) -> tuple[Reason, ...]:
    """At most one; none of a job that does not wait, or for which no machine is rented."""
    state = turn.state
    waits = job.waiting or (job.state is JobState.PENDING and job.blocked is None)
    if job.lateness is None or not waits:
        return ()
    coming = [
        one for one in state.machines.open() if one.state in _HERE and int(job.job_id) in one.jobs
    ]
    if coming:
        detail = "; ".join(_coming(turn, one) for one in coming)
        if job.basis.guess:
            detail += f"; its run time is a guess by {job.basis.rests_on}"
        return (Reason(ReasonCode.MACHINE_COMING, "machines", detail=detail),)
    told = job.foretold
    if told is None or told.own_late == 0.0:
        return ()  # nobody has looked yet, or the own nodes will do
    able = [pool for pool in state.config.pools if pool.could_hold(job)]
    if not able or not all(state.machines.words.get(pool.name) for pool in able):
        return ()
    detail = "; ".join(f"pool {pool.name}: {state.machines.words[pool.name]}" for pool in able)
    return (Reason(ReasonCode.NOT_RENTED, "machines", detail=detail),)


def _coming(turn: Turn, machine: Machine) -> str:
    named = f"{machine.request_id} of pool {machine.pool}"
    if machine.state is MachineState.UP:
        return f"{named} is there"
    pool = pool_of(turn.state.config.pools, machine.pool)
    left_s = 0.0 if pool is None else machine.asked_s + pool.boot - turn.now_s
    when = f"should be there in {left_s:.0f} s" if left_s >= 1.0 else "should be there by now"
    return f"{named} has been asked for, and {when}"
