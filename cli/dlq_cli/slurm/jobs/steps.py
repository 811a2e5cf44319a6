"""The steps of a job as Slurm's programs see them: its batch script, and what srun has started."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlq.v1 import job_pb2
from dlq_cli.app import App
from dlq_cli.slurm.jobs.seen import SeenJob
from dlq_common.text.wire import from_timestamp

BATCH = "batch"
_STATES = {
    job_pb2.ATTEMPT_STATE_SUCCEEDED: "COMPLETED", job_pb2.ATTEMPT_STATE_FAILED: "FAILED",
    job_pb2.ATTEMPT_STATE_CANCELLED: "CANCELLED", job_pb2.ATTEMPT_STATE_TIMED_OUT: "CANCELLED",
    job_pb2.ATTEMPT_STATE_PREEMPTED: "CANCELLED", job_pb2.ATTEMPT_STATE_NODE_LOST: "NODE_FAIL",
    job_pb2.ATTEMPT_STATE_PREEMPTED_LOST: "CANCELLED",
    job_pb2.ATTEMPT_STATE_START_FAILED: "FAILED",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class SeenStep:
    """One step; times are 0 where they are not known, and a measure is None."""

    job: SeenJob
    step_id: str  # batch, extern, 0, 1, ...
    name: str
    nodes: Sequence[str]
    tasks: int
    cpus: int
    state: str
    start_s: float
    end_s: float
    exit_code: int = 0
    exit_signal: int = 0
    max_rss_bytes: int | None = None
    cpu_s: float | None = None
    gpus: int = 0

    @property
    def shown_id(self) -> str:
        return f"{self.job.shown_id}.{self.step_id}"

    @property
    def raw_id(self) -> str:
        return f"{self.job.raw_id}.{self.step_id}"

    @property
    def ended(self) -> bool:
        return self.end_s > 0

    @property
    def run_s(self) -> float:
        return max(0.0, (self.end_s or self.job.now_s) - self.start_s) if self.start_s else 0.0


def steps_of(app: App, job: SeenJob) -> list[SeenStep]:
    """The steps of its last attempt, the script's first."""
    attempt = job.detail.attempts[-1] if job.detail.attempts else None
    if attempt is None or not attempt.HasField("start_time"):
        return []
    return [batch_step(job, attempt)] if job.detail.has_script else []


def batch_step(job: SeenJob, attempt: job_pb2.Attempt) -> SeenStep:
    """The script, which runs on the first node."""
    rank = min(attempt.ranks, key=lambda one: one.node_rank, default=job_pb2.Rank())
    return SeenStep(
        job=job,
        step_id=BATCH,
        name=BATCH,
        nodes=[rank.node_id] if rank.node_id else [],
        tasks=1,
        cpus=max(1, job.cpus // job.node_count),
        state=_STATES.get(attempt.state, "RUNNING"),
        start_s=from_timestamp(attempt.start_time),
        end_s=from_timestamp(attempt.end_time),
        gpus=job.gpus // job.node_count,
        exit_code=rank.exit_code,
        exit_signal=rank.signal,
    )
