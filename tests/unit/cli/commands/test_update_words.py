"""KEY=VALUE words of `dlq update`, and the lines that tell what became of them."""

import pytest

from dlq.v1 import job_pb2
from dlq.v1 import job_service_pb2 as wire
from dlq_cli.commands.jobs.update import lines, wishes
from dlq_client.jobs import Updated
from dlq_common.errors import InvalidRequest
from dlq_common.text.wire import from_duration, from_timestamp
from support.wire_jobs import a_job

NOW_S = 1_795_161_600.0


def test_each_key_becomes_its_field() -> None:
    request = wishes(
        ["time=2:00:00", "nice=-5", "partition=urgent", "JobName=b", "ArrayTaskThrottle=4"], NOW_S
    )
    assert from_duration(request.time_limit_duration) == 7200
    assert (request.nice, request.queue, request.name) == (-5, "urgent", "b")
    assert request.concurrent_count == 4
    assert not request.HasField("dependency")
    assert not request.clear_begin


def test_a_dependency_and_a_begin_are_given_or_taken_away() -> None:
    given = wishes(["dependency=afterok:16", "begin=now+1hour"], NOW_S)
    assert [term.job_id for term in given.dependency.terms] == ["16"]
    assert from_timestamp(given.begin_time) == NOW_S + 3600
    taken = wishes(["dependency=none", "begin=none", "time_limit=unlimited"], NOW_S)
    assert taken.HasField("dependency")
    assert not taken.dependency.terms
    assert taken.clear_begin
    assert taken.clear_time_limit


def test_deadlines_are_given_or_taken_away() -> None:
    strict = wishes(["deadline=8h", "on_miss=cancel"], NOW_S)
    assert [from_duration(step.due_duration) for step in strict.deadlines] == [28_800]
    assert (strict.on_miss, strict.clear_deadlines) == ("cancel", False)
    soft = wishes(["soft-deadline=2h:100,+50%:40"], NOW_S)
    assert [from_duration(step.due_duration) for step in soft.deadlines] == [7200, 10_800]
    assert [step.reward for step in soft.deadlines] == [100.0, 40.0]
    at = wishes(["deadline=2030-01-01T00:00:00Z"], NOW_S)
    assert from_timestamp(at.deadlines[0].due_time) > NOW_S
    assert wishes(["deadline=none"], NOW_S).clear_deadlines


@pytest.mark.parametrize(
    ("words", "field"),
    [
        (["deadline=0s"], "deadline"),
        (["deadline=soon"], "deadline"),
        (["soft_deadline=8h:50,9h:80"], "soft_deadline"),
        (["deadline=8h", "soft_deadline=8h:100"], "soft_deadline"),
        (["on_miss=stop"], "on_miss"),
    ],
)
def test_a_deadline_that_cannot_be_meant_is_refused_by_its_key(
    words: list[str], field: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        wishes(words, NOW_S)
    assert refused.value.field == field


def test_none_is_not_the_same_as_not_asked_for() -> None:
    request = wishes(["nice=0", "concurrent=all"], NOW_S)
    assert request.HasField("nice")
    assert request.HasField("concurrent_count")
    assert not request.HasField("name")
    assert not request.clear_time_limit


@pytest.mark.parametrize("word", ["state=running", "=5", "time_limit=-1", "queue=", "name=../b"])
def test_what_cannot_be_asked_for_is_refused(word: str) -> None:
    with pytest.raises(InvalidRequest):
        wishes([word], NOW_S)


@pytest.mark.parametrize("words", [["nice=1", "nice=2"], ["time=1:00:00", "time-limit=1:00:00"]])
def test_a_key_given_twice_is_refused_whatever_its_names(words: list[str]) -> None:
    with pytest.raises(InvalidRequest) as refused:
        wishes(words, NOW_S)
    assert all(word in refused.value.what for word in words)


def test_tasks_that_changed_alike_are_one_line() -> None:
    jobs = [
        a_job(13 + index, array_task=job_pb2.ArrayTask(array_id="12", index=index))
        for index in range(3)
    ]
    changes = [
        wire.FieldChange(job_id=job.job_id, field="nice", before="0", after="5") for job in jobs
    ]
    assert lines(Updated(jobs, [], changes=changes)) == ["job 12_[0-2]: nice: 0 -> 5"]
    assert lines(Updated(jobs[:1], [])) == ["job 12_0: nothing to change"]


def test_no_tasks_at_a_time_is_refused_and_all_is_no_limit() -> None:
    with pytest.raises(InvalidRequest, match="write all for no limit"):
        wishes(["concurrent=0"], 0.0)
    assert wishes(["concurrent=all"], 0.0).concurrent_count == 0


def test_another_number_of_nodes_is_that_of_a_submission() -> None:
    for words, nodes in (("NumNodes=2", 2), ("nodes=3-3", 3), ("NumNodes=2-4", 2)):
        assert wishes([words], NOW_S).spec_change.node_count == nodes
    for bad in ("nodes=x", "NumNodes=4-2", "nodes=-1"):
        with pytest.raises(InvalidRequest, match="nodes"):
            wishes([bad], NOW_S)


def test_parts_of_the_spec_of_a_job_that_waits_are_given_or_taken_away() -> None:
    words = [
        "WorkDir=/new", "StdOut=o-%j", "Requeue=0", "Comment=hello", "ReqNodeList=gpu[01-02]",
        "ExcNodeList=", "Features=rack=r1&disk=fast",
    ]  # fmt: skip
    change = wishes(words, NOW_S).spec_change
    assert (change.working_directory, change.stdout_path) == ("/new", "o-%j")
    assert change.no_requeue
    assert dict(change.labels) == {"comment": "hello"}
    assert list(change.nodes.node_ids) == ["gpu01", "gpu02"]
    assert change.HasField("excluded_nodes")
    assert not change.excluded_nodes.node_ids
    assert dict(change.constraint.labels) == {"rack": "r1", "disk": "fast"}
    taken = wishes(["requeue=yes", "comment=none", "constraint=none"], NOW_S).spec_change
    assert taken.HasField("no_requeue")
    assert not taken.no_requeue
    assert dict(taken.labels) == {"comment": ""}
    assert not taken.constraint.labels
