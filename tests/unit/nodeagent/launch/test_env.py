"""The environment of a job."""

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from dlq_nodeagent.devices.fake import FakeDevices, parse_virtual
from dlq_nodeagent.devices.port import Device
from dlq_nodeagent.launch.env import UserAccount, job_environment
from dlq_nodeagent.model.messages import Launch
from dlq_nodeagent.model.port import JobFiles
from support.agent_bench import a_launch

FILES = JobFiles("/a/notice.json", "/a/job", "/a/job/beat", "/a/job/done", "/a/save.json")
ACCOUNT = UserAccount("ada", "/home/ada")
REAL = tuple(
    Device(
        index=index,
        uuid=f"GPU-{index}",
        gpu_type="h100-80gb",
        model_name="NVIDIA H100",
        memory_bytes=80 * 2**30,
        virtual=False,
    )
    for index in (2, 5)
)


def environment(launch: Launch, devices: tuple[Device, ...] = REAL) -> dict[str, str]:
    """What the job gets."""
    return job_environment(
        launch, devices=devices, files=FILES, account=ACCOUNT, now_s=1000.0, cluster="lab"
    )


def test_a_gang_is_wired_for_torchrun_without_flags() -> None:
    launch = a_launch(
        rank=1,
        node_ids=("n1", "n2"),
        node_addresses=("10.0.0.1", "10.0.0.2"),
        master_port=29600,
    )
    env = environment(launch)
    assert env["PET_NNODES"] == env["NNODES"] == env["DLQ_NNODES"] == "2"
    assert env["PET_NODE_RANK"] == env["NODE_RANK"] == "1"
    assert env["PET_NPROC_PER_NODE"] == env["NPROC_PER_NODE"] == "2"
    assert env["PET_RDZV_BACKEND"] == "static"
    assert env["PET_RDZV_ENDPOINT"] == "10.0.0.1:29600"
    assert env["PET_RDZV_ID"] == "17.1"
    assert env["PET_MAX_RESTARTS"] == "0"
    assert (env["MASTER_ADDR"], env["MASTER_PORT"]) == ("10.0.0.1", "29600")
    assert env["DLQ_NODELIST"] == "n1,n2"


def test_an_elastic_job_is_told_what_it_has_and_what_it_might_have() -> None:
    launch = a_launch(
        node_ids=("n1", "n2"),
        node_addresses=("10.0.0.1", "10.0.0.2"),
        node_gpu_counts=(2, 2),
        sizes=(2, 4, 8),
        asked_gpus=2,
    )
    env = environment(launch)
    told = {
        name: env[name] for name in sorted(env) if name.startswith(("DLQ_GPUS", "DLQ_A", "DLQ_B"))
    }
    assert told.pop("DLQ_ATTEMPT")
    told.pop("DLQ_BEAT_FILE")
    assert told == {
        "DLQ_ASKED_GPUS": "2", "DLQ_BASE_GPUS": "2", "DLQ_BATCH_SCALE": "0.5", "DLQ_GPUS": "4",
        "DLQ_GPUS_PER_NODE": "2",
    }  # fmt: skip
    assert env["DLQ_ELASTIC_SIZES"] == "2,4,8"
    assert "DLQ_ELASTIC_SIZES" not in environment(a_launch())


def test_resized_live_torchrun_is_told_who_may_come_and_where_they_meet() -> None:
    launch = a_launch(
        node_ids=("n1", "n2", "n3"),
        node_addresses=("10.0.0.1", "10.0.0.2", "10.0.0.3"),
        node_gpu_counts=(2, 0, 2),
        rank=2,
        master_port=29600,
        sizes=(2, 4, 8),
        asked_gpus=2,
        live=True,
    )
    env = environment(launch)
    assert (env["PET_NNODES"], env["PET_RDZV_BACKEND"], env["PET_NPROC_PER_NODE"]) == (
        "1:4",
        "c10d",
        "2",
    )
    assert (env["PET_RDZV_ENDPOINT"], env["PET_LOCAL_ADDR"]) == ("10.0.0.1:29600", "10.0.0.3")
    assert env["PET_RDZV_CONF"].startswith("is_host=0,")
    assert "PET_NODE_RANK" not in env
    assert int(env["PET_MAX_RESTARTS"]) > 0
    assert (env["DLQ_ELASTIC_MODE"], env["DLQ_NNODES"]) == ("live", "2")
    assert not {"DLQ_GPUS", "DLQ_BATCH_SCALE"} & env.keys(), "they would be old after a resize"
    assert "PET_LOG_DIR" not in env
    assert environment(replace(launch, joins=True))["PET_LOG_DIR"] == "/a/job/torchrun"


def test_the_first_node_of_a_live_job_hosts_its_rendezvous_where_others_can_reach_it() -> None:
    launch = a_launch(
        node_ids=("n1",), node_addresses=("10.0.0.1",), master_port=29600, sizes=(2, 4), live=True
    )
    env = environment(launch)
    assert env["PET_RDZV_CONF"].startswith("is_host=1,")
    assert env["PET_RDZV_ENDPOINT"] == "10.0.0.1:29600"
    assert env["MASTER_ADDR"] == "10.0.0.1"


@pytest.mark.parametrize(("asked_gib", "scale"), [(80, "1"), (81, "0.5")])
def test_on_gpus_that_are_too_small_half_the_batch_is_hinted(asked_gib: int, scale: str) -> None:
    launch = a_launch(asked_gpus=2, gpu_memory_bytes=asked_gib * 2**30)
    assert environment(launch)["DLQ_BATCH_SCALE"] == scale


