"""Steps as agents tell them: what a master takes, and what it refuses."""

from typing import Any

import pytest

from dlq.v1 import agent_service_pb2 as wire
from dlq_common.errors import InvalidRequest
from dlq_common.text.wire import to_duration
from dlq_master.model.attempts.told_steps import StepFacts, TakenSteps
from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.rpc.reports.steps_intake import steps_of
from dlq_nodeagent.jobtree.steps import parse_steps
from dlq_nodeagent.line.wire import encode
from dlq_nodeagent.model.launch import RankKey
from dlq_nodeagent.model.messages import Fence, StepsReport
from dlq_nodeagent.model.steps import told_step


def a_told(**changes: Any) -> wire.ToldStep:
    told = wire.ToldStep(number=4, name="s", node_count=1, task_count=2, running=True)
    told.age_duration.CopyFrom(to_duration(5.0))
    for name, value in changes.items():
        if name == "node_ids":
            told.node_ids.extend(value)
        else:
            setattr(told, name, value)
    return told


def a_report(*steps: wire.ToldStep, **changes: Any) -> wire.StepsReport:
    report = wire.StepsReport(job_id="17", node_rank=0, number=1, steps=steps, **changes)
    report.fence.epoch, report.fence.attempt = 3, 2
    return report


def test_what_an_agent_read_arrives_as_it_was() -> None:
    written = parse_steps(
        b"dlq-steps\t1\t5\t2\n"
        b"3\ttrain\t2\t8\tended\t137\t1000\t3500\t4096\t2500000\tn1,n2\n"
        b"4\t\t1\t1\trunning\t0\t9000\t0\t0\t0\tn1\n"
    )
    report = StepsReport(
        key=RankKey("17", 2, 0),
        fence=Fence(3, 2),
        number=9,
        steps=tuple(told_step(step, 10.0) for step in written.steps),
        dropped_count=written.dropped_count,
        dropped_failed_count=written.dropped_failed_count,
    )
    sent = encode(report, wire.NodeFacts()).SerializeToString()
    told = wire.SessionRequest.FromString(sent).steps_report
    assert told.number == 9
    assert steps_of(told, 700.0) == TakenSteps(
        AttemptKey(JobId(17), 2),
        700.0,
        (
            StepFacts(3, "train", 2, 8, 9.0, 2.5, 137, 4096, 2.5, ("n1", "n2")),
            StepFacts(4, "", 1, 1, 1.0, None, 0, 0, 0.0, ("n1",)),
        ),
        5,
        2,
    )


def test_a_time_that_cannot_be_is_cut() -> None:
    told = a_told()
    told.age_duration.seconds = 10**11
    told.cpu_duration.seconds = -5
    [step] = steps_of(a_report(told), 0.0).steps
    assert step.age_s < 10**9
    assert step.cpu_s == 0.0


@pytest.mark.parametrize(
    "report",
    [
        a_report(*(a_told(number=at) for at in range(1_001))),
        a_report(a_told(), a_told()),
        a_report(a_told(number=5), a_told(number=4)),
        a_report(a_told(number=-1)),
        a_report(a_told(task_count=-1)),
        a_report(a_told(exit_code=256)),
        a_report(a_told(exit_code=-1)),
        a_report(a_told(peak_memory_bytes=-1)),
        a_report(a_told(name="n" * 257)),
        a_report(a_told(name="a\nb")),
        a_report(a_told(name="é")),
        a_report(a_told(node_ids=["n"] * 1_025)),
        a_report(a_told(node_ids=["n\x1b"])),
        a_report(dropped_count=1, dropped_failed_count=2),
        a_report(dropped_count=-1),
    ],
)
def test_what_no_agent_would_send_is_refused(report: wire.StepsReport) -> None:
    with pytest.raises(InvalidRequest):
        steps_of(report, 0.0)
