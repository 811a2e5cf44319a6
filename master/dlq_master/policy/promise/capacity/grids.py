"""The slots on which promises are planned, and the GPUs of a type in each of them."""

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
    """T: the seconds of a slot."""
    return cluster.terms.term_s(LeaseKind.SLO)


def due_slot(cluster: Cluster, now_s: float) -> int:
    """The last slot that must be decided by now: it begins within the lead, or has begun."""
    return int((now_s + cluster.saves.lead_s) // slot_s(cluster))


def next_decision_s(cluster: Cluster) -> float:
    """The instant by which the next slot must be decided."""
    return (cluster.slot + 1) * slot_s(cluster) - cluster.saves.lead_s


def home_type(cluster: Cluster) -> str:
    """The GPU type for promises to jobs that name none: the cluster's own most frequent type."""
    return cluster.own.home


def type_of(cluster: Cluster, job: Job) -> str:
    """The GPU type on which a job is promised its deadline, or would be if it may get only one.

    For a job that may get several types see `types.types_for`.
    """
    return job.gpu_type_promised or job.request.gpu_type or home_type(cluster)


def several_types(cluster: Cluster, job: Job) -> bool:
    """Whether a job may get several of the cluster's own types, and no promise has chosen one."""
    if job.promised is not None or job.gpu_type_promised:
        return False
    return cluster.own.types > 1 and len(job.request.gpu_types or ()) != 1


def grid_of(cluster: Cluster, gpu_type: str, rules: Promises, origin: int) -> Grid:
    """The slots from `origin` on for new promises, without nodes reserved for others.

    These are nodes for best effort, for trials, and for the floor of a queue.
    """

    kept = _kept_nodes(cluster, gpu_type, rules.queue_floor)

    def left(count: int) -> int:
        count -= ceil(rules.be_floor * count)
        if rules.floor and gpu_type == home_type(cluster):
            count -= floor_of(rules.floor, count)
        return max(0, count - kept)

    return _grid(cluster, gpu_type, origin, left, rules, whole_leases=rules.whole_leases)


def _kept_nodes(cluster: Cluster, gpu_type: str, amount: float) -> int:
    """The number of nodes for the floor of a queue."""
    if not amount or gpu_type != home_type(cluster):
        return 0
    pool = own_pool(cluster, gpu_type)
    size = block_of(pool)
    return ceil(gpus_of(amount, pool.total) / size) if size else 0


def kept_grid(cluster: Cluster, gpu_type: str, origin: int, rules: Promises) -> Grid:
    """The slots from `origin` on for existing promises: all nodes, and the last slot up to the
    deadline.

    So a promise survives the loss of a node, or a slot without room for it, if the other GPUs
    suffice. Best effort and trials have fewer nodes until then.
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
    """The slots of whole, open, own nodes; `left` says how many of a number of nodes may be used.

    Lent nodes carry no promises. A reserved node (model.nodes.windows) is left out of slots that
    overlap its reservation. On nodes whose number of GPUs is no power of two (6), only the largest
    such block (4) is promised. Blocks of these sizes always find room (Proposition 1); the other
    GPUs are for best effort.
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
    """How many counted nodes are reserved in each slot from `origin` on; the last number holds for
    all later slots.
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
    """The slots that overlap any of these windows, counted from `origin`."""
    found: set[int] = set()
    for begin_s, end_s, _ in windows:
        first, last = int(begin_s // term_s) - origin, ceil(end_s / term_s) - origin
        found.update(range(max(0, first), max(0, last)))
    return found


def own_pool(cluster: Cluster, gpu_type: str) -> Pool:
    """All GPUs of this type on the cluster's own nodes; an empty pool if there are none."""
    cluster.capacity.ready()
    pool = cluster.capacity.total.get(gpu_type)
    if pool is None:
        return Pool(())
    return pool.without(cluster.own.foreign) if cluster.own.foreign else pool


def promisable(cluster: Cluster, job: Job, gpu_type: str) -> VerdictGround | None:
    """The ground on which a job can be promised nothing, whatever else is promised; None: it can.

    A plan stops jobs, assumes one GPU speed, and needs nodes that widths fill without a rest.
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
    """The GPU types on the cluster's own nodes."""
    return [kind for kind in cluster.capacity.gpu_types if own_pool(cluster, kind).widths]


def whole_block(cluster: Cluster, gpu_type: str, grid: Grid) -> int:
    """The widest promise if nodes differ in size: the GPUs that one node holds as a block."""
    return min(block_of(own_pool(cluster, gpu_type)), max(grid.capacity))
