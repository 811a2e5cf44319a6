"""What agents tell of the traffic of a job, without a job: one all-reduce of a model in every
iteration.
"""

from __future__ import annotations

import json

from dlq.v1 import lease_pb2, profile_pb2
from dlq_common.text.wire import to_duration
from dlq_master.control.stimuli import TakeEvidence
from dlq_master.model.ids import AttemptKey, NodeId
from dlq_master.model.jobs.recording import Evidence
from dlq_profiler.job import job_of
from dlq_profiler.results import JobProfile, Method, PeerTraffic, ProcessProfile, TrafficReason

MODEL = 100_000_000  # bytes


def a_rank(
    rank: int = 0, *, period_s: float = 0.5, ranks: int = 2, model: int = MODEL
) -> ProcessProfile:
    """One process of a ring, seen by its buffers' addresses."""
    sent = 2 * (ranks - 1) / ranks * model
    return ProcessProfile(
        pid=100 + rank,
        start_ticks=1,
        comm="python",
        rank=rank,
        world_size=ranks,
        role="",
        method=Method.ADDRESSES,
        iterations=8,
        period_s=period_s,
        jitter=0.05,
        sent_bytes=sent,
        coverage=1.0,
        buffers=(model - 1_000_000, 1_000_000),
        buckets=(model - 1_000_000, 1_000_000),
        phases=(sent, 0.0),
        peers=(PeerTraffic("10.0.0.2:4000", 1, sent, 2),),
        records=100,
    )


def told(
    key: AttemptKey,
    node: str,
    rank: int = 0,
    *,
    epoch: int = 1,
    processes: list[ProcessProfile] | None = None,
    reason: TrafficReason | None = None,
    window_s: float = 120.0,
) -> TakeEvidence:
    """The evidence of one node; with `reason` it saw nothing."""
    seen = [] if reason is not None else processes or [a_rank(2 * rank), a_rank(2 * rank + 1)]
    summary = job_of(seen)
    assert isinstance(summary, JobProfile)
    facts = [process.facts() for process in seen]
    evidence = Evidence(
        key=key,
        node_rank=rank,
        node_id=NodeId(node),
        gpu_type="H100",
        window_s=window_s,
        limits=(),
        profile=summary.json(),
        processes=json.dumps(facts) if facts else "",
    )
    return TakeEvidence(epoch=epoch, age_s=5.0, evidence=evidence)


def a_message(**changes: object) -> profile_pb2.ProfileEvidence:
    """The same on the wire: rank 0 of attempt 17.2, placed in epoch 3."""
    facts = [a_rank(0).facts(), a_rank(1).facts()]
    fields: dict[str, object] = {
        "job_id": "17",
        "fence": lease_pb2.Fence(epoch=3, attempt=2),
        "node_rank": 0,
        "age_duration": to_duration(4.0),
        "window_duration": to_duration(60.0),
        "gpu_type": "H100",
        "pattern": "all-reduce",
        "traffic": profile_pb2.ProfileVerdict(method="address-recurrence", confidence="checked"),
        "sizes": profile_pb2.ProfileVerdict(method="address-recurrence", confidence="assumed"),
        "iteration_count": 8,
        "period_duration": to_duration(0.5),
        "bytes_per_iteration": 1e8,
        "model_bytes": 1e8,
        "skew_low": 0.7,
        "skew_high": 0.75,
        "processes": json.dumps(facts).encode(),
        "limits": ["plugin_taken", "io-uring"],
    }
    return profile_pb2.ProfileEvidence(**{**fields, **changes})  # type: ignore[arg-type] # a builder takes any field
