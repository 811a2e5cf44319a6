"""The line before the cluster's own nodes, and when each who stands in it would be done there.

That is a list schedule by numbers of GPUs. The first in line takes the free GPUs first, all that it
asks for at once. A job that may have more takes the number with the earliest end, as if it could
not grow later. Fragments, types and nodes are not looked at, and nobody passes: it is an estimate
for whether to rent, not a plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
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

NOBODY: Mapping[AttemptKey, JobId] = MappingProxyType({})
# Until a job that runs has ended, or an own node takes work again, if nobody knows when that is
USUAL_S = 3600.0


class InLine(NamedTuple):
    """A job that waits, in the order of the line. `lasts_s`: on the GPUs that it asks for; `more`:
    the larger numbers of them that it may have instead, rising, and how long it lasts on those."""

    job: int
    gpus: int
    lasts_s: float
    more: tuple[tuple[int, float], ...] = ()


def may_rent(job: Job) -> bool:
    """Whether machines may be rented for a job that waits, or will. It names a cost of being late
    and fits on one node of any host, and its team may hold more. Without that it could start on
    none.
    """
    request = job.request
    return (
        job.lateness is not None
        and job.promised is None
        and job.band is not Band.LIMIT
        and request.nodes in (None, 1)
        and request.shape.traits is None
    )


def in_line(cluster: Cluster, waiting: WaitingIndex) -> Iterator[Job]:
    """The waiting jobs, in the order of the policy."""
    for priority in waiting.priorities:
        found = [
            (position, job_id)
            for fifo in waiting.by_priority[priority].values()
            for job_id, position in fifo.items()
        ]
        for _, job_id in sorted(found):
            yield cluster.jobs[job_id]


def own_end_s(
    cluster: Cluster,
    now_s: float,
    line: Sequence[Job],
    as_in_line: Callable[[Sequence[Job]], Sequence[InLine]],
    *,
    grows: bool,
    outranked: Mapping[AttemptKey, JobId] = NOBODY,
    moving: Mapping[AttemptKey, Job] = MappingProxyType({}),
) -> dict[int, float]:
    """When each of those who wait, in their order, would be done on the cluster's own nodes
    (`own_ends`). `outranked`: a running job gives way to another when its term ends, and
    then waits behind that one; no other job does. `moving`: running jobs that might go on with
    other numbers of GPUs (`policy.rent.moving`). They stand before all, as if they left theirs now.
    `grows`: a job that may have more GPUs than it asks for gets them, as far as one node has them.
    One that is silent or closed is reckoned with in an hour: it is not as if the cluster had none.
    """
    moving = {key: job for key, job in moving.items() if key not in outranked}
    capacity, foreign = cluster.capacity, frozenset(cluster.own.foreign)
    capacity.ready()
    shut, usual_s = capacity.closed - foreign, now_s + USUAL_S
    lent = foreign - capacity.closed  # what of them is open counts among all that is free
    free = capacity.free_gpus - sum([_free_gpus(cluster, node_id) for node_id in lent])
    running = [(usual_s, _free_gpus(cluster, node_id)) for node_id in shut]
    for attempt in cluster.attempts.values():
        held = [slot for slot in attempt.lease.allocation.slots if slot.node_id not in foreign]
        if held and attempt.key in moving:
            free += sum([slot.mask.bit_count() for slot in held])
        elif held:
            began_s = now_s if attempt.started_time_s is None else attempt.started_time_s
            end_s = expected_end_s(cluster.jobs[attempt.key.job_id], attempt, began_s)
            if end_s == inf:
                end_s = usual_s
            elif shut and not shut.isdisjoint([slot.node_id for slot in held]):
                end_s = max(end_s, usual_s)
            if attempt.key in outranked:
                end_s = min(end_s, attempt.lease.term_end_s)
            running.append((end_s, sum([slot.mask.bit_count() for slot in held])))
    nodes = (
        [len(node.gpus) for node_id, node in cluster.nodes.items() if node_id not in foreign]
        if grows
        else ()
    )
    behind = list(_with(outranked, line, cluster)) if outranked else line
    stood = as_in_line([*moving.values(), *behind])
    return own_ends(now_s, free, running, stood, max(nodes, default=0))


def _with(
    outranked: Mapping[AttemptKey, JobId], line: Sequence[Job], cluster: Cluster
) -> Iterator[Job]:
    """The line, with those who are to wait behind whom they give way to."""
    behind: dict[JobId, list[Job]] = {}
    for key, job_id in outranked.items():
        behind.setdefault(job_id, []).append(cluster.jobs[key.job_id])
    for job in line:
        yield job
        yield from behind.get(job.job_id, ())


def free_on(cluster: Cluster, node: Node) -> int:
    """A mask of its GPUs that nobody holds."""
    owned = mask_of(gpu.index for gpu in node.gpus)
    return owned & ~node.withheld & ~cluster.capacity.claimed(node.node_id)


def _free_gpus(cluster: Cluster, node_id: NodeId) -> int:
    return free_on(cluster, cluster.nodes[node_id]).bit_count()


def own_ends(
    now_s: float,
    free: int,
    running: Sequence[tuple[float, int]],
    line: Sequence[InLine],
    widest: int = 0,
) -> dict[int, float]:
    """By job, when it is done; inf: it is wider than all own GPUs together.

    `free`: own GPUs that nobody holds; `running`: when so many more are expected to be free (inf:
    never); `widest`: the most of one node, beyond which nobody is given more than it asks for.
    O((running + line) log)."""
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
            begin_s, gpus = heap[0]  # none is before another that was taken
            have += gpus
        if have > wants:
            heap[0] = (begin_s, have - wants)  # still the first of all
            heappush(heap, (begin_s + lasts_s, wants))
        else:
            heapreplace(heap, (begin_s + lasts_s, wants))
        ends[job] = begin_s + lasts_s
    return ends


def _soonest(
    heap: list[tuple[float, int]], sizes: Sequence[tuple[int, float]]
) -> tuple[int, float]:
    """Of numbers of GPUs, rising, that with which a job is done first; the fewest of those."""
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
