"""Renting: once a second `policy.rent` decides on the live state, and this module carries it out.

It looks only while a machine is there or a job waits that may be late. The queue does not place
jobs on rented machines; the turn that decides on a job starts it there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

from dlq_master.control.loop.turn import Turn
from dlq_master.control.machines import cost_forecasts, migrations, pools
from dlq_master.control.machines.pool_config import STATIC, PoolConfig
from dlq_master.control.machines.run_times import node_type, run_times
from dlq_master.control.placement import execution, scheduling
from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.model.jobs.job import Job
from dlq_master.model.machines.rented import Machine, MachineState
from dlq_master.model.view import View
from dlq_master.policy.rent.line import in_line, may_rent, own_end_s
from dlq_master.policy.rent.moving import Moving, movable, with_moving

if TYPE_CHECKING:
    from dlq_master.policy.rent.market import Market


def watch(turn: Turn) -> None:
    """Decide, and do it."""
    state = turn.state
    if not state.config.pools:
        return
    if execution.pause_of(state, turn.now_s) is not None or state.frozen:
        return  # nobody knows yet what runs
    line = list(in_line(state.cluster))
    pending = [state.cluster.jobs[job_id] for job_id in state.cluster.pending]
    here = [one for one in state.machines.open() if one.state in _THERE]
    there = {one.node_id for one in here}
    # A job that failed on one of them goes to none of them; an idle one goes back.
    wanting = [
        job for job in (*line, *pending) if may_rent(job) and there.isdisjoint(job.request.avoid)
    ]
    moving = {
        key: job
        for key, job in movable(state.cluster, turn.now_s).items()
        if there.isdisjoint(job.request.avoid)
    }
    if wanting or here or moving:
        _decide(turn, line, wanting, here, moving)
    cost_forecasts.of_those_that_run(turn)


def could_hold(turn: Turn, job: Job) -> bool:
    """Whether a machine that may be rented could ever hold it."""
    return may_rent(job) and any(
        job.request.base <= pool.gpus and job.request.shape.may_be(pool.gpu_type)
        for pool in turn.state.config.pools
    )


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


def _decide(
    turn: Turn, line: list[Job], wanting: list[Job], here: list[Machine], moving: Moving
) -> None:
    import numpy as np  # not before the first pool: a master starts without it

    from dlq_master.policy.priced.presets import build
    from dlq_master.policy.rent.market import Provision, Put, Release
    from dlq_master.policy.rent.settle import settled

    state = turn.state
    renting = state.config.renting
    market, changes = settled(
        View(state.cluster, turn.now_s),
        state.policy,
        build(renting.policy, renting.settings),
        lambda outranked: _market(turn, line, wanting, here, moving, outranked),
        lambda: np.random.default_rng([state.epoch, state.journal.next_sequence]),
    )
    cost_forecasts.foretell(turn, market, changes)
    for change in changes:
        match change:
            case Put():
                migrations.put(turn, change)
            case Release():
                pools.give_back(turn, state.machines.fleet[change.request_id], "nobody needs it")
            case Provision():
                pools.rent(turn, state.config.pools[change.offer], change)


def _market(
    turn: Turn,
    line: list[Job],
    wanting: list[Job],
    here: list[Machine],
    moving: Moving,
    outranked: Mapping[AttemptKey, JobId],
) -> Market:
    from dlq_master.policy.rent import market
    from dlq_master.policy.rent.market import MachineOffer, Market

    state, config = turn.state, turn.state.config
    order = {pool.name: n for n, pool in enumerate(config.pools)}
    times = run_times(turn)
    ends = own_end_s(
        state.cluster,
        turn.now_s,
        line,
        times.in_line,
        grows=state.policy.sizing is not None,
        outranked=outranked,
        moving=moving,
    )
    offers = tuple(MachineOffer(node_type(pool), left(turn, pool)) for pool in config.pools)
    machines = tuple(
        market.here(
            state.cluster,
            one,
            order[one.pool],
            offers[order[one.pool]].type,
            state.machines.on_the_way.to(one.request_id),
        )
        for one in here
        if one.pool in order
    )
    jobs = market.wanting(
        *with_moving(state.cluster, turn.now_s, wanting, moving, outranked, times, ends)
    )
    renting, rented = config.renting, state.machines
    per_hour = inf if renting.most_per_hour is None else renting.most_per_hour - rented.per_hour()
    spare = (
        inf if renting.most_per_day is None else renting.most_per_day - rented.day_cost(turn.now_s)
    )
    return Market(turn.now_s, offers, machines, jobs, per_hour, spare)


def left(turn: Turn, pool: PoolConfig) -> int:
    """How many more of its machines may be rented now; `Pools.words` says why none."""
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
    rented.words[pool.name] = words
    return 0 if words else most
