"""Machines that are rented: asked for, joined, emptied and given back.

A machine's row is on disk before its provider is asked, and is all that is needed to go on.
Providers are asked outside of the loop (`Desk`), each machine one thing at a time, until they have
answered. When the master restarts, it first asks each provider that it may have asked already for a
list. When the agent restarts, it says hello as before. A silent line is handled as on any node,
unless the provider also reports the machine gone. Then its jobs are lost at once, and payment ends.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from math import inf
from types import MappingProxyType

from dlq_common.errors import IllegalTransition, NotFound
from dlq_master.control.loop.once import Done, once
from dlq_master.control.loop.turn import Turn
from dlq_master.control.machines.state import pool_of
from dlq_master.control.nodes import emptiness
from dlq_master.control.pool_config import STATIC, PoolConfig
from dlq_master.control.stimuli.machines import Act, AnnounceLeave, StopMachines, Verb
from dlq_master.model.event import Fact
from dlq_master.model.ids import NodeId
from dlq_master.model.machines.rented import Machine, MachineState, moved
from dlq_master.model.nodes.node import NodePool, NodeState
from dlq_master.model.plan import Provision
from dlq_master.model.transitions import StopCause
from dlq_master.store.batch import JoinToken
from dlq_master.store.stored_tables import MACHINES

MOST_TRIES = 3  # to start one; to give one back there is no end
_FIRST_RETRY_S, _LONGEST_RETRY_S = 2.0, 300.0
_LOOKED_AFTER_S = 3600.0
_LIST_EVERY_S = 2.0  # at most


def rent(turn: Turn, pool: PoolConfig, why: Provision) -> None:
    """Write down that a machine is to be had. Its provider is asked once that is on disk."""
    state = turn.state
    request_id = f"{pool.name}-{state.epoch}-{state.machines.next_number}"
    state.machines.next_number += 1
    machine = Machine(
        request_id=request_id,
        pool=pool.name,
        node_id=free_hosts(turn, pool)[0] if pool.provider == STATIC else NodeId(request_id),
        price_per_hour=pool.price_per_hour,
        asked_s=turn.now_s,
        minimum_s=float(pool.minimum_billing),
        since_s=turn.now_s,
        jobs=why.jobs,
        at_most=why.saves,
        foretold=why.costs,
    )
    if pool.provider != STATIC:
        secret = state.machines.secret(request_id)
        token = JoinToken(
            token_id=request_id,
            node_id=request_id,
            secret_hash=hashlib.sha256(secret.encode()).hexdigest(),
            created_time_s=turn.now_s,
            expire_time_s=turn.now_s + pool.patience_s,
            created_by="pools",
        )
        turn.put(turn.state.people.tokens, token)
    put(turn, machine)
    priced: dict[str, Fact] = {"pool": pool.name, "price_per_hour": pool.price_per_hour}
    note(turn, "machine_asked_for", machine, _in_words(why), "scheduler", priced)


def _chosen_before(_turn: Turn, _ask: StopMachines, word: str) -> tuple[str, ...]:
    return tuple(word.split())


@once(_chosen_before)
def stop(turn: Turn, ask: StopMachines) -> Done[tuple[str, ...]]:
    """People give machines back."""
    pools = turn.state.machines
    if ask.pool and pool_of(turn.state.config.pools, ask.pool) is None:
        raise NotFound(f"there is no pool {ask.pool}", kind="pool", id=ask.pool)
    for name in ask.machine_ids:
        if name not in pools.fleet:
            raise NotFound(f"there is no machine {name}", kind="machine", id=name)
    chosen = ask.machine_ids or tuple(
        one.request_id for one in pools.open() if one.pool == ask.pool
    )
    for name in chosen:
        give_back(turn, pools.fleet[name], f"stopped by {ask.caller.name}", ask.caller.actor)
    return Done(chosen, " ".join(chosen))


def _ranks_left(turn: Turn, ask: AnnounceLeave, _word: str) -> int:
    return len(turn.state.cluster.attempts_on(ask.node_id))


@once(_ranks_left)
def announce_leave(turn: Turn, ask: AnnounceLeave) -> Done[int]:
    """Its provider takes a machine back: its jobs have so long to save."""
    machine = turn.state.machines.fleet.of_node(ask.node_id)
    if machine is None:
        raise IllegalTransition(f"node {ask.node_id} is not rented")
    end_s = turn.now_s + ask.leave_s
    known_s = turn.state.machines.leave_s.get(machine.request_id, end_s)
    turn.state.machines.leave_s[machine.request_id] = min(end_s, known_s)
    cause = f"its provider takes it in {ask.leave_s:.0f} s"
    note(turn, "machine_taken_back", machine, cause, ask.caller.actor)
    give_back(turn, machine, "taken back by its provider", ask.caller.actor, ask.leave_s)
    return Done(_ranks_left(turn, ask, ""), ask.node_id)


def give_back(
    turn: Turn, machine: Machine, cause: str, actor: str = "scheduler", grace_s: float | None = None
) -> None:
    """Nobody new starts there. A running machine is emptied first; one that is being given back
    goes on so.
    """
    if machine.state is MachineState.STARTING:
        move(turn, machine, MachineState.STOPPING, cause, actor=actor)
    elif machine.state is MachineState.UP:
        move(turn, machine, MachineState.DRAINING, cause, actor=actor)
    if machine.state in (MachineState.UP, MachineState.DRAINING):
        for key in turn.state.cluster.attempts_on(machine.node_id):
            if turn.state.cluster.attempts[key].stop_cause is None or grace_s is not None:
                turn.stop(key, StopCause.RECLAIM, grace_s=grace_s, actor=actor)


def watch(turn: Turn) -> None:
    """Once a second: each machine is brought one step further."""
    state = turn.state
    if not (state.config.pools or state.machines.fleet):
        return
    _tell_refused(turn)
    for machine in state.machines.open():
        pool = pool_of(state.config.pools, machine.pool)
        if pool is None:
            if machine.request_id not in state.machines.strange:
                state.machines.strange.add(machine.request_id)
                why = f"master.toml has no pool {machine.pool}: nobody can give it back"
                note(turn, "machine_without_pool", machine, why)
            continue
        _WATCH[machine.state](turn, machine, pool)
    for pool in state.config.pools:
        if pool.provider != STATIC:  # its hosts are there anyway
            _look(turn, pool)


def looked(turn: Turn, node_id: NodeId, in_use: str) -> None:
    """The report of the devices of a machine that is being emptied; `in_use` "": nothing is
    there.
    """
    machine = turn.state.machines.fleet.of_node(node_id)
    if machine is not None and machine.state is MachineState.DRAINING and not in_use:
        turn.state.loans.forget(node_id)
        move(turn, machine, MachineState.STOPPING, "", cause="nothing is on its GPUs")


def put(turn: Turn, machine: Machine) -> None:
    """Add or change a machine."""
    turn.state.machines.fleet.put(machine)
    turn.batch.put(MACHINES, machine)


def move(
    turn: Turn,
    machine: Machine,
    target: MachineState,
    fault: str = "",
    *,
    actor: str = "master",
    cause: str = "",
) -> Machine:
    """Another state, and its event."""
    after = moved(machine, target, turn.now_s, fault)
    put(turn, after)
    facts: dict[str, Fact] = {"pool": machine.pool, "cost": round(after.cost(turn.now_s), 4)}
    note(turn, f"machine_{target.value}", machine, cause or fault, actor, facts)
    return after


def fail(turn: Turn, machine: Machine, fault: str) -> None:
    """The machine was of no use: it is stopped."""
    move(turn, machine._replace(failed=True), MachineState.STOPPING, fault)


def list_of(pool: str) -> str:
    """The name of a request for a list, among those that are open."""
    return f"list {pool}"


def note(
    turn: Turn,
    kind: str,
    machine: Machine,
    cause: str,
    actor: str = "master",
    facts: Mapping[str, Fact] = MappingProxyType({}),
) -> None:
    """Write an event of a machine into the journal."""
    told = {"machine": machine.request_id, **facts}
    node_id = machine.node_id
    turn.note(kind, job_id=None, key=None, node_id=node_id, actor=actor, cause=cause, **told)


def free_hosts(turn: Turn, pool: PoolConfig) -> list[NodeId]:
    """Hosts of a static pool that could be rented now."""
    taken = {one.node_id for one in turn.state.machines.open()}
    nodes_ = turn.state.cluster.nodes
    return [
        NodeId(host)
        for host in pool.hosts
        if NodeId(host) not in taken
        and (node := nodes_.get(NodeId(host))) is not None
        and node.pool is NodePool.PRICED
        and node.state is NodeState.UP
    ]


# --- helpers, in order of use ---------------------------------------------------------------------


def _in_words(why: Provision) -> str:
    """For whom a machine is rented, and why."""
    named = f"for job{'s' if len(why.jobs) > 1 else ''} {', '.join(map(str, why.jobs))}"
    if why.saves == inf:
        return f"{named}, which no own nodes could hold"
    return (
        f"{named}: it costs about {why.costs:.2f} and saves {why.costs + why.saves:.2f} of "
        "being late"
    )


def _tell_refused(turn: Turn) -> None:
    """Hosts that said hello and were turned away: each is told once, and of no use is who it came
    for.
    """
    pools = turn.state.machines
    refused, pools.refused = pools.refused, {}
    for node_id, (words, wrong) in sorted(refused.items()):
        machine = pools.fleet.of_node(node_id)
        if pools.told.get(node_id) != words:
            pools.told[node_id] = words
            turn.note("host_refused", node_id=node_id, actor=f"node:{node_id}", cause=words)
        if wrong and machine is not None and machine.state is MachineState.STARTING:
            fail(turn, machine, f"wrong host: {words}")


def _watch_starting(turn: Turn, machine: Machine, pool: PoolConfig) -> None:
    node = turn.state.cluster.nodes.get(machine.node_id)
    here = node is not None and node.pool is NodePool.PRICED and node.state is NodeState.UP
    if turn.now_s >= pool.until_s - pool.leave:
        give_back(turn, machine, "its provider takes it back", "master")
    elif here and machine.instance_id and machine.node_id in turn.state.nodes.sessions:
        move(turn, machine, MachineState.UP, cause="its agent has joined")
    elif turn.now_s >= machine.asked_s + pool.patience_s:
        fail(turn, machine, f"it did not come within {pool.patience_s:.0f} s")
    elif not machine.instance_id:
        _ask(turn, machine, pool, Verb.START)


def _watch_up(turn: Turn, machine: Machine, pool: PoolConfig) -> None:
    if _is_gone(turn, machine):
        move(turn, machine, MachineState.STOPPING, "lost: its node is down")
    elif turn.now_s >= pool.until_s - pool.leave:
        left_s = max(1.0, pool.until_s - turn.now_s)
        give_back(turn, machine, "its provider takes it back", "master", left_s)


def _watch_draining(turn: Turn, machine: Machine, pool: PoolConfig) -> None:
    node = turn.state.cluster.nodes.get(machine.node_id)
    if node is None or _is_gone(turn, machine):
        move(turn, machine, MachineState.STOPPING, "lost: its node is down")
    elif not emptiness.obstacle(turn, node):
        emptiness.ask(turn, machine.node_id)
    elif turn.now_s >= turn.state.machines.leave_s.get(machine.request_id, turn.now_s + 1.0):
        move(turn, machine, MachineState.STOPPING, machine.fault, cause="its time is over")


def _watch_stopping(turn: Turn, machine: Machine, pool: PoolConfig) -> None:
    _ask(turn, machine, pool, Verb.STOP)


_WATCH = {
    MachineState.STARTING: _watch_starting,
    MachineState.UP: _watch_up,
    MachineState.DRAINING: _watch_draining,
    MachineState.STOPPING: _watch_stopping,
}


def _is_gone(turn: Turn, machine: Machine) -> bool:
    node = turn.state.cluster.nodes.get(machine.node_id)
    return node is None or node.state is NodeState.DOWN


def _ask(turn: Turn, machine: Machine, pool: PoolConfig, verb: Verb) -> None:
    """Have its provider asked, once this is on disk. Where it may have been asked to start it
    before, it is first asked what is there: by that the machine is known again."""
    pools = turn.state.machines
    if machine.request_id in pools.asking or turn.now_s < machine.retry_s:
        return
    may_be_there = verb is Verb.START and machine.tries > 0 and pool.provider != STATIC
    if may_be_there and pools.listed_s.get(machine.pool, 0.0) <= machine.retry_s:
        _ask_list(turn, machine.pool)
        return
    retry_s = turn.now_s + min(_FIRST_RETRY_S * 2**machine.tries, _LONGEST_RETRY_S)
    put(turn, machine._replace(tries=machine.tries + 1, retry_s=retry_s))
    secret = pools.secret(machine.request_id) if verb is Verb.START else ""
    named = (machine.pool, machine.request_id, machine.node_id, machine.instance_id)
    pools.asking.add(machine.request_id)
    pools.acts.append(Act(verb, *named, secret=secret))


def _look(turn: Turn, pool: PoolConfig) -> None:
    """Every now and then: whether all that should be there is, and nothing else."""
    pools = turn.state.machines
    recent_s = turn.now_s - _LOOKED_AFTER_S  # one that came late, and nobody knew, is found
    there = any(one.pool == pool.name for one in pools.fleet.open())
    needed = there or pools.fleet.last_end_s(pool.name) > recent_s
    last_s = pools.asked_list_s.get(pool.name)
    due = last_s is None or turn.now_s >= last_s + turn.state.config.renting.look_every
    if due and (needed or last_s is None):
        _ask_list(turn, pool.name)


def _ask_list(turn: Turn, pool: str) -> None:
    pools = turn.state.machines
    last_s = pools.asked_list_s.get(pool, -_LIST_EVERY_S)
    if list_of(pool) not in pools.asking and turn.now_s >= last_s + _LIST_EVERY_S:
        pools.asking.add(list_of(pool))
        pools.asked_list_s[pool] = turn.now_s
        pools.acts.append(Act(Verb.LIST, pool))
