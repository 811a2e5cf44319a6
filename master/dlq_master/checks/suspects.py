"""Checks of suspected stragglers: they confirm a suspicion, or end it.

A suspicion rests on what a job has told of its own steps, and a job may lie. So it closes no node.
It asks for a check of each kind with the occasion `suspect`, which goes first: the node gets it as
soon as it is idle. If one fails, the node is quarantined as after any check. If all pass, the node
is judged anew. A node is checked for this once in `suspect_every`. For jobs of one user, so are
`MOST_OF_USER` nodes in that time. A lie can cost no more.

The suspicion stands in the node, so it survives a restart of the master. Its limits are counted
anew then. A check on a silent node is heard when the node is back. A restart of the agent changes
nothing.
"""

from __future__ import annotations

from dlq_master.checks.due import PAIR, SUSPECT
from dlq_master.control.attempts import stragglers
from dlq_master.control.loop.turn import Turn
from dlq_master.model.nodes.node import Node

MOST_OF_USER = 4  # nodes within `suspect_every`


def mark(turn: Turn) -> None:
    """Ask for checks of suspected nodes, within the limits."""
    checks, every_s = turn.state.nodes.checks, turn.state.config.checks.suspect_every
    for node in turn.state.cluster.nodes.values():
        if node.doubt is None or _asked_since(turn, node, node.doubt.since_s):
            continue
        user = node.doubt.user
        lately = {
            node_id: by
            for node_id, (at_s, by) in checks.suspects.items()
            if turn.now_s - at_s < every_s
        }
        if node.node_id in lately or [*lately.values()].count(user) >= MOST_OF_USER:
            continue
        checks.suspects[node.node_id] = turn.now_s, user
        checks.marked.setdefault(node.node_id, {})[SUSPECT] = turn.now_s


def passed(turn: Turn, node: Node) -> None:
    """A check has passed on the node: if it was the last one for its suspicion, that is over."""
    checks = turn.state.nodes.checks
    asked_s = checks.marked.get(node.node_id, {}).get(SUSPECT)
    if node.doubt is None or asked_s is None or asked_s < node.doubt.since_s:
        return
    last = checks.last.get(node.node_id, {})
    kinds = turn.state.config.checks.kinds.items()
    told = [last.get(kind) for kind, rule in kinds if SUSPECT in rule.when and kind != PAIR]
    if told and all(one is not None and one.passed and one.time_s >= asked_s for one in told):
        stragglers.begin_anew(turn, node.node_id, "checks have found nothing wrong with it")


# --- helpers, in order of use ---------------------------------------------------------------------


def _asked_since(turn: Turn, node: Node, since_s: float) -> bool:
    asked_s = turn.state.nodes.checks.marked.get(node.node_id, {}).get(SUSPECT)
    return asked_s is not None and asked_s >= since_s
