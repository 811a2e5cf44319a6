"""The replay's world: a cluster of virtual nodes, and the speed of work on them."""

from __future__ import annotations

import math

from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.estimates.slowdowns import TimedRun
from dlq_master.model.estimates.traffic import TrafficProfile
from dlq_master.model.ids import JobId, NodeId
from dlq_master.model.jobs.job import Job, Lateness
from dlq_master.model.jobs.reward import BEST_EFFORT, Step, Steps, strict
from dlq_master.model.lease import Terms
from dlq_master.model.nodes.node import Gpu, Node
from dlq_master.model.nodes.type_speeds import GangPart, shared_speed
from dlq_master.model.order.order import Ordering
from dlq_master.model.resources import Allocation, Request
from dlq_simulator.workload import Trace, TraceJob
from dlq_simulator.world.clusters import ClusterSpec, NodeGroup
from dlq_simulator.world.course import Seconds
from dlq_simulator.world.reservations import windows_of
from dlq_simulator.world.speed import Speed
from dlq_simulator.world.tuned import pace

_GB = 2**30


class GpuMemory:
    """The memory that jobs ask for, as labels of nodes.

    Used on a cluster that names its GPU types, and only if some GPU has too little for some job.
    """

    __slots__ = ("_asked",)

    def __init__(self, trace: Trace, spec: ClusterSpec) -> None:
        least = min(group.memory_bytes for group in spec.groups) if spec.typed else math.inf
        asked = {gb for gb in map(least_gb, trace.jobs) if gb is not None}
        self._asked = {gb: f"gpu_memory_gb>={gb:g}" for gb in sorted(asked) if gb * _GB > least}

    def asked(self, row: TraceJob) -> tuple[str, ...]:
        """The labels that a job needs on its nodes."""
        gb = least_gb(row)
        label = None if gb is None else self._asked.get(gb)
        return () if label is None else (label,)

    def labels(self, group: NodeGroup) -> frozenset[str]:
        return frozenset(
            label for gb, label in self._asked.items() if gb * _GB <= group.memory_bytes
        )


def least_gb(row: TraceJob) -> float | None:
    """The least memory of a usable GPU, in GB.

    It is half of the job's request if the job may halve its batch, as Aryl's jobs do on inference
    GPUs (Appendix E). The job then takes as long.
    """
    return row.mem_gb / 2 if row.mem_gb is not None and row.halves_batch else row.mem_gb


def build_cluster(
    spec: ClusterSpec, ordering: Ordering, terms: Terms, memory: GpuMemory | None = None
) -> Cluster:
    """A cluster with all nodes up and empty at time 0. It knows the speeds of its types."""
    cluster = Cluster(ordering, terms, spec.type_speeds())
    windows = windows_of(spec.reservations)
    for node_id, group in spec.each_node():
        labels = frozenset[str]() if memory is None else memory.labels(group)
        node = build_node(NodeId(node_id), group, labels)
        cluster.put_node(node._replace(windows=windows.get(node_id, ())))
    return cluster


def room(cluster: Cluster, each: int, host: int) -> None:
    """Set the bytes that every job holds on each GPU, and the memory of every host for suspended
    jobs.
    """
    cluster.move_costs.each = each
    for node in list(cluster.nodes.values()):
        cluster.put_node(node._replace(suspend_bytes=host))


def build_node(node_id: NodeId, group: NodeGroup, labels: frozenset[str]) -> Node:
    gpus = tuple(
        Gpu(index=index, gpu_type=group.gpu_type, memory_bytes=group.memory_bytes)
        for index in range(group.gpus)
    )
    return Node(node_id=node_id, gpus=gpus, virtual=True, labels=labels, pool=group.pool)


def asked_types(row: TraceJob, *, typed: bool) -> tuple[str, ...] | None:
    """The GPU types of which a job must get one, in a cluster that names its types; None: any."""
    return row.gpu_types if typed and not (row.any_gpu or row.mixed) else None


def build_job(
    job_id: JobId,
    row: TraceJob,
    *,
    typed: bool,
    estimate_s: float | None = None,
    queue: tuple[str, int] = ("default", 0),
    constraint: tuple[str, ...] = (),
    sizes: tuple[int, ...] = (),
    speeds: tuple[float, ...] = (),
    team: str = "",
) -> Job:
    """The job of a row as the scheduler sees it.

    `typed`: the cluster names its GPU types, so that a row's type counts unless it takes any.
    `estimate_s`: the scheduler's only knowledge of its run time. `queue`: its name and its rank
    among the queues. `constraint`: the labels that its nodes need. `sizes`: its allowed numbers of
    GPUs, and `speeds` its speed on each, if the policy may know. `team`: to which its GPUs count;
    "": to its user.
    """
    first, *others = asked_types(row, typed=typed) or (None,)
    return Job(
        job_id=job_id,
        user=row.user or "trace",
        name=row.job_id,
        request=Request(
            gpus=row.num_gpus,
            gpu_type=first,
            or_gpu_types=tuple(others),
            constraint=constraint,
            sizes=sizes,
            mixed=typed and bool(row.mixed),
        ),
        speeds=speeds,
        submit_time_s=row.submit_time_s,
        duration_estimate_s=estimate_s,
        queue=queue[0],
        priority_base=queue[1],
        profile=_profile(row),
        steps=_steps(row),
        keeps_work=row.checkpoint,
        family=_family(row),
        team=team,
        lateness=_lateness(row),
    )


