"""NCCL's calls: exact bytes, the steady part, and what no tensor can be told of."""

from dataclasses import replace

import numpy as np
import pytest

from dlq_profiler.job import job_of
from dlq_profiler.process import profile_of, profiles_of
from dlq_profiler.records.layout import Op, RecordFlag, RecordSource, Unseen
from dlq_profiler.records.recording import RecordFile
from dlq_profiler.results import JobProfile, Method, Pattern, TrafficConfidence, TrafficReason
from support.model_shapes import buckets, tensors
from support.traffic import collective_rank

RESNET = tensors("resnet50")
DDP = [(Op.ALL_REDUCE, size) for size in buckets(RESNET)]


def recordings_of(layout: list[tuple[Op, int]], iterations: int = 6) -> list[RecordFile]:
    warm_up = [(Op.BROADCAST, 1_000_000), (Op.ALL_REDUCE, 8)]
    return [
        collective_rank([warm_up, *[layout] * iterations], ranks=8).recording(
            pid=1 + rank, identity={"RANK": str(rank), "WORLD_SIZE": "8"}
        )
        for rank in range(2)
    ]


def job(recordings: list[RecordFile]) -> JobProfile:
    return job_of(profiles_of(recordings))


def test_all_reduces_tell_buckets_and_model_to_the_byte() -> None:
    found = job(recordings_of(DDP))
    assert found.pattern is Pattern.ALL_REDUCE
    assert found.traffic == (Method.NCCL, TrafficConfidence.CHECKED, None)
    assert found.buckets == tuple(buckets(RESNET))
    assert found.model_bytes == sum(RESNET)
    assert found.bytes_per_iteration == pytest.approx(sum(RESNET) * 14 / 8, abs=len(DDP))
    assert found.iterations == 6
    assert found.period_s == pytest.approx(0.1 + 0.001 * len(DDP), rel=0.01)


@pytest.mark.parametrize(
    ("op", "sent"),
    [
        (Op.ALL_REDUCE, 14 / 8),
        (Op.ALL_GATHER, 7),
        (Op.REDUCE_SCATTER, 7),
        (Op.P2P_SEND, 1),
        (Op.P2P_RECV, 0),
    ],
)
def test_what_a_rank_sends_follows_from_the_call(op: Op, sent: float) -> None:
    tape = collective_rank([[(op, 800_000), (Op.P2P_SEND, 16)]] * 5, ranks=8)
    found = profile_of([tape.recording()])
    assert found.sent_bytes == 800_000 * sent + 16


def test_shards_are_bytes_without_tensors() -> None:
    layout = [(Op.ALL_GATHER, 500_000), (Op.REDUCE_SCATTER, 500_000)] * 3
    found = job(recordings_of(layout))
    assert found.traffic.known
    assert found.sizes.reason is TrafficReason.NOT_TENSORS
    assert found.skew is None


def test_what_a_graph_replays_cannot_be_counted() -> None:
    recordings = recordings_of(DDP)
    for each in recordings:
        each.records["flags"] |= np.uint16(RecordFlag.CAPTURED)
    found = job([replace(each, unseen=Unseen.GRAPH) for each in recordings])
    assert found.traffic.reason is TrafficReason.GRAPH


def test_what_plugin_and_wrappers_both_saw_counts_once() -> None:
    (recording, _) = recordings_of(DDP)
    plugin = replace(recording, source=RecordSource.NCCL_PLUGIN)
    found = profile_of([recording, plugin])
    assert (found.iterations, found.buckets) == (6, tuple(buckets(RESNET)))
