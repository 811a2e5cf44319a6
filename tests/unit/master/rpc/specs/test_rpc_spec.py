"""Job specs: what passes, what is filled in, and that each refusal names its field."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dlq.v1 import job_pb2
from dlq.v1.job_pb2 import JobSpec
from dlq_common.errors import InvalidRequest
from dlq_common.text.names import check_job_name
from dlq_master.rpc.specs.intake import request_of
from dlq_master.rpc.specs.spec import check_request_id, checked

Change = Callable[[JobSpec], object]


def a_spec(change: Change | None = None) -> JobSpec:
    spec = JobSpec(name="train", command=["/usr/bin/python3", "train.py"])
    spec.resources.gpu_count = 4
    if change is not None:
        change(spec)
    return spec


def set_field(path: str, value: object) -> Change:
    """Set the field at a dotted path; messages take keyword dictionaries, lists and maps grow."""
    *parents, name = path.split(".")

    def change(spec: JobSpec) -> None:
        message: object = spec
        for parent in parents:
            message = getattr(message, parent)
        target = getattr(message, name)
        if isinstance(value, dict):
            target.update(value)
        elif isinstance(value, list):
            del target[:]
            target.extend(value)
        elif isinstance(value, tuple):
            target.seconds, target.nanos = value
        else:
            setattr(message, name, value)

    return change


def test_defaults_are_filled_in_and_what_was_given_stays() -> None:
    filled = checked(a_spec())
    assert (filled.working_directory, filled.runtime, filled.preempt.signal) == (
        "/",
        "process",
        "TERM",
    )
    assert filled.name == "train"
    assert not filled.HasField("time_limit_duration")


def a_live_spec() -> job_pb2.JobSpec:
    spec = a_spec(set_field("command", ["torchrun", "train.py", "--nnodes", "mine"]))
    spec.resources.gpu_count, spec.resources.node_count = 4, 1
    spec.elastic.gpu_counts.extend([4, 8])
    spec.elastic.resize = "live"
    return spec


def without_network(spec: JobSpec) -> None:
    spec.container.image, spec.container.network = "docker.io/a/b:1", "none"


def test_a_job_may_be_resized_live() -> None:
    assert checked(a_live_spec()).elastic.resize == "live"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda it: it.resources.ClearField("node_count"), "whole nodes come and go"),
        (lambda it: setattr(it, "launch", "per-gpu"), "not per-gpu"),
        (lambda it: setattr(it, "compat", "slurm"), "variables of slurm"),
        (lambda it: setattr(it.elastic, "resize", "alive"), "not one of restart, live"),
        (without_network, "from reaching each other"),
        (set_field("command", ["python", "train.py"]), "started by torchrun, .* names none"),
        (set_field("script", "#!/bin/sh\nexec python t.py"), "started by torchrun, .* names none"),
        (set_field("command", ["torchrun", "--nnodes=2", "t.py"]), "--nnodes=2.* would win"),
    ],
)
def test_live_is_refused_where_it_could_not_be_done(
    change: Callable[[job_pb2.JobSpec], object], words: str
) -> None:
    spec = a_live_spec()
    change(spec)
    with pytest.raises(InvalidRequest, match=words):
        checked(spec)


def test_a_script_that_starts_torchrun_somewhere_else_says_that_it_is_a_launcher() -> None:
    spec = a_live_spec()
    spec.command[:] = ["./train.sh"]
    spec.preempt.signal_to = "ranks"
    assert checked(spec).elastic.resize == "live"


def test_the_submitted_spec_itself_is_left_alone() -> None:
    spec = a_spec()
    checked(spec)
    assert spec == a_spec()


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("/usr/bin/python3", "python3"),
        ("./run me.sh", "run_me.sh"),
        ("$(reboot)", "_reboot_"),
        ("...", "job"),
        ("-x", "x"),
        ("ä" * 300, "_"),
    ],
)
def test_a_job_without_a_name_gets_a_safe_one_from_its_command(word: str, name: str) -> None:
    nameless = a_spec(set_field("command", [word]))
    nameless.name = ""
    spec = checked(nameless)
    assert spec.name == name
    assert check_job_name(spec.name) == name


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("command", []),
        ("command", [""]),
        ("command", ["x" * 200_000]),
        ("command", ["a"] * 5000),
        ("command", ["a\0b"]),
        ("script", "echo hello"),
        ("script", "#!/bin/sh\n" + "x" * 4_200_000),
        ("script", "#!/bin/sh\n\0"),
        ("name", "a\nb"),
        ("name", "../../etc"),
        ("name", "x" * 257),
        ("name", "\u202egpj"),
        ("queue", "Robert'); DROP TABLE jobs;--"),
        ("runtime", "prozess"),
        ("working_directory", "relative"),
        ("working_directory", "/home/a/../../root"),
        ("working_directory", "/tmp/\n"),
        ("environment", {"A": "x" * (2 << 20)}),
        ("environment", {f"V{i}": "x" * 1000 for i in range(300)}),
        ("environment", {"A B": "1"}),
        ("environment", {"A\nB": "1"}),
        ("environment", {"": "1"}),
        ("environment", {"DLQ_JOB_ID": "1"}),
        ("environment", {"PET_NNODES": "1"}),
        ("environment", {"A": "a\0b"}),
        ("soft_limits", {"NICE": 1}),
        ("soft_limits", {"STACK\n": 1}),
        ("umask", -1),
        ("umask", 0o1000),
        ("labels", {"Upper": "x"}),
        ("labels", {"a": "line\nline"}),
        ("labels", {f"l{i}": "" for i in range(65)}),
        ("resources.gpu_count", 0),
        ("resources.gpu_count", -1),
        ("resources.gpu_count", 2**31 - 1),
        ("resources.node_count", 0),
        ("resources.node_count", 3),
        ("resources.gpu_type", "H100!"),
        ("resources.or_gpu_types", ["a100"]),
        ("resources.cpu_limit", float("nan")),
        ("resources.cpu_limit", float("inf")),
        ("resources.cpu_limit", 0.0),
        ("resources.cpu_limit", -1.0),
        ("resources.memory_limit_bytes", 1),
        ("preempt.signal", "KILL"),
        ("preempt.signal_to", "workers"),
        ("preempt.requeue_exit_codes", [0]),
        ("preempt.requeue_exit_codes", [256]),
        ("preempt.requeue_exit_codes", list(range(1, 40))),
        ("preempt.grace_duration", (0, 0)),
        ("preempt.grace_duration", (10**9, 0)),
        ("preempt.grace_duration", (5, -1)),
        ("checkpoint.directory", "relative"),
        ("checkpoint.directory", "/a/../../etc"),
        ("checkpoint.settle_duration", (-1, 0)),
        ("retry.max_restart_count", -1),
        ("retry.max_restart_count", 1000),
        ("time_limit_duration", (0, 0)),
        ("time_limit_duration", (2**60, 0)),
        ("time_limit_duration", (1, 2_000_000_000)),
        ("run_estimate_duration", (-5, 0)),
        ("disconnect_hold_duration", (1, 0)),
    ],
)
def test_a_bad_field_is_refused_by_its_name(path: str, value: object) -> None:
    with pytest.raises(InvalidRequest) as caught:
        checked(a_spec(set_field(path, value)))
    assert caught.value.field == f"spec.{path}"
    assert len(caught.value.what) < 400, "a refusal must not repeat what was sent"
    assert caught.value.what.isprintable()


@pytest.mark.parametrize(
    ("others", "word"),
    [
        (["h100"], "named twice"),
        (["a100", "a100"], "named twice"),
        (["a,b"], "not allowed"),
        ([f"t{number}" for number in range(16)], "16 types"),
    ],
)
def test_each_of_several_gpu_types_is_a_word_that_is_named_once(
    others: list[str], word: str
) -> None:
    spec = a_spec(set_field("resources.gpu_type", "h100"))
    set_field("resources.or_gpu_types", ["a100", "v100"])(spec)
    assert request_of(checked(spec)).gpu_types == ("h100", "a100", "v100")
    del spec.resources.or_gpu_types[:]
    set_field("resources.or_gpu_types", others)(spec)
    with pytest.raises(InvalidRequest, match=word) as caught:
        checked(spec)
    assert caught.value.field == "spec.resources.or_gpu_types"


@pytest.mark.parametrize(
    "also",
    [
        set_field("resources.gpu_type", "h100-80gb"),
        set_field("resources.node_count", 2),
        set_field("elastic.gpu_counts", [2, 4]),
    ],
)
def test_who_takes_gpus_of_several_types_asks_nothing_else_of_them(also: Change) -> None:
    mixed = a_spec(set_field("resources.mixed_gpu_types", True))
    assert checked(mixed).resources.mixed_gpu_types
    also(mixed)
    with pytest.raises(InvalidRequest, match="several GPU types at once") as caught:
        checked(mixed)
    assert caught.value.field == "spec.resources.mixed_gpu_types"


@pytest.mark.parametrize("marker", ["../*.pt", "/etc/*", "a/../../b"])
def test_a_marker_that_leads_out_of_its_directory_is_refused(marker: str) -> None:
    spec = a_spec(set_field("checkpoint.directory", "/data/ckpt"))
    spec.checkpoint.marker = marker
    with pytest.raises(InvalidRequest) as caught:
        checked(spec)
    assert caught.value.field == "spec.checkpoint.marker"


def test_a_marker_needs_a_directory() -> None:
    with pytest.raises(InvalidRequest) as caught:
        checked(a_spec(set_field("checkpoint.marker", "*.pt")))
    assert caught.value.field == "spec.checkpoint.directory"


def test_a_near_miss_is_suggested() -> None:
    with pytest.raises(InvalidRequest, match="did you mean 'process'"):
        checked(a_spec(set_field("runtime", "proces")))


def test_a_field_from_the_future_is_refused_rather_than_dropped() -> None:
    newer = JobSpec.FromString(a_spec().SerializeToString() + b"\xf8\x3f\x01")  # field 1023, varint
    with pytest.raises(InvalidRequest, match="does not know"):
        checked(newer)


def test_a_field_from_the_future_deeper_down_is_refused_too() -> None:
    spec = a_spec()
    spec.resources.MergeFromString(b"\xf8\x3f\x01")
    with pytest.raises(InvalidRequest) as caught:
        checked(spec)
    assert caught.value.field == "spec.resources"


@pytest.mark.parametrize("request_id", ["", "x" * 65, "a\nb", "ä"])
def test_a_bad_request_id_is_refused(request_id: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check_request_id(request_id)
    assert caught.value.field == "request_id"


def test_a_good_whole_spec_passes() -> None:
    spec = a_spec()
    spec.environment.update({"PATH": "/usr/bin", "OMP_NUM_THREADS": "4"})
    spec.labels["team"] = "vision"
    spec.resources.node_count = 2
    spec.resources.gpu_type = "h100-80gb"
    spec.resources.cpu_limit = 1.5
    spec.checkpoint.directory, spec.checkpoint.marker = "/data/ckpt", "epoch_*/done"
    spec.preempt.requeue_exit_codes.extend([75, 85])
    spec.time_limit_duration.seconds = 3600
    assert checked(checked(spec)) == checked(spec)
