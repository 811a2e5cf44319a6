"""Due checks of nodes: a pure decision, from the idle nodes and the results of earlier checks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import NamedTuple

from dlq_master.model.ids import NodeId
from dlq_master.model.nodes.node import LastCheck

PAIR = "all_reduce"  # the kind of check that takes two nodes
WIDE = "wide"  # the occasion of checks before a wide start
SUSPECT = "suspect"  # that of a suspected straggler: these go before jobs at once
RETRY = "retry"  # the word for a check of a quarantined node, or after one that told nothing


class CheckRule(NamedTuple):
    """A kind of check, and the occasions on which it is made."""

    kind: str
    when: Set[str]


class IdleNode(NamedTuple):
    """A node on which nothing runs. Two nodes with the same `devices` can be checked together.

    `last`: by kind. `marked`: occasions, and when each was. `closed_s`: since when it is
    quarantined by the master itself; None: it is open. `closed_for`: the kinds of check that it
    has to pass then. `known_s`: since when it could have been checked.
    """

    node_id: NodeId
    devices: tuple[str, int]
    last: Mapping[str, LastCheck]
    marked: Mapping[str, float]
    closed_s: float | None = None
    closed_for: Set[str] = frozenset()
    partners: Set[NodeId] = frozenset()  # with which it has failed
    known_s: float = 0.0


class DueCheck(NamedTuple):
    """A check to be made now, and its occasion."""

    kind: str
    node_ids: tuple[NodeId, ...]
    why: str


class Periods(NamedTuple):
    """An idle node that has passed is checked again after `every_s`, another one after
    `retry_s`. `overdue_s` after that, its check goes before jobs.
    """

    every_s: float
    retry_s: float
    overdue_s: float = float("inf")


def due(
    rules: Sequence[CheckRule], idle: Sequence[IdleNode], periods: Periods, now_s: float
) -> Iterator[DueCheck]:
    """The checks that are due, at most one for each node; first the nodes that are closed."""
    taken: set[NodeId] = set()
    for node in sorted(idle, key=lambda one: (one.closed_s is None, one.node_id)):
        for rule in rules:
            occasion = _occasion(rule, node, periods)
            if node.node_id in taken or occasion is None or now_s < occasion.since_s:
                continue
            node_ids = _with_partner(rule.kind, node, idle, taken)
            if node_ids:
                taken.update(node_ids)
                yield DueCheck(rule.kind, node_ids, occasion.word)


def overdue(
    rules: Sequence[CheckRule], nodes: Iterable[IdleNode], periods: Periods, now_s: float
) -> Iterator[DueCheck]:
    """Checks that go before jobs as soon as their node is idle, at most one for each open
    node. Those of suspected stragglers do at once, others when they are overdue. A pair never does:
    its two nodes would have to be idle at the same time.
    """
    for node in nodes:
        for rule in rules:
            occasion = None if rule.kind == PAIR else _occasion(rule, node, periods)
            if occasion is None or node.closed_s is not None:
                continue
            patience_s = 0.0 if occasion.word == SUSPECT else periods.overdue_s
            if now_s >= occasion.since_s + patience_s:
                yield DueCheck(rule.kind, (node.node_id,), occasion.word)
                break


class _Occasion(NamedTuple):
    """Why a kind of check is due on a node, and from when on."""

    word: str
    since_s: float


def _occasion(rule: CheckRule, node: IdleNode, periods: Periods) -> _Occasion | None:
    told = node.last.get(rule.kind)
    if node.closed_s is not None:
        if rule.kind not in node.closed_for:
            return None
        since_s = node.closed_s if told is None else max(told.time_s, node.closed_s)
        return _Occasion(RETRY, since_s + periods.retry_s)
    # A suspicion first: its check waits for nothing.
    for word, at_s in sorted(node.marked.items(), key=lambda one: one[0] != SUSPECT):
        if word in rule.when and (told is None or told.time_s < at_s):
            return _Occasion(word, at_s)
    occasions = rule.when & node.marked.keys() - {WIDE}
    if told is not None and told.passed is None and occasions:
        # It was ended, or told nothing: it comes again, but does not go first at once.
        return _Occasion(RETRY, told.time_s + periods.retry_s)
    if "idle" not in rule.when:
        return None
    if told is None:
        return _Occasion("idle", node.known_s)
    return _Occasion("idle", told.time_s + (periods.every_s if told.passed else periods.retry_s))


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
