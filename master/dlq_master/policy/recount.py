"""The walk that may take work away, by GPU counts: exactly what the reference simulators do."""

from __future__ import annotations

from dlq_master.model.cluster import Cluster
from dlq_master.model.ids import JobId
from dlq_master.model.resources import Shape
from dlq_master.policy.heads import Heads
from dlq_master.policy.outcome import Chosen, Claim, Outcome, Outranked
from dlq_master.policy.pinned import Pinned
from dlq_master.policy.place.placement import Placement
from dlq_master.policy.space import Found, Space
from dlq_master.policy.standing import Block, blocks, members


def walk(cluster: Cluster, placement: Placement, pinned: Pinned, *, free: bool) -> Outcome:
    """Everybody in rank order over all GPUs: who fits into what is left runs, the rest does not.

    `free`: who has to leave is gone at once, so that its GPUs start others in this plan; otherwise
    what fits into the GPUs that are free starts now and the rest when the others have left.
    """
    return _Walk(cluster, placement, pinned).run(free=free)


class _Walk:
    def __init__(self, cluster: Cluster, placement: Placement, pinned: Pinned) -> None:
        self.cluster = cluster
        self.space = Space(cluster.capacity, placement)
        self.pinned = pinned
        self.left = {
            gpu_type: pool.total - pinned.gpus_by_type.get(gpu_type, 0)
            for gpu_type, pool in cluster.capacity.open.items()
        }
        self.closed: set[Shape] = set()
        self.starting: list[tuple[JobId, str, Shape]] = []
        self.outranked: list[Outranked] = []

    def run(self, *, free: bool) -> Outcome:
        waiting, running = self.cluster.waiting, self.cluster.running
        for rank in sorted({*waiting.ranks, *running.by_rank}):
            self._walk_rank(rank)
        if free:
            for key, _ in self.outranked:
                for found in self.space.held_by(self.cluster.attempts[key].lease.allocation):
                    self.space.give_free(found)
        return self._place()

    def _walk_rank(self, rank: int) -> None:
        fifos = self.cluster.waiting.by_rank.get(rank, {})
        heads = Heads(fifos, self.closed, max(self.left.values(), default=0))
        for block in blocks(self.cluster, rank, apart=bool(heads.heap)):
            self._start_before(heads, block.position)
            self._keep(rank, block)
        self._start_before(heads, None)

    def _keep(self, rank: int, block: Block) -> None:
        if len(self.left) == 1 and not self.pinned.gpus_by_rank.get(rank):
            (gpu_type,) = self.left
            if block.gpus <= self.left[gpu_type]:
                self.left[gpu_type] -= block.gpus
                return
        for job_id in members(self.cluster, rank, block):
            if job_id not in self.pinned.job_ids:
                self._keep_one(job_id)

    def _keep_one(self, job_id: JobId) -> None:
        attempt = self.cluster.live_attempt(self.cluster.jobs[job_id])
        if attempt is None:
            return
        held = self.space.held_by(attempt.lease.allocation)
        gpu_type = held[0].gpu_type
        gpus = self.cluster.running.places[job_id].gpus
        if gpus <= self.left[gpu_type]:
            self.left[gpu_type] -= gpus
        else:
            self.outranked.append(Outranked(attempt.key, self.starting[-1][0]))

    def _start_before(self, heads: Heads, position: int | None) -> None:
        """Choose waiting jobs up to the position (None: all) that fit into what is left."""
        heap = heads.heap
        while heap and (position is None or heap[0][0] < position):
            _, job_id, shape, _ = heap[0]
            for gpu_type in self.space.types_for(shape):
                if shape.gpus <= self.left[gpu_type]:
                    self.left[gpu_type] -= shape.gpus
                    self.starting.append((job_id, gpu_type, shape))
                    heads.advance()
                    break
            else:
                self.closed.add(shape)
                heads.close()

    def _place(self) -> Outcome:
        chosen, claims = [], []
        for job_id, gpu_type, shape in self.starting:
            parts = self.space.placement.find(self.space.free[gpu_type], shape)
            if parts is not None:
                found = Found(gpu_type, parts)
                self.space.take(found)
                chosen.append(Chosen(job_id, found))
            else:
                claims.append(Claim(job_id, Found(gpu_type, ()), reserved=False))
        return Outcome(chosen, self.outranked, claims)
