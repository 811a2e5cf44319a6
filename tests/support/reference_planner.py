"""The obvious planner: slow, written from the rules alone, to compare the fast one with.

It knows nothing of pools, buckets, heads or walks: it looks at every job and every node each time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from math import log1p

from dlq_baselines.themis import Auction
from dlq_master.model.attempts.attempt import ACTIVE, AttemptState
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import Job, JobState
from dlq_master.model.resources import Shape, indices
from dlq_master.policy.policy import Policy

Gpus = dict[str, list[int]]  # node -> indices, nodes in the order of their names


def expected_starts(cluster: Cluster, policy: Policy) -> dict[JobId, Gpus]:
    """Which jobs a plan that takes nothing away starts, and where. One GPU type, nothing
    promoted.
    """
    free = free_gpus(cluster)
    soon = soon_gpus(cluster)
    starts: dict[JobId, Gpus] = {}
    full: set[str] = set()
    holds = _held_by_queue(cluster)
    for job in in_rank_order([job for job in cluster.jobs.values() if job.waiting]):
        shape = job.request.shape
        if policy.partition.quotas is not None:
            limits = policy.partition.quotas.limits(
                sum(len(node.gpus) for node in cluster.nodes.values())
            )
            wide = holds[job.queue] and holds[job.queue] + shape.gpus > limits[job.queue]
            if job.queue in full or wide:
                full.add(job.queue)
                continue
        found = place(policy.placement.name, free, shape, cluster)
        if found is not None:
            starts[job.job_id] = found
            holds[job.queue] += shape.gpus
            _remove(free, found)
            continue
        full.add(job.queue)
        if policy.blocking and policy.partition.quotas is None:
            break
        later = _place_soon(policy, free, soon, shape, cluster)
        if later is not None:
            _remove(free, later)
            _remove(soon, later)
    return starts


def expected_by_count(
    cluster: Cluster, policy: Policy, now_s: float
) -> tuple[set[JobId], set[JobId]]:
    """By GPU counts, with free preemption: who starts and who has to leave."""
    left = sum(len(gpus) for gpus in _open_gpus(cluster).values())
    members = [job for job in cluster.jobs.values() if job.waiting or _runs(cluster, job)]
    starts, leaves = set(), set()
    bidders = _bidders(cluster, policy, now_s, members)
    for job in in_rank_order(members, lambda job: _key(cluster, policy, now_s, job, bidders)):
        fits = job.request.gpus <= left
        left -= job.request.gpus if fits else 0
        if fits and job.waiting:
            starts.add(job.job_id)
        elif not fits and not job.waiting:
            leaves.add(job.job_id)
    return starts, leaves


def _held_by_queue(cluster: Cluster) -> Counter[str]:
    holds: Counter[str] = Counter()
    for key, attempt in cluster.attempts.items():
        holds[cluster.jobs[key.job_id].queue] += attempt.lease.allocation.width
    return holds


def in_rank_order(
    jobs: list[Job], key: Callable[[Job], tuple[float, ...]] = lambda _: ()
) -> list[Job]:
    """Whoever is served first comes first; the key decides among those of one priority."""
    return sorted(jobs, key=lambda job: (job.priority_base, job.level, key(job), job.sequence))


def _bidders(cluster: Cluster, policy: Policy, now_s: float, jobs: list[Job]) -> set[JobId]:
    """Themis: of each priority the part 1 - f with the greatest finish-time fairness."""
    found: set[JobId] = set()
    if not isinstance(policy.order, Auction):
        return found
    for priority in {job.priority_base for job in jobs}:
        here = [job for job in jobs if job.priority_base == priority and job.duration_estimate_s]
        here.sort(key=lambda job: (-_rho(cluster, now_s, job)[0], job.sequence))
        share = (1.0 - policy.order.fairness) * len(here)
        found |= {job.job_id for at, job in enumerate(here) if at < share - 1e-9}
    return found


def _rho(cluster: Cluster, now_s: float, job: Job) -> tuple[float, float]:
    """Its time from submission to end if it goes on from now, over that alone; and the gain of each
    GPU if it need not wait for another lease."""
    shared_s = now_s - job.submit_time_s + _left_s(cluster, now_s, job)
    value = log1p(cluster.terms.be_term_s / shared_s) / job.request.gpus
    return shared_s / (job.duration_estimate_s or 0.0), value


def _left_s(cluster: Cluster, now_s: float, job: Job) -> float:
    attempt = cluster.live_attempt(job)
    started_s = None if attempt is None else attempt.started_time_s
    done_s = job.total_executed_s - job.lost_gpu_s / job.request.gpus
    done_s += 0.0 if started_s is None else now_s - started_s
    return max(0.0, (job.duration_estimate_s or 0.0) - done_s)


def _key(
    cluster: Cluster, policy: Policy, now_s: float, job: Job, bidders: set[JobId]
) -> tuple[float, ...]:
    """What the policy's name says that it orders by; nothing: by position."""
    if policy.name == "sf":
        return (job.request.gpus,)
    if policy.name == "lf":
        return (-job.request.gpus,)
    if policy.name in ("edf", "edf-preemptive", "genie", "3sigma"):
        return _by_deadline(policy.name, job, now_s, _left_s(cluster, now_s, job))
    if policy.name == "tiresias-gittins":
        return _gittins(cluster, now_s, job)
    if policy.name not in ("srtf", "srsf", "themis"):
        return ()
    if job.duration_estimate_s is None:
        return (float("inf"),)
    if policy.name == "themis":
        rho, value = _rho(cluster, now_s, job)
        return (0.0, -value) if job.job_id in bidders else (1.0, -rho)
    left_s = _left_s(cluster, now_s, job)
    return (left_s * (job.request.gpus if policy.name == "srsf" else 1),)


