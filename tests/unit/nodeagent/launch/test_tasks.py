"""Which processes a node has for a rank, what each is told, and which ports they get."""

import json
import os
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dlq_nodeagent.devices.port import Device
from dlq_nodeagent.launch import programs
from dlq_nodeagent.launch.ports import ports_for
from dlq_nodeagent.launch.programs import install_program
from dlq_nodeagent.launch.tasks import (
    PER_GPU,
    port_count,
    tasks_of,
    with_own_ports,
    with_tasks,
)
from dlq_nodeagent.model.messages import Launch
from dlq_nodeagent.model.mistakes import LaunchRefused
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


# ---- where dlq-tasks lies


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where dlq is installed; every user can pass the directories above it."""
    with tempfile.TemporaryDirectory(prefix="dlq-installed-") as name:
        os.chmod(name, 0o755)
        program = Path(name) / "dlq-tasks"
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
        monkeypatch.setattr(programs, "ensure_program", lambda _: program)
        yield program


def started(state_dir: Path) -> str:
    launch = replace(gang(0), launch_mode=PER_GPU)
    return with_tasks(launch, ("x",), GPUS, words_at="/w", state_dir=state_dir)[0]


def test_a_program_that_every_user_can_start_is_started_from_where_it_is(
    installed: Path, tmp_path: Path
) -> None:
    install_program(tmp_path, installed)
    assert started(tmp_path) == str(installed)
    assert os.listdir(tmp_path) == []


def test_users_start_a_copy_where_dlq_lies_in_a_directory_that_is_closed_to_them(
    installed: Path, tmp_path: Path
) -> None:
    installed.parent.chmod(0o700)
    install_program(tmp_path, installed)
    copy = Path(started(tmp_path))
    assert copy.is_relative_to(tmp_path)
    assert copy.read_bytes() == installed.read_bytes()
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (copy, copy.parent)]
    assert modes == [0o755, 0o755]
    before = copy.stat().st_ino
    install_program(tmp_path, installed)
    assert copy.stat().st_ino != before, "what runs keeps its file"
