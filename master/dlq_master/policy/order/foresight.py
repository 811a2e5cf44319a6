"""The order of a few jobs by a look ahead: the one in which they end soonest on average.

An order by a key compares jobs one by one, and so cannot see that a job leaves GPUs on which no
other fits. While few jobs compete, all of them can be followed to their ends. Each order is worth
the sum of the completion times that it leads to, with the price of each stop. From the order by
key on, the job whose move to the head gains most is moved there, until no move gains anything.

Nobody looks ahead where that would be a guess. So it is not done with many jobs or nodes, or with
several types of GPUs. Nor is it with jobs that are elastic, or that only some nodes can hold, or
whose run time is a guess itself. The order by key counts there. It also counts for jobs that have
waited too long to be passed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf
from typing import NamedTuple

from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.jobs.band import Band
from dlq_master.model.jobs.job import Job
from dlq_master.model.order.keys import had
from dlq_master.model.order.lineup import Lineup
from dlq_master.model.resources import only_gpus
from dlq_master.model.view import View
from dlq_master.policy.order.expected_left import expected_s
from dlq_master.policy.order.ordered import by_priority, lined_up
from dlq_master.policy.order.stage import KEPT_ORDER
from dlq_master.policy.stop_costs import pause_and_resume_s, stop_s

MOST_JOBS = 8  # that wait or run; one order of so many takes about 3 ms
MOST_NODES = 4

_SPOT = Band.SPOT


class Runner(NamedTuple):
    """A job as the look ahead sees it. `seconds`: of work that are left. `begins_s`: without
    progress, if it starts now; `stop_s`: likewise when it goes on after it lost its GPUs. `firm`:
    no job from behind may pass it.
    """

    seconds: float
    gpus: int
    nodes: int | None = None
    runs: bool = False
    begins_s: float = 0.0
    stop_s: float = 0.0
    firm: bool = False


class FewJobs(NamedTuple):
    """`profile_s`: estimates come once a job has run so long; None: they do not come. `aging`: the
    rate at which waiting jobs rise in the order by key. A job that has waited for its work over
    this rate is passed by nobody.
    """

    profile_s: float | None
    aging: float

    @property
    def anew(self) -> bool:
        """False: it compares a bounded number of jobs."""
        return False

    def lineup(self, view: View, margin: float) -> Lineup:
        """All jobs in order; costs as much as the order by key where many wait."""
        kept = KEPT_ORDER.lineup(view, margin)
        cluster = view.cluster
        waiting, running = cluster.waiting.count, len(cluster.attempts)
        if not waiting or not 1 < waiting + running <= MOST_JOBS:
            return kept
        if cluster.claims.out:
            return kept  # suspended jobs come back to their own GPUs, which is not followed
        lines, nodes = by_priority(cluster), _nodes_of_one_type(cluster)
        if nodes is None or len(lines) != 1:
            return kept  # GPUs that other priorities hold are not followed
        ((priority, jobs),) = lines.items()
        if sum(job.request.gpus for job in jobs) <= sum(nodes):
            return kept
        ranked = sorted(
            jobs, key=lambda job: kept.position(priority, cluster.shape(job), job.job_id)
        )
        runners = []
        for job in ranked:
            runner = self._runner(view, job)
            if runner is None:
                return kept
            runners.append(runner)
        best = soonest(runners, nodes)
        return lined_up(cluster, [(priority, [ranked[at] for at in best])])

    def _runner(self, view: View, job: Job) -> Runner | None:
        """None: its end or its nodes cannot be foreseen."""
        cluster, now_s, request = view.cluster, view.now_s, job.request
        shape = cluster.shape(job)
        if job.band is not _SPOT or request.sizes or request.without_gpus:
            return None
        if shape.gpu_types or shape.avoid or shape.traits or shape.mixed:
            return None
        attempt = cluster.live_attempt(job)
        has_had = had(job, attempt, now_s)
        seconds = expected_s(job, has_had, self.profile_s)
        if seconds is None or job.basis.guess:
            return None
        waits = attempt is None
        waited_s = now_s - has_had.unaged_s
        return Runner(
            max(seconds, 1.0),
            request.gpus,
            request.nodes,
            not waits,
            pause_and_resume_s(cluster, job) if waits and job.worked_s else 0.0,
            stop_s(cluster, job, attempt, now_s),
            waited_s * self.aging > seconds,
        )


def _nodes_of_one_type(cluster: Cluster) -> list[int] | None:
    """The GPUs of each open node, held or not; None: there are several types, or many nodes."""
    pools = only_gpus(cluster.capacity.open)
    if len(pools) != 1:
        return None
    (pool,) = pools.values()
    nodes = [mask.bit_count() for mask in pool.masks if mask]
    return nodes if 0 < len(nodes) <= MOST_NODES else None


def soonest(runners: Sequence[Runner], nodes: Sequence[int]) -> list[int]:
    """An order of these jobs, as indexes: from the order given on by one move to the head after
    another. `nodes`: the GPUs of each.
    """
    order = list(range(len(runners)))
    least_s = completions_s(runners, order, nodes, inf)
    for _ in runners:
        better = None
        for at, to in _moves(runners, order):
            moved = [*order[:to], order[at], *order[to:at], *order[at + 1 :]]
            found_s = completions_s(runners, moved, nodes, least_s)
            if found_s < least_s - 1e-6:
                least_s, better = found_s, moved
        if better is None:
            break
        order = better
    return order


def _moves(runners: Sequence[Runner], order: Sequence[int]) -> Iterator[tuple[int, int]]:
    """From and to which place a job may move, to the head first."""
    for at in range(1, len(order)):
        first = max((before + 1 for before in range(at) if runners[order[before]].firm), default=0)
        yield from ((at, to) for to in range(first, at))


def completions_s(
    runners: Sequence[Runner], order: Sequence[int], nodes: Sequence[int], limit_s: float
) -> float:
    """The sum of the completion times in this order, counted from now; inf: above `limit_s`.

    At each end the first jobs in order that fit get the GPUs. A job that loses them pays its stop
    when it goes on.
    """
    left = {at: runners[at].seconds for at in order}
    begins = {at: runners[at].begins_s for at in order}
    running = {at for at in order if runners[at].runs}
    now_s = total_s = 0.0
    while left:
        if total_s + now_s * len(left) >= limit_s:
            return inf
        chosen = _chosen(runners, left, nodes)
        if not chosen:
            return inf  # a job that never fits
        for at in running - chosen:
            begins[at] = runners[at].stop_s
        step_s = min(left[at] + begins[at] for at in chosen)
        now_s += step_s
        for at in chosen:
            worked_s = max(0.0, step_s - begins[at])
            begins[at] = max(0.0, begins[at] - step_s)
            left[at] -= worked_s
        ended = [at for at in chosen if left[at] <= 1e-6 and not begins[at]]
        total_s += now_s * len(ended)
        for at in ended:
            del left[at]
        running = chosen.difference(ended)
    return total_s


def _chosen(runners: Sequence[Runner], left: dict[int, float], nodes: Sequence[int]) -> set[int]:
    """The jobs that get GPUs: each in order on the nodes that it fits best."""
    free = [*nodes]
    chosen = set()
    for at in left:
        if _take(runners[at], free):
            chosen.add(at)
            if not any(free):
                break
    return chosen


def _take(runner: Runner, free: list[int]) -> bool:
    """Whether it fits, on the fewest nodes; takes its GPUs away then."""
    if len(free) == 1:
        if runner.gpus > free[0] or (runner.nodes or 1) > 1:
            return False
        free[0] -= runner.gpus
        return True
    each = runner.gpus // runner.nodes if runner.nodes else runner.gpus
    tight = sorted((size, at) for at, size in enumerate(free) if size >= each)
    needs = runner.nodes or 1
    if len(tight) >= needs:
        for _, at in tight[:needs]:
            free[at] -= each
        return True
    if runner.nodes or sum(free) < runner.gpus:
        return False
    wants = runner.gpus
    for size, at in sorted(((size, at) for at, size in enumerate(free)), reverse=True):
        taken = min(size, wants)
        free[at], wants = size - taken, wants - taken
    return True
