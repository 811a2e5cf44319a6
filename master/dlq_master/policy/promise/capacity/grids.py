"""The slots that plans of promises count, and the GPUs of each type in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from math import ceil

from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.jobs.job import Job
from dlq_master.model.lease import LeaseKind
from dlq_master.model.nodes.free_gpus import Pool
from dlq_master.model.nodes.windows import Window
from dlq_master.policy.place.packing.joint import block_of, halves
from dlq_master.policy.promise.capacity.leases import Grid
from dlq_master.policy.promise.capacity.rules import Promises, VerdictGround, gpus_of
from dlq_master.policy.trial.rules import floor_of


def slot_s(cluster: Cluster) -> float:
    """T: seconds of a slot."""
    return cluster.terms.term_s(LeaseKind.SLO)


def due_slot(cluster: Cluster, now_s: float) -> int:
    """The last slot that has to be decided by now: the one that begins within the lead, or has
    begun.
    """
    return int((now_s + cluster.saves.lead_s) // slot_s(cluster))


def next_decision_s(cluster: Cluster) -> float:
    """When the next slot has to be decided."""
    return (cluster.slot + 1) * slot_s(cluster) - cluster.saves.lead_s


def home_type(cluster: Cluster) -> str:
    """The GPU type that jobs without a wish are promised: the one of which the cluster itself has
    the most.
    """
    return cluster.own.home


def type_of(cluster: Cluster, job: Job) -> str:
    """The GPU type on which a job is promised its deadline, or would be, if it may get but one
    (else `types.types_for` says on which)."""
    return job.gpu_type_promised or job.request.gpu_type or home_type(cluster)


def several_types(cluster: Cluster, job: Job) -> bool:
    """Whether it may get GPUs of several of the cluster's own types, and nothing says of which."""
    if job.promised is not None or job.gpu_type_promised:
        return False
    return cluster.own.types > 1 and len(job.request.gpu_types or ()) != 1


def grid_of(cluster: Cluster, gpu_type: str, rules: Promises, origin: int) -> Grid:
    """The slots from `origin` on, as new promises may use them. Nodes of best effort, of trials and
    of the floor of a queue are left out."""

    kept = _kept_nodes(cluster, gpu_type, rules.queue_floor)

    def left(count: int) -> int:
        count -= ceil(rules.be_floor * count)
        if rules.floor and gpu_type == home_type(cluster):
            count -= floor_of(rules.floor, count)
        return max(0, count - kept)

    return _grid(cluster, gpu_type, origin, left, rules, whole_leases=rules.whole_leases)


def _kept_nodes(cluster: Cluster, gpu_type: str, amount: float) -> int:
    """The nodes that hold the floor of a queue."""
    if not amount or gpu_type != home_type(cluster):
        return 0
    pool = own_pool(cluster, gpu_type)
    size = block_of(pool)
    return ceil(gpus_of(amount, pool.total) / size) if size else 0


def kept_grid(cluster: Cluster, gpu_type: str, origin: int, rules: Promises) -> Grid:
    """The same as promises that were made may use them: all nodes, and the last slot as far as it
    lies before the deadline. A job keeps its promise where a node is lost, or a slot found no room
    for it, if the rest would do. Best effort and trials have fewer nodes until then.
    """
    return _grid(cluster, gpu_type, origin, lambda count: count, rules, whole_leases=False)


def _grid(
    cluster: Cluster,
    gpu_type: str,
    origin: int,
    left: Callable[[int], int],
    rules: Promises,
    *,
    whole_leases: bool,
) -> Grid:
    """Whole open nodes of the cluster's own. Lent ones are promised to nobody, and reserved
    ones (model.windows) not in slots that meet their reservation.

    On nodes whose number of GPUs is no power of two (6) the largest such block (4) is promised. So
    many GPUs always find room (Proposition 1), and the rest is for best effort.
    """
    cluster.capacity.ready()
    pool = cluster.capacity.open.get(gpu_type)
    sizes: Counter[int] = Counter()
    if pool is not None:
        ordinals = cluster.capacity.ordinals
        sizes.update(map(int.bit_count, pool.masks))
        sizes.subtract(pool.masks[ordinals[node]].bit_count() for node in cluster.own.foreign)
    del sizes[0]
    size = block_of(own_pool(cluster, gpu_type))
    nodes = sum(count for gpus, count in sizes.items() if gpus >= size)
    away = _reserved(cluster, pool, size, origin)
    return Grid(
        term_s=slot_s(cluster),
        capacity=tuple([left(nodes - gone) * size for gone in away]),
        node_gpus=size,
        whole_leases=whole_leases,
        rounds_up=rules.rounds_up,
    )


def _reserved(cluster: Cluster, pool: Pool | None, size: int, origin: int) -> list[int]:
    """How many of the nodes that are counted are reserved in each slot from `origin` on; the last
    number goes on.
    """
    term_s, away = slot_s(cluster), [0]
    if pool is None:
        return away
    for node in cluster.nodes.values():
        if not node.windows or node.node_id in cluster.own.foreign:
            continue
        if pool.masks[cluster.capacity.ordinals[node.node_id]].bit_count() < size:
            continue
        slots = _slots_of(node.windows, term_s, origin)
        away += [0] * (max(slots, default=-1) + 2 - len(away))
        for slot in slots:
            away[slot] += 1
    return away


def _slots_of(windows: Iterable[Window], term_s: float, origin: int) -> set[int]:
    found: set[int] = set()
    for begin_s, end_s, _ in windows:
        first, last = int(begin_s // term_s) - origin, ceil(end_s / term_s) - origin
        found.update(range(max(0, first), max(0, last)))
    return found


def own_pool(cluster: Cluster, gpu_type: str) -> Pool:
    """All GPUs of this type on the cluster's own nodes; none where there is no such node."""
    cluster.capacity.ready()
    pool = cluster.capacity.total.get(gpu_type)
    if pool is None:
        return Pool(())
    return pool.without(cluster.own.foreign) if cluster.own.foreign else pool


def promisable(cluster: Cluster, job: Job, gpu_type: str) -> VerdictGround | None:
    """Why nothing can be promised to a job, whatever else has been; None: it may be asked.

    A plan stops jobs, counts on one speed, and on nodes that can be filled whole.
    """
    if not job.keeps_work:
        return VerdictGround.KEEPS
    if several_types(cluster, job):
        return VerdictGround.TYPE
    pool = own_pool(cluster, gpu_type)
    if job.request.gpus > block_of(pool) and halves(pool) is None:
        return VerdictGround.WIDTH
    return None


def own_types(cluster: Cluster) -> list[str]:
    """The types of GPUs on the cluster's own nodes."""
    return [kind for kind in cluster.capacity.gpu_types if own_pool(cluster, kind).widths]


def whole_block(cluster: Cluster, gpu_type: str, grid: Grid) -> int:
    """The widest promise where nodes are of several sizes: the GPUs that one of them holds
    whole.
    """
    return min(block_of(own_pool(cluster, gpu_type)), max(grid.capacity))
