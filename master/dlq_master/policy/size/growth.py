"""The size stage within one GPU type: how many of the remaining GPUs each job gets, and which
ones.
"""

from __future__ import annotations

from collections.abc import Collection
from math import inf
from typing import NamedTuple

from dlq_master.model.attempts import live_resize
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.model.jobs.job import Job
from dlq_master.model.nodes.free_gpus import Part, Parts, lowest
from dlq_master.model.order.lineup import Lineup
from dlq_master.model.resources import Shape
from dlq_master.policy.order.by_key import left_s
from dlq_master.policy.partition.reserved.slot_begin import ServedFirst
from dlq_master.policy.place.allocation.grouped import PlacementGroups
from dlq_master.policy.place.allocation.masks import (
    Masks,
    count,
    joined,
    less,
    merged,
    parts_of,
    without,
)
from dlq_master.policy.place.allocation.outcome import Outcome
from dlq_master.policy.place.allocation.type_capacity import TypeCapacity
from dlq_master.policy.place.placement import Placement
from dlq_master.policy.promise.capacity.rules import Promises
from dlq_master.policy.size.headroom import headroom
from dlq_master.policy.size.sizing import Candidate, Sizing
from dlq_master.policy.stop_costs import pause_and_resume_s


class ElasticQuestion(NamedTuple):
    """The question to `elastic.decide`. `movable`: running jobs that this plan may shrink, grow or,
    if `preempts`, make leave. `at_once`: their GPUs are free in this plan. `seating`: the jobs
    served before all others; None: nothing is promised. `protected`: jobs that do not leave,
    whatever the order; with a `seating` that says it. `cooling`: jobs that get no more GPUs yet.
    `young`: jobs that give GPUs to slot holders alone. `tied`: jobs that may have their base, or
    their present size: any other size would endanger their promise. `promises`: the rules of
    deadlines, by which some GPUs stay free; None: nothing is promised.
    """

    cluster: Cluster
    now_s: float
    lineup: Lineup
    placement: Placement
    sizing: Sizing
    movable: Collection[JobId]
    preempts: bool
    at_once: bool
    seating: ServedFirst | None = None
    protected: Collection[JobId] = ()
    cooling: Collection[JobId] = ()
    young: Collection[JobId] = ()
    tied: Collection[JobId] = ()
    promises: Promises | None = None


class HeldByElastic(NamedTuple):
    """The GPUs of a running job: the part that it keeps in any case, and the rest."""

    gpu_type: str
    base: Masks  # masks by node
    extra: Masks


