"""`--max-restarts`: a number for the program's own failures, and numbers for single causes."""

from __future__ import annotations

import pytest

from dlq.v1 import job_pb2
from dlq_api.words import layer_of
from dlq_cli.facts.job import job_facts
from dlq_cli.lists.story import job_text, spec_pairs
from dlq_cli.output.render import OutputLook
from dlq_cli.spec.fields import BY_NAME, layer_from
from dlq_cli.spec.merge import merge
from dlq_cli.spec.message import to_message
from dlq_cli.spec.script import read_script
from dlq_cli.spec.stored import changed
from dlq_cli.spec.toml_yaml import read_spec_file
from dlq_cli.spec.understood import understood
from dlq_cli.spec.validate import Spec, finish
from dlq_common.errors import InvalidRequest
from dlq_common.job_fields.table.checkpoints import MAX_RESTARTS
from support.wire_jobs import EPOCH_S, a_job

FILE = b'command = "true"\n'


def spec(*values: str, file: bytes = FILE) -> Spec:
    flag = BY_NAME["--max-restarts"]
    said = layer_from((flag, value, "--max-restarts") for value in values)
    return finish(merge([read_spec_file(file, "job.toml"), said], {}), directory="/")


def limits(spec: Spec) -> tuple[int, dict[str, int]]:
    retry = to_message(spec).retry
    return retry.max_restart_count, dict(retry.max_restart_counts)


@pytest.mark.parametrize(
    ("values", "own", "by_cause"),
    [
        (("3",), 3, {}),
        (("0",), 0, {}),
        (("node=5",), 0, {"node": 5}),
        (("3", "node=5", "GPU = 2"), 3, {"node": 5, "gpu": 2}),
        (("3,node=5", "node=6"), 3, {"node": 6}),
        (("preemption=0", "start=1", "memory=2", "error=4"), 0,
         {"preemption": 0, "start": 1, "memory": 2, "error": 4}),
    ],
)  # fmt: skip
def test_flags_add_up(values: tuple[str, ...], own: int, by_cause: dict[str, int]) -> None:
    assert limits(spec(*values)) == (own, by_cause)


@pytest.mark.parametrize(
    "line",
    [b'max_restarts = [3, "node=5"]', b'max_restarts = "3,node=5"'],
)
def test_a_job_file_says_the_same(line: bytes) -> None:
    assert limits(spec(file=FILE + b"[retry]\n" + line + b"\n")) == (3, {"node": 5})


def test_a_script_says_the_same() -> None:
    text = b"#!/bin/sh\n#DLQ --max-restarts 3\n#DLQ --max-restarts node=5\ntrue\n"
    layer = read_script(text, "train.sh").layer
    assert limits(finish(merge([layer], {}), directory="/")) == (3, {"node": 5})


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("disk=3", "'disk' is not one of error, memory, node, gpu, preemption, start"),
        ("nodes=3", "did you mean 'node'?"),
        ("node=x", "node: 'x' is not a whole number"),
        ("node=", "node: '' is not a whole number"),
        ("gpu=-1", "gpu: '-1' is not a whole number"),
        ("many", "'many' is not a whole number"),
    ],
)
def test_a_refusal_names_the_cause(value: str, told: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        spec(value)
    assert caught.value.what.startswith("--max-restarts: ")
    assert told in caught.value.what


def test_a_list_of_python_says_the_same_as_the_flags() -> None:
    for value in ([3, "node=5"], "3,node=5"):
        layer = layer_of({"max_restarts": value})
        made = finish(merge([read_spec_file(FILE, "job.toml"), layer], {}), directory="/")
        assert limits(made) == (3, {"node": 5})
    layer = layer_of({"max_restarts": {"node": 5}})
    made = finish(merge([read_spec_file(FILE, "job.toml"), layer], {}), directory="/")
    assert limits(made) == (0, {"node": 5})


def test_a_stored_spec_keeps_its_limits_and_takes_others() -> None:
    stored = to_message(spec("3", "node=5"))
    assert changed(stored, "job 17", ("name=other",), (), {}).message.retry == stored.retry
    after = changed(stored, "job 17", ("retry.max_restarts=1,gpu=2",), (), {}).message.retry
    assert (after.max_restart_count, dict(after.max_restart_counts)) == (1, {"gpu": 2})
    gone = changed(stored, "job 17", (), ("retry.max_restarts",), {}).message.retry
    assert gone == job_pb2.RetrySpec()


def test_people_see_all_limits() -> None:
    made = spec("3", "node=5", "gpu=2")
    assert "3, gpu=2, node=5  (--max-restarts)" in understood(made)
    assert dict(spec_pairs(to_message(made)))["restarts"] == "3 (limits: gpu 2, node 5)"
    by_cause = to_message(spec("node=5"))
    assert dict(spec_pairs(by_cause))["restarts"] == "0 (limits: node 5)"
    assert dict(spec_pairs(to_message(spec())))["restarts"] == ""


@pytest.mark.parametrize(
    ("own", "by_cause", "told"),
    [
        (101, {}, "must be between 0 and 100"),
        (0, {"node": 101}, ": node must be between 0 and 100"),
        (0, {"node": -1}, ": node must be between 0 and 100"),
        (0, {"disk": 1}, "'disk' is not one of"),
    ],
)
def test_the_master_refuses_limits_of_any_client(
    own: int, by_cause: dict[str, int], told: str
) -> None:
    retry = job_pb2.RetrySpec(max_restart_count=own, max_restart_counts=by_cause)
    said = MAX_RESTARTS.wire.said(job_pb2.JobSpec(retry=retry)) if MAX_RESTARTS.wire else None
    assert MAX_RESTARTS.limit is not None
    with pytest.raises(InvalidRequest, match=r"^retry\.max_restart_count") as caught:
        MAX_RESTARTS.limit.check("retry.max_restart_count", said)
    assert told in caught.value.what


def test_a_job_tells_its_restarts_by_cause_and_the_limit_at_its_end() -> None:
    look = OutputLook(tty=False, color=False, now_s=EPOCH_S)
    used_up = "cause error: 1 of 1 restarts are used up"
    job = a_job(3, "failed", end_reason="user_error", hold_reason=used_up)
    job.restart_counts.update({"node": 2, "error": 1})
    told = job_text(job, look)
    assert "error 1, node 2" in told
    assert used_up in told
    assert job_facts(job)["restart_counts"] == {"error": 1, "node": 2}
    assert "restarts by cause" not in job_text(a_job(3), look)
