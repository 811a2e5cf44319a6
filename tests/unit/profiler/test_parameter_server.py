"""Parameter servers: every message is a tensor; who has how much of them."""

from dataclasses import replace

import pytest

from dlq_profiler.identity import role_of
from dlq_profiler.job import job_of
from dlq_profiler.process import profiles_of
from dlq_profiler.records.layout import Side
from dlq_profiler.records.recording import RecordFile
from dlq_profiler.results import (
    Interval,
    JobProfile,
    Method,
    Pattern,
    TrafficConfidence,
    TrafficReason,
)
from support.model_shapes import MODELS, tensors
from support.traffic import server_job

# Table 6 of the paper, to the digits that it prints; GoogleNet and AlexNet differ by their version.
SHARES = {"vgg16": 0.743, "resnet50": 0.092, "resnet152": 0.039, "inception3": 0.086}


def recordings_of(sizes: list[int], **kwargs: int) -> dict[str, RecordFile]:
    tapes = server_job(sizes, **kwargs)
    return {name: tape.recording(pid=1 + place) for place, (name, tape) in enumerate(tapes.items())}


def job(recordings: dict[str, RecordFile]) -> JobProfile:
    return job_of(profiles_of(recordings.values()))


@pytest.mark.parametrize("model", MODELS)
def test_the_messages_are_the_tensors(model: str) -> None:
    sizes = tensors(model)
    found = job(recordings_of(sizes))
    assert found.pattern is Pattern.PARAMETER_SERVER
    assert found.traffic == (Method.MESSAGES, TrafficConfidence.CHECKED, None)
    assert found.sizes == (Method.MESSAGES, TrafficConfidence.CHECKED, None)
    assert found.tensors == tuple(sorted(sizes, reverse=True))
    assert found.iterations == 6
    assert found.skew == Interval(*[max(sizes) / sum(sizes)] * 2)
    if model in SHARES:
        assert found.skew.upper == pytest.approx(SHARES[model], abs=0.0005)


@pytest.mark.parametrize(
    ("model", "skew"), [("vgg16", 2.0), ("alexnet", 2.0), ("resnet50", 1.01), ("googlenet", 1.585)]
)
def test_round_robin_over_two_servers_is_as_uneven_as_it_was_measured(
    model: str, skew: float
) -> None:
    found = job(recordings_of(tensors(model)))
    assert found.server_skew == pytest.approx(skew, abs=0.01)
    assert len(found.servers) == 2


def test_the_busiest_server_is_the_bottleneck() -> None:
    sizes = [1_000_000, 100_000] * 5
    found = job(recordings_of(sizes, workers=3))
    assert found.bytes_per_iteration == pytest.approx(3 * 5_000_000, rel=1e-3)
    # Without the servers' own recordings the workers tell as much.
    every = recordings_of(sizes, workers=3)
    workers = {name: each for name, each in every.items() if name.startswith("worker")}
    assert job(workers).bytes_per_iteration == found.bytes_per_iteration
    assert job(workers).server_skew == found.server_skew


def test_a_single_worker_is_believed_more_if_its_server_echoes_it() -> None:
    sizes = tensors("resnet50")
    pair = recordings_of(sizes, servers=1, workers=1)
    assert job(pair).sizes == (Method.MESSAGES, TrafficConfidence.CHECKED, None)
    assert job({"worker0": pair["worker0"]}).sizes == (
        Method.MESSAGES,
        TrafficConfidence.ASSUMED,
        None,
    )


def test_roles_that_are_told_need_no_sides() -> None:
    """Queue pairs have none."""
    every = recordings_of(tensors("resnet50"))
    for each in every.values():
        each.conns["side"] = Side.UNKNOWN
    assert job(every).pattern is not Pattern.PARAMETER_SERVER
    told = {
        name: replace(each, identity={"DMLC_ROLE": name.rstrip("01")})
        for name, each in every.items()
    }
    assert job(told).sizes == (Method.MESSAGES, TrafficConfidence.CHECKED, None)


@pytest.mark.parametrize(
    ("identity", "role"),
    [
        ({"DLQ_ROLE": "ps"}, "ps"),
        ({"DMLC_ROLE": "server"}, "ps"),
        ({"DMLC_ROLE": "scheduler"}, ""),
        ({"TF_CONFIG": '{"task": {"type": "chief", "index": 0}}'}, "worker"),
        ({"TF_CONFIG": '{"task": []}'}, ""),
        ({"TF_CONFIG": "{"}, ""),
        ({}, ""),
    ],
)
def test_roles_are_those_that_launchers_tell(identity: dict[str, str], role: str) -> None:
    assert role_of(identity) == role


def test_workers_that_disagree_are_not_believed() -> None:
    few, more = recordings_of([500_000, 4000]), recordings_of([500_000, 4000, 8000])
    found = job({"worker0": few["worker0"], "worker1": replace(more["worker1"], pid=9)})
    assert found.sizes.reason is TrafficReason.SELF_CHECK
    assert found.skew is None


def test_segments_of_one_buffer_between_two_are_no_tensors() -> None:
    """A ring of two looks like a worker and its server, but for where its messages lie."""
    pair = recordings_of([300_000] * 4, servers=1, workers=1)
    for each in pair.values():
        place = each.records["address"] >> 32 & 0xFF
        each.records["address"] = (each.records["address"] & (1 << 32) - 1) + place * 300_000
    found = job(pair)
    assert found.pattern is not Pattern.PARAMETER_SERVER
    assert found.tensors == ()


def test_a_period_under_trouble_is_that_of_the_iterations() -> None:
    found = job(recordings_of(tensors("alexnet"), iterations=12))
    assert found.period_s == pytest.approx(0.202, rel=0.05)
