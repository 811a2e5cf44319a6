"""From layers to one spec: who wins, what follows, what contradicts."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq_cli.spec.caller import caller_layer
from dlq_cli.spec.fields import BY_NAME, FLAGS, layer_from
from dlq_cli.spec.merge import merge
from dlq_cli.spec.message import to_message
from dlq_cli.spec.toml_yaml import read_spec_file
from dlq_cli.spec.validate import LARGEST_ENVIRONMENT_BYTES, LONGEST_GRACE_S, Spec, finish
from dlq_cli.spec.values.given import Layer
from dlq_common.errors import InvalidRequest
from dlq_common.job_fields.limits import Lasts
from dlq_common.job_fields.table.checkpoints import GRACE
from dlq_common.text.wire import from_duration

FUNCTION = {"BASH_FUNC_a%%": "() {"}  # as a bash exports it
SHELL = {"HOME": "/home/alice", "PATH": "/bin", "DLQ_HOME": "/x", "a.b%%": "() {", **FUNCTION}


def flags(*pairs: tuple[str, str | bool]) -> Layer:
    return layer_from((BY_NAME[name], value, name) for name, value in pairs)


def spec(
    *pairs: tuple[str, str | bool], file: bytes = b'command = "true"\n', **keywords: Any
) -> Spec:
    layers = [read_spec_file(file, "job.toml"), flags(*pairs)]
    return finish(merge(layers, SHELL), **{"directory": "/home/alice/run", **keywords})


def refusal(*pairs: tuple[str, str | bool], file: bytes = b'command = "true"\n') -> str:
    with pytest.raises(InvalidRequest) as caught:
        spec(*pairs, file=file)
    return caught.value.what


def test_the_command_line_wins_over_the_file_and_origins_tell() -> None:
    made = spec(("-t", "2h"), file=b'command = "true"\ntime_limit = "1h"\nname = "n"\n')
    assert made.values.get("time_limit") == 7200
    assert (made.origins["time_limit"], made.origins["name"]) == ("-t", "job.toml:3")


def test_a_umask_is_octal_text_and_comes_from_the_shell_where_nothing_says_it() -> None:
    before = os.umask(0o027)
    try:
        layers = [caller_layer(), read_spec_file(b'command = "true"\n', "job.toml")]
    finally:
        os.umask(before)
    made = finish(merge(layers, SHELL), directory="/")
    assert (to_message(made).umask, made.origins["umask"]) == (0o027, "your shell")
    assert to_message(spec(("--umask", "0007"))).umask == 0o007
    assert to_message(spec(file=b'command = "true"\numask = "0"\n')).HasField("umask")
    assert not to_message(spec()).HasField("umask")
    for wrong in ("1777", "8", "-1", "", "u=rw", "00027"):
        assert "is not a umask" in refusal(("--umask", wrong))
    assert "put it in quotes" in refusal(file=b'command = "true"\numask = 27\n')


def test_a_grace_that_is_too_long_is_told_by_what_was_written() -> None:
    assert GRACE.limit == Lasts(1, LONGEST_GRACE_S)
    assert refusal(("--signal", "USR1@5000")).startswith("--signal: 5000 seconds")
    assert refusal(("--grace", "2h")).startswith("--grace: 7200 seconds")
    told = refusal(file=b'command = "true"\n[preempt]\nsignal = "USR1@5000"\n')
    assert told.startswith("job.toml:3: ")
    assert spec(("--signal", "USR1@3600")).values.get("preempt.grace") == 3600


def test_without_a_word_a_job_asks_for_one_gpu_on_any_node_and_inherits_nothing() -> None:
    made = spec()
    assert (made.gpu_count, made.node_count, made.gpu_types) == (1, None, ())
    assert made.environment == {}
    assert made.values.get("workdir") == "/home/alice/run"
    assert made.values.get("name") == "true"


@pytest.mark.parametrize(
    ("given_flags", "gpus", "nodes"),
    [
        ([("-G", "8")], 8, None),
        ([("-G", "h100:8"), ("-N", "2")], 8, 2),
        ([("--gpus-per-node", "4")], 4, 1),
        ([("--gpus-per-node", "4"), ("-N", "3")], 12, 3),
        ([("--gpus-per-node", "4"), ("-G", "16")], 16, 4),
        ([("-N", "3")], 3, 3),
    ],
)
def test_gpus_in_all_and_gpus_of_each_node_agree(
    given_flags: list[tuple[str, str]], gpus: int, nodes: int | None
) -> None:
    made = spec(*given_flags)
    assert (made.gpu_count, made.node_count) == (gpus, nodes)


def test_gpus_in_all_on_the_command_line_replace_those_of_each_node_in_the_file() -> None:
    made = spec(("-G", "2"), file=b'command = "true"\n[resources]\ngpus = 8\n')
    assert (made.gpu_count, made.node_count) == (2, None)


@pytest.mark.parametrize(
    ("given_flags", "words"),
    [
        ([("-G", "7"), ("-N", "2")], "-G: 7 GPUs cannot be divided evenly over 2 nodes"),
        (
            [("-G", "9"), ("--gpus-per-node", "4"), ("-N", "2")],
            "-G: 9 GPUs in all are not 2 nodes with 4 each",
        ),
        ([("-G", "h100:8"), ("--gpu-type", "a100")], "--gpu-type: GPU type a100 contradicts h100"),
        ([("--checkpoint-marker", "*/done")], "a marker needs the directory"),
        ([("--checkpoint-dir", "../elsewhere")], "it holds '..'"),
        ([("-D", "/data/../etc")], "-D: workdir '/data/../etc' is not allowed: it holds '..'"),
        ([("-D", "a\nb")], "it holds control characters"),
        ([("--checkpoint-dir", "/a"), ("--checkpoint-marker", "../../x")], "it holds '..'"),
        ([("--env", "A=x\0y")], "NUL byte"),
        ([("--env", "NOT_IN_SHELL")], "your shell has no variable NOT_IN_SHELL to take"),
        ([("--env", "A B=1")], "environment name 'A B' is not allowed"),
        ([("--grace", "auto"), ("--signal", "USR1@300")], "auto contradicts the 300 seconds"),
    ],
)
def test_contradictions_and_hostile_values_are_refused(
    given_flags: list[tuple[str, str]], words: str
) -> None:
    assert words in refusal(*given_flags)


def test_a_relative_directory_is_below_the_present_one() -> None:
    assert spec(("-D", "sub/dir")).values.get("workdir") == "/home/alice/run/sub/dir"


def test_export_all_takes_what_a_job_may_have_and_no_more() -> None:
    made = spec(("--export", "ALL"), ("--env", "PATH=/opt/bin"))
    assert made.environment == {"HOME": "/home/alice", "PATH": "/opt/bin", **FUNCTION}


def test_export_passes_over_names_that_the_shell_or_a_job_may_not_have() -> None:
    """Programs such as batchspawner list all that might be set."""
    made = spec(("--export", "HOME,NOT_IN_SHELL,DLQ_LOGIN_SOCKET"))
    assert set(made.environment) == {"HOME"}


def test_export_takes_a_list_and_env_takes_from_the_shell() -> None:
    made = spec(("--export", "HOME,A=1"), ("--env", "PATH"))
    assert made.environment == {"HOME": "/home/alice", "A": "1", "PATH": "/bin"}


def test_an_environment_of_two_megabytes_is_refused_before_anything_is_sent() -> None:
    shell = {f"V{number}": "x" * 100_000 for number in range(20)}
    layers = [read_spec_file(b'command = "true"\n', "job.toml"), flags(("--export", "ALL"))]
    with pytest.raises(InvalidRequest, match="the environment is too large"):
        finish(merge(layers, shell), directory="/")
    large = f"A={'x' * LARGEST_ENVIRONMENT_BYTES}"
    assert "too l" in refusal(("--env", large))


def test_bytes_that_are_no_text_are_refused() -> None:
    assert "is not UTF-8" in refusal(("--env", "A=\udcff"))
    with pytest.raises(InvalidRequest, match="is not UTF-8"):
        spec(arguments=("\udcff",))


def test_the_longer_of_grace_and_signal_lead_counts() -> None:
    assert spec(("--signal", "SIGUSR1@300")).values.get("preempt.grace") == 300
    assert spec(("--signal", "B:USR1@60"), ("--grace", "5m")).values.get("preempt.grace") == 300
    assert spec(("--grace", "auto")).values.get("preempt.grace") is None


def test_a_script_takes_its_arguments_and_its_name_from_the_file() -> None:
    layers = [read_spec_file(b'run = "echo hi"\n', "my job.toml")]
    made = finish(merge(layers, SHELL), directory="/", arguments=("--lr", "0.1"))
    assert (made.command, made.script) == (("--lr", "0.1"), "#!/bin/sh\necho hi\n")
    assert made.values.get("name") == "my job.toml"


def test_the_message_leaves_unset_what_the_cluster_decides() -> None:
    message = to_message(spec())
    assert not message.HasField("time_limit_duration")
    assert not message.preempt.HasField("grace_duration")
    assert not message.resources.HasField("node_count")
    assert (message.queue, message.runtime, message.preempt.signal) == ("", "", "")


def test_the_message_carries_all_that_was_given() -> None:
    message = to_message(
        spec(
            ("-N", "2"), ("--gpus-per-node", "h100-80gb:8"), ("--cpus", "3.5"), ("--mem", "4G"),
            ("-t", "90"), ("--estimate", "1h"), ("--signal", "USR2@120"), ("-H", True),
            ("--requeue-exit", "85,99"), ("--max-restarts", "3"), ("--checkpoint-dir", "/c"),
            ("--checkpoint-marker", "*/done"), ("--checkpoint-settle", "10s"),
            ("--label", "team=vision"), ("-p", "long"), ("-J", "n"),
        )
    )  # fmt: skip
    assert message.resources.gpu_count == 16
    assert message.resources.gpu_type == "h100-80gb"
    assert message.resources.cpu_limit == 3.5
    assert message.resources.memory_limit_bytes == 4 << 30
    assert from_duration(message.time_limit_duration) == 5400
    assert from_duration(message.run_estimate_duration) == 3600
    assert from_duration(message.preempt.grace_duration) == 120
    assert list(message.preempt.requeue_exit_codes) == [85, 99]
    assert from_duration(message.checkpoint.settle_duration) == 10
    assert dict(message.labels) == {"team": "vision"}
    assert message.hold


def test_no_two_flags_share_a_name() -> None:
    names = [name for flag in FLAGS for name in flag.names]
    assert len(names) == len(set(names))
    assert len({flag.parameter for flag in FLAGS}) == len(FLAGS)


@given(st.lists(st.tuples(st.sampled_from(FLAGS), st.text(max_size=40)), max_size=6))
def test_any_flags_give_a_spec_or_a_refusal_that_names_one(
    occurrences: list[tuple[Any, str]],
) -> None:
    assert outcome(occurrences) != ""


def outcome(occurrences: list[tuple[Any, str]]) -> str:
    try:
        layer = layer_from(
            (flag, text if flag.metavar else True, flag.names[0]) for flag, text in occurrences
        )
        file = read_spec_file(b'command = "true"\n', "job.toml")
        return str(to_message(finish(merge([file, layer], SHELL), directory="/")))
    except InvalidRequest as error:
        return error.what
