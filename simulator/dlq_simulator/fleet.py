"""Nodes that come and go in a replay: servers that are lent and reclaimed, rented ones that boot."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from dlq_master.model import drive
from dlq_master.model.cluster import Cluster
from dlq_master.model.ids import NodeId
from dlq_master.model.node import FlagCleared, FlagSet, NodeFlag
from dlq_simulator.clusters import ClusterSpec, NodeGroup
from dlq_simulator.course import Seconds
from dlq_simulator.loans import lent_at, server_seconds

_HOUR_S = 3600
_AWAY = NodeFlag.CORDONED


class Change(NamedTuple):
    """From `at_s` on so many nodes of a group are there."""

    at_s: Seconds
    group: NodeGroup
    nodes: int


class Fleet:
    """Which nodes are there, from the first submit on.

    All are registered from the start, those that are not there cordoned: what could ever hold a job
    does not depend on the instant at which it is asked.
    """

    def __init__(self, spec: ClusterSpec, cluster: Cluster, begin_s: Seconds) -> None:
        self._cluster = cluster
        self.changes = sorted(_changes(spec, begin_s), key=lambda change: change.at_s)
        for group in spec.groups:
            if group.lent is not None or group.boot_s:
                for node_id in map(NodeId, group.each_node()):
                    self._close(node_id, begin_s)

    def apply(self, change: Change) -> list[NodeId]:
        """Open or close as many nodes of the group as it takes; returns those that are reclaimed, and
        have to be left by whatever runs there. Idle ones go first, then the last of the group."""
        nodes = self._cluster.nodes
        ids = [NodeId(node_id) for node_id in change.group.each_node()]
        there = [node_id for node_id in ids if nodes[node_id].open]
        away = [node_id for node_id in ids if not nodes[node_id].open]
        for node_id in away[: max(0, change.nodes - len(there))]:
            self._open(node_id, change)
        there.reverse()
        there.sort(key=lambda node_id: bool(self._cluster.attempts_on(node_id)))
        gone = there[: max(0, len(there) - change.nodes)]
        for node_id in gone:
            self._close(node_id, change.at_s)
        return gone

    def _open(self, node_id: NodeId, change: Change) -> None:
        drive.step_node(self._cluster, node_id, FlagCleared(flag=_AWAY), change.at_s)
        if change.group.lent is not None:
            drive.step_node(self._cluster, node_id, FlagSet(flag=NodeFlag.LOANED), change.at_s)

    def _close(self, node_id: NodeId, at_s: Seconds) -> None:
        drive.step_node(self._cluster, node_id, FlagSet(flag=_AWAY), at_s)
        drive.step_node(self._cluster, node_id, FlagCleared(flag=NodeFlag.LOANED), at_s)


def _changes(spec: ClusterSpec, begin_s: Seconds) -> Iterator[Change]:
    for group in spec.groups:
        if group.lent is not None:
            yield Change(begin_s, group, lent_at(group.lent, begin_s))
            for step in group.lent:
                if step.at_s > begin_s:
                    yield Change(step.at_s, group, step.servers)
        elif group.boot_s:
            yield Change(begin_s + group.boot_s, group, group.count)


def cost(spec: ClusterSpec, begin_s: Seconds, end_s: Seconds) -> float | None:
    """Node-hours x price of all that was there in between, used or not; None if nothing has a price.

    A rented machine is billed from when it is asked for, booting included, and for its minimum at
    least; a lent one while it is lent.
    """
    priced = [group for group in spec.groups if group.price_per_hour is not None]
    if not priced:
        return None
    return math.fsum(
        _node_seconds(group, begin_s, end_s) / _HOUR_S * (group.price_per_hour or 0)
        for group in priced
    )


def gpu_seconds(spec: ClusterSpec, begin_s: Seconds, end_s: Seconds) -> Seconds:
    """What work could have been done on: the GPUs of the cluster's own nodes, and of lent ones while
    they were lent."""
    own = sum(group.count * group.gpus for group in spec.groups if group.lent is None)
    lent = [group for group in spec.groups if group.lent is not None]
    return own * (end_s - begin_s) + sum(
        group.gpus * server_seconds(group.lent or (), begin_s, end_s) for group in lent
    )


def _node_seconds(group: NodeGroup, begin_s: Seconds, end_s: Seconds) -> Seconds:
    if group.lent is not None:
        return server_seconds(group.lent, begin_s, end_s)
    return group.count * max(group.minimum_billing_s, end_s - begin_s)
