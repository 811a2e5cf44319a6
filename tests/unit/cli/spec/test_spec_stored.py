"""A stored spec is changed key by key; what a change does not touch stays to the byte."""

from __future__ import annotations

import pytest

from dlq.v1 import job_pb2
from dlq_cli.spec.check import check
from dlq_cli.spec.message import to_message
from dlq_cli.spec.stored import changed
from dlq_common.errors import InvalidRequest

FULL = """
name = "train"
command = "python train.py"
queue = "urgent"
nodes = 2
time_limit = "1-00:00:00"
estimate = "10h"
workdir = "/data/run"
hold = true
profile = false
disconnect_hold = "2h"
image = "registry.lab/team/train:1"
mounts = ["/data:/data:ro", "/ckpt:/ckpt"]
network = "host"
image_secret = "registry"
secrets = ["wandb"]
[env]
LR = "0.1"
KEY = "a secret"
[labels]
team = "vision"
[resources]
gpus = "h100:4"
cpus = 16
memory = "64GiB"
shm_size = "8GiB"
[preempt]
signal = "USR1"
signal_to = "ranks"
grace = "2m"
exit_zero_completes = true
[checkpoint]
dir = "/ckpt/train"
marker = "step-*/done"
settle = "1500ms"
[retry]
max_restarts = 3
exit_codes = [99, 85]
"""


def stored(text: str = FULL, name: str = "job.toml") -> job_pb2.JobSpec:
    checked = check(text.encode(), name, directory="/home/alice", shell={})
    assert checked.spec is not None, checked.problems
    return to_message(checked.spec)


def after(spec: job_pb2.JobSpec, *sets: str, unsets: tuple[str, ...] = ()) -> job_pb2.JobSpec:
    return changed(spec, "job 17", sets, unsets, {}).message


@pytest.mark.parametrize(
    "spec", [stored(), stored("command = 'true'\n"), stored("#!/bin/sh\n#DLQ -G 3\ntrue\n", "t.sh")]
)
def test_nothing_set_is_nothing_changed(spec: job_pb2.JobSpec) -> None:
    assert after(spec) == spec


@pytest.mark.parametrize(
    ("set_", "field"),
    [
        ("name=other", "name"),
        ("command=python other.py", "command"),
        ("queue=slow", "queue"),
        ("time_limit=2h", "time_limit_duration"),
        ("estimate=1h", "run_estimate_duration"),
        ("workdir=/elsewhere", "working_directory"),
        ("hold=no", "hold"),
        ("profile=yes", "profile"),
        ("disconnect_hold=1h", "disconnect_hold_duration"),
        ("env.LR=0.2", "environment"),
        ("env.NEW=1", "environment"),
        ("labels.team=nlp", "labels"),
        ("resources.gpus=8", "resources"),
        ("resources.gpus_total=4", "resources"),
        ("resources.gpu_type=a100", "resources"),
        ("resources.cpus=8", "resources"),
        ("resources.memory=1GiB", "resources"),
        ("nodes=4", "resources"),
        ("resources.shm_size=1GiB", "container"),
        ("image=registry.lab/team/train:2", "container"),
        ("mounts=/more:/more", "container"),
        ("network=none", "container"),
        ("secrets=hf", "container"),
        ("preempt.signal=USR2", "preempt"),
        ("preempt.grace=auto", "preempt"),
        ("retry.exit_codes=85", "preempt"),
        ("checkpoint.dir=/ckpt/other", "checkpoint"),
        ("checkpoint.settle=2s", "checkpoint"),
        ("retry.max_restarts=0", "retry"),
    ],
)
def test_a_change_reaches_its_field_and_no_other(set_: str, field: str) -> None:
    spec = stored()
    made = after(spec, set_)
    differing = [
        each.name
        for each in spec.DESCRIPTOR.fields
        if getattr(made, each.name) != getattr(spec, each.name)
    ]
    assert differing == [field]


