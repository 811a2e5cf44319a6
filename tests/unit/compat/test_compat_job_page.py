"""`scontrol show job`: one page, whether the job asks about itself or the master is asked."""

import re

import pytest

from dlq.v1 import job_pb2, resource_pb2
from dlq.v1 import job_service_pb2 as wire
from dlq_cli.slurm.control.job_facts import facts_of
from dlq_cli.slurm.jobs.seen import SeenJob
from dlq_common.text.wire import to_duration
from dlq_compat.job_page import clock, page, size
from dlq_compat.scontrol import facts

INSIDE = {
    "SLURM_JOB_ID": "17", "SLURM_JOB_NAME": "train", "SLURM_JOB_USER": "alice",
    "SLURM_JOB_UID": "1000", "SLURM_JOB_PARTITION": "default", "SLURM_JOB_NUM_NODES": "2",
    "SLURM_JOB_NODELIST": "gpu01,gpu02", "SLURM_NTASKS": "8", "SLURM_GPUS_ON_NODE": "4",
    "SLURM_CPUS_ON_NODE": "16", "SLURM_MEM_PER_NODE": "65536", "SLURM_SUBMIT_DIR": "/data",
    "SLURM_JOB_START_TIME": "1000", "SLURM_JOB_END_TIME": "4600",
}  # fmt: skip


def names(text: str) -> list[str]:
    return re.findall(r"(\S+?)=", text)


def test_inside_and_outside_a_job_the_page_has_the_same_fields() -> None:
    job = job_pb2.Job(
        job_id="17", name="train", user="alice", queue="default",
        attempt_state=job_pb2.ATTEMPT_STATE_RUNNING, node_ids=["gpu01", "gpu02"],
        resources=resource_pb2.ResourceRequest(
            gpu_count=8, node_count=2, cpu_limit=16, memory_limit_bytes=64 << 30
        ),
        time_limit_duration=to_duration(3600), run_duration=to_duration(629),
    )  # fmt: skip
    spec = job_pb2.JobSpec(tasks_per_node=4, working_directory="/data", script="#!/bin/sh\n")
    seen = SeenJob(job, "lab", 1629.0, wire.JobDetail(spec=spec, has_script=True))
    outside = page(facts_of(seen), one_line=True)
    inside = page(facts(INSIDE, 1629.0), one_line=True)
    asked_alone = {"TresPerNode", "PreemptEligibleTime", "PreemptTime"}
    assert names(inside) == [name for name in names(outside) if name not in asked_alone]
    for told in (
        "RunTime=00:10:29", "TimeLimit=01:00:00",
        "TRES=cpu=32,mem=128G,node=2,billing=32,gres/gpu=8",
        "NumNodes=2 NumCPUs=32 NumTasks=8 CPUs/Task=4", "JobState=RUNNING Reason=None",
        "BatchHost=gpu01", "WorkDir=/data",
    ):  # fmt: skip
        assert told in inside
        assert told in outside


def test_a_page_is_one_line_or_one_that_later_lines_are_indented_below() -> None:
    many, one = (page({"JobId": "7"}, one_line=each) for each in (False, True))
    assert "\n" not in one
    assert many.split("\n   ")[0].startswith("JobId=7")
    assert names(many) == names(one)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "00:00:00"), (629.9, "00:10:29"), (93784, "1-02:03:04"), (None, "UNLIMITED")],
)
def test_durations_as_sacct_writes_them(seconds: float | None, text: str) -> None:
    assert clock(seconds) == text


@pytest.mark.parametrize(
    ("mib", "text"), [(0, "0M"), (500, "500M"), (65536, "64G"), (4000, "4000M")]
)
def test_sizes_in_the_largest_unit_that_is_exact(mib: int, text: str) -> None:
    assert size(mib) == text