def _by_deadline(name: str, job: Job, now_s: float, left_s: float) -> tuple[float, ...]:
    """SLO jobs that run, SLO jobs that wait by what the policy looks at, other work that runs, the
    rest. Run times are exact where they are known."""
    runs, slo, known = not job.waiting, bool(job.steps), job.duration_estimate_s is not None
    if not slo or (runs and name != "edf-preemptive"):
        return (0.0 if slo else 2.0 if runs else 3.0,)
    due_s = job.submit_time_s + job.steps[0][0]
    if name == "genie":
        return (1.0, due_s - left_s if known else float("inf"))
    if name == "3sigma" and known:
        ends_s = now_s - job.submit_time_s + left_s
        rewards = [reward for at_s, reward in job.steps if ends_s <= at_s]
        worth = (rewards[0] - 1.0) / (job.request.gpus * max(1.0, left_s)) if rewards else 0.0
        return (1.0, -worth) if worth else (3.0,)
    return (1.0, 0.0 if name == "3sigma" else due_s)


def _gittins(cluster: Cluster, now_s: float, job: Job) -> tuple[float, ...]:
    """The best index over every quantum, by definition, if each completion is learned from at once;
    the last level is FIFO."""
    ended = [other.total_gpu_s for other in cluster.jobs.values() if other.state is _COMPLETED]
    services = [service for service in ended if service]
    if not services or job.level == cluster.ordering.levels - 1:
        return ()
    attempt = cluster.live_attempt(job)
    started_s = None if attempt is None else attempt.started_time_s
    runs_s = 0.0 if started_s is None else now_s - started_s
    attained = job.attained_gpu_s + runs_s * job.request.gpus
    left = [service - attained for service in services if service > attained]
    best = max(
        (sum(x <= q for x in left) / sum(min(x, q) for x in left) for q in left), default=0.0
    )
    return (-best, job.submit_time_s)


_COMPLETED = JobState.COMPLETED


def free_gpus(cluster: Cluster) -> Gpus:
    """GPUs of open nodes that no live attempt holds."""
    held = _held(cluster, set(AttemptState))
    return {
        name: [gpu for gpu in gpus if (name, gpu) not in held]
        for name, gpus in _open_gpus(cluster).items()
    }


def soon_gpus(cluster: Cluster) -> Gpus:
    """GPUs of open nodes whose holder has been told to leave."""
    held = _held(cluster, {AttemptState.PAUSING})
    return {
        name: [gpu for gpu in gpus if (name, gpu) in held]
        for name, gpus in _open_gpus(cluster).items()
    }


