"""The jobs that move at the beginning of a slot, so that every holder of the slot finds whole
nodes.

A plan counts GPUs. Jobs that start together on empty nodes fit if their rounded widths do (Chronus,
Proposition 1). But running jobs stay in place, and where others have ended they leave halves and
quarters of nodes. Nodes of 8 have room for widths {1, 2, 4, 8n} if and only if for every size s

    sum over the nodes of floor(free / s)  >=  sum over the widths w >= s of w / s,

because every job of size s takes one such block, and for smaller sizes as many as fit into it.
While that is not so, the node is cleared whose jobs are the fewest GPUs; they go to smaller blocks
elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from dlq_master.model.attempts.attempt import ACTIVE, AttemptState
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.model.jobs.band import Band
from dlq_master.model.nodes.owned import is_own
from dlq_master.policy.partition.reserved.slot_holders import SlotHolder, ends_now
from dlq_master.policy.place.allocation.masks import kept
from dlq_master.policy.place.packing.joint import block_of, round_up
from dlq_master.policy.promise.capacity.grids import own_pool
from dlq_master.policy.promise.verdicts.reading import has_grown


class _Holder(NamedTuple):
    """A job that could move, and its GPUs on its node."""

    gpus: int
    key: AttemptKey


class _Room:
    """The capacity left of the nodes of one type, and the jobs that could move away from them."""

    def __init__(
        self,
        cluster: Cluster,
        gpu_type: str,
        ending: Collection[AttemptKey],
        may_move: Callable[[JobId], bool],
    ) -> None:
        self.cluster = cluster
        self.ending = ending
        self.may_move = may_move
        self.node_ids = cluster.capacity.node_ids
        opened = cluster.capacity.open[gpu_type].masks
        own = [is_own(cluster.nodes[node_id]) for node_id in self.node_ids]
        self.opened = [mask if ours else 0 for ours, mask in zip(own, opened, strict=True)]
        self.moved: dict[AttemptKey, None] = {}
        self.left = [self._left(ordinal) for ordinal in range(len(self.opened))]

    def short_of(self, widths: Sequence[int], size: int) -> int | None:
        """The largest size of which there are too few blocks; None: all fit."""
        while size:
            wanted = sum(width // size for width in widths if width >= size)
            if sum(left // size for left in self.left) < wanted:
                return size
            size //= 2
        return None

    def clear(self, size: int) -> list[int] | None:
        """Make one block more of this size; returns the GPUs of those who move for it, None: nobody
        can.
        """
        best: tuple[int, int, list[_Holder]] | None = None
        for ordinal, left in enumerate(self.left):
            missing = size - left % size
            going, gpus = [], 0
            for holder in self._holders(ordinal, size):
                if gpus >= missing:
                    break
                going.append(holder)
                gpus += holder.gpus
            if gpus >= missing and (best is None or (gpus, ordinal) < best[:2]):
                best = (gpus, ordinal, going)
        if best is None:
            return None
        gpus, ordinal, going = best
        self.left[ordinal] += gpus
        self.moved.update(dict.fromkeys(holder.key for holder in going))
        return [holder.gpus for holder in going]

    def _left(self, ordinal: int) -> int:
        mask = self.opened[ordinal]
        for key, held in self.cluster.capacity.claims.get(self.node_ids[ordinal], {}).items():
            if self._stays(key):
                mask &= ~self._base(ordinal, key, held)
        return mask.bit_count()

    def _stays(self, key: AttemptKey) -> bool:
        state = self.cluster.attempts[key].state
        if state is AttemptState.PAUSING:
            return False
        job = self.cluster.jobs[key.job_id]
        if ends_now(self.cluster, job):
            return False
        own = job.band < Band.SPOT  # seats, and trials
        return own or state not in ACTIVE or key not in self.ending

    def _base(self, ordinal: int, key: AttemptKey, held: int) -> int:
        """The part of its GPUs there that it keeps: a grown job gives the rest to the jobs that
        need it.
        """
        cluster = self.cluster
        job, attempt = cluster.jobs[key.job_id], cluster.attempts[key]
        if key not in self.ending or not (cluster.elastic(job) and has_grown(job, attempt)):
            return held
        ((_, parts),) = cluster.capacity.parts(attempt.lease.allocation).items()
        return kept(job, parts, job.request.base).get(ordinal, 0)

    def _holders(self, ordinal: int, size: int) -> list[_Holder]:
        """The jobs that could leave the node for smaller blocks than these, the narrowest first."""
        found = []
        node_id = self.node_ids[ordinal]
        for key, held in self.cluster.capacity.claims.get(node_id, {}).items():
            if key not in self.ending or key in self.moved:
                continue
            held = self._base(ordinal, key, held)
            if not 0 < held.bit_count() < size:
                continue
            attempt = self.cluster.attempts[key]
            alone = len(attempt.lease.allocation.slots) == 1 and attempt.state in ACTIVE
            own = self.cluster.jobs[key.job_id].band is Band.SLO
            if alone and own and self.may_move(key.job_id):
                found.append(_Holder(held.bit_count(), key))
        return sorted(found, key=lambda holder: (holder.gpus, holder.key))


def movers(
    cluster: Cluster,
    gpu_type: str,
    waiting: Sequence[SlotHolder],
    ending: Collection[AttemptKey],
    may_move: Callable[[JobId], bool],
    kept: int = 0,
    trial: JobId | None = None,
) -> dict[AttemptKey, JobId]:
    """The jobs that move, and the jobs for which they do. Then all slot holders that wait for GPUs
    of this type fit, beside so many nodes that are `kept` for trials. `trial` is the next trial.

    As few as are found; if some may not move, perhaps too few. Of nodes that are no power of two of
    GPUs the largest such block counts.
    """
    pool = cluster.capacity.open.get(gpu_type)
    for_job = waiting[0].job_id if waiting else trial
    if pool is None or for_job is None:
        return {}
    size = block_of(own_pool(cluster, gpu_type))
    room = _Room(cluster, gpu_type, ending, may_move)
    widths = [round_up(seat.shape.gpus, size) for seat in waiting] + [size] * kept
    while (short := room.short_of(widths, size)) is not None:
        going = room.clear(short)
        if going is None:
            break
        widths += [round_up(gpus, size) for gpus in going]
    return dict.fromkeys(room.moved, for_job)
