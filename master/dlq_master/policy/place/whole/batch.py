"""Jobs that start in one plan, placed as a whole; the GPUs chosen for each alone are only the first
idea.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Set
from typing import NamedTuple

from dlq_common.slowdown import OVERLAP, SKEW_RHO, slowdown
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.estimates.traffic import TrafficProfile
from dlq_master.model.ids import JobId
from dlq_master.model.nodes.free_gpus import Parts, Pool, lowest, make_part
from dlq_master.model.resources import Shape
from dlq_master.policy.place.packing.joint import (
    TOLERANCE,
    Arrangement,
    BatchMember,
    Joint,
    Spots,
    halves,
    total_reward,
)
from dlq_master.policy.place.placement import Placement

# rho of a job that nobody has measured: the mean of the five models that SKEW_RHO fits.
UNKNOWN_RHO = 0.128


class _Group(NamedTuple):
    """Jobs that may have the same nodes. A GPU type, nodes to avoid, what nodes must have."""

    gpu_type: str
    avoid: tuple[str, ...]
    traits: str | None


class PlacementBatch:
    """The jobs of one plan whose GPUs may still be exchanged.

    Jobs with an explicit number of nodes are not among them, nor `fixed` ones (others leave for
    just those GPUs). They keep the GPUs chosen for them alone.
    """

    def __init__(self, cluster: Cluster, placement: Placement) -> None:
        self._cluster = cluster
        self._placement = placement

    def make_room(
        self,
        gpu_type: str,
        pool: Pool,
        shape: Shape,
        chosen: Mapping[JobId, Parts],
        fixed: Set[JobId],
    ) -> tuple[Parts, dict[JobId, Parts]] | None:
        """GPUs for one more job that does not fit beside the chosen ones now, each on as few nodes
        as ever. Also the new places of those. None: there is no such placement, or none was found
        in time.
        """
        if shape.nodes is not None or shape.gpus > pool.total:
            return None
        if self._placement.room is not None and halves(pool) is not None:
            return None  # where nodes are halved the choices cannot have been wrong
        mine = _Group(gpu_type, shape.avoid, shape.traits)
        moving = {
            job: chosen[job]
            for job in self._groups(chosen, fixed).get(mine, ())
            if len(chosen[job]) == pool.fewest_nodes(self._shape(job).gpus)
        }
        offered = _offered(pool, moving.values(), shape)
        if not moving or self._placement.find(offered, shape) is None:
            return None  # it would not fit either if none of them started
        shapes = [*(self._shape(job) for job in moving), shape]
        fewest = [offered.fewest_nodes(each.gpus) for each in shapes]
        members = [BatchMember(each.gpus, n) for each, n in zip(shapes, fewest, strict=True)]
        packed = self._placement.pack(_joint(members, offered))
        if packed.spots is None:
            return None
        *others, own = _parts(offered, packed.spots)
        return own, dict(zip(moving, others, strict=True))

    def arrange(
        self,
        pools: Mapping[str, Pool],
        chosen: Mapping[JobId, Parts],
        fixed: Set[JobId],
    ) -> list[tuple[str, dict[JobId, Parts], str]]:
        """By GPU type who goes where, if that is better than what was chosen, and how it was found.
        `pools`: the free GPUs.
        """
        arrange = self._placement.arranges
        if arrange is None:
            return []
        found = []
        left = {gpu_type: pool.copy() for gpu_type, pool in pools.items()}
        for parts in chosen.values():  # who took the last of it may not have written it down
            left[self._type_of(parts)].take(parts)
        for group, jobs in self._groups(chosen, fixed).items():
            pool = left[group.gpu_type]
            shapes = {job: self._shape(job) for job in jobs}
            small = [job for job in jobs if shapes[job].gpus < 2 * (len(pool.buckets) - 1)]
            members = [self._member(job, pool, chosen[job]) for job in small]
            now = total_reward(members, [chosen[job] for job in small])
            if now >= sum(member.gpus for member in members):
                continue  # nobody is on more nodes than it needs
            offered = _offered(pool, [chosen[job] for job in small], shapes[small[0]])
            made = arrange(_joint(members, offered))
            if made.reward <= now:
                continue
            moved = dict(zip(small, _parts(offered, made.spots), strict=True))
            for job in small:
                pool.give(chosen[job])
            for parts in moved.values():
                pool.take(parts)
            found.append((group.gpu_type, moved, _told(made, len(small))))
        return found

    def anew(self, pools: Mapping[str, Pool], held: Mapping[JobId, Parts]) -> dict[JobId, str]:
        """Of jobs that run those to be placed elsewhere, and what is gained. First only the jobs on
        more nodes than they need are placed anew. Where that gains nothing, all small ones are.
        `pools`: the free GPUs.
        """
        found: dict[JobId, str] = {}
        for group, jobs in self._groups(held, frozenset()).items():
            pool = pools[group.gpu_type]
            small = [job for job in jobs if self._shape(job).gpus < 2 * (len(pool.buckets) - 1)]
            spread = [job for job in small if len(held[job]) > self._fewest(pool, job)]
            for some in (spread, small) if spread else ():
                moves, told = self._anew(pool, {job: held[job] for job in some})
                found.update(dict.fromkeys(moves, told))
                if moves:
                    break
        return found

    def _anew(self, pool: Pool, held: Mapping[JobId, Parts]) -> tuple[list[JobId], str]:
        """The jobs with another number of GPUs on any node in a better arrangement; none: there is
        none.
        """
        arrange = self._placement.arranges
        assert arrange is not None
        members = [self._member(job, pool, parts) for job, parts in held.items()]
        now = total_reward(members, [*held.values()])
        offered = _offered(pool, held.values(), self._shape(next(iter(held))))
        made = arrange(_joint(members, offered))
        if made.reward <= now + TOLERANCE * now:
            return [], ""
        after = dict(zip(held, _parts(offered, made.spots), strict=True))
        moves = [job for job, parts in held.items() if _counts(parts) != _counts(after[job])]
        gain = made.reward - now
        return moves, f"placed anew with {len(held) - 1} others: worth {gain:.3g} GPUs more"

    def _fewest(self, pool: Pool, job_id: JobId) -> int:
        return pool.fewest_nodes(self._shape(job_id).gpus)

    def _groups(
        self, chosen: Mapping[JobId, Parts], fixed: Set[JobId]
    ) -> dict[_Group, list[JobId]]:
        groups: dict[_Group, list[JobId]] = defaultdict(list)
        for job_id, parts in chosen.items():
            shape = self._shape(job_id)
            if shape.nodes is None and job_id not in fixed:
                groups[_Group(self._type_of(parts), shape.avoid, shape.traits)].append(job_id)
        return groups

    def _shape(self, job_id: JobId) -> Shape:
        """Its shape on the GPUs that it starts with: the fewest, for an elastic job."""
        return self._cluster.shape(self._cluster.jobs[job_id])

    def _type_of(self, parts: Parts) -> str:
        node, mask = parts[0]
        types = self._cluster.capacity.total
        return next(gpu_type for gpu_type, pool in types.items() if pool.masks[node] & mask)

    def _member(self, job_id: JobId, pool: Pool, parts: Parts) -> BatchMember:
        shape = self._shape(job_id)
        fewest = pool.fewest_nodes(shape.gpus)
        # A job that is to be kept together and is stays so.
        together = bool(shape.together) and len(parts) <= fewest
        return BatchMember(
            shape.gpus, fewest, stretch(self._cluster.jobs[job_id].profile), together=together
        )


def stretch(profile: TrafficProfile | None) -> float:
    """t_2 / t_1 as far as it is known: measured, or from rho, or from the skew, or that of most
    models.
    """
    if profile is not None and profile.slowdown is not None:
        return max(1.0, profile.slowdown)
    rho = None if profile is None else profile.rho
    if rho is None:
        skew = None if profile is None else profile.skew
        rho = UNKNOWN_RHO if skew is None else skew * SKEW_RHO
    return slowdown(rho, OVERLAP)


def _offered(pool: Pool, held: Iterable[Parts], shape: Shape) -> Pool:
    """The free GPUs, and those of these jobs, where the shape may go."""
    offered = pool.copy()
    for parts in held:
        offered.give(parts)
    return offered.allowed(shape)


def _joint(members: list[BatchMember], pool: Pool) -> Joint:
    return Joint(tuple(members), tuple([mask.bit_count() for mask in pool.masks]))


def _parts(pool: Pool, spots: Iterable[Spots]) -> list[Parts]:
    left = list(pool.masks)
    found = []
    for where in spots:
        parts = []
        for node, gpus in where:
            mask = lowest(left[node], gpus)
            left[node] ^= mask
            parts.append(make_part((node, mask)))
        found.append(tuple(parts))
    return found


def _counts(parts: Parts) -> list[tuple[int, int]]:
    """How many GPUs of which nodes."""
    return sorted((node, mask.bit_count()) for node, mask in parts)


def _told(made: Arrangement, jobs: int) -> str:
    many = "alone" if jobs == 1 else f"with {jobs - 1} others"
    proof = "proven" if made.proven else f"at most {made.bound:.6g} could be"
    return f"placed {many} by {made.how}: worth {made.reward:.6g} GPUs, {proof}"
