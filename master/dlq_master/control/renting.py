"""For whom machines are rented: what `policy.rent` decides of the live state, and doing it.

Once a second, if anybody waits who may be late, or a machine is there. Rented nodes are closed to everybody: who is to run
there is started there, in the turn that decides it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

from dlq_master.control import foretelling, pools, run_times, scheduling
from dlq_master.control.pool_config import STATIC, PoolConfig
from dlq_master.control.turn import Turn
from dlq_master.model.ids import JobId, NodeId
from dlq_master.model.job import Job, JobState
from dlq_master.model.lease import first_term_end_s
from dlq_master.model.node import Node, NodeFlag
from dlq_master.model.own import is_own
from dlq_master.model.plan import Plan, Start
from dlq_master.model.rented import Machine, MachineState
from dlq_master.model.resources import Allocation, Slot, indices, mask_of
from dlq_master.model.why import Reason, ReasonCode
from dlq_master.policy.expected_end import expected_end_s
from dlq_master.policy.partition.whole import kind_of_lease
from dlq_master.policy.rent.own import own_ends

if TYPE_CHECKING:
    from dlq_master.policy.priced.catalogue import NodeType
    from dlq_master.policy.rent.market import Market

USUAL_S = 3600.0  # that is left of a job that runs, if nobody knows how long it does


def watch(turn: Turn) -> None:
    """Decide, and do it."""
    state = turn.state
    if not state.config.pools:
        return
    if scheduling.pause_of(state, turn.now_s) is not None or state.frozen:
        return  # nobody knows yet what runs
    line = list(in_line(turn))
    pending = [state.cluster.jobs[job_id] for job_id in state.cluster.pending]
    wanting = [job for job in (*line, *pending) if _may_rent(job)]
    here = [one for one in state.pools.open() if one.state in _THERE]
    if wanting or here:
        _decide(turn, line, wanting, here)
    foretelling.of_those_that_run(turn)


def could_hold(turn: Turn, job: Job) -> bool:
    """Whether a machine that may be rented could ever hold it."""
    return _may_rent(job._replace(state=JobState.QUEUED, blocked=None)) and any(
        job.request.base <= pool.gpus and job.request.gpu_type in (None, pool.gpu_type)
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


def _may_rent(job: Job) -> bool:
    """Whether machines may be rented for it: it waits, says what being late costs, and fits on one node of any host."""
    request = job.request
    return (
        job.lateness is not None
        and (job.waiting or (job.state is JobState.PENDING and job.blocked is None))
        and job.promised is None
        and request.nodes in (None, 1)
        and request.shape.traits is None
    )


def _decide(turn: Turn, line: list[Job], wanting: list[Job], here: list[Machine]) -> None:
    import numpy as np  # not before the first pool: a master starts without it

    from dlq_master.policy.priced.presets import build
    from dlq_master.policy.rent.decide import decide
    from dlq_master.policy.rent.market import Provision, Put, Release

    state = turn.state
    market = _market(turn, line, wanting, here)
    renting = state.config.renting
    solver = build(renting.policy, renting.settings)
    draw = np.random.default_rng([state.epoch, state.next_event])
    changes = decide(market, solver, draw)
    foretelling.foretell(turn, market, changes)
    for change in changes:
        match change:
            case Put():
                _put(turn, JobId(change.job), state.pools.machines[change.request_id], change.gpus)
            case Release():
                pools.give_back(turn, state.pools.machines[change.request_id], "nobody needs it")
            case Provision():
                pools.rent(turn, state.config.pools[change.offer], change)


def _market(turn: Turn, line: list[Job], wanting: list[Job], here: list[Machine]) -> Market:
    from dlq_master.policy.rent.market import Here, Market, Offer, Wanting

    state, config = turn.state, turn.state.config
    order = {pool.name: n for n, pool in enumerate(config.pools)}
    ends = own_end_s(turn, line)
    offers = tuple(Offer(_type(pool), left(turn, pool)) for pool in config.pools)
    machines = []
    for one in here:
        if one.pool in order:
            pool = config.pools[order[one.pool]]
            node = state.cluster.nodes.get(one.node_id)
            up = one.state is MachineState.UP
            keys = state.cluster.attempts_on(one.node_id)
            free = pool.gpus if node is None or not up else _free(turn, node).bit_count()
            ready_s = one.up_s if one.up_s is not None else one.asked_s + pool.boot
            there = tuple(int(key.job_id) for key in keys)
            machines.append(
                Here(one.request_id, order[one.pool], ready_s, one.paid_until_s, free, there)
            )
    jobs = [
        Wanting(int(job.job_id), job.lateness.due_s, job.lateness.weight, left_s, ends.get(job.job_id, inf))
        for job, left_s in zip(wanting, run_times.left_s(turn, wanting), strict=True)
        if job.lateness is not None
    ]  # fmt: skip
    renting, rented = config.renting, state.pools
    per_hour = inf if renting.most_per_hour is None else renting.most_per_hour - rented.per_hour()
    spare = (
        inf if renting.most_per_day is None else renting.most_per_day - rented.day_cost(turn.now_s)
    )
    return Market(turn.now_s, offers, tuple(machines), tuple(jobs), per_hour, spare)


def _type(pool: PoolConfig) -> NodeType:
    from dlq_master.policy.priced.catalogue import NodeType

    return NodeType(
        pool.name,
        pool.gpu_type,
        pool.gpus,
        pool.price_per_hour,
        float(pool.boot),
        float(pool.minimum_billing),
        pool.until_s,
    )


def left(turn: Turn, pool: PoolConfig) -> int:
    """How many more of its machines may be rented now; `Pools.words` says why none."""
    rented = turn.state.pools
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


def own_end_s(turn: Turn, line: list[Job]) -> dict[int, float]:
    """When each of those who wait, in their order, would be done on the cluster's own nodes (`policy.rent.own`)."""
    cluster = turn.state.cluster
    cluster.capacity.ready()
    own = {node_id: node for node_id, node in cluster.nodes.items() if is_own(node) and node.open}
    free = sum([_free(turn, node).bit_count() for node in own.values()])
    running = []
    for attempt in cluster.attempts.values():
        slots = attempt.lease.allocation.slots
        gpus = sum([slot.mask.bit_count() for slot in slots if slot.node_id in own])
        if gpus:
            began_s = turn.now_s if attempt.started_time_s is None else attempt.started_time_s
            end_s = expected_end_s(cluster.jobs[attempt.key.job_id], began_s)
            running.append((end_s if end_s < inf else turn.now_s + USUAL_S, gpus))
    return own_ends(turn.now_s, free, running, run_times.in_line(turn, line))


