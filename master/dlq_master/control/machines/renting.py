"""Renting: once a second the rent stage of the policy decides, and its plan is carried out here.

It looks only while a machine is there or a job waits that may be late. The queue does not place
jobs on rented machines; the plan that decides on a job starts it there, or makes it migrate. A
migrating job saves, leaves its GPUs and starts on the machine.

When the master restarts before the job has left, the job queues as any other. When its agent
restarts, or the line is silent, it is as with any stop.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf

from dlq_common.daemon.logs import get_logger
from dlq_common.errors import Conflict
from dlq_master.control.loop.turn import Steps, Turn
from dlq_master.control.machines import cost_forecasts, pools
from dlq_master.control.machines.run_times import run_times
from dlq_master.control.machines.state import pool_of
from dlq_master.control.placement import execution, scheduling
from dlq_master.control.pool_config import STATIC, PoolConfig
from dlq_master.model.attempts.attempt_steps import StopRequested
from dlq_master.model.jobs.job import Job
from dlq_master.model.late import np
from dlq_master.model.machines.rented import MachineState
from dlq_master.model.machines.renting import RentingView
from dlq_master.model.plan import Migrate, Provision, Release
from dlq_master.policy import pipeline
from dlq_master.policy.rent.line import may_rent

_log = get_logger("master.renting")


def watch(turn: Turn) -> None:
    """Ask the rent stage, and carry its plan out."""
    state = turn.state
    if not state.config.pools:
        return
    if execution.pause_of(state, turn.now_s) is not None or state.frozen:
        return  # nobody knows yet what runs
    left = {pool.name: _left(turn, pool) for pool in state.config.pools}
    view = execution.look(turn)._replace(machines=_machines(turn, left))
    method = state.config.renting
    policy = state.machines.solving.begin_look(state.policy, method.policy, method.settings)
    decided = pipeline.rent(view, policy, lambda: run_times(turn), lambda: draw(turn))
    if decided.market is not None:
        state.machines.words = {name: words for name, (_, words) in left.items()}
        cost_forecasts.foretell(turn, decided)
        try:
            execution.carry_out(turn, decided.plan, machines=view.machines)
        except Conflict as fault:  # a bug of the stage: the other watches of this tick go on
            _log.error("rent_plan_refused", error=fault.what)
    cost_forecasts.of_those_that_run(turn)


def arrive(turn: Turn) -> None:
    """Before the policy decides on them: jobs that have left for a machine start there."""
    state = turn.state
    if arrived := state.cluster.migrations.arrived(state.cluster.jobs, state.cluster.attempts):
        view = execution.look(turn)._replace(machines=_machines(turn, {}))
        execution.carry_out(turn, state.policy.rent.arrivals(view, arrived))


def note_migrations(turn: Turn, steps: Steps) -> None:
    """Write down why a job moves to a machine, before the stop of its attempt."""
    if not turn.state.config.pools:
        return
    for one in steps.happened:
        if isinstance(one.change, Migrate) and isinstance(one.event, StopRequested):
            _note_migration(turn, one.change)


def provide(turn: Turn, steps: Steps) -> None:
    """Rent the machines of a plan, and give its others back."""
    for one in steps.happened:
        if isinstance(one.change, Provision):
            pool = pool_of(turn.state.config.pools, one.change.pool)
            assert pool is not None  # the check of the plan
            pools.rent(turn, pool, one.change)
        elif isinstance(one.change, Release):
            machine = turn.state.machines.fleet[one.change.machine]
            pools.give_back(turn, machine, one.change.reason.detail)


def draw(turn: Turn) -> np.random.Generator:
    """The same at one instant, for whichever master decides then."""
    return np.random.default_rng(round(1000.0 * turn.now_s))


def could_hold(turn: Turn, job: Job) -> bool:
    """Whether a machine that may be rented could ever hold it."""
    return may_rent(job) and any(pool.could_hold(job) for pool in turn.state.config.pools)


def sized(turn: Turn, job: Job) -> Job:
    """A job whose number of GPUs is chosen, with those of its sizes that could ever be had."""
    request = job.request
    most = max((pool.gpus for pool in turn.state.config.pools), default=0)
    sizes = tuple(
        gpus
        for gpus in request.sizes
        if gpus <= most or scheduling.never(turn, request, gpus) is None
    )
    if request.gpus not in sizes or len(sizes) < _FEWEST_SIZES:
        sizes = ()
    return job._replace(request=replace(request, sizes=sizes))


_FEWEST_SIZES = 2
_THERE = (MachineState.STARTING, MachineState.UP)


def _machines(turn: Turn, left: Mapping[str, tuple[int, str]]) -> RentingView:
    """`left`: of each pool, how many more machines may be rented, and why none."""
    renting, rented = turn.state.config.renting, turn.state.machines
    hour, day = renting.most_per_hour, renting.most_per_day
    return RentingView(
        here={one.request_id: one for one in rented.open() if one.state in _THERE},
        joined=turn.state.nodes.sessions.keys(),
        left={name: more for name, (more, _) in left.items()},
        spare_per_hour=inf if hour is None else hour - rented.per_hour(),
        spare=inf if day is None else day - rented.fleet.day_cost(turn.now_s),
    )


def _note_migration(turn: Turn, change: Migrate) -> None:
    turn.note(
        "job_moves",
        key=change.key,
        node_id=turn.state.machines.fleet[change.machine].node_id,
        actor="scheduler",
        cause=f"being late costs it more than to go on on {change.gpus} GPUs of {change.machine}",
    )


def _left(turn: Turn, pool: PoolConfig) -> tuple[int, str]:
    """How many more of its machines may be rented now, and why none."""
    rented = turn.state.machines
    most = pool.most - sum(one.pool == pool.name for one in rented.open())
    words = ""
    if turn.now_s >= pool.until_s - pool.leave:
        words = "its provider takes all back"
    elif (until_s := rented.rests_until_s(pool.name)) > turn.now_s:
        words = f"the last machines were of no use: again in {until_s - turn.now_s:.0f} s"
    elif most <= 0:
        words = f"{pool.most} machines are there, which is the most"
    elif pool.provider == STATIC:
        most = min(most, len(pools.free_hosts(turn, pool)))
        words = "" if most else "no host of it is free and answers"
    return (0, words) if words else (most, "")
