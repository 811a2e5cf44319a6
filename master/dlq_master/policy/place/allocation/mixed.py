"""Jobs that may mix GPU types take what is left at the end (Aryl, section 5.3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.jobs.job import Job
from dlq_master.model.nodes.free_gpus import Pool
from dlq_master.model.order.waiting import WaitingIndex
from dlq_master.model.resources import only_gpus
from dlq_master.policy.place.allocation.outcome import Outcome
from dlq_master.policy.place.allocation.type_capacity import TypeCapacity
from dlq_master.policy.place.placement import Placement

MIXED = "on GPUs of several types"


def start_mixed(
    cluster: Cluster,
    placement: Placement,
    capacities: Mapping[str, TypeCapacity],
    waiting: WaitingIndex,
    priorities: Iterable[int],
    outcome: Outcome,
) -> None:
    """Starts jobs of these priorities for which no one type has room, in their order. No job leaves
    for them, and nothing is kept for them."""
    for priority in priorities:
        line = sorted(
            (position, job_id, shape)
            for shape, fifo in waiting.by_priority.get(priority, {}).items()
            if shape.mixed
            for job_id, position in fifo.items()
            if job_id not in outcome.chosen and job_id not in outcome.claims
        )
        for _, job_id, shape in line:
            free = [type_capacity.free for type_capacity in only_gpus(capacities).values()]
            if shape.gpus > sum(pool.total for pool in free) or not _may(cluster.jobs[job_id]):
                continue
            parts = placement.find(all_types(free), shape)
            if parts is not None:
                outcome.chosen[job_id] = parts
                outcome.told[job_id] = MIXED
                for type_capacity in capacities.values():
                    type_capacity.take(parts)


def _may(job: Job) -> bool:
    """A promise counts on one speed, and a trial measures one."""
    return job.promised is None and not job.trials


def all_types(pools: Sequence[Pool]) -> Pool:
    """These pools, each of one type, as one; of a node with several types only the first."""
    masks = pools[0].masks
    for pool in pools[1:]:
        masks = [first or other for first, other in zip(masks, pool.masks, strict=True)]
    joined = Pool([mask.bit_count() for mask in masks], pools[0].node_ids, pools[0].traits)
    for ordinal, mask in enumerate(masks):
        joined.set(ordinal, mask)
    return joined
