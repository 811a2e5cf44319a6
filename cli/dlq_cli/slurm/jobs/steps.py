"""The steps of jobs as Slurm's programs see them: batch scripts, and what srun has started."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from dlq.v1 import job_pb2
from dlq.v1 import job_service_pb2 as wire
from dlq_cli.app import App
from dlq_cli.slurm.jobs.seen import SeenJob
from dlq_client.jobs import Jobs
from dlq_common.text.wire import from_duration, from_timestamp

BATCH = "batch"
_STATES = {
    job_pb2.ATTEMPT_STATE_SUCCEEDED: "COMPLETED", job_pb2.ATTEMPT_STATE_FAILED: "FAILED",
    job_pb2.ATTEMPT_STATE_CANCELLED: "CANCELLED", job_pb2.ATTEMPT_STATE_TIMED_OUT: "CANCELLED",
    job_pb2.ATTEMPT_STATE_PREEMPTED: "CANCELLED", job_pb2.ATTEMPT_STATE_NODE_LOST: "NODE_FAIL",
    job_pb2.ATTEMPT_STATE_PREEMPTED_LOST: "CANCELLED",
    job_pb2.ATTEMPT_STATE_START_FAILED: "FAILED",
}  # fmt: skip
_STEP_STATES = {
    job_pb2.STEP_STATE_RUNNING: "RUNNING", job_pb2.STEP_STATE_COMPLETED: "COMPLETED",
    job_pb2.STEP_STATE_FAILED: "FAILED", job_pb2.STEP_STATE_CANCELLED: "CANCELLED",
}  # fmt: skip
_TERM = 15
_MOST_SIGNAL = 64


@dataclass(frozen=True, slots=True)
class SeenStep:
    """One step; times are 0 where they are not known, and a measure is None."""

    job: SeenJob
    step_id: str  # batch, 0, 1, ...
    name: str
    nodes: Sequence[str]
    node_count: int
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
    def is_batch(self) -> bool:
        return self.step_id == BATCH

    @property
    def ended(self) -> bool:
        return self.end_s > 0

    @property
    def run_s(self) -> float:
        return max(0.0, (self.end_s or self.job.now_s) - self.start_s) if self.start_s else 0.0

    def is_named(self, word: str) -> bool:
        """Whether `17`, `17.0`, `12_4.batch`, or of an array `12`, means it."""
        if "." not in word:
            return word in self.job.names
        return word in (self.shown_id, self.raw_id)


def steps_of(
    app: App, jobs: Sequence[SeenJob], *, running_only: bool = False
) -> dict[str, list[SeenStep]]:
    """The steps of the last attempts of these jobs by their numbers, each script's first.

    The jobs have their details. Of other people's jobs nothing is known.
    """
    begun = {job.raw_id: job for job in jobs if _begun(job) is not None}
    found = {number: list(_batch(job)) for number, job in begun.items()}
    own = [number for number, job in begun.items() if not job.job.redacted]
    for listed in Jobs(app.connection()).steps(*own, running_only=running_only) if own else ():
        job = begun.get(listed.job_id)
        last = None if job is None else _begun(job)
        if job is not None and last is not None and last.attempt == listed.attempt:
            scripts = [_measured(one, listed) for one in found[listed.job_id]]
            found[listed.job_id] = [*scripts, *_recorded(job, listed)]
    if running_only:
        return {number: [one for one in steps if not one.ended] for number, steps in found.items()}
    return found


def _begun(job: SeenJob) -> job_pb2.Attempt | None:
    """Its last attempt, if that has run."""
    attempts = job.detail.attempts
    return attempts[-1] if attempts and attempts[-1].HasField("start_time") else None


def _batch(job: SeenJob) -> Iterator[SeenStep]:
    """The script, which runs on the first node. An allocation has none, as in Slurm."""
    attempt, spec = _begun(job), job.spec
    if attempt is None or spec.HasField("interactive"):
        return
    if not (job.detail.has_script or spec.compat):
        return
    rank = min(attempt.ranks, key=lambda one: one.node_rank, default=job_pb2.Rank())
    yield SeenStep(
        job=job,
        step_id=BATCH,
        name=BATCH,
        nodes=[rank.node_id] if rank.node_id else [],
        node_count=1,
        tasks=1,
        cpus=max(1, job.cpus // job.node_count),
        state=_state_of(attempt.state, rank),
        start_s=from_timestamp(attempt.start_time),
        end_s=from_timestamp(attempt.end_time),
        gpus=job.gpus // job.node_count,
        exit_code=rank.exit_code,
        exit_signal=rank.signal,
    )


def _state_of(state: job_pb2.AttemptState.ValueType, rank: job_pb2.Rank) -> str:
    """As in Slurm a script that answers a cancel with an exit code of its own has failed."""
    word = _STATES.get(state, "RUNNING")
    return "FAILED" if word == "CANCELLED" and rank.exit_code and not rank.signal else word


def _measured(script: SeenStep, listed: wire.AttemptSteps) -> SeenStep:
    """The script with what it has used, as far as its end was seen."""
    if not listed.HasField("script_peak_memory_bytes"):
        return script
    return replace(
        script,
        max_rss_bytes=listed.script_peak_memory_bytes,
        cpu_s=from_duration(listed.script_cpu_duration),
    )


def _recorded(job: SeenJob, listed: wire.AttemptSteps) -> Iterator[SeenStep]:
    for step in listed.steps:
        code, number = _exit_of(step)
        state = "CANCELLED" if number else _STEP_STATES.get(step.state, "RUNNING")
        yield SeenStep(
            job=job,
            step_id=str(step.number),
            name=step.name,
            nodes=step.node_ids,
            node_count=step.node_count,
            tasks=step.task_count,
            cpus=max(step.node_count, min(job.cpus, step.task_count * job.cpus_per_task)),
            state=state,
            start_s=from_timestamp(step.start_time),
            end_s=from_timestamp(step.end_time),
            exit_code=code,
            exit_signal=number,
            max_rss_bytes=step.peak_memory_bytes or None,
            cpu_s=from_duration(step.cpu_duration) if step.HasField("cpu_duration") else None,
            # All of its nodes, unless srun says otherwise, which nobody records.
            gpus=job.gpus * step.node_count // job.node_count,
        )


def _exit_of(step: job_pb2.JobStep) -> tuple[int, int]:
    """Exit code and signal, of which one is 0. A step that a signal ended reads as cancelled."""
    if step.state == job_pb2.STEP_STATE_CANCELLED:
        return 0, _TERM
    number = step.exit_code - 128
    return (0, number) if 0 < number <= _MOST_SIGNAL else (step.exit_code, 0)
