"""A node as people see it beyond its plain facts: the reasons that keep it from work, and the
health of its GPUs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from dlq.v1 import node_pb2
from dlq_common.text.wire import to_timestamp
from dlq_master.model.ids import AttemptKey, NodeId
from dlq_master.model.nodes.gpu_health import Figures, GpuCondition
from dlq_master.model.nodes.node import Gpu, Node, NodeFlag, NodeState


class Readable(Protocol):
    """The values read for it."""

    def contact_s(self, node_id: NodeId) -> float | None: ...
    def holders(self, node_id: NodeId) -> Mapping[int, AttemptKey]: ...
    def figures(self, node_id: NodeId) -> Mapping[int, Figures]: ...


def reasons(node: Node, read: Readable) -> Iterator[node_pb2.NodeReason]:
    """Everything that keeps a node, or some of its GPUs, from taking work."""
    if node.state is not NodeState.UP:
        contact_s = read.contact_s(node.node_id)
        yield _reason(node.state.value, _silence(node, contact_s), "master", contact_s)
    for flag in sorted(node.flags):
        note = node.note(flag)
        if flag is NodeFlag.MAINTENANCE:
            yield _reason(flag.value, "its agent has announced to be away", f"node:{node.node_id}")
        elif note is None:
            yield _reason(flag.value, node.flag_reason, "")
        else:
            yield _reason(flag.value, note.reason, note.by, note.since_s)
    if node.strayed:
        words = f"GPU {_numbers(node.strayed)}: {node.stray_reason}"
        yield _reason("withheld", words, "master")
    if node.unaccepted:
        words = f"GPU {_numbers(node.unaccepted)}: {_unaccepted(node)}"
        yield _reason("withheld", words, "master")
    for one in node.conditions:
        if one.withholds:
            yield _reason(
                "withheld", f"{one}, {one.action.value}", f"node:{node.node_id}", one.since_s
            )


def _silence(node: Node, contact_s: float | None) -> str:
    if node.state is not NodeState.DOWN:
        return "its agent is silent"
    if contact_s is None:
        return "this master has not heard its agent yet: is dlq-nodeagent running there?"
    return (
        "its agent was silent for longer than its jobs may run alone (lease.hold), or it was fenced"
    )


def gpu_statuses(node: Node, read: Readable) -> Iterator[node_pb2.GpuStatus]:
    """How each GPU of a node is."""
    holders, figures = read.holders(node.node_id), read.figures(node.node_id)
    closed = not node.open
    for gpu in node.gpus:
        holder = holders.get(gpu.index)
        yield _status(
            gpu,
            _state(closed, bool(node.withheld >> gpu.index & 1), holder),
            holder,
            [one for one in node.conditions if one.gpu == gpu.index],
            figures.get(gpu.index),
        )


def withheld_words(node: Node) -> str:
    """Why some of its GPUs take no work, in words; empty: all do."""
    words = [f"GPU {_numbers(node.strayed)}: {node.stray_reason}"] if node.strayed else []
    if node.unaccepted:
        words.append(f"GPU {_numbers(node.unaccepted)}: {_unaccepted(node)}")
    words += [f"{one}, {one.action.value}" for one in node.conditions if one.withholds]
    return "; ".join(words)


def _state(closed: bool, withheld: bool, holder: AttemptKey | None) -> str:
    if holder is not None:
        return "busy"
    if withheld:
        return "withheld"
    return "closed" if closed else "free"


def _status(
    gpu: Gpu,
    state: str,
    holder: AttemptKey | None,
    conditions: Sequence[GpuCondition],
    figures: Figures | None,
) -> node_pb2.GpuStatus:
    status = node_pb2.GpuStatus(
        index=gpu.index, state=state, attempt="" if holder is None else str(holder)
    )
    for one in conditions:
        condition = status.conditions.add(code=one.code, action=one.action.value, detail=one.detail)
        condition.since_time.CopyFrom(to_timestamp(one.since_s))
    if figures is not None:
        for name, value in zip(figures._fields, figures, strict=True):
            if value is not None:
                setattr(status, name, value)
    return status


def _reason(kind: str, words: str, actor: str, since_s: float | None = None) -> node_pb2.NodeReason:
    message = node_pb2.NodeReason(kind=kind, words=words, actor=actor)
    if since_s is not None:
        message.since_time.CopyFrom(to_timestamp(since_s))
    return message


def _unaccepted(node: Node) -> str:
    return f"not among those it was accepted with (dlq admin node accept {node.node_id})"


def _numbers(numbers: frozenset[int]) -> str:
    return ", ".join(map(str, sorted(numbers)))
