"""The sizes of a job as all of Slurm's programs show them."""

from __future__ import annotations

from typing import Any

import pytest

from dlq.v1 import job_pb2, resource_pb2
from dlq.v1 import job_service_pb2 as wire
from dlq_cli.slurm.jobs.seen import SeenJob
from support.wire_jobs import a_job


def seen(spec: job_pb2.JobSpec, **resources: Any) -> SeenJob:
    job = a_job(7, resources=resource_pb2.ResourceRequest(**resources))
    return SeenJob(job, "lab", 0.0, wire.JobDetail(spec=spec))


@pytest.mark.parametrize(
    ("count", "each", "resources", "cpus"),
    [
        (2, 0, {"gpu_count": 1}, 2),  # -n 2 --gres=gpu:1
        (3, 0, {"gpu_count": 2, "node_count": 2}, 3),  # -n 3 -N 2 --gres=gpu:1
        (2, 4, {"gpu_count": 1}, 8),  # -n 2 -c 4 --gres=gpu:1
        (5, 0, {"core_count": 6, "node_count": 2}, 6),  # -n 5 -N 2
        (4, 2, {"core_count": 8}, 8),  # -n 4 -c 2
    ],
)
def test_tasks_of_the_whole_job(
    count: int, each: int, resources: dict[str, int], cpus: int
) -> None:
    """As the job's own variables say, and as `srun` starts them."""
    spec = job_pb2.JobSpec(tasks=job_pb2.TaskSpec(task_count=count, cpus_per_task=each))
    job = seen(spec, **resources)
    assert (job.tasks, job.cpus, job.cpus_per_task) == (count, cpus, each or 1)


def test_tasks_of_each_node() -> None:
    job = seen(job_pb2.JobSpec(tasks_per_node=3), core_count=6, node_count=2)
    assert (job.tasks, job.cpus, job.cpus_per_task, job.tasks_per_node) == (6, 6, 1, 3)


def test_cores_without_a_word_on_tasks() -> None:
    """`dlq submit --cores 8` is one task with all of them."""
    job = seen(job_pb2.JobSpec(), core_count=8)
    assert (job.tasks, job.cpus, job.cpus_per_task) == (1, 8, 8)
