"""Labels of nodes: set and cleared by operators, asked for by jobs (`-C rack=r1`).

When the agent registers anew, or the master restarts, they stay in the node's row. A silent line
does not matter to them. When a node is forgotten, they are too.
"""

from collections.abc import Iterable

from dlq_common.errors import InvalidRequest
from dlq_master.control.loop.once import Done, once
from dlq_master.control.loop.turn import Turn
from dlq_master.control.stimuli import SetNodeLabels
from dlq_master.model.nodes import node_steps as on_node
from dlq_master.model.nodes.node import Node

MOST_LABELS = 32


def _as_it_stands(turn: Turn, ask: SetNodeLabels, _word: str) -> Node:
    return turn.node(ask.node_id)


@once(_as_it_stands)
def set_labels(turn: Turn, ask: SetNodeLabels) -> Done[Node]:
    """Set and clear labels; a label that already has its value changes nothing."""
    node = turn.node(ask.node_id)
    before = by_name(node)
    after = {name: value for name, value in before.items() if name not in ask.clear_labels}
    after |= named(ask.set_labels)
    if len(after) > MOST_LABELS:
        raise InvalidRequest(
            f"node {ask.node_id} would have {len(after)} labels; the most is {MOST_LABELS}",
            field="set_labels",
        )
    if after == before:
        return Done(node, ask.node_id)
    labels = frozenset(f"{name}={value}" for name, value in after.items())
    changes = [f"-{each}" for each in sorted(node.labels - labels)]
    changes += [f"+{each}" for each in sorted(labels - node.labels)]
    event = on_node.Labelled(labels=labels)
    node = turn.step_node(ask.node_id, event, actor=ask.caller.actor, cause=" ".join(changes))
    return Done(node, ask.node_id)


def by_name(node: Node) -> dict[str, str]:
    """The labels of a node, by name."""
    return named(node.labels)


def named(labels: Iterable[str]) -> dict[str, str]:
    """Texts `K=V` by K."""
    return {name: value for name, _, value in (each.partition("=") for each in sorted(labels))}
