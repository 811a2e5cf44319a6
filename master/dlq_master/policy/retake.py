"""The walk that may take work away, by exact GPUs: the lowest ranked leave, as few as possible."""

from __future__ import annotations

from dlq_master.model.capacity import Pools
from dlq_master.model.cluster import Cluster
from dlq_master.model.ids import JobId
from dlq_master.model.pool import Part, Parts, Pool, lowest
from dlq_master.model.resources import Shape
from dlq_master.policy.heads import Heads
from dlq_master.policy.outcome import Chosen, Claim, Outcome, Outranked, nothing
from dlq_master.policy.pinned import Pinned
from dlq_master.policy.place.placement import Placement
from dlq_master.policy.reserve import reserve
from dlq_master.policy.space import Found, Space
from dlq_master.policy.standing import Block, blocks, members


def walk(cluster: Cluster, placement: Placement, pinned: Pinned, *, free: bool) -> Outcome:
    """Everybody in rank order. Work that runs stays where it is, unless a waiting job that ranks
    higher fits nowhere without it.

    Such a job takes GPUs that are free, else those that will be, else it names victims: running
    jobs from the lowest rank upwards, of which only those leave whose GPUs it then uses. `free`:
    they are gone at once and it starts in this plan; otherwise it waits for them.
    """
    return _Walk(cluster, placement, pinned, free=free).run()


class _Walk:
    def __init__(
        self, cluster: Cluster, placement: Placement, pinned: Pinned, *, free: bool
    ) -> None:
        self.cluster = cluster
        self.space = Space(cluster.capacity, placement)
        self.pinned = pinned
        self.free = free
        # GPUs of work that may be taken and ranks below whoever the walk looks at.
        self.below = sum(cluster.running.gpus_by_rank.values()) - sum(pinned.gpus_by_rank.values())
        self.closed: set[Shape] = set()
        self.outcome = nothing()
        self.force: _Force | None = None  # made when somebody needs it first

    def run(self) -> Outcome:
        waiting, running = self.cluster.waiting, self.cluster.running
        for rank in sorted({*waiting.ranks, *running.by_rank}):
            self._walk_rank(rank)
        return self.outcome

    def _walk_rank(self, rank: int) -> None:
        fifos = self.cluster.waiting.by_rank.get(rank, {})
        # A promoted job has to be looked at even if it fits nowhere: it reserves.
        all_count = self.cluster.ordering.promotes
        widest = float("inf") if all_count else self.space.most_left() + self.below
        heads = Heads(fifos, self.closed, widest)
        for block in blocks(self.cluster, rank, apart=bool(heads.heap)):
            self._serve_before(heads, block.position, rank)
            self._keep(rank, block)
        self._serve_before(heads, None, rank)

    def _keep(self, rank: int, block: Block) -> None:
        if self.force is None and not self.pinned.gpus_by_rank.get(rank):
            self.below -= block.gpus
            return
        for job_id in members(self.cluster, rank, block):
            if job_id in self.pinned.job_ids:
                continue
            if self.force is None or self.force.keep(job_id):
                self.below -= self.cluster.running.places[job_id].gpus

    def _serve_before(self, heads: Heads, position: int | None, rank: int) -> None:
        heap = heads.heap
        while heap and (position is None or heap[0][0] < position):
            place, job_id, shape, _ = heap[0]
            if (found := self.space.find_free(shape)) is not None:
                self._take(found)
                self.outcome.chosen.append(Chosen(job_id, found))
            elif (found := self.space.find_soon(shape)) is not None:
                self._take(found)
                self.outcome.claims.append(Claim(job_id, found, reserved=False))
            elif (found := self._force_room(heads, rank)) is not None:
                if self.free:
                    self.outcome.chosen.append(Chosen(job_id, found))
                else:
                    self.outcome.claims.append(Claim(job_id, found, reserved=False))
            elif place < 0:
                kept = reserve(self.space, shape)
                if kept is not None:
                    if self.force is not None:
                        self.force.take(kept)
                    self.outcome.claims.append(Claim(job_id, kept, reserved=True))
            else:
                self.closed.add(shape)
                heads.close()
                continue
            heads.advance()

    def _take(self, found: Found) -> None:
        self.space.take(found)
        if self.force is not None:
            self.force.take(found)

    def _force_room(self, heads: Heads, rank: int) -> Found | None:
        position, job_id, shape, _ = heads.heap[0]
        if not self.below or shape.gpus > self.space.most_left() + self.below:
            return None
        if self.force is None:
            self.force = _Force(
                self.cluster, self.space, self._takeable(rank, position), free=self.free
            )
        found = self.force.find(shape)
        if found is None:
            return None
        self._take(found)
        for victim in self.force.doom(found):
            attempt = self.cluster.live_attempt(self.cluster.jobs[victim])
            if attempt is not None:
                self.outcome.outranked.append(Outranked(attempt.key, job_id))
            self.below -= self.cluster.running.places[victim].gpus
        return found

    def _takeable(self, rank: int, position: int) -> list[JobId]:
        """Running jobs behind this place, the lowest ranked last."""
        running = self.cluster.running
        jobs: list[JobId] = []
        for other in sorted(running.by_rank):
            if other >= rank:
                jobs += running.in_order(other)
        return [
            job
            for job in jobs
            if running.places[job][:2] > (rank, position) and job not in self.pinned.job_ids
        ]


