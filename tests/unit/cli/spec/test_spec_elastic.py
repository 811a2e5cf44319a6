"""Elastic jobs as people write them, what is sent of them, and what does not go with them."""

from __future__ import annotations

import pytest

from dlq.v1.job_pb2 import JobSpec
from dlq_cli.facts.job import spec_facts
from dlq_cli.lists.story import spec_pairs
from dlq_cli.spec.fields import put
from dlq_cli.spec.message import to_message
from dlq_cli.spec.stored import changed
from dlq_cli.spec.validate import finish
from dlq_cli.spec.values.given import Layer
from dlq_common.errors import InvalidRequest


def sent(**keys: object) -> JobSpec:
    """The message of a spec with these keys; `__` stands for a dot."""
    layer: Layer = {}
    if "command" not in keys:
        put(layer, "command", "train", "the test")
    for key, value in keys.items():
        put(layer, key.replace("__", "."), value, f"--{key}")
    return to_message(finish(layer, directory="/data"))


def test_a_range_asks_for_its_base() -> None:
    message = sent(elastic__gpus="2:4")
    assert (message.resources.gpu_count, list(message.elastic.gpu_counts)) == (2, [2, 3, 4])


def test_a_list_may_ask_for_more_than_its_base() -> None:
    message = sent(elastic__sizes="2,4,8", resources__gpus_total="4", elastic__resize="restart")
    assert (message.resources.gpu_count, list(message.elastic.gpu_counts)) == (4, [2, 4, 8])
    assert message.elastic.resize == "restart"


@pytest.mark.parametrize("more", [{"nodes": 2}, {"resources__gpus": 4}])
def test_with_nodes_their_number_is_what_changes(more: dict[str, object]) -> None:
    message = sent(elastic__gpus="8:16", **more)
    assert (message.resources.gpu_count, message.resources.node_count) == (8, 2)
    assert list(message.elastic.gpu_counts) == [8, 12, 16]


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"elastic__gpus": "8:2"}, "upside down: write 2:8"),
        ({"elastic__gpus": 128}, "in quotes"),
        ({"elastic__sizes": "4,2"}, "sizes must rise"),
        ({"elastic__gpus": "2:8", "resources__gpus_total": 9}, "9 GPUs are none of its sizes .2:8"),
        ({"elastic__gpus": "2:8", "resources__gpus": 4}, "not divided|are not"),
        ({"elastic__gpus": "4:10:2", "resources__gpus": 4}, "multiples of 4"),
        ({"elastic__resize": "restart"}, "only with its sizes"),
        ({"elastic__gpus": "2:8", "elastic__sizes": "2,4"}, "a list or a range"),
        ({"elastic__gpus": "2:8", "elastic__resize": "now"}, "not one of"),
        ({"elastic__gpus": "2:8", "roles__workers": 2}, "fixed number"),
        (
            {"elastic__gpus": "2:8", "resources__gpus_total": 4, "deadline": "8h"},
            "promised for its base of 2 GPUs, not for 4",
        ),
    ],
)
def test_what_contradicts_is_refused(keys: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        sent(**keys)


def test_gpu_memory_may_be_half_where_the_batch_is() -> None:
    asked = sent(resources__gpu_memory="80GB", resources__halve_batch=True).resources
    assert (asked.gpu_memory_bytes, asked.halves_batch) == (80 * 10**9, True)
    with pytest.raises(InvalidRequest, match="only gpu_memory tells"):
        sent(resources__halve_batch=True)


def test_gpus_may_be_of_several_types_if_nothing_else_is_asked_of_them() -> None:
    stored = sent(resources__mixed_gpus=True)
    assert stored.resources.mixed_gpu_types
    assert changed(stored, "job 17", [], [], {}).message == stored
    for key, value in (("resources__gpu_type", "h100"), ("nodes", 1), ("elastic__gpus", "1:4")):
        with pytest.raises(InvalidRequest, match="excludes"):
            sent(resources__mixed_gpus=True, **{key: value})


@pytest.mark.parametrize("written", ["h100,A100", "h100|a100", ["h100", "a100"]])
def test_any_one_of_several_gpu_types_may_do(written: object) -> None:
    stored = sent(resources__gpu_type=written)
    assert [stored.resources.gpu_type, *stored.resources.or_gpu_types] == ["h100", "a100"]
    assert changed(stored, "job 17", [], [], {}).message == stored
    assert not changed(
        stored, "job 17", ["resources.gpu_type=v100"], [], {}
    ).message.resources.or_gpu_types


@pytest.mark.parametrize(
    ("written", "words"),
    [("h100,h100", "named twice"), ("h100,", "not allowed"), ([], "no GPU type")],
)
def test_several_gpu_types_are_words_each_once(written: object, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        sent(resources__gpu_type=written)


def test_a_stored_spec_is_changed_as_it_was_written() -> None:
    stored = sent(elastic__gpus="2:4", deadline="8h")
    assert changed(stored, "job 17", [], [], {}).message == stored
    more = changed(stored, "job 17", ["elastic.gpus=2:6"], [], {}).message
    assert list(more.elastic.gpu_counts) == [2, 3, 4, 5, 6]
    assert not changed(stored, "job 17", [], ["elastic"], {}).message.HasField("elastic")


LIVE = {"elastic__gpus": "4:16", "resources__gpus": 4, "elastic__resize": "live"}


@pytest.mark.parametrize(
    "more",
    [
        {"command": "torchrun train.py --nnodes 2"},
        {"command": "python -m torch.distributed.run train.py"},
        {"command": "./train.sh", "checkpoint__preset": "torchrun"},
    ],
)
def test_live_is_for_torchrun(more: dict[str, object]) -> None:
    message = sent(**LIVE, **more)
    assert message.elastic.resize == "live"
    assert (message.resources.gpu_count, message.resources.node_count) == (4, 1)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"command": "python train.py"}, "does not name it"),
        ({"command": "torchrun --nnodes=2 train.py"}, "--nnodes=2 would win"),
        ({"command": "torchrun --rdzv_backend static t.py"}, "would win"),
        ({"command": "torchrun --max-restarts 0 t.py"}, "would win"),
        ({"command": "torchrun t.py", "launch": "per-gpu"}, "not the cluster"),
        ({"command": "torchrun t.py", "compat": "slurm"}, "those of the start"),
        ({"command": "torchrun t.py", "resources__gpus": None}, "whole nodes"),
    ],
)
def test_live_is_refused_where_it_could_not_be_done(more: dict[str, object], words: str) -> None:
    keys = {name: value for name, value in (LIVE | more).items() if value is not None}
    with pytest.raises(InvalidRequest, match=words):
        sent(**keys)


def test_a_live_job_whose_script_starts_torchrun_can_be_changed() -> None:
    stored = sent(**LIVE, command="./train.sh", checkpoint__preset="torchrun")
    assert changed(stored, "job 17", ["queue=other"], [], {}).message.elastic.resize == "live"


def test_the_signal_of_a_live_job_is_told_to_torchrun_whatever_a_preset_says() -> None:
    script = {"command": "./train.sh", "checkpoint__preset": "torchrun"}
    live, other = sent(**LIVE, **script), sent(**LIVE | {"elastic__resize": "restart"}, **script)
    told = [spec_facts(spec)["preempt"]["signal_to"] for spec in (live, other)]
    assert told == ["main", "ranks"]
    shown = [dict(spec_pairs(spec))["signal to"] for spec in (live, other)]
    assert shown == ["torchrun, which ends its workers", "ranks"]
