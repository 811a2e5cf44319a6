"""Jobs without GPUs: how they are asked for, what they cannot have, what a resubmission says."""

from __future__ import annotations

import pytest

from dlq_cli.spec.message import to_message
from dlq_cli.spec.stored import stored_layer
from dlq_cli.spec.understood import understood
from unit.cli.spec.test_spec_whole import refusal, spec

GIB = 2**30


@pytest.mark.parametrize(
    ("given_flags", "cores", "nodes"),
    [
        ([("--cores", "16")], 16, None),
        ([("--cores", "16"), ("-N", "2")], 16, 2),
        ([("--cores", "16"), ("--mem", "8GiB")], 16, 1),
        ([("-G", "0")], 1, 1),
        ([("-G", "0"), ("--cpus", "4")], 4, 1),
        ([("-G", "0"), ("--cpus", "2.5")], 3, 1),
        ([("-G", "0"), ("--cpus", "4"), ("-N", "3")], 12, 3),
        ([("--gpus-per-node", "0"), ("--cpus", "4")], 4, 1),
        ([("-G", "0"), ("--cores", "4")], 4, None),
    ],
)
def test_cores_take_the_place_of_gpus(
    given_flags: list[tuple[str, str]], cores: int, nodes: int | None
) -> None:
    made = spec(*given_flags)
    assert (made.gpu_count, made.core_count, made.node_count) == (0, cores, nodes)
    sent = to_message(made).resources
    assert (sent.gpu_count, sent.core_count) == (0, cores)


def test_a_word_of_cores_alone_stays_a_limit_of_a_job_with_gpus() -> None:
    made = spec(("--cpus", "4"))
    assert (made.gpu_count, made.core_count) == (1, 0)
    assert to_message(made).resources.cpu_limit == 4


@pytest.mark.parametrize(
    ("given_flags", "words"),
    [
        ([("--cores", "4"), ("-G", "2")], "a job with cores of its own has no GPU, and -G asks"),
        ([("--cores", "4"), ("--gpu-type", "h100")], "--gpu-type: a job without GPUs (--cores)"),
        ([("-G", "0"), ("--elastic", "2:8")], "--elastic: a job without GPUs (-G) has no elastic"),
        ([("-G", "0"), ("--deadline", "2d")], "--deadline: a job without GPUs"),
        (
            [("-G", "0"), ("--launch", "per-gpu")],
            "--launch: a job without GPUs (-G) has no process",
        ),
        ([("-G", "h100:0")], "no GPU at all is of no type"),
        ([("--cores", "0")], "a job needs at least one core"),
        ([("--cores", "5"), ("-N", "2")], "--cores: 5 cores cannot be divided evenly over 2 nodes"),
        ([("--cores", "4"), ("--cpus", "2")], "--cpus: cpus are those of each node"),
        ([("--mem-per-core", "1GiB")], "--mem-per-core: only a job without GPUs has cores"),
    ],
)
def test_what_does_not_go_without_gpus_is_refused_by_name(
    given_flags: list[tuple[str, str]], words: str
) -> None:
    assert words in refusal(*given_flags)


def test_a_resubmission_asks_for_the_same_cores_and_memory() -> None:
    made = spec(("--cores", "16"), ("--mem-per-core", "2GiB"))
    sent = to_message(made)
    assert sent.resources.core_memory_bytes == 2 * GIB
    layer = stored_layer(sent, "job 1")
    assert layer["resources.cores"].value == 16
    assert layer["resources.memory_per_core"].value == 2 * GIB
    assert "resources.gpus_total" not in layer


def test_people_read_that_there_is_no_gpu() -> None:
    assert "none, 16 cores on any nodes" in understood(spec(("--cores", "16")))
    assert "none, 1 core on 1 node" in understood(spec(("-G", "0")))
