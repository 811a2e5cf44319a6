"""`seff`: the report of a job, line by line as Slurm's script prints it."""

from __future__ import annotations

from typing import Any

from dlq.v1 import job_pb2, resource_pb2
from dlq.v1 import job_service_pb2 as wire
from dlq_cli.slurm.jobs.seen import SeenJob
from dlq_cli.slurm.jobs.steps import SeenStep
from dlq_cli.slurm.seff import report
from dlq_common.text.wire import to_duration, to_timestamp
from support.wire_jobs import EPOCH_S, a_job


def seen(state: str, *, cores: int = 4, nodes: int = 2, **more: Any) -> SeenJob:
    asked = resource_pb2.ResourceRequest(
        core_count=cores, node_count=nodes, memory_limit_bytes=1 << 30
    )
    if state != "pending":
        more.setdefault("start_time", to_timestamp(EPOCH_S))
        more.setdefault("run_duration", to_duration(100))
    job = a_job(7, state, resources=asked, **more)
    return SeenJob(job, "lab", EPOCH_S + 100, wire.JobDetail(spec=job_pb2.JobSpec()))


def step(
    job: SeenJob, number: str, *, mib: int | None, cpu_s: float | None, tasks: int
) -> SeenStep:
    return SeenStep(
        job=job, step_id=number, name="x", nodes=["a"], node_count=1, tasks=tasks, cpus=1,
        state="COMPLETED", start_s=EPOCH_S, end_s=EPOCH_S + 100,
        max_rss_bytes=None if mib is None else mib << 20, cpu_s=cpu_s,
    )  # fmt: skip


def test_a_job_that_has_ended() -> None:
    job = seen("failed", end_time=to_timestamp(EPOCH_S + 100), exit_code=3, end_reason="user_error")
    steps = [
        step(job, "batch", mib=100, cpu_s=20.0, tasks=1),
        step(job, "0", mib=256, cpu_s=80.0, tasks=2),
    ]
    lines = report(job, steps)
    assert lines[0] == "Job ID: 7"
    assert [line for line in lines if not line.startswith(("Job ID", "User"))] == [
        "Cluster: lab",
        "State: FAILED (exit code 3)",
        "Nodes: 2",
        "Cores per node: 2",
        "CPU Utilized: 00:01:40",
        "CPU Efficiency: 25.00% of 00:06:40 core-walltime",
        "Job Wall-clock time: 00:01:40",
        "Memory Utilized: 512.00 MB (estimated maximum)",
        "Memory Efficiency: 25.00% of 2.00 GB",
    ]


def test_a_job_that_runs_and_one_that_waits() -> None:
    job = seen("running", cores=1, nodes=1)
    running = report(job, [step(job, "batch", mib=None, cpu_s=None, tasks=1)])
    assert running[3:5] == ["State: RUNNING", "Cores: 1"]
    assert running[-1] == "WARNING: Efficiency statistics may be misleading for RUNNING jobs."
    assert report(seen("pending"), [])[-1] == (
        "Efficiency not available for jobs in the PENDING state."
    )
