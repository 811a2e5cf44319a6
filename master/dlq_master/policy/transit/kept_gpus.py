"""Gangs that a node has failed keep their other GPUs for a while, and come first for a spare node.

A group of jobs is one party: all members keep theirs, or none does, and all start again in one
plan. While some of them still leave their GPUs, those of the others wait.

The GPUs are free in the books. They are out of the walk that serves all other jobs, but not out of
the reach of slots of promises and of trials. So no promise waits for a gang. A gang holds no claim
beyond its quota, beyond its time, or on a node that is closed or that it avoids. It gets no more
GPUs than it had.

The master, the simulator and the forecast ask these functions. They are imported where a gang keeps
GPUs. Nothing here is stored: the facts are in `Job.kept`, so a master that restarts goes on with
the claim. The agents and a silent line have no part in it: the claim begins when every rank is
gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.band import Band
from dlq_master.model.jobs.job import Job
from dlq_master.model.lease import first_term_end_s
from dlq_master.model.nodes.free_gpus import Part, Parts, Pool, make_part
from dlq_master.model.plan import Start
from dlq_master.model.resources import Allocation, Shape, Slot
from dlq_master.model.view import View
from dlq_master.model.why import Reason, ReasonCode
from dlq_master.policy.place.allocation.space import Space
from dlq_master.policy.place.placement import Placement
from dlq_master.policy.transit.contest import Contest
from dlq_master.policy.transit.verbs import KINDS

_NEVER_S = float("inf")


class Claim(NamedTuple):
    """A gang that waits, and its GPUs that are free. `slots`: all its former GPUs, in rank order.
    `stays`: whether each slot is still free. `parts`: the free slots, of `gpu_type`.
    """

    job: Job
    shape: Shape
    gpu_type: str
    slots: tuple[Slot, ...]
    stays: tuple[bool, ...]
    parts: Parts

    @property
    def width(self) -> int:
        """The number of GPUs that are kept."""
        return sum([part.mask.bit_count() for part in self.parts])

    @property
    def had(self) -> int:
        return sum([slot.mask.bit_count() for slot in self.slots])


def claims(view: View) -> list[Claim]:
    """All that hold now, party by party. No two have a GPU in common: the first to wait has it."""
    cluster = view.cluster
    cluster.capacity.ready()
    left = dict(cluster.capacity.free)
    found = []
    for jobs in _waiting_parties(cluster):
        party = _party(cluster, jobs, left, view.now_s)
        for claim in party:
            pool = left[claim.gpu_type].copy()
            pool.take(claim.parts)
            left[claim.gpu_type] = pool
        found += party
    return found


def next_end_s(view: View) -> float:
    """When the next claim runs out (inf: there is none)."""
    jobs = view.cluster.jobs
    ends_s = [kept.until_s for it in view.cluster.keeping if (kept := jobs[it].kept) is not None]
    return min([end_s for end_s in ends_s if end_s > view.now_s], default=_NEVER_S)


def starts(
    view: View, placement: Placement, floor: Callable[[Cluster, str, str], int], *, grid: bool
) -> list[Start]:
    """The first gang or group that can go on: with spare nodes, or if it is elastic on what it has
    left.

    At most one, because its start may change what its team may have. Slots of promises that still
    wait for GPUs are served before.
    """
    cluster = view.cluster
    held = claims(view)
    own = {claim.job.job_id for claim in held}
    if any(it not in own and cluster.jobs[it].waiting for it in cluster.seated):
        return []
    for party in _parties(cluster, held):
        free = partial(_beyond, cluster, held, party)
        slots = _placed(cluster, party, free(own=False), placement, floor, _filled)
        slots = slots or _smaller(cluster, party, placement)
        slots = slots or _placed(cluster, party, free(own=True), placement, floor, _anywhere)
        if slots is not None:
            together = zip(party, slots, strict=True)
            return [_start(view, claim, its, grid=grid) for claim, its in together]
    return []


def withhold(allocator: Space, held: Sequence[Claim]) -> None:
    """No other job gets these GPUs. Slots of promises and trials have been served before.

    A gang whose spare nodes are being left by others has these too, and waits for them. Else it may
    make others leave at its own turn, as any job. Its own GPUs are then given back for it alone.
    """
    for claim in held:
        type_capacity = allocator.capacities[claim.gpu_type]
        masks = type_capacity.free.masks  # a slot may have taken some of them in this plan
        parts = tuple([make_part((node, mask & masks[node])) for node, mask in claim.parts])
        allocator.kept[claim.job.job_id] = type_capacity, parts
        type_capacity.take(parts)
        if isinstance(allocator, Contest):
            allocator.below += claim.width  # within its reach
    served = {*allocator.outcome.chosen, *allocator.outcome.claims}
    for party in _parties(allocator.cluster, held):
        if served.isdisjoint(claim.job.job_id for claim in party):
            _wait(allocator, party)


def _wait(allocator: Space, party: Sequence[Claim]) -> None:
    """It has the nodes that others leave, where these are enough."""
    cluster = allocator.cluster
    capacities = {claim.gpu_type: allocator.capacities[claim.gpu_type] for claim in party}
    if all(it.later is it.free for it in capacities.values()):
        return
    pools = {gpu_type: it.later for gpu_type, it in capacities.items()}
    slots = _placed(cluster, party, pools, allocator.placement, _no_floor, _filled)
    for claim, its in zip(party, slots or (), strict=slots is not None):
        allocator.outcome.claims[claim.job.job_id] = False
        capacities[claim.gpu_type].take(cluster.capacity.parts(Allocation(its))[claim.gpu_type])


def told(claim: Claim, slots: tuple[Slot, ...] | None = None) -> Reason:
    """The GPUs that are kept for a gang, and the nodes on which it starts."""
    nodes = [slot.node_id for slot, stays in zip(claim.slots, claim.stays, strict=True) if stays]
    new = [slot.node_id for slot in slots or () if slot.node_id not in nodes]
    detail = f"on {', '.join(nodes)}" + (f"; {', '.join(new)} is new" if new else "")
    need, what = claim.had, "gpus"
    if slots is not None:
        need, what = Allocation(slots).width, "started"
    return Reason(ReasonCode.KEPT_GPUS, what, need, claim.width, (claim.job.job_id,), detail)


def _holds(job: Job, now_s: float) -> bool:
    """A team that is at its limit, or borrows, keeps nothing from others."""
    kept = job.kept
    in_time = kept is not None and now_s < kept.until_s
    return in_time and job.band not in (Band.BORROW, Band.LIMIT) and not job.reduced


def _waiting_parties(cluster: Cluster) -> Iterator[list[Job]]:
    """Jobs that keep GPUs, and groups with all members that have not ended: the first to wait comes
    first.
    """
    jobs = [cluster.jobs[job_id] for job_id in cluster.keeping]
    seen: set[JobId] = set()
    for job in sorted(jobs, key=lambda job: (job.queued_since_s or 0.0, job.job_id)):
        if job.job_id not in seen:
            group = job.group
            members = (job.job_id,) if group is None else cluster.groups[group.array_id]
            seen.update(members)
            yield [cluster.jobs[it] for it in members]


def _party(
    cluster: Cluster, jobs: Sequence[Job], left: dict[str, Pool], now_s: float
) -> list[Claim]:
    """The claims of a job, or of the members that wait, while all others still leave their GPUs."""
    found = []
    for job in jobs:
        if job.live_attempt is not None:
            continue
        claim = _claim(cluster, job, left) if job.waiting and _holds(job, now_s) else None
        if claim is None:
            return []
        found.append(claim)
    return found if any(claim.parts for claim in found) else []


def _parties(cluster: Cluster, held: Sequence[Claim]) -> Iterator[list[Claim]]:
    """Those of which nobody has to leave GPUs any more."""
    parties: dict[JobId, list[Claim]] = {}
    for claim in held:
        group = claim.job.group
        parties.setdefault(claim.job.job_id if group is None else group.array_id, []).append(claim)
    for first, party in parties.items():
        group = party[0].job.group
        if group is None or len(party) == len(cluster.groups[first]):
            yield party


def _claim(cluster: Cluster, job: Job, left: dict[str, Pool]) -> Claim | None:
    """None: it may not run on what it had any more."""
    assert job.kept is not None
    shape, slots = cluster.shape(job), job.kept.allocation.slots
    by_type = cluster.capacity.parts(job.kept.allocation)
    if len(by_type) != 1 or not _may_have(cluster, job, slots):
        return None
    ((gpu_type, _),) = by_type.items()
    if not shape.may_be(gpu_type):
        return None
    free = left[gpu_type].allowed(shape)
    ordinals = cluster.capacity.ordinals
    parts, stays = [], []
    for node_id, mask in slots:
        ordinal = ordinals.get(node_id)
        stays.append(ordinal is not None and free.masks[ordinal] & mask == mask)
        if ordinal is not None and stays[-1]:
            parts.append(make_part((ordinal, mask)))
    return Claim(job, shape, gpu_type, slots, tuple(stays), tuple(sorted(parts)))


def _may_have(cluster: Cluster, job: Job, slots: tuple[Slot, ...]) -> bool:
    """Whether what it had is what it asks for, or one of its sizes."""
    shares = [slot.mask.bit_count() for slot in slots]
    gpus = sum(shares)
    if gpus != job.gpus_now and not (cluster.elastic(job) and gpus in job.request.sizes):
        return False
    nodes = job.request.shape_on(gpus).nodes
    return nodes is None or (nodes == len(slots) and len(set(shares)) == 1)


def _placed(
    cluster: Cluster,
    party: Sequence[Claim],
    free: Mapping[str, Pool],
    placement: Placement,
    floor: Callable[[Cluster, str, str], int],
    find: Callable[[Cluster, Claim, Pool, Placement], tuple[Slot, ...] | None],
) -> list[tuple[Slot, ...]] | None:
    """GPUs for each of a party, of those that are `free` by type. So many of them have to stay free
    for the floor of a queue. The members that have lost most choose first.
    """
    pools = {gpu_type: pool.copy() for gpu_type, pool in free.items()}
    found: dict[JobId, tuple[Slot, ...]] = {}
    for claim in sorted(party, key=lambda claim: claim.width - claim.had):
        pool = pools[claim.gpu_type]
        slots = find(cluster, claim, pool, placement)
        if slots is None:
            return None
        found[claim.job.job_id] = slots
        pool.take(cluster.capacity.parts(Allocation(slots))[claim.gpu_type])
        if pool.total < floor(cluster, claim.job.queue, claim.gpu_type):
            return None
    return [found[claim.job.job_id] for claim in party]


def _no_floor(_cluster: Cluster, _queue: str, _gpu_type: str) -> int:
    return 0


def _anywhere(
    cluster: Cluster, claim: Claim, pool: Pool, placement: Placement
) -> tuple[Slot, ...] | None:
    """On any free GPUs, as if it had no claim. It is first in line all the same."""
    if claim.shape.gpus > claim.had:
        return None
    parts = placement.find(pool, claim.shape)
    return None if parts is None else tuple([_slot(cluster, part) for part in parts])


def _beyond(
    cluster: Cluster, held: Sequence[Claim], party: Sequence[Claim], *, own: bool
) -> dict[str, Pool]:
    """The free GPUs that are kept for nobody, by type; with `own` those of this party too."""
    pools = {claim.gpu_type: cluster.capacity.free[claim.gpu_type].copy() for claim in party}
    for other in held:
        if other.gpu_type in pools and not (own and other in party):
            pools[other.gpu_type].take(other.parts)
    return pools


def _filled(
    cluster: Cluster, claim: Claim, pool: Pool, placement: Placement
) -> tuple[Slot, ...] | None:
    stay = [slot.node_id for slot, stays in zip(claim.slots, claim.stays, strict=True) if stays]
    slots = []
    for slot, stays in zip(claim.slots, claim.stays, strict=True):
        if not stays:
            avoid = (*claim.shape.avoid, *stay)
            one = claim.shape._replace(gpus=slot.mask.bit_count(), nodes=1, avoid=avoid)
            found = placement.find(pool, one)
            if found is None or len(found) != 1:
                return None
            slot = _slot(cluster, found[0])
            stay.append(slot.node_id)
        slots.append(slot)
    return tuple(slots)


def _smaller(
    cluster: Cluster, party: Sequence[Claim], placement: Placement
) -> list[tuple[Slot, ...]] | None:
    """On the GPUs that are kept alone, as an elastic job may. It grows again like any other."""
    claim = party[0]
    if len(party) > 1 or not cluster.elastic(claim.job):
        return None
    pool = cluster.capacity.free[claim.gpu_type].emptied()
    pool.give(claim.parts)
    for size in reversed(claim.job.request.sizes):
        if size <= claim.width:
            parts = placement.find(pool, cluster.shape_on(claim.job, size))
            if parts is not None:
                return [tuple([_slot(cluster, part) for part in parts])]
    return None


def _slot(cluster: Cluster, part: Part) -> Slot:
    return Slot(cluster.capacity.node_ids[part.ordinal], part.mask)


def _start(view: View, claim: Claim, slots: tuple[Slot, ...], *, grid: bool) -> Start:
    terms, lead_s = view.cluster.terms, view.cluster.saves.lead_s
    kind = KINDS[claim.job.band]
    end_s = first_term_end_s(view.now_s, kind, terms, lead_s) if grid else _NEVER_S
    return Start(claim.job.job_id, Allocation(slots), kind, end_s, told(claim, slots))
