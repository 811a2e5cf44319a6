"""Which processes a node has for a rank, what each is told, and which ports they get."""

import json
from dataclasses import replace
from typing import Any

import pytest

from dlq_nodeagent.devices.port import Device
from dlq_nodeagent.model.messages import Launch
from dlq_nodeagent.ports import ports_for
from dlq_nodeagent.runtimes.port import LaunchRefused
from dlq_nodeagent.tasks import port_count, tasks_of, with_own_ports, with_tasks
from support.agent_bench import a_launch

GPUS = tuple(
    Device(
        index=index,
        uuid=f"GPU-{index}",
        gpu_type="h100",
        model_name="H100",
        memory_bytes=1,
        virtual=False,
    )
    for index in range(4)
)


def gang(rank: int, **more: Any) -> Launch:
    launch = a_launch()
    return replace(
        launch,
        key=launch.key._replace(node_rank=rank),
        node_ids=("a", "b"),
        node_addresses=("10.0.0.1", "10.0.0.2"),
        node_gpu_counts=(2, 4),
        gpu_indexes=tuple(range((2, 4)[rank])),
        master_port=20_000,
        port_first=20_000,
        port_last=20_099,
        **more,
    )


def test_ranks_of_uneven_nodes_are_numbered_through() -> None:
    tasks = tasks_of(gang(1, launch_mode="per-gpu"), GPUS)
    assert [task.name for task in tasks] == ["rank 2", "rank 3", "rank 4", "rank 5"]
    told = tasks[1].environment
    assert (told["RANK"], told["LOCAL_RANK"], told["WORLD_SIZE"]) == ("3", "1", "6")


def test_one_process_for_the_node_is_told_no_rank() -> None:
    assert tasks_of(gang(0), GPUS[:2]) == ()
    assert with_tasks(gang(0), ("x",), GPUS, words_at="/w") == ("x",)


def test_roles_share_the_gpus_and_every_process_has_a_port_of_its_own() -> None:
    ports = ((20_000, 20_001, 20_002), (20_016, 20_017, 20_018))
    launch = gang(1, worker_count=3, ps_count=2, node_ports=ports)
    assert port_count(launch) == 3
    first, second, server = tasks_of(launch, GPUS)
    assert [first.name, second.name, server.name] == ["worker 1", "worker 2", "ps 1"]
    assert (first.environment["CUDA_VISIBLE_DEVICES"], server.serves) == ("GPU-0,GPU-1", True)
    assert server.environment["CUDA_VISIBLE_DEVICES"] == ""
    assert json.loads(server.environment["TF_CONFIG"]) == {
        "cluster": {
            "worker": ["10.0.0.1:20001", "10.0.0.2:20016", "10.0.0.2:20017"],
            "ps": ["10.0.0.1:20002", "10.0.0.2:20018"],
        },
        "task": {"type": "ps", "index": 1},
    }
    assert server.environment["DMLC_SERVER_ID"] == "1"
    assert first.environment["DMLC_WORKER_ID"] == "1"
    assert first.environment["DMLC_PS_ROOT_URI"] == "10.0.0.1"
    assert first.environment["DMLC_PS_ROOT_PORT"] == "20000"


def test_ports_that_are_taken_promised_or_not_free_are_passed_over() -> None:
    launch = gang(0)
    found = ports_for(launch, 2, taken={20_001}, is_free=lambda port: port != 20_000)
    assert found == (20_002, 20_003)


def test_a_rank_keeps_its_ports_as_long_as_they_are_free() -> None:
    launch = gang(0)
    assert ports_for(launch, 1, kept=(20_050,), is_free=lambda port: True) == (20_050,)
    assert ports_for(launch, 1, kept=(20_050,), is_free=lambda port: port != 20_050) == (20_000,)


def test_what_everybody_was_told_stands() -> None:
    launch = gang(1, node_ports=((20_000,), (20_077,)))
    assert ports_for(launch, 1, kept=(20_050,), is_free=lambda port: False) == (20_077,)


def test_too_few_free_ports_are_a_failure_of_the_node_with_the_span_named() -> None:
    with pytest.raises(LaunchRefused, match="20000 to 20099"):
        ports_for(gang(0), 1, is_free=lambda port: False)


def test_a_rank_alone_takes_the_port_that_was_found_here() -> None:
    alone = replace(gang(0), node_ids=("a",), node_addresses=("10.0.0.1",))
    assert with_own_ports(alone, (20_005,)).master_port == 20_005
    assert with_own_ports(gang(0), (20_005,)).master_port == 20_000
