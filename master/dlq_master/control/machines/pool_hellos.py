"""Whether a host that says hello is the one that was rented: by its name, its pool, its provider's
name for it and its GPUs.

A node of its own name has the certificate that the token of that machine was good for, so nobody
else comes under it.
"""

from __future__ import annotations

from dlq_common.errors import PermissionDenied, TryAgain
from dlq_master.control.loop.turn import State
from dlq_master.control.machines.state import Refused, pool_of
from dlq_master.control.pool_config import STATIC, PoolConfig
from dlq_master.control.stimuli import OpenSession
from dlq_master.model.machines.rented import Machine
from dlq_master.model.nodes.node import NodePool

AGAIN_S = 1.0


def check(state: State, ask: OpenSession) -> None:
    """Raises PermissionDenied for a host that is none of ours or not the one that was rented,
    TryAgain until it is known which that is. The next look at the pools reports the faults.
    """
    machine = state.machines.fleet.of_node(ask.node_id)
    priced = ask.facts.pool is NodePool.PRICED
    if machine is None and not priced:
        return
    pool = pool_of(state.config.pools, ask.pool_name if machine is None else machine.pool)
    words = _wrong(machine, pool, ask)
    if words:
        state.machines.refused[ask.node_id] = Refused(words, wrong=machine is not None)
        raise PermissionDenied(f"node {ask.node_id} is not wanted: {words}", user=ask.node_id)
    if machine is not None and not machine.instance_id:
        raise TryAgain(
            f"the provider of {ask.node_id} has not said yet what it is", retry_after_s=AGAIN_S
        )


def _wrong(machine: Machine | None, pool: PoolConfig | None, ask: OpenSession) -> str:
    """Why this host is not wanted; empty: nothing speaks against it."""
    if pool is None:
        return f"there is no pool {ask.pool_name}"
    if ask.facts.pool is not NodePool.PRICED or ask.pool_name != pool.name:
        said = ask.pool_name or ask.facts.pool.value
        return f"it was rented from pool {pool.name} and says pool {said}"
    if machine is None and not (pool.provider == STATIC and ask.node_id in pool.hosts):
        return f"nobody has asked pool {pool.name} for it"
    known = "" if machine is None else machine.instance_id
    if pool.provider != STATIC and known and ask.instance_id != known:
        return f"it is {ask.instance_id or 'nameless'}, and its provider says that it is {known}"
    kinds = {gpu.gpu_type for gpu in ask.facts.gpus}
    if len(ask.facts.gpus) != pool.gpus or kinds != {pool.gpu_type}:
        has = ", ".join(sorted(kinds)) or "none"
        return (
            f"it has {len(ask.facts.gpus)} GPUs ({has}), and {pool.gpus} x {pool.gpu_type} "
            "are paid for"
        )
    return ""
