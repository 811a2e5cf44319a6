"""Evidence of agents: read whole or refused, never half believed."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from dlq.v1 import profile_pb2
from dlq.v1.job_pb2 import JobSpec
from dlq_common.errors import InvalidRequest
from dlq_master.control.trials.evidence import found_of
from dlq_master.model.ids import NodeId
from dlq_master.rpc.reports.profile_intake import MOST_PROCESSES_BYTES, evidence_of
from dlq_master.rpc.specs.intake import family_of
from dlq_profiler.results import JobProfile
from support.told_traffic import MODEL, a_message, a_rank

NODE = NodeId("gpu01")


def test_evidence_is_kept_as_the_analysis_can_read_it_again() -> None:
    said = evidence_of(a_message(), NODE)
    evidence = said.evidence
    assert (said.epoch, said.age_s) == (3, 4.0)
    assert (evidence.key, evidence.node_rank, evidence.node_id) == ((17, 2), 0, NODE)
    assert evidence.limits == ("plugin_taken", "io-uring")
    summary = JobProfile.of(json.loads(evidence.profile))
    assert (summary.period_s, summary.skew) == (0.5, (0.7, 0.75))
    merged = found_of([evidence])
    assert (merged.model_bytes, merged.skew_high) == (MODEL, 0.99), "the processes say it better"


def test_what_was_in_the_way_on_a_node_is_the_reason_of_the_job() -> None:
    """Its processes sent something, and no iteration was found in it."""
    facts = [{**a_rank(0).facts(), "reason": "not-periodic"}]
    silent = a_message(processes=json.dumps(facts).encode(), limits=["of-tomorrow", "plugin-taken"])
    assert found_of([evidence_of(silent, NODE).evidence]).traffic.reason == "plugin-taken"
    known = evidence_of(a_message(limits=["plugin-taken"]), NODE).evidence
    assert found_of([known]).traffic.reason == ""


def test_without_processes_the_least_sure_node_speaks_for_all() -> None:
    known = evidence_of(a_message(processes=b""), NODE).evidence
    assert found_of([known]).period_s == 0.5
    nothing = profile_pb2.ProfileVerdict(method="none", confidence="unknown", reason="no-traffic")
    silent = a_message(node_rank=1, processes=b"", traffic=nothing, sizes=nothing)
    for parts in ([known, evidence_of(silent, NODE).evidence],) * 2:
        assert found_of(parts).traffic.reason == "no-traffic"
        parts.reverse()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda it: it.MergeFrom(profile_pb2.ProfileEvidence(processes=b"{")),
        lambda it: setattr(it, "processes", b"{}"),
        lambda it: setattr(it, "processes", b'[{"pid": 1}]'),
        lambda it: setattr(it, "processes", b"[" * 10_000),
        lambda it: setattr(it, "processes", b" " * (MOST_PROCESSES_BYTES + 1)),
        lambda it: setattr(it, "bytes_per_iteration", float("nan")),
        lambda it: setattr(it, "model_bytes", -1.0),
        lambda it: setattr(it, "skew_low", 0.9),
        lambda it: setattr(it, "pattern", "gossip"),
        lambda it: setattr(it.traffic, "method", "guess"),
        lambda it: setattr(it.traffic, "confidence", "unknown"),
        lambda it: setattr(it.sizes, "reason", "no-traffic"),
        lambda it: setattr(it, "job_id", "seventeen"),
        lambda it: setattr(it, "gpu_type", "x" * 501),
        lambda it: it.limits.append("no word at all"),
        lambda it: it.unseen.extend(["a"] * 65),
        lambda it: setattr(it, "record_count", -1),
    ],
)
def test_what_the_analysis_would_not_have_written_is_refused(
    spoil: Callable[[profile_pb2.ProfileEvidence], object],
) -> None:
    message = a_message()
    spoil(message)
    with pytest.raises(InvalidRequest):
        evidence_of(message, NODE)


def test_jobs_that_run_the_same_are_a_family_and_a_label_may_make_another() -> None:
    spec = JobSpec(name="a", command=["train.py", "--lr", "1"], working_directory="/data")
    spec.resources.gpu_count = 8
    family = family_of(spec)

    def changed(change: Callable[[JobSpec], object]) -> str:
        other = JobSpec()
        other.CopyFrom(spec)
        change(other)
        return family_of(other)

    assert changed(lambda it: setattr(it, "name", "b")) == family
    assert changed(lambda it: setattr(it.resources, "gpu_count", 2)) == family
    assert changed(lambda it: it.command.append("--wide")) != family
    assert changed(lambda it: setattr(it, "working_directory", "/elsewhere")) != family
    assert changed(lambda it: it.environment.update({"MODEL": "vgg"})) != family
    assert changed(lambda it: setattr(it.container, "image", "torch:2")) != family
    assert changed(lambda it: it.labels.update({"family": "vgg"})) == "vgg"