def in_line(turn: Turn) -> Iterator[Job]:
    """Who waits, in the order of the policy, as far as that is kept for those who wait."""
    cluster = turn.state.cluster
    for rank in cluster.waiting.ranks:
        found = [
            (position, job_id)
            for fifo in cluster.waiting.by_rank[rank].values()
            for job_id, position in fifo.items()
        ]
        for _, job_id in sorted(found):
            yield cluster.jobs[job_id]


def _put(turn: Turn, job_id: JobId, machine: Machine, gpus: int) -> None:
    """Start it there, if the machine is up."""
    node = turn.state.cluster.nodes.get(machine.node_id)
    if machine.state is not MachineState.UP or node is None:
        return
    if machine.node_id not in turn.state.sessions:
        return
    job = turn.state.cluster.jobs[job_id]
    if job.state is not JobState.QUEUED or not job.waiting:
        return
    free = list(indices(_free(turn, node)))[:gpus]
    if len(free) < gpus:
        return
    cluster, kind = turn.state.cluster, kind_of_lease()
    end_s = inf
    if turn.state.policy.grid:
        end_s = first_term_end_s(turn.now_s, kind, cluster.terms, cluster.lead_s)
    allocation = Allocation((Slot(NodeId(machine.node_id), mask_of(free)),))
    reason = Reason(ReasonCode.RENTED, detail=machine.pool)
    opened = node._replace(flags=node.flags | {NodeFlag.RENTED})
    cluster.put_node(opened)
    try:
        scheduling.carry_out(turn, Plan((Start(job_id, allocation, kind, end_s, reason),)))
    finally:
        cluster.put_node(node)


def _free(turn: Turn, node: Node) -> int:
    """GPUs of it that nobody holds."""
    owned = mask_of(gpu.index for gpu in node.gpus)
    return owned & ~node.withheld & ~turn.state.cluster.capacity.claimed(node.node_id)
