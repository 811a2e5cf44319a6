"""A node as people see it: the reasons that keep it from work, and the health of its GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dlq.v1 import node_pb2
from dlq_common.text.wire import to_duration, to_timestamp
from dlq_master.control.read_model.published import Published
from dlq_master.model.ids import AttemptKey
from dlq_master.model.nodes.gpu_health import Figures
from dlq_master.model.nodes.node import Node, NodeFlag, NodeState


def reasons(node: Node, read: Published) -> Iterator[node_pb2.NodeReason]:
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
    for words in _strays(node):
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


def straggler(node: Node, read: Published) -> node_pb2.NodeStraggler | None:
    """How much longer its steps take than those of its peers; None: unknown."""
    found = read.straggler(node.node_id)
    if found is None:
        words = "suspected before this master started"
        return node_pb2.NodeStraggler(suspected=True, words=words) if node.doubted else None
    return node_pb2.NodeStraggler(
        excess_percent=100.0 * found.excess,
        confidence=found.confidence,
        step_count=found.steps,
        gang_count=found.gangs,
        told_apart=found.told_apart,
        suspected=node.doubted,
        words=found.words,
    )


def gpu_statuses(node: Node, read: Published) -> Iterator[node_pb2.GpuStatus]:
    """The status of each GPU of a node."""
    holders, figures = read.holders(node.node_id), read.figures(node.node_id)
    closed = not node.open
    for gpu in node.gpus:
        holder = holders.get(gpu.index)
        found = figures.get(gpu.index)
        yield node_pb2.GpuStatus(
            index=gpu.index,
            state=_state(closed, bool(node.withheld >> gpu.index & 1), holder),
            attempt="" if holder is None else str(holder),
            conditions=[
                node_pb2.GpuCondition(
                    code=one.code,
                    action=one.action.value,
                    detail=one.detail,
                    since_time=to_timestamp(one.since_s),
                )
                for one in node.conditions
                if one.gpu == gpu.index
            ],
            **({} if found is None else _measured(found)),
        )


def _measured(found: Figures) -> dict[str, Any]:
    told = found._asdict()
    told["idle_duration"] = to_duration(told.pop("idle_s"))
    return told


def withheld_words(node: Node) -> str:
    """Why some of its GPUs take no work, in words; empty: all do."""
    unwell = (f"{one}, {one.action.value}" for one in node.conditions if one.withholds)
    return "; ".join([*_strays(node), *unwell])


def _strays(node: Node) -> Iterator[str]:
    """The GPUs held by other programs, and those that are not accepted yet."""
    if node.strayed:
        yield f"GPU {_numbers(node.strayed)}: {node.stray_reason}"
    if node.unaccepted:
        why = f"not among those it was accepted with (dlq admin node accept {node.node_id})"
        yield f"GPU {_numbers(node.unaccepted)}: {why}"


def _state(closed: bool, withheld: bool, holder: AttemptKey | None) -> str:
    if holder is not None:
        return "busy"
    if withheld:
        return "withheld"
    return "closed" if closed else "free"


def _reason(kind: str, words: str, actor: str, since_s: float | None = None) -> node_pb2.NodeReason:
    return node_pb2.NodeReason(
        kind=kind, words=words, actor=actor, since_time=to_timestamp(since_s)
    )


def _numbers(numbers: frozenset[int]) -> str:
    return ", ".join(map(str, sorted(numbers)))
