"""`dlq diff` and `dlq resubmit`: what a job was, against another, and once more."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from dlq.v1 import job_pb2, resource_pb2
from dlq_common.text.wire import to_duration, to_timestamp
from support.cli_run import Dlq
from support.fake_master import FakeMaster
from support.wire_jobs import EPOCH_S, a_job, an_attempt

pytestmark = pytest.mark.integration

SECRETS = ("hunter2", "hunter3")


def a_spec() -> job_pb2.JobSpec:
    return job_pb2.JobSpec(
        name="train",
        script="#!/bin/bash\nset -e\npython train.py --lr 0.1\necho done\n",
        command=["--seed", "1"],
        queue="default",
        resources=resource_pb2.ResourceRequest(gpu_count=8, node_count=2, gpu_type="h100-80gb"),
        environment={"LR": "0.1", "API_KEY": SECRETS[0], "OLD": "1"},
        working_directory="/data/run",
        time_limit_duration=to_duration(86400),
        runtime="process",
        labels={"team": "vision"},
    )


@pytest.fixture
def master() -> Iterator[FakeMaster]:
    running = FakeMaster()
    running.jobs = {
        "7": a_job(7, "failed", name="train", exit_code=3),
        "8": a_job(8, "running", name="wide"),
        "9": a_job(9, "queued", name="bobs", user="bob"),
    }
    other = a_spec()
    other.script = other.script.replace("0.1", "0.01")
    other.resources.gpu_count = 16
    other.environment["API_KEY"] = SECRETS[1]
    del other.environment["OLD"]
    other.environment["NEW"] = "1"
    other.ClearField("time_limit_duration")
    running.specs = {"7": a_spec(), "8": other, "9": a_spec()}
    first, second = an_attempt(7, 1, "preempted"), an_attempt(7, 2, "failed")
    first.stop_cause = "preempt"
    first.end_time.CopyFrom(to_timestamp(EPOCH_S + 120))
    second.end_time.CopyFrom(to_timestamp(EPOCH_S + 960))
    second.lease.allocation.slots[1].node_id = "gpu07"
    for attempt, code in ((first, 99), (second, 3)):
        for rank in attempt.ranks:
            rank.phase, rank.exit_code = "exited", code
    running.attempts = {"7": [first, second], "8": [an_attempt(8, 1)]}
    yield running
    running.stop()


@pytest.mark.parametrize("words", ["7 8", "7 .1", "7 1 2", "7.1 8.1", "7 7", "8 .1", "train wide"])
def test_the_differences_of(words: str, dlq: Dlq, snapshot: SnapshotAssertion) -> None:
    said = dlq("diff", *words.split())
    assert (said.code, said.err) == (0, "")
    in_json = dlq("diff", *words.split(), "--json")
    assert (said.out, json.dumps(json.loads(in_json.out), indent=1)) == snapshot
    assert not any(secret in said.out + in_json.out for secret in SECRETS)


@pytest.mark.parametrize(("words", "code"), [("7 8", 1), ("7 7", 0), ("7 1 1", 0)])
def test_differences_are_an_exit_code_when_asked_for(words: str, code: int, dlq: Dlq) -> None:
    assert dlq("diff", "--exit-code", *words.split()).code == code


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ("7", 2, "nothing to compare it with"),
        ("7 8 9 10", 2, "two jobs, or a job and two of its attempts"),
        ("7 8.1", 2, "one is a job, the other an attempt"),
        ("7 1 5", 3, "job 7 has no attempt 5"),
        ("7 99", 3, "there is no job 99"),
        ("7 9", 4, "job 9 belongs to 'bob': its spec is for its owner alone"),
    ],
)
def test_what_cannot_be_compared_is_told(words: str, code: int, told: str, dlq: Dlq) -> None:
    said = dlq("diff", *words.split())
    assert (said.code, said.out) == (code, "")
    assert told in said.err


def test_resubmit_queues_the_stored_spec_to_the_byte(dlq: Dlq, master: FakeMaster) -> None:
    said = dlq("resubmit", "7")
    assert (said.code, said.out) == (0, "Submitted batch job 17\n")
    (request,) = master.requests("SubmitJob")
    assert request.spec == a_spec()


def test_resubmit_tells_the_new_job_in_json(dlq: Dlq, snapshot: SnapshotAssertion) -> None:
    said = dlq("resubmit", "7", "--json", "--set", "queue=urgent")
    assert (said.code, said.err) == (0, "")
    assert json.dumps(json.loads(said.out), indent=1) == snapshot


def test_resubmit_with_changes_sends_those_and_nothing_else(dlq: Dlq, master: FakeMaster) -> None:
    said = dlq(
        "resubmit", "train", "--set", "time_limit=2d", "--set", "env.LR=0.01",
        "--unset", "labels.team", "--parsable",
    )  # fmt: skip
    assert (said.code, said.out) == (0, "17\n")
    wanted = a_spec()
    wanted.time_limit_duration.seconds = 2 * 86400
    wanted.environment["LR"] = "0.01"
    del wanted.labels["team"]
    (request,) = master.requests("SubmitJob")
    assert request.spec == wanted


def test_of_an_arrays_task_only_that_one_is_queued_again(dlq: Dlq, master: FakeMaster) -> None:
    master.specs["7"].array.ranges.add(first=0, last=8, step=2)
    master.jobs["7"].array_task.CopyFrom(job_pb2.ArrayTask(array_id="5", index=4, task_count=5))
    said = dlq("resubmit", "7")
    assert (said.code, said.err) == (
        0, "dlq: this task alone; more of its array: --set array=0-8:2\n",
    )  # fmt: skip
    assert dlq("resubmit", "7", "--set", "array=0-8:2").err == ""
    sent = [
        [(r.first, r.last) for r in ask.spec.array.ranges] for ask in master.requests("SubmitJob")
    ]
    assert sent == [[(4, 4)], [(0, 8)]]


def test_resubmit_can_be_tried_first(dlq: Dlq, snapshot: SnapshotAssertion) -> None:
    line = ("resubmit", "7", "--test-only", "--set", "resources.gpus=8", "--set", "queue=urgent")
    said = dlq(*line)
    assert (said.code, said.err) == (0, "")
    assert said.out == snapshot
    origins = json.loads(dlq(*line, "--json").out)["jobs"][0]["origins"]
    assert (origins["queue"], origins["run"]) == ("--set queue", "job 7")
    assert not any(secret in said.out for secret in SECRETS)


def test_a_lost_reply_does_not_resubmit_twice(dlq: Dlq, master: FakeMaster) -> None:
    master.lose_replies("SubmitJob", 2)
    assert dlq("resubmit", "7", "--parsable").out == "17\n"
    assert len(master.submitted) == 1


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("9",), 4, "its spec is for its owner alone"),
        (("99",), 3, "there is no job 99"),
        (("7", "--set", "gpu=3"), 2, "unknown key 'gpu'"),
        (("7", "--set", "resources.gpus_total=3"), 2, "--set resources.gpus_total: 3 GPUs"),
        (("7", "--unset", "image"), 2, "the job's spec does not say it"),
    ],
)
def test_resubmit_refuses_before_anything_is_queued(
    words: tuple[str, ...], code: int, told: str, dlq: Dlq, master: FakeMaster
) -> None:
    said = dlq("resubmit", *words)
    assert (said.code, said.out) == (code, "")
    assert told in said.err
    assert master.requests("SubmitJob") == []


def test_an_operator_who_sees_the_job_may_not_take_its_spec(
    master: FakeMaster, tmp_path: Path
) -> None:
    operator = Dlq(master.home(tmp_path / "op", "olga", "operator"))
    assert operator("show", "7").code == 0
    for words in (("resubmit", "7"), ("diff", "7", "8")):
        said = operator(*words)
        assert (said.code, said.out) == (4, "")
