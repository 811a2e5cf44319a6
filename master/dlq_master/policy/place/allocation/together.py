"""Groups in a walk: all members that wait start in one plan, or none of them does.

The walk itself serves job after job. Its outcome is looked at here. A group that got GPUs for all
members, some of them only soon, keeps them all and starts later. A group that got less gets
nothing. Then the walk is made again, with one group more at a time. So no GPU is kept for a part of
a group, and every allocator places groups.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import JobId
from dlq_master.model.order.lineup import Lineup
from dlq_master.model.resources import Shape, only_gpus
from dlq_master.policy.place.allocation.outcome import PROFILER, Outcome

# Walks of one plan. Groups that still lack a member after so many get nothing in this plan.
MOST_WALKS = 16
# So many groups are looked at in their order, and then so many others whose turn it is. Else some
# wide groups could keep all others from a look for as long as they wait themselves.
IN_ORDER, IN_TURN = 4, 3


def decided(
    cluster: Cluster, order: Lineup, walked: Callable[[Lineup], Outcome], now_s: float = 0.0
) -> Outcome:
    """The outcome of a walk in which every group starts whole, waits whole, or gets nothing."""
    groups = {group_id: [*members] for group_id, members in cluster.groups.items()}
    left_out = {group_id for group_id, members in groups.items() if not _waits(cluster, members)}
    waiting = [group_id for group_id in groups if group_id not in left_out]

    def tried(order: Lineup, without: Collection[JobId]) -> Outcome:
        return walked(_without(cluster, order, map(groups.__getitem__, without)))

    outcome = tried(order, left_out)
    if any(_lacks(outcome, groups[it]) for it in waiting):
        in_order = with_turns(_in_order(cluster, order, groups, waiting), now_s)
        outcome = _each_in_turn(cluster, order, groups, in_order, tried)
    for members in groups.values():
        _keep_whole(outcome, members)
    if not outcome.chosen:
        outcome.exchanged = False  # nobody starts: another plan would say the same
    return outcome


def with_turns(in_order: list[JobId], now_s: float) -> list[JobId]:
    """The groups as they are looked at: some of many come before their place, others each time."""
    head, rest = in_order[:IN_ORDER], in_order[IN_ORDER:]
    if len(rest) <= IN_TURN:
        return in_order
    at = int(now_s) * 2_654_435_761 % 2**32 * len(rest) >> 32  # spread, whatever the period
    chosen = (rest + rest)[at : at + IN_TURN]
    return [*head, *chosen, *(it for it in rest if it not in chosen)]


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


def _each_in_turn(
    cluster: Cluster,
    order: Lineup,
    groups: Mapping[JobId, Collection[JobId]],
    waiting: Sequence[JobId],
    tried: Callable[[Lineup, Collection[JobId]], Outcome],
) -> Outcome:
    """Each group beside those before it that have got all: the first walk is made without any."""
    left_out = {*groups}
    outcome, walks = tried(order, left_out), 1
    for group_id in waiting:
        others, line = left_out - {group_id}, order
        whole = [groups[it] for it in groups if it not in others]
        for _ in range(2):  # as its members stand, then in another order
            if walks == MOST_WALKS:
                return outcome
            made, walks = tried(line, others), walks + 1
            if not any(_lacks(made, members) for members in whole):
                outcome, order, left_out = made, line, others
                break
            line = _turned(cluster, order, groups[group_id], made)
    return outcome


def _in_order(
    cluster: Cluster,
    order: Lineup,
    groups: Mapping[JobId, Collection[JobId]],
    waiting: Iterable[JobId],
) -> list[JobId]:
    """Groups in the order of their first members."""

    def place(group_id: JobId) -> tuple[tuple[int, int], JobId]:
        return min(_place(cluster, order, it)[:2] for it in groups[group_id]), group_id

    return sorted(waiting, key=place)


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
