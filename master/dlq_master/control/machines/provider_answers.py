"""Answers of providers: a machine is started or stopped, or a list of machines comes.

A provider's list is compared with the rows. A machine that the list does not name may have
vanished, and one that nobody asked for is stopped or told of.
"""

from __future__ import annotations

from dlq_master.control.loop.turn import Turn
from dlq_master.control.machines.pools import MOST_TRIES, fail, give_back, list_of, move, note, put
from dlq_master.control.machines.state import pool_of
from dlq_master.control.nodes import nodes
from dlq_master.control.pool_config import STATIC
from dlq_master.control.stimuli.machines import Act, ProviderTold, Verb
from dlq_master.model.machines.rented import Machine, MachineState
from dlq_master.model.nodes.node import NodeState


def told(turn: Turn, ask: ProviderTold) -> None:
    """A provider has answered."""
    pools, act = turn.state.machines, ask.act
    if act.verb is Verb.LIST:
        pools.asking.discard(list_of(act.pool))
        _listed(turn, ask)
        return
    pools.asking.discard(act.request_id)
    machine = pools.fleet.get(act.request_id)
    if machine is None or not machine.open:
        return
    if act.verb is Verb.START:
        _started(turn, machine, ask)
    elif machine.state is MachineState.STOPPING:
        _stopped(turn, machine, ask)


# --- helpers, in order of use ---------------------------------------------------------------------


def _started(turn: Turn, machine: Machine, ask: ProviderTold) -> None:
    if not ask.fault:
        _known(turn, machine, ask.instance_id)
        return
    tries = machine.tries
    # A list made during the request says nothing about the request's result.
    put(turn, machine := machine._replace(retry_s=max(machine.retry_s, turn.now_s)))
    note(turn, "machine_start_failed", machine, ask.fault, facts={"tries": tries})
    if machine.state is MachineState.STARTING and tries >= MOST_TRIES:
        fail(turn, machine, f"it could not be started: {ask.fault}")


def _known(turn: Turn, machine: Machine, instance_id: str) -> None:
    """Its provider's name for it. Two names for one machine are a fault: every machine with its
    request id is stopped. So is one name for two machines. The first one keeps it, and no machine
    is stopped by that name.
    """
    if not machine.instance_id and machine.state is MachineState.STARTING:
        for one in turn.state.machines.open():
            if (one.pool, one.instance_id) == (machine.pool, instance_id):
                fail(turn, machine, f"its provider calls it {instance_id}, as {one.request_id}")
                return
    if machine.instance_id in ("", instance_id):
        put(
            turn,
            machine._replace(instance_id=instance_id, tries=0, retry_s=0.0)
            if machine.state is MachineState.STARTING
            else machine._replace(instance_id=instance_id),
        )
        return
    fault = f"its provider calls it {machine.instance_id}, and {instance_id} too"
    if machine.fault != fault:  # it may take a while until the last of them is gone
        note(turn, "machine_twice", machine, fault)
    if machine.state is MachineState.STARTING:
        fail(turn, machine, fault)
        return
    if not machine.failed:
        put(turn, machine := machine._replace(failed=True))
    give_back(turn, machine, fault, "master")


def _stopped(turn: Turn, machine: Machine, ask: ProviderTold) -> None:
    if ask.fault:
        note(turn, "machine_stop_failed", machine, ask.fault, facts={"tries": machine.tries})
    elif ask.gone:
        _end(turn, machine)


def _end(turn: Turn, machine: Machine) -> None:
    """Its provider says that it is gone: nothing of ours can run there."""
    pool = pool_of(turn.state.config.pools, machine.pool)
    target = MachineState.FAILED if machine.failed else MachineState.AWAY
    move(turn, machine, target, cause=machine.fault)
    turn.state.machines.leave_s.pop(machine.request_id, None)
    turn.state.machines.unlisted.discard(machine.request_id)
    turn.state.loans.forget(machine.node_id)
    if pool is not None and pool.provider == STATIC:
        return  # it stays a node, and is nobody's
    if machine.request_id in turn.state.people.tokens:
        turn.drop(turn.state.people.tokens, machine.request_id)
    if machine.node_id in turn.state.cluster.nodes:
        nodes.drop(turn, machine.node_id, actor="master", cause="its machine was given back")


def _listed(turn: Turn, ask: ProviderTold) -> None:
    pools, pool = turn.state.machines, ask.act.pool
    if ask.fault:
        if pools.list_faults.get(pool) != ask.fault:
            turn.note("pool_not_listed", cause=ask.fault, pool=pool)
        pools.list_faults[pool] = ask.fault
        return
    pools.list_faults.pop(pool, None)
    there: dict[str, list[str]] = {}
    for one in ask.listed:
        there.setdefault(one.request_id, []).append(one.instance_id)
    asked_s = pools.listed_s[pool] = pools.asked_list_s.get(pool, turn.now_s)
    for machine in pools.open():
        if machine.pool != pool or machine.request_id in pools.asking:
            continue
        named = there.get(machine.request_id, [])
        other = next((name for name in named if name != machine.instance_id), "")
        if other:
            _known(turn, machine, other)
        elif named:
            pools.unlisted.discard(machine.request_id)
        elif machine.instance_id and machine.since_s < asked_s:
            _unlisted(turn, machine)
    for request_id in sorted(there.keys() - {one.request_id for one in pools.open()}):
        _unasked(turn, pool, request_id, there[request_id][0])


def _unlisted(turn: Turn, machine: Machine) -> None:
    """Its provider does not list it. Lists of clouds lag: one that is in use and heard is there."""
    node = turn.state.cluster.nodes.get(machine.node_id)
    in_use = machine.state in (MachineState.UP, MachineState.DRAINING)
    if not in_use or node is None or node.state is not NodeState.UP:
        _vanished(turn, machine)
    elif machine.request_id not in turn.state.machines.unlisted:
        turn.state.machines.unlisted.add(machine.request_id)
        cause = "its provider does not list it, but its agent is heard"
        note(turn, "machine_unlisted", machine, cause)


def _vanished(turn: Turn, machine: Machine) -> None:
    """Its provider has it no more: its jobs are lost, and payment ends. One that went before it was
    given back, and as soon, was of no use.
    """
    if machine.state is not MachineState.STOPPING:
        lost = "lost: its provider has it no more"
        pool = pool_of(turn.state.config.pools, machine.pool)
        patience_s = 0.0 if pool is None else pool.patience_s
        soon = turn.now_s < machine.asked_s + patience_s
        if machine.state is MachineState.STARTING or (machine.state is MachineState.UP and soon):
            machine = machine._replace(failed=True)
        machine = move(turn, machine, MachineState.STOPPING, lost)
    node = turn.state.cluster.nodes.get(machine.node_id)
    if node is not None and node.state is not NodeState.DOWN:
        nodes.lose(turn, machine.node_id, actor="master", cause="its provider has it no more")


def _unasked(turn: Turn, pool: str, request_id: str, instance_id: str) -> None:
    """One that nobody wants (any more) is there. An unknown machine of ours is stopped; a
    stranger's is only reported.
    """
    pools = turn.state.machines
    ours = pools.fleet.get(request_id)
    if request_id not in pools.strange:
        pools.strange.add(request_id)
        what = (
            "is there although it was given back" if ours else "is there, and nobody asked for it"
        )
        turn.note("machine_unasked", machine=request_id, pool=pool, cause=f"{instance_id} {what}")
    if ours is not None and request_id not in pools.asking:
        pools.asking.add(request_id)
        pools.acts.append(Act(Verb.STOP, pool, request_id, ours.node_id, instance_id))
