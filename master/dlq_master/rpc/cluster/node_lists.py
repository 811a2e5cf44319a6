"""The nodes of a list, chosen by state, flag, GPU type and words.

Every caller may see all nodes. There are few nodes, so each one is tested, and other callers run
meanwhile.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Sequence

from dlq.v1 import node_service_pb2 as wire
from dlq_common.errors import InvalidRequest
from dlq_common.text.names import shown
from dlq_common.text.suggest import did_you_mean
from dlq_master.control.nodes.labels import by_name
from dlq_master.control.read_model.published import Published
from dlq_master.model.nodes.node import Node, NodeFlag, NodeState
from dlq_master.rpc.calls.reads import LOOKED_AT, Breathe
from dlq_master.rpc.specs.intake import search_words
from dlq_master.store.list_order import small

AT_ONCE = 64
_STATES = frozenset(state.value for state in NodeState)
_FLAGS = frozenset(flag.value for flag in NodeFlag)


async def wanted_nodes(
    request: wire.ListNodesRequest, read: Published, breathe: Breathe
) -> Sequence[Node]:
    """The nodes that fit, by name. InvalidRequest: the request has an unknown word."""
    fits = _condition(request)
    nodes = read.nodes()
    if fits is None:
        return nodes
    found: list[Node] = []
    for first in range(0, len(nodes), AT_ONCE):
        some = nodes[first : first + AT_ONCE]
        await breathe(LOOKED_AT * len(some))
        found += filter(fits, some)
    return found


def page_of(nodes: Sequence[Node], token: str, most: int) -> tuple[Sequence[Node], str]:
    """The page behind a token, and the next token.

    A token is the last name shown, so nodes that come or go between two pages shift nothing.
    """
    start = bisect_right(nodes, token, key=lambda node: str(node.node_id))
    page = nodes[start : start + most]
    return page, page[-1].node_id if start + most < len(nodes) else ""


def _condition(request: wire.ListNodesRequest) -> Callable[[Node], bool] | None:
    """The test for a node; None: every node fits."""
    states = _known(request.states, _STATES, "states", "state")
    flags = _known(request.flags, _FLAGS, "flags", "flag")
    gpu_type, words = request.gpu_type, search_words(request.text)
    if not states and not flags and not gpu_type and not words:
        return None

    def fits(node: Node) -> bool:
        return (
            (not states or node.state.value in states)
            and (not flags or any(flag.value in flags for flag in node.flags))
            and (not gpu_type or any(gpu.gpu_type == gpu_type for gpu in node.gpus))
            and (not words or _has(words, node))
        )

    return fits


def _has(words: Sequence[str], node: Node) -> bool:
    labels = [f"{name}={value}" for name, value in by_name(node).items()]
    texts = [small(text) for text in (node.node_id, node.hostname, *labels)]
    return all(any(word in text for text in texts) for word in words)


def _known(told: Sequence[str], known: Collection[str], field: str, what: str) -> frozenset[str]:
    unknown = next((word for word in told if word not in known), None)
    if unknown is not None:
        guess = did_you_mean(unknown, known)
        raise InvalidRequest(
            f"no node has the {what} {shown(unknown)}{guess}",
            field=field,
            hint=f"{field}: {', '.join(sorted(known))}",
        )
    return frozenset(told)
