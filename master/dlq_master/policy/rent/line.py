"""The end of each waiting job on the cluster's own nodes, by a list schedule of GPU counts.

The first job in line takes the free GPUs first, and starts once it has all GPUs that it asks for. A
job with several allowed sizes takes the size with the earliest end, as if it could not grow later.
The schedule knows no fragmentation, GPU types or nodes, and no job is backfilled. It is an estimate
on which renting is decided, not a plan.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from heapq import heappop, heappush, heapreplace
from math import inf
from types import MappingProxyType
from typing import NamedTuple

from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.jobs.band import Band
from dlq_master.model.jobs.job import Job
from dlq_master.model.nodes.node import Node
from dlq_master.model.order.waiting import WaitingIndex
from dlq_master.model.resources import mask_of
from dlq_master.policy.stop_costs import expected_end_s

NONE_OUTRANKED: Mapping[AttemptKey, JobId] = MappingProxyType({})
# The time until a running job ends, or an own node takes work again, where it is not known.
UNKNOWN_END_S = 3600.0


class LineEntry(NamedTuple):
    """A waiting job in the order of the line.

    `lasts_s`: its remaining time on `gpus`, the GPUs that it asks for. `more`: larger sizes that it
    may have instead, in rising order, each with its remaining time.
    """

    job: int
    gpus: int
    lasts_s: float
    more: tuple[tuple[int, float], ...] = ()


def may_rent(job: Job) -> bool:
    """Whether a machine may be rented for this job, now or once it waits.

    The job names a cost of being late, has no promise, and fits on one node of any host. Its team
    may hold more GPUs: a job at its team's limit could start on no machine.
    """
    request = job.request
    return (
        job.lateness is not None
        and job.promised is None
        and job.band is not Band.LIMIT
        and request.nodes in (None, 1)
        and request.shape.traits is None
    )


def waiting_in_order(cluster: Cluster, waiting: WaitingIndex) -> Iterator[Job]:
    """The waiting jobs in the order of the policy."""
    for priority in waiting.priorities:
        found = [
            (position, job_id)
            for fifo in waiting.by_priority[priority].values()
            for job_id, position in fifo.items()
        ]
        for _, job_id in sorted(found):
            yield cluster.jobs[job_id]


def own_node_ends_s(
    cluster: Cluster,
    now_s: float,
    line: Sequence[Job],
    as_entries: Callable[[Sequence[Job]], Sequence[LineEntry]],
    *,
    grows: bool,
    outranked: Mapping[AttemptKey, JobId] = NONE_OUTRANKED,
    moving: Mapping[AttemptKey, Job] = MappingProxyType({}),
) -> dict[int, float]:
    """When each waiting job would end on the cluster's own nodes, by job; inf: never.

    `line`: the waiting jobs in their order. `as_entries` says how long each of them lasts. `grows`:
    a job with several sizes may get more GPUs than it asks for, up to those of one node.
    `outranked`: running jobs that leave at the end of their terms, each for the job beside it; they
    wait behind that job. `moving`: running jobs that might go on with other GPUs
    (`policy.rent.moving`). They stand before all others, as if they left their GPUs now.
    """
    moving = {key: job for key, job in moving.items() if key not in outranked}
    free, running = _own_capacity(cluster, now_s, outranked, moving)
    widest = 0
    if grows:
        foreign = frozenset(cluster.own.foreign)
        own = [node for node_id, node in cluster.nodes.items() if node_id not in foreign]
        widest = max([len(node.gpus) for node in own], default=0)
    behind = list(_with_outranked(outranked, line, cluster)) if outranked else line
    entries = as_entries([*moving.values(), *behind])
    return list_schedule_ends_s(now_s, free, running, entries, widest)


def _own_capacity(
    cluster: Cluster,
    now_s: float,
    outranked: Collection[AttemptKey],
    moving: Collection[AttemptKey],
) -> tuple[int, list[tuple[float, int]]]:
    """The free GPUs of own nodes, and the instants at which more of them become free: (s, GPUs).

    A job of `moving` counts as if it left now, and one of `outranked` as if it left at the end of
    its term. Closed and silent nodes, and jobs without an expected end, are taken to be free after
    UNKNOWN_END_S.
    """
    capacity, foreign = cluster.capacity, frozenset(cluster.own.foreign)
    capacity.ready()
    shut, unknown_s = capacity.closed - foreign, now_s + UNKNOWN_END_S
    lent = foreign - capacity.closed  # `free_gpus` counts open lent nodes too
    free = capacity.free_gpus - sum([_free_gpus(cluster, node_id) for node_id in lent])
    running = [(unknown_s, _free_gpus(cluster, node_id)) for node_id in shut]
    for attempt in cluster.attempts.values():
        held = [slot for slot in attempt.lease.allocation.slots if slot.node_id not in foreign]
        gpus = sum([slot.mask.bit_count() for slot in held])
        if held and attempt.key in moving:
            free += gpus
        elif held:
            began_s = now_s if attempt.started_time_s is None else attempt.started_time_s
            end_s = expected_end_s(cluster.jobs[attempt.key.job_id], attempt, began_s)
            if end_s == inf:
                end_s = unknown_s
            elif shut and not shut.isdisjoint([slot.node_id for slot in held]):
                end_s = max(end_s, unknown_s)
            if attempt.key in outranked:
                end_s = min(end_s, attempt.lease.term_end_s)
            running.append((end_s, gpus))
    return free, running


def _with_outranked(
    outranked: Mapping[AttemptKey, JobId], line: Sequence[Job], cluster: Cluster
) -> Iterator[Job]:
    """The line; each outranked job stands behind the job for which it leaves."""
    behind: dict[JobId, list[Job]] = {}
    for key, job_id in outranked.items():
        behind.setdefault(job_id, []).append(cluster.jobs[key.job_id])
    for job in line:
        yield job
        yield from behind.get(job.job_id, ())


def free_mask(cluster: Cluster, node: Node) -> int:
    """The free GPUs of a node as a bitmask, without withheld ones."""
    owned = mask_of(gpu.index for gpu in node.gpus)
    return owned & ~node.withheld & ~cluster.capacity.claimed(node.node_id)


def _free_gpus(cluster: Cluster, node_id: NodeId) -> int:
    return free_mask(cluster, cluster.nodes[node_id]).bit_count()


def list_schedule_ends_s(
    now_s: float,
    free: int,
    running: Sequence[tuple[float, int]],
    line: Sequence[LineEntry],
    widest: int = 0,
) -> dict[int, float]:
    """When each job of `line` ends, by job; inf: it asks for more than all own GPUs.

    `free`: own GPUs that are free now. `running`: (s, GPUs) that become free later; inf: never.
    `widest`: the GPUs of the largest node; no job gets more than it asks for beyond them.
    O((running + line) log(running + line)).
    """
    heap = [(max(end_s, now_s), gpus) for end_s, gpus in running]
    heap.append((now_s, free))
    heap.sort()
    total = free + sum(gpus for _, gpus in running)
    ends: dict[int, float] = {}
    for job, wants, lasts_s, more in line:
        if wants > total:
            ends[job] = inf
            continue
        if more:
            sizes = [(wants, lasts_s), *(size for size in more if size[0] <= widest)]
            wants, lasts_s = _soonest(heap, sizes)
        begin_s, have = heap[0]
        while have < wants:
            heappop(heap)
            begin_s, gpus = heap[0]  # popped instants rise: the last one is the latest
            have += gpus
        if have > wants:
            heap[0] = (begin_s, have - wants)  # still the first of the heap
            heappush(heap, (begin_s + lasts_s, wants))
        else:
            heapreplace(heap, (begin_s + lasts_s, wants))
        ends[job] = begin_s + lasts_s
    return ends


def _soonest(
    heap: list[tuple[float, int]], sizes: Sequence[tuple[int, float]]
) -> tuple[int, float]:
    """The size, of sizes in rising order, with the earliest end; the smallest of equals."""
    taken: list[tuple[float, int]] = []
    have, best, best_s = 0, sizes[0], inf
    for gpus, lasts_s in sizes:
        while have < gpus and heap:
            taken.append(heappop(heap))
            have += taken[-1][1]
        if have >= gpus and taken[-1][0] + lasts_s < best_s:
            best, best_s = (gpus, lasts_s), taken[-1][0] + lasts_s
    for one in taken:
        heappush(heap, one)
    return best