class SizeGrowth:
    """For one GPU type: the free GPUs that each of these jobs gets."""

    def __init__(
        self,
        question: ElasticQuestion,
        outcome: Outcome,
        gpu_type: str,
        type_capacity: TypeCapacity,
        runs: dict[JobId, HeldByElastic],
        starts: dict[JobId, Parts],
        groups: PlacementGroups | None,
    ) -> None:
        self.asked = question
        self.outcome = outcome
        self.cluster = question.cluster
        self.jobs = question.cluster.jobs
        self.gpu_type = gpu_type
        self.type_capacity = type_capacity
        self.runs = runs
        self.starts = starts
        self.groups = groups

    def settle(self) -> None:
        if self.groups is not None:
            for parts in self.starts.values():
                self.groups.starts(parts)
        candidates = self._candidates()
        own = {job_id: self._available(held) for job_id, held in self.runs.items()}
        spare = sum(mask.bit_count() for masks in own.values() for mask in masks.values())
        left = self.type_capacity.free.total + (0 if self.asked.at_once else spare)
        spared = headroom(self.cluster, self.gpu_type, self.asked.promises)
        wanted = self.asked.sizing.grow(candidates, max(0, left - spared), self._short())
        sizes = {it.job.job_id: self._worth(it, wanted) for it in candidates}
        masks = {job_id: self._retain(job_id, own[job_id], sizes[job_id]) for job_id in self.runs}
        missing = 0
        for candidate in candidates:
            job_id = candidate.job.job_id
            size = sizes[job_id]
            if job_id in self.starts:
                missing += size - self._start(candidate.job, size)
            elif count(masks[job_id]) < size:
                missing += size - self._grow(candidate.job, masks[job_id], size)
        missing = max(missing, spared - self.type_capacity.free.total)
        for candidate in reversed(candidates):
            if candidate.held:
                missing = self._keep_rest(candidate.job, own, masks, missing)
                self._tell(candidate.job, masks[candidate.job.job_id])

    def _candidates(self) -> list[Candidate]:
        """In the order in which they stand."""
        asked = self.asked
        found = []
        for job_id in (*self.runs, *self.starts):
            job = self.jobs[job_id]
            attempt = self.cluster.live_attempt(job)
            held = 0 if attempt is None else attempt.lease.allocation.width
            left = left_s(self.cluster, job, asked.now_s)
            price_s = self._price_s(job) if held else 0.0
            here_s = inf if left is None else left / self.cluster.pace(job, self.gpu_type)
            age_s = asked.now_s - job.submit_time_s
            found.append(Candidate(job, held, here_s, price_s, age_s))
        return sorted(found, key=self._place)

    def _place(self, candidate: Candidate) -> tuple[int, int]:
        job, cluster, lineup = candidate.job, self.cluster, self.asked.lineup
        priority = cluster.priority(job)
        if candidate.held and job.job_id in lineup.running.places:
            return priority, lineup.running.position(job.job_id)
        return priority, lineup.position(priority, cluster.shape(job), job.job_id)

    def _short(self) -> bool:
        return self.asked.lineup.waiting.count > len(self.outcome.chosen)

    def _available(self, held: HeldByElastic) -> Masks:
        """Of what it holds beyond its base, what nobody has taken."""
        there = self.type_capacity.later.masks
        masks = {node: mask & there[node] for node, mask in held.extra.items()}
        return {node: mask for node, mask in masks.items() if mask}

    def _worth(self, candidate: Candidate, wanted: dict[JobId, int]) -> int:
        """The size that it was given, unless it grows by too little for the interruption."""
        job_id = candidate.job.job_id
        size = wanted.get(job_id, candidate.base)
        if job_id in self.asked.cooling and size > candidate.held:
            return candidate.held
        if job_id in self.asked.tied:
            return candidate.held if candidate.base < candidate.held <= size else candidate.base
        if not candidate.price_s or not 0 < candidate.held < size or candidate.left_s == inf:
            return size
        saved_s = candidate.takes_s(candidate.held) - candidate.takes_s(size)
        return size if saved_s > candidate.price_s else candidate.held

    def _price_s(self, job: Job) -> float:
        free = self.asked.at_once or not self.asked.sizing.priced
        return 0.0 if free else pause_and_resume_s(self.cluster, job)

    def _retain(self, job_id: JobId, own: Masks, size: int) -> Masks:
        """The GPUs that a job of this size keeps, base first; takes them from the capacity."""
        job, base = self.jobs[job_id], self.runs[job_id].base
        masks = joined(job, base, own, size)
        self.type_capacity.take(parts_of(without(masks, base)))
        return masks

    def _start(self, job: Job, size: int) -> int:
        """On as many GPUs up to its size as can be had in its shape; never fewer than its base."""
        base = self.starts[job.job_id]
        if size > job.request.base and self.groups is not None:
            return self._start_in_groups(job, size)
        if size > job.request.base:
            pool = self.type_capacity.free.copy()
            pool.give(base)
            for larger in reversed(job.request.sizes[1:]):
                if larger > size:
                    continue
                parts = self.asked.placement.find(pool, self.cluster.shape_on(job, larger))
                if parts is not None:
                    self.outcome.chosen[job.job_id] = parts
                    self.type_capacity.give_free(base)
                    self.type_capacity.take(parts)
                    return larger
        return job.request.base

    def _start_in_groups(self, job: Job, size: int) -> int:
        """Its base stays where the walk has put it."""
        masks = dict(self.starts[job.job_id])
        size = self._grow(job, masks, size)
        self.outcome.chosen[job.job_id] = self._as_parts(masks)
        return size

    def _as_parts(self, masks: Masks) -> Parts:
        """In the order of nodes; with groups the base before the rest."""
        return parts_of(masks) if self.groups is None else tuple(map(Part._make, masks.items()))

    def _grow(self, job: Job, masks: Masks, size: int) -> int:
        """More GPUs for a job that runs, near those that it has, up to its size."""
        present = count(masks)
        most = min(size, present + self.type_capacity.free.total)
        for larger in reversed(job.request.sizes):
            if present < larger <= most:
                more = self._more(job, masks, larger - present)
                if more is not None:
                    self.type_capacity.take(parts_of(more))
                    for node, mask in more.items():
                        masks[node] = masks.get(node, 0) | mask
                    return larger
        return present

    def _more(self, job: Job, masks: Masks, gpus: int) -> Masks | None:
        free, placement = self.type_capacity.free, self.asked.placement
        if job.request.nodes is not None and not placement.counts_only:
            elsewhere = free.without([self.cluster.capacity.node_ids[node] for node in masks])
            parts = placement.find(elsewhere, self._shape_of(job, gpus))
            return None if parts is None else dict(parts)
        if self.groups is not None:
            return self._more_in_groups(self.groups, job, masks, gpus)
        found: Masks = {}
        shape = self._shape_of(job, gpus)
        able = free.allowed(shape)
        for node in sorted(masks):
            taken = min(gpus, able.masks[node].bit_count())
            if taken:
                found[node] = lowest(able.masks[node], taken)
                gpus -= taken
        if not gpus:
            return found
        if self.asked.sizing.own_nodes and not placement.counts_only:
            return None
        rest = less(able, found)
        parts = placement.find(rest, shape._replace(gpus=gpus))
        return None if parts is None else self._near(job, masks, merged(found, dict(parts)))

    def _shape_of(self, job: Job, gpus: int) -> Shape:
        """Of GPUs beyond those that it has: with deadlines on the cluster's own nodes, as its
        base.
        """
        avoid = self.cluster.shape_on(job, gpus).avoid
        if (attempt := self.cluster.live_attempt(job)) is not None:
            avoid = (*avoid, *live_resize.shunned(attempt, self.asked.now_s))
        return job.request.shape_on(gpus)._replace(gpu_types=None, avoid=avoid)

    def _near(self, job: Job, masks: Masks, more: Masks) -> Masks | None:
        """With deadlines only if these are as few nodes as can be: spread it might run slower than
        on its base.
        """
        nodes, gpus = masks.keys() | more.keys(), count(masks) + count(more)
        total = self.cluster.capacity.total[self.gpu_type]
        return more if not job.steps or len(nodes) <= total.fewest_nodes(gpus) else None

    def _more_in_groups(
        self, groups: PlacementGroups, job: Job, masks: Masks, gpus: int
    ) -> Masks | None:
        """On servers on which nobody has its base, if that can be."""
        shape = self._shape_of(job, gpus)
        for pool in groups.for_flexible(self.type_capacity.free):
            parts = self.asked.placement.find(pool, shape)
            if parts is not None:
                return self._near(job, masks, dict(parts))
        return None

    def _keep_rest(
        self,
        job: Job,
        own: dict[JobId, Masks],
        masks: dict[JobId, Masks],
        missing: int,
    ) -> int:
        """No job is shrunk for nothing: GPUs that no other job is short of stay with their
        holder.
        """
        job_id, held = job.job_id, self._held_gpus(job)
        has = count(masks[job_id])
        if has >= held:
            return missing
        if missing >= held - has:
            return missing - (held - has)
        there = self.type_capacity.later.masks
        spare = {node: mask & there[node] for node, mask in own[job_id].items()}
        kept_masks = joined(job, masks[job_id], spare, held - missing)
        self.type_capacity.take(parts_of(without(kept_masks, masks[job_id])))
        masks[job_id] = kept_masks
        return max(0, missing - (held - count(kept_masks)))

    def _held_gpus(self, job: Job) -> int:
        held = self.runs[job.job_id]
        return count(held.base) + count(held.extra)

    def _tell(self, job: Job, masks: Masks) -> None:
        held = self.runs[job.job_id]
        if masks == merged(held.base, held.extra):
            return
        if job.job_id in self.asked.tied:
            masks = held.base
        if job.live_attempt is not None:
            key = AttemptKey(job.job_id, job.live_attempt)
            self.outcome.resized[key] = self._as_parts(masks)