def test_each_rank_is_told_the_types_of_all_gpus() -> None:
    launch = a_launch(rank=1, node_gpu_types=("h100-80gb", "a100-40gb"))
    env = environment(launch)
    assert env["DLQ_GPU_TYPE"] == "a100-40gb"
    assert env["DLQ_NODE_GPU_TYPES"] == "h100-80gb,a100-40gb"
    own = environment(a_launch(rank=1))  # by a master that does not tell
    assert own["DLQ_GPU_TYPE"] == own["DLQ_NODE_GPU_TYPES"] == "h100-80gb"


def test_each_rank_of_a_mixed_job_is_told_its_share_of_the_batch() -> None:
    types = ("h100-80gb", "t4-16gb")
    shares = (0.4, 0.1)  # two GPUs on each
    env = environment(a_launch(rank=1, node_gpu_types=types, node_batch_shares=shares))
    assert env["DLQ_BATCH_SHARE"] == "0.1"
    assert env["DLQ_NODE_BATCH_SHARES"] == "0.4,0.1"
    assert "DLQ_BATCH_SHARE" not in environment(a_launch(rank=1, node_gpu_types=types))


def test_no_variable_makes_a_launcher_think_that_ranks_exist_already() -> None:
    assert not {"RANK", "LOCAL_RANK", "WORLD_SIZE"} & environment(a_launch()).keys()


def test_a_job_of_one_node_meets_itself_on_loopback() -> None:
    launch = a_launch(node_ids=("n1",), node_addresses=("10.0.0.1",), master_port=29600)
    assert environment(launch)["MASTER_ADDR"] == "127.0.0.1"


def test_gpus_are_named_by_uuid() -> None:
    env = environment(a_launch())
    assert env["CUDA_VISIBLE_DEVICES"] == "GPU-2,GPU-5"
    assert "DLQ_VIRTUAL_DEVICES" not in env


def test_a_job_on_virtual_devices_sees_no_real_gpu() -> None:
    devices = FakeDevices(parse_virtual("2xH100-80GB"), "n1").devices()
    env = environment(a_launch(), devices)
    assert env["CUDA_VISIBLE_DEVICES"] == ""
    assert env["DLQ_VIRTUAL_DEVICES"] == "VIRTUAL-n1-0,VIRTUAL-n1-1"


def test_nothing_of_the_agent_is_inherited(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LD_PRELOAD", "PYTHONPATH", "DLQ_JOBS__RUN_AS", "SECRET"):
        monkeypatch.setenv(name, "agent's")
    assert "agent's" not in environment(a_launch()).values()
    assert os.environ["SECRET"] == "agent's"


def test_the_jobs_own_variables_are_kept_and_go_before_those_of_a_login() -> None:
    mine = {"LD_LIBRARY_PATH": "/opt/lib", "PYTHONPATH": "/me", "HOME": "/scratch", "PATH": "/p"}
    assert mine.items() <= environment(a_launch(environment=mine)).items()


@pytest.mark.parametrize(
    "name", ["DLQ_JOB_ID", "DLQ_FENCE", "CUDA_VISIBLE_DEVICES", "PET_NNODES", "DLQ_CHECKPOINT_DIR"]
)
def test_what_dlq_says_cannot_be_overridden(name: str) -> None:
    env = environment(a_launch(environment={name: "mine"}))
    assert env[name] != "mine"


def test_a_login_is_filled_in_where_the_job_says_nothing() -> None:
    env = environment(a_launch())
    assert (env["HOME"], env["USER"], env["LOGNAME"]) == ("/home/ada", "ada", "ada")
    assert "/usr/bin" in env["PATH"]


def test_only_a_trial_is_told_that_it_is_one() -> None:
    assert environment(a_launch(trial=True))["DLQ_TRIAL"] == "1"
    assert "DLQ_TRIAL" not in environment(a_launch())


def test_files_resume_and_limits_are_told() -> None:
    launch = a_launch(resume_from="/ckpt/17/0/step-000100", time_left_s=60.4, restart_count=2)
    env = environment(launch)
    assert env["DLQ_RESUME_FROM"] == "/ckpt/17/0/step-000100"
    assert env["DLQ_PREEMPT_FILE"] == FILES.preempt_file
    assert env["DLQ_SAVE_FILE"] == FILES.save_file
    assert env["DLQ_BEAT_FILE"] == FILES.beat_file
    assert env["DLQ_DONE_FILE"] == FILES.done_file
    assert env["DLQ_CHECKPOINT_DIR"] == "/ckpt/17/1"
    assert env["DLQ_TIME_LIMIT_END"] == "1060"
    assert env["DLQ_RESTART_COUNT"] == "2"
    assert env["DLQ_FENCE"] == "7.1"


def test_a_first_attempt_is_not_told_to_resume() -> None:
    env = environment(a_launch())
    assert "DLQ_RESUME_FROM" not in env
    assert "DLQ_TIME_LIMIT_END" not in env


def test_a_check_is_run_by_the_agents_interpreter_and_knows_planted_faults(tmp_path: Path) -> None:
    spec = parse_virtual(f"1xH100-80GB@{tmp_path}/script")
    devices = FakeDevices(spec, "n1").devices()
    env = environment(a_launch(environment={"DLQ_CHECK": "disk"}), devices)
    assert env["PATH"].split(":")[0] == os.path.dirname(sys.executable)
    assert env["DLQ_CHECK_FAULTS"] == f"{tmp_path}/script"
    plain = environment(a_launch(), devices)
    assert "DLQ_CHECK_FAULTS" not in plain
    assert os.path.dirname(sys.executable) not in plain["PATH"].split(":")
