"""Jobs for rented nodes: run times for each kind and number of GPUs, from a trace and a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dlq_master.policy.priced.catalogue import Catalogue, NodeType
from dlq_master.policy.priced.learning import JobFeatures
from dlq_simulator.errors import UsageError
from dlq_simulator.workload import Trace, TraceJob
from dlq_simulator.world.clusters import ClusterSpec, NodeGroup
from dlq_simulator.world.speed import Speed
from dlq_simulator.world.world import sizes_of

_REMEDY = "correct the row, give a node type that holds it, or leave such jobs out"


class RentingJob(NamedTuple):
    """A job of a replay. `due_s` is an instant, `weight` is in $ per second after it.

    `time_s[k, g - 1]`: its run time on g GPUs of kind k of the catalogue; inf: not allowed.
    `features`: the facts from which run times are predicted where they are unknown.
    """

    job_id: str
    submit_s: float
    due_s: float
    weight: float
    time_s: NDArray[np.float64]
    features: JobFeatures = JobFeatures("")


@dataclass(frozen=True)
class RentingInstance:
    """Jobs, put in the order of their submits (ties as given), the kinds of machines, and the most
    nodes. `speeds`: of one GPU, by type; 1 where nothing is said.
    """

    jobs: Sequence[RentingJob]
    catalogue: Catalogue
    nodes: int
    speeds: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "jobs", tuple(sorted(self.jobs, key=lambda job: job.submit_s)))


def instance_of(trace: Trace, spec: ClusterSpec, speed: Speed) -> RentingInstance:
    """The problem that the trace and the cluster give; UsageError or DataError where they do not go
    together.
    """
    groups, nodes = _rentable(spec)
    catalogue = Catalogue(tuple(node_type(group) for group in groups))
    jobs = [_job(trace, row, groups, catalogue, spec, speed) for row in trace.jobs]
    speeds = {group.gpu_type: float(group.speed) for group in reversed(groups)}  # of the first
    return RentingInstance(jobs, catalogue, nodes, speeds)


def node_type(group: NodeGroup) -> NodeType:
    """The machine that a group of nodes consists of."""
    return NodeType(
        group.name,
        group.gpu_type,
        group.gpus,
        float(group.price_per_hour or 0.0),
        float(group.boot_s),
        float(group.minimum_billing_s),
        float(group.until_s),
    )


def features_of(row: TraceJob) -> JobFeatures:
    """Its network and its iterations, if the trace tells them."""
    return JobFeatures(row.model or "", row.iterations)


def _rentable(spec: ClusterSpec) -> tuple[tuple[NodeGroup, ...], int]:
    """The kinds of nodes, and how many at most of all kinds together."""
    if spec.reservations:
        why = "some of its nodes are reserved for a time, and nodes that are rented by need are not"
        raise UsageError(
            f"cannot rent on the cluster {spec.name!r}", why, "leave [[reservations]] out"
        )
    if spec.catalogue and spec.rent_at_most:
        return spec.catalogue, spec.rent_at_most
    if len(spec.groups) == 1 and not spec.catalogue and not spec.lends:
        return spec.groups, spec.nodes
    raise UsageError(
        f"cannot rent on the cluster {spec.name!r}",
        "it does not name the machines to rent, and the most nodes",
        "give a .toml file with [[catalogue]] tables and rent_at_most = 10 above them",
    )


def _job(
    trace: Trace,
    row: TraceJob,
    groups: tuple[NodeGroup, ...],
    catalogue: Catalogue,
    spec: ClusterSpec,
    speed: Speed,
) -> RentingJob:
    if row.due_s is None:
        raise trace.error(row, "due_s", f"job {row.job_id!r} has no due date", "give it one")
    time_s = np.full((len(catalogue.kinds), int(catalogue.most.max())), np.inf)
    for kind, gpus, found_s in _times(row, groups, spec, speed):
        if kind in catalogue.kinds and gpus <= time_s.shape[1]:
            time_s[catalogue.kinds.index(kind), gpus - 1] = found_s
    time_s[~(np.arange(1, time_s.shape[1] + 1) <= catalogue.most[:, None])] = np.inf
    if not np.isfinite(time_s).any():
        why = f"job {row.job_id!r} fits on no node that can be rented"
        raise trace.error(row, "num_gpus", why, _REMEDY)
    submit_s = float(row.submit_time_s)
    weight = 1.0 if row.weight is None else float(row.weight)
    return RentingJob(row.job_id, submit_s, submit_s + row.due_s, weight, time_s, features_of(row))


def _times(
    row: TraceJob, groups: tuple[NodeGroup, ...], spec: ClusterSpec, speed: Speed
) -> list[tuple[str, int, float]]:
    """(GPU type, GPUs, seconds): those of the file, else of its size and speed on each type."""
    if row.times_s:
        return list(row.times_s)
    may_be = None if row.any_gpu or not spec.typed else row.gpu_types
    kinds = {
        group.gpu_type: group
        for group in reversed(groups)
        if (may_be is None or group.gpu_type in may_be)
        and (not spec.typed or row.mem_gb is None or row.mem_gb * 2**30 <= group.memory_bytes)
    }
    return [
        (kind, gpus, row.duration_s / speed.rate(row, gpus, of_gpu=group.speed))
        for kind, group in sorted(kinds.items())
        for gpus in sizes_of(row) or (row.num_gpus,)
    ]
