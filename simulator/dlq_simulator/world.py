"""The replay's world: a cluster of virtual nodes, and each job's progress as it really is."""

from __future__ import annotations

from dlq_master.model.cluster import Cluster
from dlq_master.model.ids import JobId, NodeId
from dlq_master.model.job import Job
from dlq_master.model.lease import Terms
from dlq_master.model.node import Gpu, Node
from dlq_master.model.order import Ordering
from dlq_master.model.resources import Request
from dlq_simulator.clusters import ClusterSpec
from dlq_simulator.metrics import Outcome
from dlq_simulator.workload import TraceJob

Seconds = int | float


def build_cluster(spec: ClusterSpec, ordering: Ordering, terms: Terms) -> Cluster:
    """All nodes up and empty at time 0."""
    cluster = Cluster(ordering, terms)
    for node_id, group in spec.each_node():
        gpus = tuple(
            Gpu(index=index, gpu_type=group.gpu_type, memory_bytes=group.memory_bytes)
            for index in range(group.gpus)
        )
        cluster.put_node(Node(node_id=NodeId(node_id), gpus=gpus, virtual=True))
    return cluster


def build_job(job_id: JobId, row: TraceJob, *, typed: bool, known: bool = False) -> Job:
    """What the scheduler is told of a row.

    `typed`: the cluster names its GPU types, so a row's type counts unless it takes any. `known`:
    the policy is told how long the job runs, which it otherwise never is.
    """
    gpu_type = row.gpu_type if typed and not row.any_gpu else None
    return Job(
        job_id=job_id,
        user=row.user or "trace",
        name=row.job_id,
        request=Request(gpus=row.num_gpus, gpu_type=gpu_type),
        submit_time_s=row.submit_time_s,
        duration_estimate_s=row.duration_s if known else None,
    )


class Course:
    """One job's way: GPUs from `placed_s`, progress from `progress_s`, `done_s` made before."""

    __slots__ = (
        "attempt",
        "done_s",
        "first_start_s",
        "overhead_s",
        "placed_s",
        "preemptions",
        "progress_s",
        "row",
        "spans",
        "stopped_s",
    )

    def __init__(self, row: TraceJob) -> None:
        self.row = row
        self.attempt = 0  # its number while it holds GPUs and makes progress, else 0
        self.first_start_s: Seconds | None = None
        self.placed_s: Seconds = 0
        self.progress_s: Seconds = 0
        self.stopped_s: Seconds = 0
        self.done_s: Seconds = 0
        self.overhead_s: Seconds = 0
        self.preemptions = 0
        self.spans: list[tuple[Seconds, Seconds]] = []  # when it held GPUs, until its last start

    def start(self, attempt: int, now_s: Seconds, resume_s: Seconds) -> Seconds:
        """It gets GPUs; returns when it will finish if it is left alone."""
        self.attempt = attempt
        self.placed_s = now_s
        if self.first_start_s is None:
            self.first_start_s = now_s
            self.progress_s = now_s
        else:
            self.progress_s = now_s + resume_s
        return self.finish_s

    @property
    def finish_s(self) -> Seconds:
        return self.progress_s + (self.row.duration_s - self.done_s)

    def stop(self, at_s: Seconds) -> None:
        """It makes no progress from `at_s` on; what it has made is saved, not lost."""
        self.attempt = 0
        progress_s = max(0, at_s - self.progress_s)
        self.done_s += progress_s
        self.overhead_s += at_s - self.placed_s - progress_s
        self.stopped_s = at_s

    def leave(self, now_s: Seconds) -> None:
        """Its GPUs are free; it held them since the stop to save."""
        self.overhead_s += now_s - self.stopped_s
        self.preemptions += 1
        self.spans.append((self.placed_s, now_s))

    def outcome(self, now_s: Seconds) -> Outcome:
        """Its history, finished now."""
        overhead_s = self.overhead_s + (self.progress_s - self.placed_s)
        jct_s = now_s - self.row.submit_time_s
        return Outcome(
            job=self.row,
            start_s=self.placed_s if self.first_start_s is None else self.first_start_s,
            finish_s=now_s,
            queue_s=jct_s - self.row.duration_s - overhead_s,
            overhead_s=overhead_s,
            preemptions=self.preemptions,
            spans=(*self.spans, (self.placed_s, now_s)),
        )