PLACEMENTS = ("consolidate", "spread", "count")


def place(placement: str, free: Gpus, shape: Shape, cluster: Cluster) -> Gpus | None:
    """The GPUs that the named placement takes, or None."""
    if shape.nodes is not None and placement != "count":
        return _exact(free, shape.gpus // shape.nodes, shape.nodes)
    if sum(map(len, free.values())) < shape.gpus:
        return None
    by_most = sorted(free, key=lambda name: (-len(free[name]), name))
    by_least = sorted(free, key=lambda name: (len(free[name]), name))
    if placement == "count":
        return _fill(free, by_most, shape.gpus)
    if placement == "spread":
        return _fill(free, by_least, shape.gpus)
    return _consolidated(free, shape.gpus, _fewest_nodes(cluster, shape.gpus))


def _consolidated(free: Gpus, gpus: int, most_nodes: int) -> Gpus | None:
    found: Gpus = {}
    while gpus:
        unused = {name: left for name, left in free.items() if name not in found and left}
        enough = [name for name in unused if len(unused[name]) >= gpus]
        if enough:
            best = min(enough, key=lambda name: (len(unused[name]), name))
        elif unused:
            best = min(unused, key=lambda name: (-len(unused[name]), name))
        else:
            return None
        found[best] = unused[best][:gpus]
        gpus -= len(found[best])
    return found if len(found) <= most_nodes else None


def _exact(free: Gpus, gpus_per_node: int, nodes: int) -> Gpus | None:
    enough = [name for name in free if len(free[name]) >= gpus_per_node]
    chosen = sorted(enough, key=lambda name: (len(free[name]), name))[:nodes]
    if len(chosen) < nodes:
        return None
    return {name: free[name][:gpus_per_node] for name in sorted(chosen)}


def _fill(free: Gpus, names: list[str], gpus: int) -> Gpus | None:
    found: Gpus = {}
    for name in names:
        taken = free[name][:gpus]
        if taken:
            found[name] = taken
            gpus -= len(taken)
    return found if not gpus else None


def _place_soon(
    policy: Policy, free: Gpus, soon: Gpus, shape: Shape, cluster: Cluster
) -> Gpus | None:
    union = {name: sorted(free[name] + soon[name]) for name in free}
    if not any(soon.values()):
        return None
    if not policy.placement.any_gpus(shape):
        return place(policy.placement.name, union, shape, cluster)
    if sum(map(len, union.values())) < shape.gpus:
        return None
    first = min(shape.gpus, sum(map(len, soon.values())))
    found: Gpus = {}
    for pool, gpus in ((soon, first), (free, shape.gpus - first)):
        part = place(policy.placement.name, pool, Shape(gpus, None, None), cluster) or {}
        for name, taken in part.items():
            found[name] = sorted(found.get(name, []) + taken)
    return found


def _fewest_nodes(cluster: Cluster, gpus: int) -> int:
    sizes = sorted((len(node.gpus) for node in cluster.nodes.values()), reverse=True)
    for count in range(1, len(sizes) + 1):
        if sum(sizes[:count]) >= gpus:
            return count
    return 0


def _open_gpus(cluster: Cluster) -> Gpus:
    nodes = sorted(cluster.nodes.values(), key=lambda node: node.node_id)
    return {node.node_id: [gpu.index for gpu in node.gpus] for node in nodes if node.open}


def _held(cluster: Cluster, states: set[AttemptState]) -> set[tuple[str, int]]:
    return {
        (slot.node_id, gpu)
        for attempt in cluster.attempts.values()
        if attempt.state in states
        for slot in attempt.lease.allocation.slots
        for gpu in indices(slot.mask)
    }


def _runs(cluster: Cluster, job: Job) -> bool:
    attempt = cluster.live_attempt(job)
    return attempt is not None and attempt.state in ACTIVE


def _remove(free: Gpus, taken: Gpus) -> None:
    for name, gpus in taken.items():
        free[name] = [gpu for gpu in free[name] if gpu not in gpus]
