"""The running jobs that may be preempted, from the lowest priority upwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from dlq_master.model.attempts.attempt import Attempt
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.model.nodes.free_gpus import Part, Parts, Pool, make_part, up_to
from dlq_master.model.resources import Shape
from dlq_master.model.values import maker
from dlq_master.policy.place.allocation.type_capacity import TypeCapacity
from dlq_master.policy.place.placement import Placement
from dlq_master.policy.transit.front import Front, PreemptibleCapacity, must_leave


class Victim(NamedTuple):
    """A running job that may be preempted, and the GPUs that it holds of each type."""

    key: AttemptKey
    held: list[tuple[Front, Parts]]


_victim = maker(Victim)


class Victims:
    """Running jobs that the walk has not reached yet, and that may be preempted.

    `find` names candidates one by one, the lowest ranked first, until the waiting job fits. Only
    candidates whose GPUs it then uses are preempted (`make_leave`). The others stay named for the
    next waiting job. A candidate keeps its GPUs if the walk reaches it (`keep`).
    """

    def __init__(
        self,
        cluster: Cluster,
        placement: Placement,
        capacities: dict[str, TypeCapacity],
        standing: list[JobId],
        contested: Callable[[Attempt], list[tuple[str, Parts]]],
        *,
        at_once: bool,
    ) -> None:
        self._cluster = cluster
        self._placement = placement
        self._at_once = at_once
        self._fronts = {
            name: Front(type_capacity, at_once=at_once)
            for name, type_capacity in capacities.items()
        }
        self._contested = contested
        self._unnamed = standing  # the lowest ranked last
        self._named: dict[JobId, Victim] = {}
        self._known: dict[JobId, Victim] = {}
        self._kept: set[JobId] = set()
        self._leaving: set[JobId] = set()
        self._counted = False  # the capacity without all of them was asked for

    def find(self, shape: Shape) -> tuple[Front, Parts] | None:
        """GPUs for the shape, naming as many victims as that takes."""
        for _, front in shape.of_types(self._fronts):
            parts = self._within_reach(front, shape)
            if parts is not None:
                return front, self._roomy(front, shape, self._sparing(front, shape, parts))
        return None

    def make_leave(self, front: Front, parts: Parts) -> list[AttemptKey]:
        """Preempt the named jobs that hold any of these GPUs; return their attempts. Their other
        GPUs become free.
        """
        taken = dict(parts)
        keys = []
        for job_id in front.holders(parts):
            key, held = self._unname(job_id)
            for other, held_parts in held:
                if other.everybody is not None:
                    other.everybody.drop(held_parts)
                left = _without(held_parts, taken) if other is front else held_parts
                if not left:
                    continue
                if self._at_once:
                    other.type_capacity.give_free(left)
                else:
                    other.type_capacity.give_later(left)
            self._leaving.add(job_id)
            keys.append(key)
        return keys

    def keep(self, job_id: JobId) -> bool:
        """The turn of this running job; True if it stays."""
        if job_id in self._leaving:
            return False
        if job_id in self._named:
            self._unname(job_id)
        self._kept.add(job_id)
        if self._counted:
            for front, parts in self._victim(job_id).held:
                if front.everybody is not None:
                    front.everybody.drop(parts)
        return True

    def _within_reach(self, front: Front, shape: Shape) -> Parts | None:
        find = self._placement.find
        parts = find(front.named.pool(), shape) if self._named else None
        if parts is not None:
            return parts
        first = self._name_next()
        if first is None:
            return None
        parts = find(front.named.pool(), shape)
        if parts is None and find(self._everybody(front), shape) is None:
            self._unname(first)
            self._unnamed.append(first)
            return None
        while parts is None and self._name_next() is not None:
            parts = find(front.named.pool(), shape)
        return parts

    def _name_next(self) -> JobId | None:
        while self._unnamed:
            job_id = self._unnamed.pop()
            if job_id not in self._kept:
                victim = self._named[job_id] = self._victim(job_id)
                for front, parts in victim.held:
                    front.named.add(parts)
                    for ordinal, mask in parts:
                        front.named_on.setdefault(ordinal, {})[job_id] = mask
                return job_id
        return None

    def _unname(self, job_id: JobId) -> Victim:
        victim = self._named.pop(job_id)
        for front, parts in victim.held:
            front.named.drop(parts)
            for ordinal, _ in parts:
                del front.named_on[ordinal][job_id]
        return victim

    def _everybody(self, front: Front) -> Pool:
        """The type_capacity left if all leave that can be named."""
        if front.everybody is None:
            self._counted = True
            front.everybody = PreemptibleCapacity(front.type_capacity, at_once=self._at_once)
            for job_id in (*self._unnamed, *self._named):
                if job_id not in self._kept:
                    for other, parts in self._victim(job_id).held:
                        if other is front:
                            front.everybody.add(parts)
        return front.everybody.pool()

    def _victim(self, job_id: JobId) -> Victim:
        victim = self._known.get(job_id)
        if victim is None:
            victim = self._known[job_id] = self._look_up(job_id)
        return victim

    def _look_up(self, job_id: JobId) -> Victim:
        attempt = self._cluster.live_attempt(self._cluster.jobs[job_id])
        if attempt is None:
            raise ValueError(f"job {job_id} runs, but has no attempt")
        held = [(self._fronts[gpu_type], parts) for gpu_type, parts in self._contested(attempt)]
        return _victim((attempt.key, held))

    def _roomy(self, front: Front, shape: Shape, parts: Parts) -> Parts:
        """The same with all the room that the shape takes: a job in that room has to leave too."""
        room = self._placement.room
        if room is None or shape.together:
            return parts
        reach = front.named.pool()
        extra = room(reach, shape) - shape.gpus
        if extra <= 0:
            return parts
        *others, last = sorted(parts, key=lambda part: -part.mask.bit_count())
        more = up_to(reach.masks[last.ordinal] & ~last.mask, extra)
        return tuple(sorted([*others, make_part((last.ordinal, last.mask | more))]))

    def _sparing(self, front: Front, shape: Shape, parts: Parts) -> Parts:
        """As many GPUs, but first those that nobody holds, then those that let the most stay."""
        if not self._placement.any_gpus(shape):
            return tuple([front.sparing(part) for part in parts])
        base = front.named.base
        masks: dict[int, int] = {}
        gpus = shape.gpus
        first = min(gpus, base.total)
        if first:
            masks = dict(self._placement.find(base, shape._replace(gpus=first, nodes=None)) or ())
        gpus -= first
        offers = [
            [*front.type_capacity.unbarred(parts)]
            for victim in self._named.values()
            for other, parts in victim.held
            if other is front
        ]
        widths = [sum([mask.bit_count() for _, mask in offer]) for offer in offers]
        for place in must_leave(widths, gpus):
            for ordinal, mask in offers[place]:
                taken = up_to(mask, gpus)
                if taken:
                    masks[ordinal] = masks.get(ordinal, 0) | taken
                    gpus -= taken.bit_count()
        return tuple([Part(*item) for item in sorted(masks.items())])


def _without(parts: Parts, taken: dict[int, int]) -> Parts:
    rest = []
    for ordinal, mask in parts:
        mask &= ~taken.get(ordinal, 0)
        if mask:
            rest.append(make_part((ordinal, mask)))
    return tuple(rest)