class _Force:
    """Where a job would fit if others left.

    `reach` = what is left + the GPUs of named victims; `ceiling` = reach + those of all that could
    still be named. Once the walk has come to a victim whose GPUs nobody used, it stays.
    """

    def __init__(
        self, cluster: Cluster, space: Space, takeable: list[JobId], *, free: bool
    ) -> None:
        self.cluster = cluster
        self.space = space
        self.free = free
        self.unnamed = takeable  # its end is the lowest ranked
        self.named: dict[JobId, list[Found]] = {}
        self.named_on: dict[tuple[str, int], dict[JobId, int]] = {}  # the same, by node
        self.doomed: set[JobId] = set()
        self.reach: Pools = {name: self._base(name).copy() for name in space.free}
        self.ceiling: Pools = {name: pool.copy() for name, pool in self.reach.items()}
        self.held = {job_id: self._held(job_id) for job_id in takeable}
        for held in self.held.values():
            for gpu_type, parts in held:
                self.ceiling[gpu_type].give(parts)

    def find(self, shape: Shape) -> Found | None:
        """GPUs for the shape, naming as many victims as that takes."""
        find = self.space.placement.find
        any_gpus = self.space.placement.any_gpus(shape)
        for gpu_type in self.space.types_for(shape):
            if find(self.ceiling[gpu_type], shape) is None:
                continue
            reach = self.reach[gpu_type]
            while (parts := find(reach, shape)) is None:
                self._name_next()
            if any_gpus:
                return Found(gpu_type, self._sparing(gpu_type, shape.gpus))
            return Found(gpu_type, tuple(self._sparing_on(gpu_type, part) for part in parts))
        return None

    def take(self, found: Found) -> None:
        """These GPUs are spoken for."""
        self.reach[found.gpu_type].take(found.parts)
        self.ceiling[found.gpu_type].take(found.parts)

    def doom(self, found: Found) -> list[JobId]:
        """The victims whose GPUs are among these have to leave; the rest of theirs is left over."""
        gpu_type, parts = found
        taken = dict(parts)
        victims = []
        for ordinal, mask in parts:
            for job_id, held in self.named_on.get((gpu_type, ordinal), {}).items():
                if held & mask and job_id not in victims:
                    victims.append(job_id)
        for job_id in victims:
            for held_type, held_parts in self._unname(job_id):
                spared = tuple(
                    Part(ordinal, mask & ~taken.get(ordinal, 0)) for ordinal, mask in held_parts
                )
                left = Found(held_type, tuple(part for part in spared if part.mask))
                if self.free:
                    self.space.give_free(left)
                else:
                    self.space.give_soon(left)
            self.doomed.add(job_id)
        return victims

    def keep(self, job_id: JobId) -> bool:
        """The walk has come to this running job; True if it stays."""
        if job_id in self.doomed:
            return False
        held = self.held[job_id]
        for gpu_type, parts in held:
            self.ceiling[gpu_type].take(parts)
        if job_id in self.named:
            self._unname(job_id)
            for gpu_type, parts in held:
                self.reach[gpu_type].take(parts)
        return True

    def _base(self, gpu_type: str) -> Pool:
        if self.free:
            return self.space.free[gpu_type]
        return self.space.union.get(gpu_type, self.space.free[gpu_type])

    def _held(self, job_id: JobId) -> list[Found]:
        attempt = self.cluster.live_attempt(self.cluster.jobs[job_id])
        return [] if attempt is None else self.space.held_by(attempt.lease.allocation)

    def _name_next(self) -> None:
        job_id = self.unnamed.pop()
        held = self.named[job_id] = self.held[job_id]
        for gpu_type, parts in held:
            self.reach[gpu_type].give(parts)
            for ordinal, mask in parts:
                self.named_on.setdefault((gpu_type, ordinal), {})[job_id] = mask

    def _unname(self, job_id: JobId) -> list[Found]:
        held = self.named.pop(job_id)
        for gpu_type, parts in held:
            for ordinal, _ in parts:
                del self.named_on[gpu_type, ordinal][job_id]
        return held

    def _sparing(self, gpu_type: str, gpus: int) -> Parts:
        """Any GPUs: what is left first, then those of victims that have to leave for it."""
        base = self._base(gpu_type)
        masks: dict[int, int] = {}
        first = min(gpus, base.total)
        if first:
            masks = dict(self.space.placement.find(base, Shape(first, None, None)) or ())
        gpus -= first
        offers = [
            [part for held_type, parts in held if held_type == gpu_type for part in parts]
            for held in self.named.values()
        ]
        widths = [sum(mask.bit_count() for _, mask in offer) for offer in offers]
        for place in must_leave(widths, gpus):
            for ordinal, mask in offers[place]:
                taken = lowest(mask, min(gpus, mask.bit_count()))
                if taken:
                    masks[ordinal] = masks.get(ordinal, 0) | taken
                    gpus -= taken.bit_count()
        return tuple(Part(ordinal, mask) for ordinal, mask in sorted(masks.items()))

    def _sparing_on(self, gpu_type: str, part: Part) -> Part:
        """As many GPUs of the same node, chosen in the same way."""
        ordinal, wanted = part
        gpus = wanted.bit_count()
        base = self._base(gpu_type).masks[ordinal]
        taken = lowest(base, min(gpus, base.bit_count()))
        gpus -= taken.bit_count()
        offers = list(self.named_on.get((gpu_type, ordinal), {}).values())
        for place in must_leave([offer.bit_count() for offer in offers], gpus):
            offered = lowest(offers[place], min(gpus, offers[place].bit_count()))
            taken |= offered
            gpus -= offered.bit_count()
        return Part(ordinal, taken)


def must_leave(widths: list[int], gpus: int) -> list[int]:
    """Which of these victims (the lowest ranked first) leave so that `gpus` fall free.

    Whoever can stay, stays, the highest ranked before the others.
    """
    spare = sum(widths) - gpus
    leaving = []
    for place in reversed(range(len(widths))):
        if widths[place] <= spare:
            spare -= widths[place]
        else:
            leaving.append(place)
    return leaving[::-1]
