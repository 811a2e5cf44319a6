"""Who would be done when on the own nodes, node by node and GPU by GPU: `policy.rent.line` must say
the same.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import inf

from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.model.nodes.node import Node
from dlq_master.model.nodes.owned import is_own
from dlq_master.policy.rent.line import UNKNOWN_END_S, LineEntry
from dlq_master.policy.stop_costs import expected_end_s


def own_node_ends_s(
    cluster: Cluster,
    now_s: float,
    line: Sequence[LineEntry],
    *,
    grows: bool,
    outranked: Mapping[AttemptKey, JobId],
    moving: Collection[AttemptKey] = (),
) -> dict[int, float]:
    """As `policy.rent.line.own_node_ends_s`, of a line with the outranked and movable jobs."""
    falls_free_s: list[float] = []  # of each own GPU that takes work, or will
    own = {node_id: node for node_id, node in cluster.nodes.items() if is_own(node)}
    for node in own.values():
        falls_free_s += [now_s if node.open else now_s + UNKNOWN_END_S] * len(_free(cluster, node))
    for attempt in cluster.attempts.values():
        held = [slot for slot in attempt.lease.allocation.slots if slot.node_id in own]
        moves = attempt.key in moving
        end_s = now_s if moves else _ends_s(cluster, attempt.key, now_s, outranked)
        falls_free_s += [end_s] * sum(slot.mask.bit_count() for slot in held)
    widest = max((len(node.gpus) for node in own.values()), default=0) if grows else 0
    return list_schedule_ends_s(falls_free_s, line, widest)


def list_schedule_ends_s(
    falls_free_s: list[float], line: Sequence[LineEntry], widest: int
) -> dict[int, float]:
    """As `policy.rent.line.list_schedule_ends_s`, of single GPUs."""
    ends = {}
    for job, gpus, lasts_s, more in line:
        if gpus > len(falls_free_s):
            ends[job] = inf
            continue
        falls_free_s.sort()
        sizes = [(gpus, lasts_s), *(size for size in more if size[0] <= widest)]
        sizes = [size for size in sizes if size[0] <= len(falls_free_s)]
        end_s, gpus = min((falls_free_s[size - 1] + lasts, size) for size, lasts in sizes)
        falls_free_s[:gpus] = [end_s] * gpus
        ends[job] = end_s
    return ends


def _free(cluster: Cluster, node: Node) -> list[int]:
    claimed = cluster.capacity.claimed(node.node_id)
    taken = node.withheld | claimed
    return [gpu.index for gpu in node.gpus if not taken >> gpu.index & 1]


def _ends_s(
    cluster: Cluster, key: AttemptKey, now_s: float, outranked: Mapping[AttemptKey, JobId]
) -> float:
    attempt, job = cluster.attempts[key], cluster.jobs[key.job_id]
    began_s = now_s if attempt.started_time_s is None else attempt.started_time_s
    end_s, usual_s = max(now_s, expected_end_s(job, attempt, began_s)), now_s + UNKNOWN_END_S
    nodes = [cluster.nodes[slot.node_id] for slot in attempt.lease.allocation.slots]
    if end_s == inf:
        end_s = usual_s
    elif any(is_own(node) and not node.open for node in nodes):
        end_s = max(end_s, usual_s)
    if key in outranked:
        end_s = max(now_s, min(end_s, attempt.lease.term_end_s))
    return end_s