def _lateness(row: TraceJob) -> Lateness | None:
    if row.due_s is None:
        return None
    weight = 1.0 if row.weight is None else float(row.weight)
    return Lateness(float(row.submit_time_s + row.due_s), weight)


def _family(row: TraceJob) -> str:
    """A family: jobs of one user and one model; none if the row names no model."""
    return f"{row.user or ''}/{row.model}" if row.model else ""


def _steps(row: TraceJob) -> Steps:
    """The reward of its completion by deadline."""
    if row.kind == "be":
        return BEST_EFFORT
    if row.soft_steps:
        return tuple([Step(float(at), float(worth)) for at, worth in row.soft_steps])
    return () if row.deadline_s is None else strict(row.deadline_s)


def _profile(row: TraceJob) -> TrafficProfile:
    return TrafficProfile(skew=row.skew, rho=row.rho)


def sizes_of(row: TraceJob) -> tuple[int, ...]:
    """The numbers of GPUs on which the job may run; empty: only the requested number.

    The requested number is always among them.
    """
    if row.min_workers is None and row.max_workers is None:
        return ()
    each = row.gpus_per_worker or 1
    own = row.num_gpus // each
    least = own if row.min_workers is None else row.min_workers
    most = own if row.max_workers is None else row.max_workers
    if least == most:
        return ()
    return tuple(workers * each for workers in range(least, most + 1))


class WorkRates:
    """The speed of each placement on these nodes, by `Speed`."""

    __slots__ = ("_cluster", "_node_gpus", "_of_node", "_places", "_speed")

    def __init__(self, speed: Speed, spec: ClusterSpec, cluster: Cluster, *, places: bool) -> None:
        """`places`: whether the choice of nodes matters, or GPUs are only counted."""
        self._speed = speed
        self._cluster = cluster
        self._places = places and speed.slowdown
        self._node_gpus = max((group.gpus for group in spec.groups), default=1)
        of_node = {NodeId(node_id): group.speed for node_id, group in spec.each_node()}
        uniform = set(of_node.values()) == {1}
        self._of_node: dict[NodeId, Seconds] = {} if uniform and spec.renting is None else of_node

    def come(self, node_id: NodeId, speed: Seconds) -> None:
        """Add a node that did not exist from the start, with GPUs of this speed."""
        self._of_node[node_id] = speed

    def rate(self, row: TraceJob, allocation: Allocation, gpus: int) -> Seconds:
        """Work per second on these GPUs. A gang is as fast as its slowest node."""
        slots, of_node = allocation.slots, self._of_node
        of_gpu = self._of_gpu(row, allocation) if of_node else 1
        if self._cluster.speeds.declared and not of_node:
            of_gpu = self._declared(row, allocation)
        if row.tuned:
            nodes = len(slots) if self._places else None
            return of_gpu * pace(row, gpus, self._node_gpus, nodes)
        spread = self._places and len(slots) > 1 and self._spread(row, allocation)
        if of_gpu == 1 and not spread and gpus == row.num_gpus:
            return 1
        return self._speed.rate(row, gpus, spread=spread, of_gpu=of_gpu)

    def alone(self, row: TraceJob, gpus: int) -> Seconds:
        """The same on as few nodes as hold them, of GPUs with speed 1."""
        if row.tuned:
            return pace(row, gpus, self._node_gpus)
        return self._speed.rate(row, gpus)

    def _of_gpu(self, row: TraceJob, allocation: Allocation) -> Seconds:
        """The speed of the job's GPUs: that of its slowest node.

        A job on several kinds of GPUs shares its batch among them. All then work as much as they
        can, less a loss (Aryl, Appendix A).
        """
        speeds = {self._of_node[node_id] for node_id, _ in allocation.slots}
        if len(speeds) == 1 or not row.mixed:
            return min(speeds)
        parts = [
            GangPart(mask.bit_count(), self._of_node[node_id]) for node_id, mask in allocation.slots
        ]
        return self._speed.mixed * shared_speed(parts)

    def _declared(self, row: TraceJob, allocation: Allocation) -> Seconds:
        """The same for nodes with declared speeds only.

        The run time of a job that names one type is that on this type.
        """
        named = row.gpu_types or ()
        job = self._cluster.jobs.get(JobId(int(row.job_id)))
        if len(named) == 1 or job is None:
            return 1
        return self._cluster.slowest_pace(job, self._cluster.capacity.parts(allocation))

    def measured(self, row: TraceJob, allocation: Allocation) -> TimedRun | None:
        """The exact slowdown by spreading on these GPUs; None: one GPU, or nodes do not matter."""
        if not self._places or allocation.width == 1:
            return None
        spread = len(allocation.slots) > 1 and self._spread(row, allocation)
        slowdown = self._speed.slowed(row) if spread else 1.0
        return TimedRun(_profile(row), spread=spread, slowdown=slowdown)

    def _spread(self, row: TraceJob, allocation: Allocation) -> bool:
        """Whether it is on more nodes than its width needs; only called if that matters."""
        if row.rho is None and row.skew is None:
            return False
        capacity = self._cluster.capacity
        (gpu_type, *_) = capacity.masks_of(allocation.slots[0].node_id)
        return len(allocation.slots) > capacity.total[gpu_type].fewest_nodes(allocation.width)
