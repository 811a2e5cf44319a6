"""Steps as agents tell them: what a master takes, and what it refuses."""

import pytest

from dlq.v1 import agent_service_pb2 as wire
from dlq_common.errors import InvalidRequest
from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.rpc.reports.steps_intake import steps_of
from dlq_nodeagent.jobtree.steps import MOST_STEPS, MOST_STEPS_BYTES, parse_steps
from dlq_nodeagent.line.wire import encode
from dlq_nodeagent.model.launch import RankKey
from dlq_nodeagent.model.messages import Fence, StepsReport
from dlq_nodeagent.model.steps import told_step


def told(content: bytes) -> wire.StepsReport:
    """The message of an agent that has read this file, as it crosses the line."""
    written = parse_steps(content)
    report = StepsReport(
        key=RankKey("17", 2, 0),
        fence=Fence(3, 2),
        number=9,
        steps=tuple(told_step(step, 10.0) for step in written.steps),
        dropped_count=written.dropped_count,
        dropped_failed_count=written.dropped_failed_count,
    )
    sent = encode(report, wire.NodeFacts()).SerializeToString()
    return wire.SessionRequest.FromString(sent).steps_report


def test_what_an_agent_read_is_kept_as_it_was() -> None:
    message = told(
        b"dlq-steps\t1\t5\t2\n"
        b"3\ttrain\t2\t8\tended\t137\t1000\t3500\t4096\t2500000\tn1,n2\n"
        b"4\t\t1\t1\trunning\t0\t9000\t0\t0\t0\tn1\n"
    )
    taken = steps_of(message, 700.0)
    assert (taken.key, taken.told_s) == (AttemptKey(JobId(17), 2), 700.0)
    kept = wire.StepsReport.FromString(taken.content)
    ended, running = kept.steps
    assert (kept.number, kept.dropped_count, kept.dropped_failed_count) == (9, 5, 2)
    assert (ended.number, ended.name, ended.exit_code) == (3, "train", 137)
    assert (ended.age_duration.seconds, ended.run_duration.ToMilliseconds()) == (9, 2500)
    assert (ended.node_count, ended.task_count, [*ended.node_ids]) == (2, 8, ["n1", "n2"])
    assert (ended.peak_memory_bytes, ended.cpu_duration.ToMilliseconds()) == (4096, 2500)
    assert (running.running, running.HasField("run_duration")) == (True, False)


def test_the_longest_list_of_an_agent_fits_into_a_message() -> None:
    nodes = ",".join(["n" * 99] * 10)
    line = f"\t{'x' * 200}\t10\t10\tended\t1\t{2**53}\t{2**53}\t{2**53}\t{2**53}\t{nodes}\n"
    content = "dlq-steps\t1\t0\t0\n" + "".join(f"{at}{line}" for at in range(MOST_STEPS))
    assert len(content) < MOST_STEPS_BYTES
    message = told(content.encode())
    assert message.ByteSize() < 700_000
    assert len(message.steps) + message.dropped_count == MOST_STEPS
    steps_of(message, 0.0)


def test_a_list_that_is_longer_than_agents_send_is_refused() -> None:
    report = wire.StepsReport(job_id="17")
    report.steps.extend(wire.ToldStep(number=at) for at in range(MOST_STEPS + 1))
    with pytest.raises(InvalidRequest):
        steps_of(report, 0.0)
