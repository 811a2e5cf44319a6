"""docs/reference/json.md has exactly the fields that programs are given."""

import re
from pathlib import Path

import pytest

from dlq.v1 import event_pb2, forecast_pb2, job_pb2, node_pb2, queue_pb2, queue_service_pb2
from dlq.v1.resource_pb2 import ResourceRequest
from dlq_broker.handover import HandOver
from dlq_broker.offers import NoOffer
from dlq_cli.clusters.shown import handover_facts, offer_facts
from dlq_cli.facts import cluster, job
from dlq_cli.output import json_errors

PAGE = Path(__file__).resolve().parents[3] / "docs/reference/json.md"
HAND = HandOver(
    number="1", made_s=0.0, name="train", digest="", spec=b"", order=("lab",), sites=("",)
)
SHOWN = {
    "Job": job.job_facts(job_pb2.Job()),
    "Resources": job.request_facts(ResourceRequest()),
    "Elastic": job.elastic_facts(job_pb2.Elasticity(gpu_counts=[1])),
    "Range": job.range_facts(forecast_pb2.TimeRange()),
    "Preemption": job.preemption_facts(job_pb2.Preemption()),
    "Checkpoint": job.checkpoint_facts(job_pb2.Checkpoint()),
    "Progress": job.progress_facts(job_pb2.Progress()),
    "Activity": job.activity_facts(job_pb2.JobActivity()),
    "Promise": job.promise_facts(job_pb2.Promise()),
    "Estimate": job.estimate_facts(job_pb2.RunEstimate()),
    "Attempt": job.attempt_facts(job_pb2.Attempt()),
    "Wait reason": job.reason_facts(job_pb2.WaitReason()),
    "Node": cluster.node_facts(node_pb2.Node()),
    "Queue": cluster.queue_facts(queue_pb2.Queue()),
    "Cluster": cluster.cluster_facts(queue_service_pb2.GetClusterResponse()),
    "Hand-over": handover_facts(HAND),
    "Offer": offer_facts(NoOffer("lab", "no answer"), {}),
    "Event": cluster.event_facts(event_pb2.Event()),
}


def documented(section: str) -> list[str]:
    """The first column of a section's table."""
    (text,) = re.findall(rf"(?ms)^##+ {section}\n(.*?)(?=^##|\Z)", PAGE.read_text())
    return re.findall(r"(?m)^\| `([a-z_]+)` \|", text)


@pytest.mark.parametrize("section", SHOWN)
def test_each_field_has_its_line_in_the_order_in_which_it_is_printed(section: str) -> None:
    assert documented(section) == list(SHOWN[section])


def test_an_error_has_the_documented_fields(capsys: pytest.CaptureFixture[str]) -> None:
    json_errors.ask(None, None, True)  # type: ignore[arg-type]  # what click passes is not used
    try:
        json_errors.tell("what", ["hint"], 2)
    finally:
        json_errors.forget()
    (inner,) = re.findall(r'"error":(\{.*\})\}', capsys.readouterr().out)
    assert re.findall(r'"([a-z_]+)":', inner) == documented("Error")
