"""Groups in a walk: all members that wait start in one plan, or none of them does.

The walk itself serves job after job. Its outcome is looked at here. A group that got GPUs for all
members, some of them only soon, keeps them all and starts later. A group that got less gets
nothing, and the walk is made again without it. So no GPU is kept for a part of a group, and every
allocator places groups.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import JobId
from dlq_master.model.order.lineup import Lineup
from dlq_master.model.resources import Shape, only_gpus
from dlq_master.policy.place.allocation.outcome import PROFILER, Outcome

# Walks of one plan. Groups that still lack a member after so many get nothing in this plan.
MOST_WALKS = 16


def decided(cluster: Cluster, order: Lineup, walked: Callable[[Lineup], Outcome]) -> Outcome:
    """The outcome of a walk in which every group starts whole, waits whole, or gets nothing."""
    groups = {group_id: [*members] for group_id, members in cluster.groups.items()}
    left_out = {group_id for group_id, members in groups.items() if not _waits(cluster, members)}
    turned: set[JobId] = set()  # served once more, the member first that had lacked GPUs
    walks = 0
    while True:
        outcome = walked(_without(cluster, order, map(groups.__getitem__, left_out)))
        walks += 1
        lacking = [it for it in groups if it not in left_out and _lacks(outcome, groups[it])]
        if not lacking:
            break
        if walks >= MOST_WALKS:
            left_out.update(lacking)
            continue
        # The first in order may be what keeps the others from their GPUs.
        first = _first(cluster, order, groups, lacking)
        if first in turned:
            left_out.add(first)
        else:
            turned.add(first)
            order = _turned(cluster, order, groups[first], outcome)
    for members in groups.values():
        _keep_whole(outcome, members)
    if not outcome.chosen:
        outcome.exchanged = False  # nobody starts: another plan would say the same
    return outcome


def torn(cluster: Cluster, starting: Collection[JobId]) -> Iterator[JobId]:
    """Of the jobs that are to start those of a group with a member that does not start too."""
    for job_id in starting:
        group = cluster.jobs[job_id].group
        if group is not None and not cluster.groups[group.array_id].keys() <= {*starting}:
            yield job_id


def never(cluster: Cluster, shapes: Iterable[tuple[int, str | None]]) -> tuple[int, int] | None:
    """How many GPUs some members need together, and how many there are; None: there are enough.

    `shapes`: GPUs and the one type that will do, None: any.
    """
    cluster.capacity.ready()
    there = {kind: pool.total for kind, pool in only_gpus(cluster.capacity.total).items()}
    asked: dict[str, int] = {}
    total = 0
    for gpus, gpu_type in shapes:
        total += gpus
        if gpu_type is not None:
            asked[gpu_type] = asked.get(gpu_type, 0) + gpus
    for gpu_type, gpus in asked.items():
        if gpus > there.get(gpu_type, 0):
            return gpus, there.get(gpu_type, 0)
    everything = sum(there.values())
    return (total, everything) if total > everything else None


# --- helpers, in order of use ---------------------------------------------------------------------


def _waits(cluster: Cluster, members: Iterable[JobId]) -> bool:
    """Whether all members wait for GPUs: none is held, blocked, or still leaves its last ones."""
    return all(cluster.jobs[job_id].waiting for job_id in members)


def _without(cluster: Cluster, order: Lineup, groups: Iterable[Iterable[JobId]]) -> Lineup:
    jobs = [cluster.jobs[job_id] for members in groups for job_id in members]
    places = [(cluster.priority(it), cluster.shape(it), it.job_id) for it in jobs if it.waiting]
    return order._replace(waiting=order.waiting.without(places)) if places else order


def _lacks(outcome: Outcome, members: Collection[JobId]) -> bool:
    """Whether a member has got no GPUs, not even such that are released soon. A group at the head
    of a line that nobody may pass waits there, as a job does.
    """
    if any(head in members for line, head in outcome.heads.items() if line != PROFILER):
        return False
    return any(it not in outcome.chosen and it not in outcome.claims for it in members)


def _place(cluster: Cluster, order: Lineup, job_id: JobId) -> tuple[int, int, Shape]:
    job = cluster.jobs[job_id]
    priority, shape = cluster.priority(job), cluster.shape(job)
    return priority, order.position(priority, shape, job_id), shape


def _first(
    cluster: Cluster,
    order: Lineup,
    groups: Mapping[JobId, Collection[JobId]],
    lacking: Iterable[JobId],
) -> JobId:
    """The one of these groups whose first member comes first in the order."""

    def place(group_id: JobId) -> tuple[tuple[int, int], JobId]:
        return min(_place(cluster, order, it)[:2] for it in groups[group_id]), group_id

    return min(lacking, key=place)


def _turned(cluster: Cluster, order: Lineup, members: Iterable[JobId], outcome: Outcome) -> Lineup:
    """The members change places among themselves. The ones without GPUs come first, then the
    widest. So a small one does not take the only node that a choosy one may have.
    """
    by_priority: dict[int, list[tuple[int, Shape, JobId]]] = {}
    for job_id in members:
        priority, position, shape = _place(cluster, order, job_id)
        by_priority.setdefault(priority, []).append((position, shape, job_id))

    def first(row: tuple[int, Shape, JobId]) -> tuple[bool, int, int]:
        position, shape, job_id = row
        return job_id in outcome.chosen or job_id in outcome.claims, -shape.gpus, position

    moved = [
        (priority, shape, job_id, position)
        for priority, rows in by_priority.items()
        for position, (_, shape, job_id) in zip(
            sorted(row[0] for row in rows), sorted(rows, key=first), strict=True
        )
    ]
    return order._replace(waiting=order.waiting.rearranged(moved))


def _keep_whole(outcome: Outcome, members: Collection[JobId]) -> None:
    """Members that could start wait for those whose GPUs are released soon, and keep theirs."""
    if all(job_id in outcome.chosen for job_id in members):
        return
    for job_id in members:
        if outcome.chosen.pop(job_id, None) is not None:
            outcome.told.pop(job_id, None)
            outcome.claims[job_id] = False
