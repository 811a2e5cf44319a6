"""How jobs choose nodes and operators label them: labels and names of nodes, checked."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from dlq.v1.resource_pb2 import ResourceRequest
from dlq_common.errors import InvalidRequest
from dlq_common.text.names import check_node_name, check_word, shown
from dlq_master.model.ids import NodeId

MOST_LABELS = 32
MOST_NODES_NAMED = 4096
_VALUE = re.compile(r"[A-Za-z0-9._-]{1,63}", re.ASCII)


def passing(check: Callable[..., str], text: str, field: str, *what: str) -> str:
    """A text that passes a check of dlq_common.text. InvalidRequest names the field."""
    try:
        return check(text, *what)
    except ValueError as error:
        raise InvalidRequest(str(error), field=field) from None


def labels_of(labels: Mapping[str, str], field: str) -> tuple[str, ...]:
    """`K=V` texts, sorted. InvalidRequest: one is no label."""
    if len(labels) > MOST_LABELS:
        raise InvalidRequest(f"{len(labels)} labels; the most is {MOST_LABELS}", field=field)
    for name, value in labels.items():
        passing(check_word, name, field, "label")
        if not _VALUE.fullmatch(value):
            raise InvalidRequest(
                f"label {name} cannot be {shown(value)}: use up to 63 letters, digits, '.', '_', "
                "'-'",
                field=field,
            )
    return tuple(f"{name}={labels[name]}" for name in sorted(labels))


def check_choice(asked: ResourceRequest) -> None:
    """InvalidRequest: the choice makes no sense, or excludes every node."""
    labels_of(asked.constraint, "resources.constraint")
    among = _names(asked.node_ids, "resources.node_ids")
    excluded = _names(asked.excluded_node_ids, "resources.excluded_node_ids")
    if among and not among - excluded:
        raise InvalidRequest(
            "every node that it may use is one that it must not", field="resources.node_ids"
        )


def nodes_of(names: Iterable[str]) -> tuple[NodeId, ...]:
    """Checked names, each once, sorted."""
    return tuple(NodeId(name) for name in sorted(set(names)))


def _names(names: Iterable[str], field: str) -> set[str]:
    found = set(names)
    if len(found) > MOST_NODES_NAMED:
        raise InvalidRequest(f"more than {MOST_NODES_NAMED} nodes are named", field=field)
    for name in sorted(found):
        passing(check_node_name, name, field)
    return found
