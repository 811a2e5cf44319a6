"""Jobs that the cluster could never hold, found before the replay: each names its line and
column.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import Job
from dlq_master.model.why import Reason, ReasonCode
from dlq_master.policy.admit.any_that_fits import never
from dlq_simulator.errors import DataError
from dlq_simulator.settings import ReplaySettings
from dlq_simulator.workload import Trace, TraceJob
from dlq_simulator.world.clusters import ClusterSpec
from dlq_simulator.world.world import GpuMemory, build_cluster, build_job, sizes_of

_REMEDY = "give a larger cluster, correct the row, or leave such jobs out with --skip-bad"
_COLUMNS = {ReasonCode.GPU_TYPE: "gpu_type", ReasonCode.CONSTRAINT: "mem_gb"}


def check_sizes(trace: Trace, spec: ClusterSpec, settings: Iterable[ReplaySettings]) -> None:
    """DataError for the first row that some replay would refuse as it comes, were all nodes there.

    Lent servers always count: only the end shows a job that waits for one in vain.
    """
    alike = _alike(trace)
    memory = GpuMemory(trace, spec)
    for chosen in settings:
        policy = chosen.policy
        cluster = build_cluster(spec, policy.ordering, chosen.terms, memory)
        for row in alike:
            sizes = sizes_of(row) if policy.sizing is not None and row.checkpoint else ()
            job = build_job(
                JobId(1), row, typed=spec.typed, constraint=memory.asked(row), sizes=sizes
            )
            reason = never(cluster, policy.placement, cluster.asked(job))
            if reason is not None and not _may_be_rented_for(spec, row, job):
                raise _too_large(trace, spec, row, reason)


def _alike(trace: Trace) -> Sequence[TraceJob]:
    """The first row of each kind, in the order of the file: a trace has few kinds and many jobs."""
    kinds: dict[object, TraceJob] = {}
    for row in sorted(trace.jobs, key=lambda row: row.line or 0):
        kind = (
            row.num_gpus, row.gpu_type, row.any_gpu, row.mem_gb, row.halves_batch, row.mixed, row.checkpoint,  # noqa: E501
            row.gpus_per_worker, row.min_workers, row.max_workers, row.due_s is None,
        )  # fmt: skip
        kinds.setdefault(kind, row)
    return list(kinds.values())


def _may_be_rented_for(spec: ClusterSpec, row: TraceJob, job: Job) -> bool:
    """Whether a machine that is rented beside the own nodes could hold it."""
    request = job.request
    return (
        spec.renting is not None
        and row.due_s is not None
        and request.shape.traits is None
        and any(
            request.base <= group.gpus and request.shape.may_be(group.gpu_type)
            for group in spec.catalogue
        )
    )


def _too_large(trace: Trace, spec: ClusterSpec, row: TraceJob, reason: Reason) -> DataError:
    column = _COLUMNS.get(reason.code, "num_gpus")
    why = f"job {row.job_id!r} asks for {row.num_gpus} GPUs: {reason.detail}"
    if column == "mem_gb":
        why = (
            f"job {row.job_id!r} asks for {row.num_gpus} GPUs with {row.mem_gb:g} GB each, and no "
            f"set of nodes of the cluster {spec.name} has them"
        )
    elif column == "num_gpus" and spec.gpus < row.num_gpus:
        why = (
            f"job {row.job_id!r} asks for {row.num_gpus} GPUs and the cluster {spec.name} "
            f"has {spec.gpus}"
        )
    return trace.error(row, column, why, _REMEDY)
