"""The price of a drain: work that is lost, promises that are in danger, room on other nodes."""

from __future__ import annotations

import pytest

from dlq.v1 import job_pb2, node_pb2
from dlq.v1 import node_service_pb2 as wire
from dlq_common.text.wire import to_duration
from dlq_web.pages.machines.drain import DrainPrice, price_of
from dlq_web.pages.machines.gpu_map import GpuMap, map_of


def job(number: int, **facts: object) -> job_pb2.Job:
    made = job_pb2.Job(job_id=str(number), user="alice", held_gpu_count=4, **facts)  # type: ignore[arg-type]
    made.resources.gpu_count = 4
    made.stop_cost_duration.CopyFrom(to_duration(60.0))
    return made


def promised(slack_s: float, risk: str = "") -> job_pb2.Promise:
    return job_pb2.Promise(state="guaranteed", slack_duration=to_duration(slack_s), risk=risk)


def free_nodes(*names: str) -> GpuMap:
    nodes = [
        wire.GpuMapNode(
            node_id=name, state=node_pb2.NODE_STATE_UP, open=True, gpu_types=["h100"],
            gpu_indexes=[0, 1], lease_places=[-1, -1], utilization_percents=[-1, -1],
        )
        for name in names
    ]  # fmt: skip
    return map_of([wire.GetGpuMapResponse(nodes=nodes)])


def price(*jobs: job_pb2.Job) -> DrainPrice:
    return price_of(jobs, len(jobs), free_nodes("n1", "n2"), frozenset({"n1"}))


@pytest.mark.parametrize(
    ("promise", "loss_s", "endangered"),
    [
        (promised(61.0), None, 0),
        (promised(59.0), None, 1),
        (promised(3600.0), 3600.0, 1),
        (promised(3600.0, risk="its nodes are slow"), None, 1),
        (job_pb2.Promise(state="guaranteed"), None, 0),
    ],
)
def test_a_promise_is_in_danger_whose_slack_is_shorter_than_the_stop(
    promise: job_pb2.Promise, loss_s: float | None, endangered: int
) -> None:
    one = job(1, promise=promise)
    if loss_s is not None:
        one.stop_loss.work_duration.CopyFrom(to_duration(loss_s))
        one.stop_loss.detail = "job 1 has never saved"
    found = price(one)
    assert (found.promised, found.endangered) == (1, endangered)
    assert found.losing == (loss_s is not None)


def test_what_was_not_promised_is_not_in_danger() -> None:
    found = price(job(1, promise=job_pb2.Promise(state="unguaranteed")), job(2))
    assert (found.promised, found.endangered, found.gpus) == (0, 0, 8)


def test_jobs_that_leave_already_cost_nothing_more() -> None:
    assert price(job(1, stop_cause="pause")).jobs == []


def test_only_gpus_of_other_nodes_count_as_room() -> None:
    assert price().free_elsewhere == 2


def test_the_longest_grace_and_the_jobs_that_are_not_shown_are_told() -> None:
    one, other = job(1), job(2)
    one.grace_duration.CopyFrom(to_duration(60.0))
    other.grace_duration.CopyFrom(to_duration(300.0))
    found = price_of([one, other], 5, free_nodes(), frozenset())
    assert (found.longest_grace, found.more) == ("5 min", 3)
