"""The variables of a rank with compat = slurm."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from dlq_nodeagent.devices.fake import FakeDevices, parse_virtual
from dlq_nodeagent.launch.slurm import slurm_environment, spread
from dlq_nodeagent.model.messages import Launch
from support.agent_bench import a_launch

TWO_GPUS = FakeDevices(parse_virtual("2xH100-80GB"), "n1").devices()


def slurm_launch(**changes: object) -> Launch:
    """The second node of two, with two GPUs."""
    launch = a_launch(
        rank=1,
        node_ids=("gpu-a", "gpu-b"),
        gpu_indexes=(0, 1),
        compat="slurm",
        job_name="train",
        queue="default",
        working_directory="/home/ada",
    )
    return replace(launch, **changes)  # type: ignore[arg-type]  # names are checked when it runs


def variables(launch: Launch) -> dict[str, str]:
    """What the rank finds."""
    return slurm_environment(launch, TWO_GPUS, user="ada", uid=1000, now_s=1000.0, cluster="lab")


def test_a_rank_finds_what_a_task_of_slurm_would() -> None:
    found = variables(slurm_launch())
    assert found["SLURM_JOB_ID"] == found["SLURM_JOBID"] == "17"
    assert found["SLURM_JOB_NODELIST"] == found["SLURM_NODELIST"] == "gpu-a,gpu-b"
    assert found["SLURM_NNODES"] == found["SLURM_JOB_NUM_NODES"] == "2"
    assert (found["SLURM_NODEID"], found["SLURMD_NODENAME"]) == ("1", "gpu-b")
    assert (found["SLURM_NTASKS"], "SLURM_NTASKS_PER_NODE" in found) == ("4", False)
    assert found["SLURM_TASKS_PER_NODE"] == "2(x2)"
    assert (found["SLURM_PROCID"], found["SLURM_LOCALID"]) == ("2", "0")
    assert (found["SLURM_GPUS_ON_NODE"], found["SLURM_JOB_GPUS"]) == ("2", "0,1")
    assert (found["SLURM_JOB_NAME"], found["SLURM_JOB_PARTITION"]) == ("train", "default")
    assert found["SLURM_CLUSTER_NAME"] == "lab"
    assert (found["SLURM_JOB_USER"], found["SLURM_SUBMIT_DIR"]) == ("ada", "/home/ada")


def test_one_task_of_a_node_has_the_nodes_number() -> None:
    found = variables(slurm_launch(tasks_per_node=1))
    assert (found["SLURM_NTASKS"], found["SLURM_PROCID"]) == ("2", "1")


def test_restarts_are_counted_from_the_second_attempt_on() -> None:
    assert "SLURM_RESTART_COUNT" not in variables(slurm_launch())
    assert variables(slurm_launch(restart_count=2))["SLURM_RESTART_COUNT"] == "2"


def test_limits_are_told_where_there_are_some() -> None:
    found = variables(slurm_launch(time_left_s=60.0, cpu_limit=8.0, memory_limit_bytes=1 << 30))
    assert (found["SLURM_JOB_START_TIME"], found["SLURM_JOB_END_TIME"]) == ("1000", "1060")
    assert (found["SLURM_CPUS_ON_NODE"], found["SLURM_JOB_CPUS_PER_NODE"]) == ("8", "8(x2)")
    assert found["SLURM_MEM_PER_NODE"] == "1024"
    assert not {"SLURM_JOB_END_TIME", "SLURM_CPUS_PER_TASK"} & variables(slurm_launch()).keys()


def test_tasks_of_a_job_are_spread_by_its_cores() -> None:
    fields = {"tasks": 5, "cpus_per_task": 2}
    found = variables(slurm_launch(node_core_counts=(8, 2), core_indexes=(0, 1), fields=fields))
    assert (found["SLURM_NTASKS"], found["SLURM_TASKS_PER_NODE"]) == ("5", "4,1")
    assert (found["SLURM_PROCID"], found["SLURM_GTIDS"]) == ("4", "4")
    assert (found["SLURM_CPUS_PER_TASK"], found["SLURM_CPUS_ON_NODE"]) == ("2", "2")
    assert found["SLURM_JOB_CPUS_PER_NODE"] == "8,2"


@given(total=st.integers(1, 400), rooms=st.lists(st.integers(0, 130), min_size=1, max_size=6))
def test_no_task_is_lost_or_doubled_however_the_nodes_are(total: int, rooms: list[int]) -> None:
    counts = spread(total, rooms)
    assert (sum(counts), len(counts)) == (total, len(rooms))
    if total <= sum(rooms):
        assert all(count <= room for count, room in zip(counts, rooms, strict=True))


def test_a_task_of_an_array_finds_its_array() -> None:
    told = {"DLQ_ARRAY_JOB_ID": "12", "DLQ_ARRAY_TASK_ID": "4", "DLQ_ARRAY_TASK_COUNT": "9"}
    found = variables(slurm_launch(environment=told))
    assert {name: value for name, value in found.items() if "ARRAY" in name} == {
        "SLURM_ARRAY_JOB_ID": "12",
        "SLURM_ARRAY_TASK_ID": "4",
        "SLURM_ARRAY_TASK_COUNT": "9",
    }


def test_a_number_of_tasks_per_node_that_the_tasks_contradict_is_left_out_as_in_slurm() -> None:
    found = variables(slurm_launch(fields={"tasks": 3}, tasks_per_node=1))
    assert (found["SLURM_NTASKS"], "SLURM_NTASKS_PER_NODE" in found) == ("3", False)
    found = variables(slurm_launch(fields={"tasks": 3}, tasks_per_node=2))
    assert found["SLURM_NTASKS_PER_NODE"] == "2"
