"""How many GPUs are for trials: as many as arrivals of the last hour need (Chronus, 3.2.3), at
least a floor.
"""

from __future__ import annotations

from math import ceil

from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.jobs.band import PROFILE_PRIORITY, Band
from dlq_master.model.jobs.job import Job
from dlq_master.model.jobs.trials import WINDOW_S
from dlq_master.model.plan import Scale
from dlq_master.model.view import View
from dlq_master.model.why import Reason, ReasonCode
from dlq_master.policy.partition.quotas import pausing
from dlq_master.policy.place.allocation.outcome import TrialRoom
from dlq_master.policy.promise.capacity.grids import home_type, type_of
from dlq_master.policy.trial.rules import TrialRules, floor_of

_MOST_NODES = 2


def node_gpus(cluster: Cluster, gpu_type: str) -> int:
    """GPUs of a node of this type, as most of its GPUs are in nodes; 0: there is none."""
    cluster.capacity.ready()
    pool = cluster.capacity.total.get(gpu_type)
    nodes = [] if pool is None else [bucket.bit_count() for bucket in pool.buckets]
    return max(range(len(nodes)), key=lambda gpus: (gpus * nodes[gpus], gpus), default=0)


def nodes_of(cluster: Cluster, job: Job) -> int:
    """On how many nodes it runs; 0: there is none that it could run on."""
    request = job.request
    if request.nodes is not None:
        return request.nodes
    size = node_gpus(cluster, type_of(cluster, job))
    return ceil(request.gpus / size) if size else 0


def trials_of(cluster: Cluster, job: Job) -> tuple[int, ...]:
    """GPUs of the trials that tell how long it runs; empty: there is no node for any.

    A trial on its own GPUs does the job's work: jobs that are short, or fail soon, end in it.
    """
    nodes, gpus = nodes_of(cluster, job), job.request.gpus
    if not nodes:
        return ()
    if nodes <= _MOST_NODES:
        return (gpus,)
    if job.request.nodes is not None:
        each = gpus // nodes
    else:
        each = node_gpus(cluster, type_of(cluster, job))
    return each, _MOST_NODES * each


def charged(gpus: int, node_gpus: int) -> int:
    """The cost of a job of so many GPUs for the profiler: two nodes at most."""
    return min(gpus, _MOST_NODES * node_gpus)


_SLACK = 1e-9  # of a sum of rates


def scale(view: View, rules: TrialRules) -> Scale | None:
    """How many GPUs are for trials in this hour, in whole nodes; None: that has been decided.

    C = lambda x T_profile. Here lambda is the arrivals of the hour before, each job with its cost
    for the profiler. With less, jobs would come faster than they are profiled.
    """
    cluster = view.cluster
    hour = int(view.now_s // WINDOW_S)
    home = home_type(cluster)
    size = node_gpus(cluster, home)
    if hour <= cluster.profiling.hour or not size:
        return None
    begin_s = hour * WINDOW_S
    sent = cluster.profiling.sent(begin_s - WINDOW_S, begin_s)
    gpus = sum(charged(each.gpus, size) for each in sent)
    wanted = ceil(gpus / WINDOW_S * rules.profile_s / size - _SLACK)
    nodes = max(min(wanted, _nodes(cluster) - 1), floor_nodes(cluster, rules))
    detail = f"{len(sent)} jobs came in the hour before"
    reason = Reason(ReasonCode.ARRIVALS, "gpus", nodes * size, detail=detail)
    return Scale(hour, nodes * size, reason)


def next_scale_s(cluster: Cluster, rules: TrialRules) -> float:
    """When fewer GPUs may do; inf: it is the floor already, and only arrivals could change that."""
    if cluster.profiling.gpus <= floor_nodes(cluster, rules) * node_gpus(
        cluster, home_type(cluster)
    ):
        return float("inf")
    return (cluster.profiling.hour + 1) * WINDOW_S


def room(cluster: Cluster, rules: TrialRules) -> TrialRoom:
    """The GPUs for trials now, and those that trials hold, including those that are leaving."""
    floor = floor_nodes(cluster, rules) * node_gpus(cluster, home_type(cluster))
    held = cluster.running.gpus_by_priority.get(PROFILE_PRIORITY, 0)
    for key in {*cluster.claims.silent, *pausing(cluster)}:
        if cluster.jobs[key.job_id].band is Band.PROFILE:
            held += cluster.attempts[key].lease.allocation.width
    return TrialRoom(max(cluster.profiling.gpus, floor), held)


def floor_nodes(cluster: Cluster, rules: TrialRules) -> int:
    """Nodes that are always for trials."""
    return floor_of(rules.floor, _nodes(cluster))


def _nodes(cluster: Cluster) -> int:
    home = home_type(cluster)
    pool = cluster.capacity.open.get(home)
    if pool is None:
        return 0
    return pool.buckets[node_gpus(cluster, home)].bit_count()