def test_values_are_as_they_were_asked_for() -> None:
    made = after(stored(), "time_limit=2h", "resources.gpus=8", "env.LR=0.2", "name=next")
    assert made.time_limit_duration.seconds == 7200
    assert (made.resources.gpu_count, made.resources.node_count) == (16, 2)
    assert made.resources.gpu_type == "h100"
    assert dict(made.environment) == {"LR": "0.2", "KEY": "a secret"}
    assert made.name == "next"


def test_a_key_that_is_left_out_is_the_clusters_again() -> None:
    made = after(stored(), unsets=("queue", "env.KEY", "labels", "time_limit", "checkpoint.marker"))
    assert (made.queue, dict(made.labels)) == ("", {})
    assert dict(made.environment) == {"LR": "0.1"}
    assert not made.HasField("time_limit_duration")
    assert (made.checkpoint.directory, made.checkpoint.marker) == ("/ckpt/train", "")


def test_what_this_version_has_no_key_for_stays() -> None:
    newer = stored().SerializeToString() + bytes.fromhex("f23e0178")  # field 1006, one letter
    made = after(job_pb2.JobSpec.FromString(newer), "time_limit=2h")
    assert bytes.fromhex("f23e0178") in made.SerializeToString()


def test_arrays_dependencies_and_begins_stay_change_and_go() -> None:
    spec = stored(
        "command = 'true'\narray = '0-9:3,12%2'\ndepends_on = 'afterok:3?afterany:4_1'\n"
        "cancel_if_never = true\n"
    )
    spec.begin_time.seconds = 1_900_000_000
    assert after(spec, "queue=slow", unsets=()).begin_time.seconds == 1_900_000_000
    assert after(spec) == spec
    assert after(spec, "array=0-3").dependency == spec.dependency
    made = after(spec, unsets=("array", "depends_on", "cancel_if_never", "begin"))
    assert [made.HasField(name) for name in ("array", "dependency", "begin_time")] == [False] * 3


def test_a_script_keeps_its_arguments_and_gives_way_to_a_command() -> None:
    spec = stored("#!/bin/sh\ntrue\n", "t.sh")
    spec.command.extend(["--lr", "0.1"])
    assert list(after(spec, "queue=slow").command) == ["--lr", "0.1"]
    made = after(spec, "command=python train.py")
    assert (made.script, list(made.command)) == ("", ["python", "train.py"])


def test_an_image_frees_a_job_from_the_runtime_of_processes() -> None:
    spec = stored("command = 'true'\n")
    spec.runtime = "process"
    assert after(spec, "time_limit=1h").runtime == "process"
    assert after(spec, "image=registry.lab/a:1").runtime == ""


@pytest.mark.parametrize(
    ("sets", "unsets", "told"),
    [
        (("time_limit",), (), "--set time_limit: write KEY=VALUE"),
        (("time_limt=2h",), (), "did you mean 'time_limit'"),
        (("time_limit=soon",), (), "--set time_limit: 'soon' is not a duration"),
        (("gpus=4",), (), "write `gpus` under resources"),
        (("resources.gpus_total=3",), (), "3 GPUs cannot be divided evenly over 2 nodes"),
        (("env.1X=2",), (), "environment name"),
        ((), ("timelimit",), "did you mean"),
        ((), ("begin_at",), "unknown key"),
        ((), ("image",), "needs an image"),
    ],
)
def test_a_change_that_cannot_be_is_refused_by_its_key(
    sets: tuple[str, ...], unsets: tuple[str, ...], told: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        after(stored(), *sets, unsets=unsets)
    assert told in caught.value.what


def test_what_is_not_said_cannot_be_left_out() -> None:
    with pytest.raises(InvalidRequest, match="--unset queue: the job's spec does not say it"):
        after(stored("command = 'true'\n"), unsets=("queue",))


@pytest.mark.parametrize(("line", "wish"), [("#DLQ --profile\n", "yes"), ("", "")])
def test_a_profile_is_wished_for_or_left_to_the_cluster(line: str, wish: str) -> None:
    assert stored(f"#!/bin/sh\n{line}true\n", "t.sh").profile == wish


def test_a_profile_can_be_refused() -> None:
    assert stored().profile == "no"
