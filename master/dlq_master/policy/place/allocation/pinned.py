"""Running jobs that a plan may not preempt, and the GPUs that they hold."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.model.lease import decision_time_s
from dlq_master.model.order.running import Place


class Pinned(NamedTuple):
    """Jobs of silent attempts, on closed nodes, or with terms that are not decided now."""

    job_ids: frozenset[JobId]
    gpus_by_type: dict[str, int]
    gpus_by_priority: dict[int, int]  # of those in the running index


def pinned_but(places: Mapping[JobId, Place], movable: Collection[JobId]) -> Pinned:
    """All running jobs except `movable`; GPUs by type are not counted. `places`: all running."""
    by_priority: dict[int, int] = {}
    job_ids = set()
    for job_id, place in places.items():
        if job_id not in movable:
            job_ids.add(job_id)
            by_priority[place.priority] = by_priority.get(place.priority, 0) + place.gpus
    return Pinned(frozenset(job_ids), {}, by_priority)


def pinned(cluster: Cluster, now_s: float | None, protected: Iterable[AttemptKey] = ()) -> Pinned:
    """`now_s`: pin attempts whose terms are decided later; None: pin none for its term.
    `protected`: pin these attempts too.
    """
    capacity = cluster.capacity
    keys: set[AttemptKey] = {*cluster.claims.silent, *protected}
    for node_id in capacity.closed:
        keys.update(capacity.claims.get(node_id, ()))
    if now_s is not None:
        lead_s = cluster.saves.lead_s
        for term_end_s, ending in cluster.by_term.items():
            if decision_time_s(term_end_s, lead_s) > now_s:
                keys.update(ending)
    by_type: dict[str, int] = {}
    by_priority: dict[int, int] = {}
    for key in keys:
        for gpu_type, parts in capacity.parts(cluster.attempts[key].lease.allocation).items():
            opened = capacity.open[gpu_type].masks
            gpus = sum((mask & opened[ordinal]).bit_count() for ordinal, mask in parts)
            by_type[gpu_type] = by_type.get(gpu_type, 0) + gpus
        place = cluster.running.places.get(key.job_id)
        if place is not None:
            by_priority[place.priority] = by_priority.get(place.priority, 0) + place.gpus
    return Pinned(frozenset(key.job_id for key in keys), by_type, by_priority)
