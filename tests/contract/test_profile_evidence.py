"""What an agent tells of a profile is what a master takes: whatever the reason, whatever was
found.
"""

import json
from pathlib import Path

import pytest

from dlq.v1 import agent_service_pb2 as wire
from dlq_cli.text.profiles import WHY
from dlq_master.model.ids import NodeId
from dlq_master.rpc.reports.profile_intake import evidence_of
from dlq_nodeagent.line.wire import encode
from dlq_nodeagent.model.messages import ProfileEvidence
from dlq_nodeagent.profiling.finding import found_of
from dlq_nodeagent.profiling.reading import RingReading
from dlq_profiler.capabilities import SENTENCES
from dlq_profiler.job import job_of
from dlq_profiler.process import profiles_of
from dlq_profiler.results import JobProfile, ProcessProfile, TrafficReason
from support.agent_bench import a_launch
from support.model_shapes import buckets, tensors
from support.traffic import ring_job

NODE = NodeId("node-a")
LAUNCH = a_launch(rank=1)


def taken(reading: RingReading, *limits: TrafficReason) -> tuple[JobProfile, list[ProcessProfile]]:
    """The profile that a master has stored of this, and the processes."""
    found = found_of(LAUNCH, reading, limits, gpu_type="h100", window_s=60.0, ended_s=0.0)
    evidence = ProfileEvidence(key=LAUNCH.key, fence=LAUNCH.fence, age_s=1.5, found=found)
    request = encode(evidence, wire.NodeFacts()).SerializeToString()
    told = evidence_of(wire.SessionRequest.FromString(request).profile_evidence, NODE)
    assert (told.epoch, told.evidence.key.number) == (LAUNCH.fence.epoch, LAUNCH.fence.attempt)
    assert (told.evidence.node_rank, told.age_s, told.evidence.gpu_type) == (1, 1.5, "h100")
    assert told.evidence.limits == tuple(limit.value for limit in limits)
    processes = json.loads(told.evidence.processes) if told.evidence.processes else []
    profile = JobProfile.of(json.loads(told.evidence.profile))
    return profile, [ProcessProfile.of(facts) for facts in processes]


def test_what_was_found_arrives_as_it_was() -> None:
    processes = profiles_of(ring_job([list(buckets(tensors("googlenet")))] * 7, ranks=2))
    job = job_of(processes)
    assert job.sizes.known
    profile, merged = taken(RingReading(job, processes), TrafficReason.PLUGIN_TAKEN)
    assert job_of(merged) == job
    for name in (
        "pattern", "traffic", "sizes", "processes", "world_size", "iterations", "jitter",
        "bytes_per_iteration", "model_bytes", "largest_tensor_bytes", "skew", "active_fraction",
        "self_check_error", "records", "lost", "unseen",
    ):  # fmt: skip
        assert getattr(profile, name) == getattr(job, name), name
    assert profile.period_s == pytest.approx(job.period_s, abs=1e-6)


@pytest.mark.parametrize("reason", TrafficReason)
def test_every_reason_is_taken_and_has_words(reason: TrafficReason) -> None:
    for reading, limits in ((RingReading(failure=reason), ()), (RingReading(), (reason,))):
        profile, processes = taken(reading, *limits)
        assert (profile.traffic.reason, profile.sizes.reason) == (reason, reason)
        assert processes == []
    assert WHY[reason]
    assert (
        f"`{reason}`"
        in (Path(__file__).parents[2] / "docs" / "sites" / "profiler-results.md").read_text()
    )


@pytest.mark.parametrize("why", SENTENCES)
def test_whatever_keeps_a_program_from_being_watched_is_a_reason(why: TrafficReason) -> None:
    assert WHY[why]
