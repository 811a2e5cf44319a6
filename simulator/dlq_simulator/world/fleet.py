"""Nodes that come and go in a replay: lent and reclaimed servers, and rented nodes that boot."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from dlq_master.model.cluster import drive
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.cluster.drive import Happened
from dlq_master.model.ids import NodeId
from dlq_master.model.nodes.node import NodeFlag
from dlq_master.model.nodes.node_steps import FlagCleared, FlagSet
from dlq_master.model.plan import Loan, Plan, Return
from dlq_master.model.view import View
from dlq_master.policy.policy import Policy
from dlq_master.policy.reclaim.demand import Toll
from dlq_master.policy.reclaim.whitelist import is_lent, lend, returns, take_back
from dlq_master.policy.turn import carry_out
from dlq_simulator.world.clusters import ClusterSpec, NodeGroup
from dlq_simulator.world.course import Seconds
from dlq_simulator.world.loans import lent_at, server_seconds
from dlq_simulator.world.reservations import reserved_seconds, windows_of

EPOCH = 1
_HOUR_S = 3600
_AWAY = NodeFlag.CORDONED


class FleetChange(NamedTuple):
    """The number of a group's nodes from `at_s` on."""

    at_s: Seconds
    group: NodeGroup
    nodes: int


class SimulatedFleet:
    """The nodes, from the first submission on.

    All of them are registered from the start, and booting ones are cordoned. So whether a node
    could ever hold a job does not depend on the instant.
    """

    def __init__(self, spec: ClusterSpec, cluster: Cluster, begin_s: Seconds) -> None:
        self._cluster = cluster
        self._asked_back: dict[NodeId, None] = {}  # and not yet empty
        self.tolls: list[Toll] = []  # of every reclaim
        self.changes = sorted(_changes(spec, begin_s), key=lambda change: change.at_s)
        for group in spec.groups:
            if group.boot_s:
                for node_id in map(NodeId, group.each_node()):
                    drive.step_node(cluster, node_id, FlagSet(flag=_AWAY), begin_s)

    def apply(self, change: FleetChange, policy: Policy) -> tuple[Happened, ...]:
        """Change a group to this number of nodes, by a checked plan of a loan or a reclaim.

        The events describe the effects on jobs.
        """
        ids = [NodeId(node_id) for node_id in change.group.each_node()]
        if change.group.lent is None:
            for node_id in ids:
                drive.step_node(self._cluster, node_id, FlagCleared(flag=_AWAY), change.at_s)
            return ()
        more = change.nodes - sum(is_lent(self._cluster, node_id) for node_id in ids)
        view = View(self._cluster, change.at_s)
        if more >= 0:
            return self._carried_out(lend(self._cluster, ids, more), view, policy)
        taken = take_back(view, policy.reclaiming, ids, -more)
        self.tolls.append(taken.toll)
        self._asked_back.update(dict.fromkeys(taken.choice.servers))
        return self._carried_out(taken.plan, view, policy)

    def returns(self, at_s: Seconds, policy: Policy) -> None:
        """Return reclaimed servers that are empty by now."""
        if self._asked_back:
            view = View(self._cluster, at_s)
            self._carried_out(returns(self._cluster, self._asked_back), view, policy)

    def _carried_out(self, plan: Plan, view: View, policy: Policy) -> tuple[Happened, ...]:
        happened = tuple(carry_out(view, plan, policy, EPOCH))
        for change in plan.changes:
            if isinstance(change, Loan | Return):
                self._asked_back.pop(change.node_id, None)
        return happened


def _changes(spec: ClusterSpec, begin_s: Seconds) -> Iterator[FleetChange]:
    for group in spec.groups:
        if group.lent is not None:
            yield FleetChange(begin_s, group, lent_at(group.lent, begin_s))
            for step in group.lent:
                if step.at_s > begin_s:
                    yield FleetChange(step.at_s, group, step.servers)
        elif group.boot_s:
            yield FleetChange(begin_s + group.boot_s, group, group.count)


def cost(spec: ClusterSpec, begin_s: Seconds, end_s: Seconds) -> float | None:
    """Node-hours x price of all nodes in this time, used or not; None: nothing has a price.

    A rented machine is billed from its request, booting included, and for its minimum at least; a
    lent one while it is lent.
    """
    priced = [group for group in spec.groups if group.price_per_hour is not None]
    if not priced:
        return None
    return math.fsum(
        _node_seconds(group, begin_s, end_s) / _HOUR_S * (group.price_per_hour or 0)
        for group in priced
    )


def gpu_seconds(spec: ClusterSpec, begin_s: Seconds, end_s: Seconds) -> Seconds:
    """GPU-seconds in which GPUs could do work: own ones, and lent ones while lent.

    Reserved nodes do not count.
    """
    own = sum(group.count * group.gpus for group in spec.groups if group.lent is None)
    gpus = {node_id: group.gpus for node_id, group in spec.each_node()}
    away = sum(
        gpus[node_id] * reserved_seconds(windows, begin_s, end_s)
        for node_id, windows in windows_of(spec.reservations).items()
    )
    lent = [group for group in spec.groups if group.lent is not None]
    return (
        own * (end_s - begin_s)
        - away
        + sum(group.gpus * server_seconds(group.lent or (), begin_s, end_s) for group in lent)
    )


def _node_seconds(group: NodeGroup, begin_s: Seconds, end_s: Seconds) -> Seconds:
    if group.lent is not None:
        return server_seconds(group.lent, begin_s, end_s)
    return group.count * max(group.minimum_billing_s, end_s - begin_s)
