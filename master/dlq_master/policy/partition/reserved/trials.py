"""Orders trials by arrival and keeps whole nodes free for the next ones.

A promise counts on all other nodes, so all slot holders fit there. If some took GPUs here, the rest
for trials would lie in pieces of nodes, and a trial of two nodes would wait for ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import ceil
from typing import NamedTuple

from dlq_master.model.attempts.attempt import AttemptState
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.model.jobs.band import PROFILE_PRIORITY, Band
from dlq_master.model.jobs.job import Job
from dlq_master.model.nodes.free_gpus import Part, Pool, lowest
from dlq_master.model.nodes.owned import is_own
from dlq_master.model.order.waiting import WaitingLines
from dlq_master.model.resources import Shape
from dlq_master.policy.partition.profiling import floor_nodes, node_gpus, room
from dlq_master.policy.partition.quotas import pausing
from dlq_master.policy.partition.reserved.slot_holders import (
    SlotContest,
    SlotHolder,
    SlotSpace,
    serve,
)
from dlq_master.policy.place.allocation.line import NOBODY_RUNS, RunningBlock, heads, line
from dlq_master.policy.place.allocation.outcome import PROFILER, TrialRoom
from dlq_master.policy.place.allocation.space import Space
from dlq_master.policy.place.allocation.type_capacity import TypeCapacity
from dlq_master.policy.promise.capacity.grids import home_type
from dlq_master.policy.transit.contest import Contest
from dlq_master.policy.trial.rules import TrialRules


class TrialNodes(NamedTuple):
    """GPUs of a node that are out of the walk for a while: free now, and only later."""

    gpu_type: str
    now: Part
    later: Part


def serve_beside(
    allocator: SlotSpace | SlotContest, waiting: Iterable[SlotHolder], gpu_type: str, nodes: int
) -> None:
    """Slots for all of them, on other nodes than so many without a slot holder. A job that finds
    none there gets one anywhere, for a promise is more than a trial. It comes before narrower jobs
    that could lie in its way.
    """
    outcome = allocator.outcome
    held: list[TrialNodes] | None = None
    for seat in waiting:
        if held is None:
            held = _hold(allocator, gpu_type, nodes)
        serve(allocator, (seat,))
        if held and seat.job_id not in outcome.chosen and seat.job_id not in outcome.claims:
            _release(allocator, held)
            held = None
            serve(allocator, (seat,))
    _release(allocator, held or ())


def _hold(allocator: SlotSpace | SlotContest, gpu_type: str, nodes: int) -> list[TrialNodes]:
    """Take the emptiest nodes without seats and trials out of the walk."""
    type_capacity = allocator.capacities.get(gpu_type)
    if type_capacity is None:
        return []
    clear = sorted(_clear(allocator, gpu_type))[: max(0, nodes)]
    found = []
    for *_, ordinal in clear:
        now = type_capacity.free.masks[ordinal]
        later = type_capacity.later.masks[ordinal]
        type_capacity.take((Part(ordinal, now | later),))
        found.append(TrialNodes(gpu_type, Part(ordinal, now), Part(ordinal, later & ~now)))
    if isinstance(allocator, SlotContest):
        allocator.spared = frozenset(ordinal for *_, ordinal in clear)
    return found


def _release(allocator: SlotSpace | SlotContest, held: Iterable[TrialNodes]) -> None:
    for gpu_type, now, later in held:
        type_capacity = allocator.capacities[gpu_type]
        if now.mask:
            type_capacity.give_free((now,))
        if later.mask:
            type_capacity.give_later((later,))
    if isinstance(allocator, SlotContest):
        allocator.spared = frozenset()
        allocator.victims = None  # there are more of them now


def _clear(
    allocator: SlotSpace | SlotContest, gpu_type: str
) -> Iterable[tuple[int, int, int, int]]:
    """Whole open nodes of the type that only best-effort work will hold. The order is by the GPUs
    that others are still leaving, then by the GPUs of that work. The last come first, since others
    are placed from the first on. Nodes that are being left come last. A job for which they are left
    has no place if they are kept instead of the former ones.
    """
    cluster = allocator.cluster
    capacity = cluster.capacity
    opened, total = capacity.open[gpu_type].masks, capacity.total[gpu_type].masks
    for ordinal, mask in enumerate(opened):
        if mask and mask == total[ordinal] and is_own(cluster.nodes[capacity.node_ids[ordinal]]):
            claims = capacity.claims.get(capacity.node_ids[ordinal], {})
            stay = {key: gpus for key, gpus in claims.items() if not _leaves(allocator, key)}
            if all(cluster.jobs[key.job_id].band >= Band.SPOT for key in stay):
                held = sum(gpus.bit_count() for gpus in stay.values())
                left = sum(gpus.bit_count() for gpus in claims.values()) - held
                yield left, held, -ordinal, ordinal


def _leaves(allocator: SlotSpace | SlotContest, key: AttemptKey) -> bool:
    leaving = allocator.cluster.attempts[key].state is AttemptState.PAUSING
    return leaving or key in allocator.outcome.outranked


_LAST = 1 << 200  # behind everybody of the priority: trials do not make trials leave
_ANY_WIDTH = float("inf")
_NOBODY = (float("inf"), 0)


def serve_all(
    allocator: SlotSpace | SlotContest,
    waiting: Sequence[SlotHolder],
    rules: TrialRules | None,
    spared: int = 0,
) -> None:
    """Seats, then trials, and what is kept for the trials that come next; None: nobody is tried.
    `spared`: nodes on which no slot holder starts that finds another one.
    """
    cluster = allocator.cluster
    if rules is None:
        if spared:
            serve_beside(allocator, waiting, home_type(cluster), spared)
        else:
            serve(allocator, waiting)
        return
    home = home_type(cluster)
    serve_beside(allocator, waiting, home, kept_nodes(cluster, rules) + spared)
    left = serve_trials(allocator, room(cluster, rules))
    if kept := withhold(allocator, home, left.unused):
        allocator.outcome.withheld = kept


def kept_nodes(cluster: Cluster, rules: TrialRules) -> int:
    """Of the nodes that are always for trials, those that are not full of them."""
    size = node_gpus(cluster, home_type(cluster))
    held = cluster.running.gpus_by_priority.get(PROFILE_PRIORITY, 0)
    return max(0, floor_nodes(cluster, rules) - ceil(held / size)) if size else 0


def serve_trials(allocator: Space, room: TrialRoom) -> TrialRoom:
    """Trials begin while there is room for them. No job passes the first that does not fit, nor one
    that has just ended one trial and gets the next. Returns the remaining room.
    """
    if isinstance(allocator, Contest):
        for block in allocator.blocks(PROFILE_PRIORITY, apart=False).rest():
            allocator.keep(PROFILE_PRIORITY, block)
    jobs, between = allocator.cluster.jobs, _between_trials(allocator.cluster)
    for job_id, shape in _in_line(allocator.cluster):
        begins = room.allows(shape.gpus) and not allocator.spent and _came(jobs[job_id]) < between
        if not begins or not allocator.serve(PROFILE_PRIORITY, (_LAST, job_id, shape, iter(()))):
            allocator.outcome.heads[PROFILER] = job_id
            break
        room = room.after(shape.gpus)
    allocator.outcome.room = room
    return room


def _between_trials(cluster: Cluster) -> tuple[float, int]:
    """When the first of those came who are leaving one trial for the next."""
    jobs = [cluster.jobs[key.job_id] for key in pausing(cluster)]
    again = [_came(job) for job in jobs if job.band is Band.PROFILE and len(job.trials) > 1]
    return min(again, default=_NOBODY)


def _came(job: Job) -> tuple[float, int]:
    return job.trial_time_s or 0.0, job.sequence


def first_trial(cluster: Cluster) -> JobId | None:
    """The next job to be tried, if any waits for that."""
    return next((job_id for job_id, _ in _in_line(cluster)), None)


def withhold(allocator: Space, gpu_type: str, gpus: int) -> int:
    """Keep so many GPUs from everybody who has not had their turn, whole nodes as far as there are
    any.

    Nobody has to leave for that. A job that is wide enough to need these gets them: the walk has
    come to all trials already. Returns how many are kept.
    """
    type_capacity = allocator.capacities.get(gpu_type)
    if type_capacity is None or gpus <= 0:
        return 0
    opened = allocator.cluster.capacity.open[gpu_type]
    kept = _kept(type_capacity, opened, min(gpus, opened.total - _widest(allocator)))
    if kept:
        type_capacity.take(kept)
    return sum(mask.bit_count() for _, mask in kept)


def _in_line(cluster: Cluster) -> Iterator[tuple[JobId, Shape]]:
    """The jobs that wait for a trial, in the order in which they were sent."""
    waiting = cluster.waiting.by_priority.get(PROFILE_PRIORITY, WaitingLines())
    for head in line(heads(waiting, frozenset(), _ANY_WIDTH), NOBODY_RUNS, frozenset()):
        if not isinstance(head, RunningBlock):
            yield head[1], head[2]


def _widest(allocator: Space) -> int:
    by_priority = allocator.lineup.waiting.by_priority
    shapes = [
        shape.gpus
        for priority in by_priority
        if priority > PROFILE_PRIORITY
        for shape in by_priority[priority]
    ]
    return max(shapes, default=0)


def _kept(type_capacity: TypeCapacity, opened: Pool, gpus: int) -> tuple[Part, ...]:
    """Whole nodes that are free, then the one that just has the rest, or the freest. Nodes that are
    being left come last: a job for which they are left had no other place.
    """
    free, later = type_capacity.free.masks, type_capacity.later.masks
    counts = {ordinal: mask.bit_count() for ordinal, mask in enumerate(later) if mask}

    def place(ordinal: int) -> tuple[bool, bool, bool, int, int]:
        left, count = later[ordinal] != free[ordinal], counts[ordinal]
        broken = count > gpus or later[ordinal] != opened.masks[ordinal]
        return left, broken, count < gpus, count if count >= gpus else -count, ordinal

    kept = []
    while gpus > 0 and counts:
        ordinal = min(counts, key=place)
        kept.append(Part(ordinal, lowest(later[ordinal], min(gpus, counts[ordinal]))))
        gpus -= counts.pop(ordinal)
    return tuple(kept)
