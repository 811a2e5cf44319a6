"""Due checks of nodes: a pure decision, from the idle nodes and the results of earlier checks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import NamedTuple

from dlq_master.model.ids import NodeId
from dlq_master.model.nodes.node import LastCheck

PAIR = "all_reduce"  # the kind of check that takes two nodes
WIDE = "wide"  # the occasion of checks before a wide job
RETRY = "retry"  # the word for a check of a quarantined node


class CheckRule(NamedTuple):
    """A kind of check, and the occasions on which it is made."""

    kind: str
    when: Set[str]


class IdleNode(NamedTuple):
    """A node on which nothing runs. Two nodes with the same `devices` can be checked together.

    `last`: by kind. `marked`: occasions, and when each was. `closed_s`: since when it is
    quarantined by the master itself; None: it is open. `closed_for`: the kinds of check that it
    has to pass then.
    """

    node_id: NodeId
    devices: tuple[str, int]
    last: Mapping[str, LastCheck]
    marked: Mapping[str, float]
    closed_s: float | None = None
    closed_for: Set[str] = frozenset()
    partners: Set[NodeId] = frozenset()  # with which it has failed


class DueCheck(NamedTuple):
    """A check to be made now, and its occasion."""

    kind: str
    node_ids: tuple[NodeId, ...]
    why: str


class Periods(NamedTuple):
    """An idle node that has passed is checked again after `every_s`, another one after
    `retry_s`.
    """

    every_s: float
    retry_s: float


def due(
    rules: Sequence[CheckRule], idle: Sequence[IdleNode], periods: Periods, now_s: float
) -> Iterator[DueCheck]:
    """The checks that are due, at most one for each node; first the nodes that are closed."""
    taken: set[NodeId] = set()
    for node in sorted(idle, key=lambda one: (one.closed_s is None, one.node_id)):
        for rule in rules:
            why = _occasion(rule, node, periods, now_s)
            if node.node_id in taken or not why:
                continue
            node_ids = _with_partner(rule.kind, node, idle, taken)
            if node_ids:
                taken.update(node_ids)
                yield DueCheck(rule.kind, node_ids, why)


def _occasion(rule: CheckRule, node: IdleNode, periods: Periods, now_s: float) -> str:
    """Why this kind is due on the node; empty: it is not."""
    told = node.last.get(rule.kind)
    if node.closed_s is not None:
        if rule.kind not in node.closed_for:
            return ""
        since_s = node.closed_s if told is None else max(told.time_s, node.closed_s)
        return RETRY if now_s - since_s >= periods.retry_s else ""
    for occasion, at_s in node.marked.items():
        if occasion in rule.when and (told is None or told.time_s < at_s):
            return occasion
    if "idle" not in rule.when:
        return ""
    wait_s = periods.every_s if told is not None and told.passed else periods.retry_s
    return "idle" if told is None or now_s - told.time_s >= wait_s else ""


def _with_partner(
    kind: str, node: IdleNode, idle: Sequence[IdleNode], taken: Set[NodeId]
) -> tuple[NodeId, ...]:
    """The nodes of the check; none: no other node fits. A partner with which it has not failed
    comes first, then the one whose last check was longest ago.
    """
    if kind != PAIR:
        return (node.node_id,)
    others = [
        one
        for one in idle
        if one.devices == node.devices
        and one.node_id not in taken
        and one.node_id != node.node_id
        and one.closed_s is None
    ]
    never = LastCheck(float("-inf"), None)
    chosen = min(
        others,
        key=lambda one: (
            one.node_id in node.partners,
            one.last.get(kind, never).time_s,
            one.node_id,
        ),
        default=None,
    )
    return () if chosen is None else (node.node_id, chosen.node_id)
