"""Builders of wire messages with sane defaults, for tests of the CLI and the SDK."""

from __future__ import annotations

from typing import Any

from dlq.v1 import (
    event_pb2,
    forecast_pb2,
    forecast_service_pb2,
    job_pb2,
    lease_pb2,
    master_profile_pb2,
    node_pb2,
    resource_pb2,
)
from dlq_common.text.wire import to_duration, to_timestamp

# 2026-11-20T08:00:00Z; every instant below is some seconds after it.
EPOCH_S = 1_795_161_600.0


def a_job(job_id: int, state: str = "queued", **fields: Any) -> job_pb2.Job:
    """A job shown in this state, submitted `job_id` seconds after the epoch."""
    job = job_pb2.Job(
        job_id=str(job_id),
        user="alice",
        name=f"train-{job_id}",
        queue="default",
        resources=resource_pb2.ResourceRequest(gpu_count=8),
        version=3,
        submit_time=to_timestamp(EPOCH_S + job_id),
        queue_time=to_timestamp(EPOCH_S + job_id),
        run_duration=to_duration(0),
    )
    _stand(job, state)
    for name, value in fields.items():
        target = getattr(job, name)
        if hasattr(target, "CopyFrom"):
            target.CopyFrom(value)
        elif hasattr(target, "extend"):
            target.extend(value)
        else:
            setattr(job, name, value)
    return job


def _stand(job: job_pb2.Job, state: str) -> None:
    if state in {"pending", "queued", "held", "completed", "failed", "cancelled", "timed_out"}:
        job.state = job_pb2.JobState.Value(f"JOB_STATE_{state.upper()}")
        if state == "held":
            job.hold_kind = job_pb2.HOLD_KIND_USER
        return
    job.state = job_pb2.JOB_STATE_QUEUED
    job.attempt_state = job_pb2.AttemptState.Value(f"ATTEMPT_STATE_{state.upper()}")
    job.node_ids.extend(["gpu01", "gpu02"])
    job.gpu_type = "h100-80gb"
    job.attempt_count = 1
    job.start_time.CopyFrom(to_timestamp(EPOCH_S + 60))
    job.run_duration.CopyFrom(to_duration(3723))


def an_estimate(ends_after_s: int) -> forecast_service_pb2.EstimateJobResponse:
    """It starts after a minute, and ends so long after the epoch."""

    def around(at_s: int) -> forecast_pb2.TimeRange:
        early, late = to_timestamp(EPOCH_S + at_s), to_timestamp(EPOCH_S + at_s + 600)
        return forecast_pb2.TimeRange(earliest_time=early, likely_time=early, latest_time=late)

    answer = forecast_service_pb2.EstimateJobResponse(
        start=around(60),
        end=around(ends_after_s),
        basis="estimate",
        estimate_time=to_timestamp(EPOCH_S),
        knows_resume_from=True,
    )
    answer.job.resources.gpu_count = 1
    return answer


def an_attempt(job_id: int, number: int, state: str = "running") -> job_pb2.Attempt:
    """An attempt on two nodes with four GPUs each."""
    return job_pb2.Attempt(
        job_id=str(job_id),
        attempt=number,
        fence=lease_pb2.Fence(epoch=2, attempt=number),
        state=job_pb2.AttemptState.Value(f"ATTEMPT_STATE_{state.upper()}"),
        lease=lease_pb2.Lease(
            kind=lease_pb2.LEASE_KIND_BE,
            allocation=resource_pb2.Allocation(
                slots=[
                    resource_pb2.AllocationSlot(node_id=node_id, gpu_indexes=[0, 1, 2, 3])
                    for node_id in ("gpu01", "gpu02")
                ]
            ),
            term_end_time=to_timestamp(EPOCH_S + 300),
            hold_until_time=to_timestamp(EPOCH_S + 3600),
        ),
        ranks=[
            job_pb2.Rank(node_rank=0, node_id="gpu01", phase="started"),
            job_pb2.Rank(node_rank=1, node_id="gpu02", phase="started"),
        ],
        assign_time=to_timestamp(EPOCH_S + 50),
        start_time=to_timestamp(EPOCH_S + 60),
    )


def an_event(sequence: int, kind: str, job_id: int, **fields: Any) -> event_pb2.Event:
    """A journal entry of a job."""
    return event_pb2.Event(
        sequence=sequence,
        event_time=to_timestamp(EPOCH_S + sequence),
        kind=kind,
        job_id=str(job_id),
        **{"actor": "scheduler", **fields},
    )


def a_node(node_id: str, *, gpus: int = 4, free: int = 4, **fields: Any) -> node_pb2.Node:
    """A node that is up, with H100s."""
    defaults: dict[str, Any] = {
        "hostname": node_id,
        "state": node_pb2.NODE_STATE_UP,
        "cpu_count": 64,
        "memory_bytes": 512 << 30,
        "boot_id": "b0",
        "agent_version": "0.1.0",
        "contact_time": to_timestamp(EPOCH_S + 100),
        "version": 1,
    }
    return node_pb2.Node(
        node_id=node_id,
        gpus=[
            resource_pb2.Gpu(
                index=index, uuid=f"GPU-{node_id}-{index}", gpu_type="h100-80gb",
                memory_bytes=80 << 30,
            )
            for index in range(gpus)
        ],
        free_gpu_count=free,
        **{**defaults, **fields},
    )  # fmt: skip


def a_profile() -> master_profile_pb2.MasterProfile:
    """Two seconds of a master: half of the loop's time, most of it in one function."""
    names = [
        ("Loop.run", "dlq_master/control/loop/loop.py", 160),
        ("Loop.turn", "dlq_master/control/loop/loop.py", 182),
        ("Handle._run", "asyncio/events.py", 78),
        ("write", "dlq_master/store/sqlite/open.py", 209),
    ]
    stacks = [(0, [0, 1], 60), (0, [0, 2], 37), (1, [3], 5), (0, [0, 1, 0], 1)]
    turns = [(0.001, 90), (0.005, 9), (0.25, 1), (None, 0)]
    return master_profile_pb2.MasterProfile(
        took_duration=to_duration(2.0),
        sample_count=194,
        missed_count=3,
        cpu_duration=to_duration(1.25),
        overhead_duration=to_duration(0.008),
        threads=[
            master_profile_pb2.ProfiledThread(
                name=name, sample_count=194, idle_count=idle, cpu_duration=to_duration(cpu_s)
            )
            for name, idle, cpu_s in (
                ("loop", 96, 1.0),
                ("store-writer", 189, 0.25),
                ("log", 194, 0),
            )
        ],
        functions=[
            master_profile_pb2.ProfiledFunction(name=name, file=file, line=line)
            for name, file, line in names
        ],
        stacks=[
            master_profile_pb2.ProfiledStack(
                thread_index=thread, function_indexes=places, sample_count=count
            )
            for thread, places, count in stacks
        ],
        turns=[
            master_profile_pb2.TurnBucket(
                longest_duration=None if end_s is None else to_duration(end_s), turn_count=count
            )
            for end_s, count in turns
        ],
        slow_duration=to_duration(0.05),
        slow_count=12,
        slow_turns=[
            master_profile_pb2.SlowTurn(
                begin_time=to_timestamp(EPOCH_S),
                decide_duration=to_duration(0.0081),
                plan_duration=to_duration(0.0039),
                persist_duration=to_duration(0.1991),
                publish_duration=to_duration(0.0013),
                stimuli={"SubmitJob": 64, "Tick.leases": 1},
                job_count=64,
                attempt_count=3,
                event_count=67,
                command_count=3,
            )
        ],
    )
