"""What starts a rank with compat = slurm, and what it is told for steps."""

from dataclasses import replace
from pathlib import Path

import pytest

from dlq_nodeagent.devices.fake import FakeDevices, parse_virtual
from dlq_nodeagent.launch import steps
from dlq_nodeagent.launch.steps import (
    StartPlace,
    install_stand_ins,
    stand_ins_mount,
    step_environment,
    with_batch,
)
from dlq_nodeagent.launch.tasks import port_count
from dlq_nodeagent.model.launch import Mount
from dlq_nodeagent.model.messages import Launch
from dlq_nodeagent.model.mistakes import LaunchRefused
from dlq_nodeagent.shim.binary import ShimMissing
from support.agent_bench import a_launch

TWO_GPUS = FakeDevices(parse_virtual("2xH100-80GB"), "n1").devices()
STATE = Path("/var/lib/dlq")
BATCH = "/var/lib/dlq/slurm/bin/batch"
HERE = StartPlace("/home/ada", "/home/ada")
SRUN = ("/var/lib/dlq/slurm/bin/srun", "-K", "--")


def two_nodes(**changes: object) -> Launch:
    """The first of two nodes, with two GPUs."""
    launch = a_launch(
        rank=0,
        node_ids=("gpu-a", "gpu-b"),
        node_addresses=("10.0.0.1", "10.0.0.2"),
        node_gpu_counts=(2, 4),
        node_ports=((700, 701), (702,)),
        gpu_indexes=(0, 1),
        compat="slurm",
        step_key="ab" * 32,
    )
    return replace(launch, **changes)  # type: ignore[arg-type]  # names are checked when it runs


def one_node(**changes: object) -> Launch:
    return two_nodes(node_ids=("gpu-a",), node_addresses=("10.0.0.1",), node_ports=(), **changes)


def second(launch: Launch) -> Launch:
    return replace(launch, key=launch.key._replace(node_rank=1))


def test_a_script_runs_on_the_first_node_and_the_others_serve_its_steps() -> None:
    launch = two_nodes(script="#!/bin/sh\n")
    assert with_batch(launch, ("/bin/sh", "/s"), TWO_GPUS, STATE, HERE) == (BATCH, "/bin/sh", "/s")
    assert with_batch(second(launch), ("/bin/sh", "/s"), TWO_GPUS, STATE, HERE) == (BATCH, "--hold")


def test_a_script_that_starts_elsewhere_is_told_of_its_directory() -> None:
    start = StartPlace("/nowhere", "/tmp")
    words = with_batch(one_node(script="x"), ("/bin/sh", "/s"), TWO_GPUS, STATE, start)
    assert words == (BATCH, "--chdir", "/nowhere", "/bin/sh", "/s")
    launch = second(two_nodes(script="x"))
    assert with_batch(launch, ("/bin/sh",), TWO_GPUS, STATE, start) == (BATCH, "--hold")


def test_a_command_is_a_step_of_its_own_on_all_nodes() -> None:
    words = with_batch(two_nodes(tasks_per_node=1), ("train", "-x"), TWO_GPUS, STATE, HERE)
    assert words == (BATCH, *SRUN, "train", "-x")


@pytest.mark.parametrize(("tasks", "step"), [(None, SRUN), (1, ())])
def test_one_task_of_one_node_needs_no_step(tasks: int | None, step: tuple[str, ...]) -> None:
    words = with_batch(one_node(tasks_per_node=tasks), ("train", "-x"), TWO_GPUS, STATE, HERE)
    assert words == (BATCH, *step, "train", "-x")


def test_the_ranks_of_a_job_know_each_other_and_one_secret() -> None:
    told = step_environment(two_nodes(), TWO_GPUS, STATE)
    assert told == {
        "DLQ_SLURM_BIN": "/var/lib/dlq/slurm/bin",
        "DLQ_STEP_RANK": "0",
        "DLQ_STEP_PEERS": "gpu-a 10.0.0.1 701 2 0;gpu-b 10.0.0.2 702 4 0",
        "DLQ_STEP_KEY": "ab" * 32,
    }


def test_one_node_needs_neither_port_nor_secret() -> None:
    launch = one_node(cpu_limit=8.0)
    told = step_environment(launch, TWO_GPUS, STATE)
    assert told["DLQ_STEP_PEERS"] == "gpu-a 127.0.0.1 0 2 8"
    assert "DLQ_STEP_KEY" not in told
    assert port_count(launch) == 1


def test_cores_are_counted_where_they_were_given_out() -> None:
    told = step_environment(two_nodes(node_core_counts=(4, 2), node_gpu_counts=()), (), STATE)
    assert told["DLQ_STEP_PEERS"] == "gpu-a 10.0.0.1 701 0 4;gpu-b 10.0.0.2 702 0 2"


def test_each_node_of_several_has_a_port_for_steps() -> None:
    assert [port_count(two_nodes()), port_count(second(two_nodes()))] == [2, 1]
    assert port_count(replace(two_nodes(), compat="")) == 1


def test_a_job_that_is_resized_live_has_its_script_on_every_node() -> None:
    launch = second(two_nodes(live=True, script="#!/bin/sh\n"))
    assert with_batch(launch, ("/bin/sh", "/s"), TWO_GPUS, STATE, HERE) == (BATCH, "/bin/sh", "/s")
    told = step_environment(launch, TWO_GPUS, STATE)
    assert (told["DLQ_STEP_RANK"], told["DLQ_STEP_PEERS"]) == ("0", "gpu-b 127.0.0.1 0 2 0")


def test_other_jobs_are_started_as_they_are() -> None:
    launch = a_launch()
    assert with_batch(launch, ("train",), TWO_GPUS, STATE, HERE) == ("train",)
    assert stand_ins_mount(launch, STATE) == ()
    assert step_environment(launch, TWO_GPUS, STATE) == {}


def test_a_container_sees_the_stand_ins_and_cannot_change_them() -> None:
    place = "/var/lib/dlq/slurm"
    assert stand_ins_mount(two_nodes(), STATE) == (Mount(place, place, read_only=True),)


def test_a_node_without_stand_ins_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LaunchRefused, match="no stand-ins"):
        with_batch(two_nodes(), ("train",), TWO_GPUS, None, HERE)

    def missing(name: str) -> Path:
        raise ShimMissing(f"{name} is missing")

    monkeypatch.setattr(steps, "ensure_program", missing)
    with pytest.raises(LaunchRefused, match="dlq-steps is missing"):
        with_batch(two_nodes(), ("train",), TWO_GPUS, STATE, HERE)


def test_everybody_may_read_the_stand_ins_and_nobody_else_may_change_them(tmp_path: Path) -> None:
    install_stand_ins(tmp_path)
    install_stand_ins(tmp_path)  # an agent starts again
    made = sorted((tmp_path / "slurm").rglob("*"))
    assert {path.name for path in made if path.parent.name == "bin"} >= {"batch", "srun", "sbatch"}
    assert {path.stat().st_mode & 0o777 for path in made if path.is_dir()} == {0o755}
    assert {path.stat().st_mode & 0o022 for path in made} == {0}
    assert all(path.stat().st_mode & 0o004 for path in made)
