"""What containers are made of, without any container: options, devices, secrets, plans, groups."""

import json
import os
import stat
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from dlq_common.errors import ConfigError
from dlq_nodeagent.cgroups.detect import detect_for_containers, engine_path
from dlq_nodeagent.cgroups.port import CgroupDir
from dlq_nodeagent.config import AgentConfig, check_config
from dlq_nodeagent.devices.fake import FakeDevices, parse_virtual
from dlq_nodeagent.devices.port import Device
from dlq_nodeagent.jobtree.user_rights import UserRights
from dlq_nodeagent.launch.launching import Launching
from dlq_nodeagent.launch.rules import AgentJobsConfig
from dlq_nodeagent.model.launch import ContainerPlan, LaunchPlan, Mount, RankKey
from dlq_nodeagent.model.messages import ContainerRequest, Launch, MountRequest
from dlq_nodeagent.model.mistakes import NOT_FOUND, LaunchRefused, UserMistake
from dlq_nodeagent.runtimes.podman.client import (
    PodmanClient,
    PodmanConfig,
    choose_oci_runtime,
    last_words,
)
from dlq_nodeagent.runtimes.podman.devices import device_words
from dlq_nodeagent.runtimes.podman.images import Image
from dlq_nodeagent.runtimes.podman.prepare import PodmanContainers
from dlq_nodeagent.runtimes.podman.pulls import Pulls
from dlq_nodeagent.runtimes.podman.run import run_command
from dlq_nodeagent.runtimes.podman.secrets import Secrets
from support.agent_bench import a_launch

ROOT_ONLY = pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")
KEY = RankKey("17", 1, 0)
CANARY = "canary-c0ffee"


# ---- the command


def command(plan: LaunchPlan, box: ContainerPlan) -> list[str]:
    return run_command(
        PodmanClient(oci_runtime="runc"),
        plan,
        box,
        agent="a1",
        init=Path("/opt/dlq-init"),
        home=Path("/var/lib/dlq-agent/attempts/17.1.0"),
        cgroup_parent="/dlq/n1/17.1.0",
        writable=False,
    )


def a_plan(**fields: object) -> LaunchPlan:
    known: dict[str, object] = {
        **{"job_id": "17", "attempt": 1, "epoch": 3, "node_rank": 0, "uid": 1000, "gid": 1001},
        **{"argv": ("python", f"--token={CANARY}"), "env": {"WANDB": CANARY}, "groups": (1002,)},
    }
    return LaunchPlan(**(known | fields))  # type: ignore[arg-type]


def test_a_container_is_its_submitters_without_any_right_to_become_more() -> None:
    words = command(a_plan(), ContainerPlan(image="abc"))
    for option in (
        *("--user=1000:1001", "--group-add=1002", "--cap-drop=all", "--read-only"),
        *("--security-opt=no-new-privileges", "--image-volume=ignore", "--pull=never", "--init"),
        *("--log-driver=passthrough", "--cgroup-parent=/dlq/n1/17.1.0", "--network=host"),
    ):
        assert option in words
    assert not [word for word in words if "privileged" in word and "no-new" not in word]


def test_nothing_of_the_job_is_on_podmans_command_line_but_its_mounts_places() -> None:
    box = ContainerPlan(image="abc", mounts=(Mount("/home/u/data", "/data", read_only=True),))
    words = command(a_plan(), box)
    assert CANARY not in "\n".join(words)
    assert "python" not in words
    assert words[-2:] == ["abc", "17.1.0"]
    pinned = "/var/lib/dlq-agent/attempts/17.1.0/podman/m0"
    assert f"--volume={pinned}:/data:ro,rbind,nosuid,nodev,rprivate" in words
    assert "/home/u/data" not in "\n".join(words)


def test_limits_are_the_jobs_and_shared_memory_is_half_of_its_memory_unless_it_says() -> None:
    words = command(a_plan(memory_bytes=1 << 30, cpus=2.5, pids_max=100), ContainerPlan(image="a"))
    for option in (
        *(f"--memory={1 << 30}b", f"--memory-swap={1 << 30}b", "--cpus=2.5", "--pids-limit=101"),
        f"--shm-size={1 << 29}b",
    ):
        assert option in words
    assert "--shm-size=7b" in command(a_plan(), ContainerPlan(image="a", shm_bytes=7))


@pytest.mark.parametrize("path", ["relative", "/a:b", "/a,b", "/a/../b", "/a\nb"])
def test_a_mount_that_podman_would_read_otherwise_is_refused(path: str) -> None:
    with pytest.raises(LaunchRefused, match="cannot be passed on"):
        ContainerPlan(image="a", mounts=(Mount("/src", path, read_only=True),))


@pytest.mark.parametrize("image", ["", "--privileged"])
def test_what_is_no_image_is_refused(image: str) -> None:
    with pytest.raises(LaunchRefused, match="not an image"):
        ContainerPlan(image=image)


def test_podman_is_given_nothing_of_the_agents_environment_but_its_own_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LD_PRELOAD", "/evil.so")
    monkeypatch.setenv("PYTHONPATH", "/evil")
    monkeypatch.setenv("CONTAINERS_CONF", "/etc/x.conf")
    environment = PodmanClient().environment()
    assert environment["CONTAINERS_CONF"] == "/etc/x.conf"
    assert not {"LD_PRELOAD", "PYTHONPATH"} & environment.keys()


def test_podmans_last_words_are_its_error() -> None:
    assert last_words("WARN x\nError: no such image\n\n") == "no such image"
    assert last_words("\n") == "podman said nothing"


def test_crun_is_not_chosen_where_it_refuses_to_run() -> None:
    assert choose_oci_runtime("v2", "") == ""
    assert choose_oci_runtime("hybrid", "crun") == "crun"
    assert choose_oci_runtime("hybrid", "") in ("runc", "")


# ---- devices


def gpu(index: int, *, virtual: bool = False) -> Device:
    return Device(index, f"GPU-{index}", "h100-80gb", "H100", 80 << 30, virtual)


@pytest.fixture
def host(tmp_path: Path) -> Path:
    for name in ("cdi", "dev", "proc/0000:01:00.0", "proc/0000:02:00.0"):
        (tmp_path / name).mkdir(parents=True)
    for minor, uuid in ((1, "GPU-0"), (0, "GPU-1")):
        text = f"Model: \t H100\nGPU UUID: \t {uuid}\nDevice Minor: \t {minor}\n"
        (tmp_path / f"proc/0000:0{minor + 1}:00.0/information").write_text(text)
        (tmp_path / f"dev/nvidia{minor}").touch()
    (tmp_path / "dev/nvidiactl").touch()
    (tmp_path / "dev/nvidia-uvm").touch()
    return tmp_path


def words_of(host: Path, *devices: Device) -> tuple[str, ...]:
    return device_words(devices, cdi_dirs=(host / "cdi",), dev=host / "dev", proc=host / "proc")


def test_raw_nodes_are_found_by_their_minor_number_and_come_with_the_control_nodes(
    host: Path,
) -> None:
    dev = host / "dev"
    assert words_of(host, gpu(0)) == (*(f"{dev}/nvidia1", f"{dev}/nvidiactl", f"{dev}/nvidia-uvm"),)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("n.json", json.dumps({"kind": "nvidia.com/gpu", "devices": [{"name": "GPU-1"}]})),
        ("n.yaml", "kind: nvidia.com/gpu\ndevices:\n- name: GPU-1\n- name: all\n"),
    ],
)
def test_a_cdi_specification_that_names_the_gpu_wins(host: Path, name: str, text: str) -> None:
    (host / "cdi" / name).write_text(text)
    assert words_of(host, gpu(1)) == ("nvidia.com/gpu=GPU-1",)
    assert words_of(host, gpu(0))[0] == f"{host}/dev/nvidia1"


def test_a_cdi_specification_by_index_is_used_too_and_a_broken_one_is_not(host: Path) -> None:
    (host / "cdi/a.json").write_text("{")
    (host / "cdi/b.json").write_text(json.dumps({"kind": "other/gpu", "devices": [{"name": "0"}]}))
    assert words_of(host, gpu(0))[0].startswith("/")
    spec = {"kind": "nvidia.com/gpu", "devices": [{"name": "0"}, {"name": "1"}]}
    (host / "cdi/c.json").write_text(json.dumps(spec))
    assert words_of(host, gpu(0), gpu(1)) == ("nvidia.com/gpu=0", "nvidia.com/gpu=1")


def test_virtual_devices_have_no_nodes_and_a_missing_node_is_the_hosts_failure(host: Path) -> None:
    assert words_of(host, gpu(0, virtual=True)) == ()
    with pytest.raises(LaunchRefused, match="GPU-7"):
        words_of(host, gpu(7))


# ---- secrets


@pytest.fixture
def secrets(tmp_path: Path) -> Secrets:
    for place in ("users/alice", "users/bob", "everybody"):
        (tmp_path / "secrets" / place).mkdir(parents=True)
    for place, content in (
        ("users/alice/token", CANARY),
        ("users/bob/his", "bobs"),
        ("everybody/shared", "ours"),
        ("everybody/token", "not alices"),
    ):
        path = tmp_path / "secrets" / place
        path.write_text(content)
        path.chmod(0o600)
    return Secrets(tmp_path / "secrets", tmp_path / "run")


def test_a_secret_is_its_users_first_and_everybodys_next(secrets: Secrets) -> None:
    assert secrets.read("token", "alice") == CANARY.encode()
    assert secrets.read("token", "bob") == b"not alices"
    assert secrets.read("shared", "alice") == b"ours"


@pytest.mark.parametrize("name", ["his", "none", "../bob/his", "users/bob/his", ".", ""])
def test_another_users_secret_cannot_be_named(secrets: Secrets, name: str) -> None:
    with pytest.raises(UserMistake):
        secrets.read(name, "alice")
    with pytest.raises(UserMistake):
        secrets.read("token", "../users/alice")


def test_a_secret_that_others_could_read_or_that_is_a_link_is_refused(
    secrets: Secrets, tmp_path: Path
) -> None:
    path = tmp_path / "secrets/users/alice/token"
    path.chmod(0o640)
    with pytest.raises(LaunchRefused, match="0600"):
        secrets.read("token", "alice")
    path.unlink()
    path.symlink_to("/etc/passwd")
    with pytest.raises(LaunchRefused, match="cannot be read"):
        secrets.read("token", "alice")
    path.unlink()
    os.mkfifo(path, 0o600)
    with pytest.raises(LaunchRefused, match="plain file"):
        secrets.read("token", "alice")


@ROOT_ONLY
def test_what_is_handed_over_is_its_users_alone_and_is_taken_back(secrets: Secrets) -> None:
    place = secrets.hand_over(KEY, ["token", "shared"], user="alice", uid=12345, gid=12346)
    assert place is not None
    info = (place / "token").stat()
    assert (info.st_uid, stat.S_IMODE(info.st_mode)) == (12345, 0o400)
    assert stat.S_IMODE(place.parent.stat().st_mode) == 0o700
    assert (place / "shared").read_text() == "ours"
    secrets.keep_only({KEY})
    assert place.exists()
    secrets.keep_only(set())
    assert not place.exists()
    secrets.take_back(KEY)


def test_a_job_that_asks_for_nothing_is_handed_nothing(secrets: Secrets, tmp_path: Path) -> None:
    assert secrets.hand_over(KEY, (), user="alice", uid=0, gid=0) is None
    assert not (tmp_path / "run").exists()


def test_credentials_are_a_private_file_for_as_long_as_they_are_needed(
    secrets: Secrets, tmp_path: Path
) -> None:
    path = tmp_path / "secrets/users/alice/robot"
    path.write_text(f"robot:{CANARY}\n")
    path.chmod(0o600)
    with secrets.auth_file("reg.example:5000/a/b:1", "robot", "alice") as auth:
        assert stat.S_IMODE(auth.stat().st_mode) == 0o600
        assert list(json.loads(auth.read_text())["auths"]) == ["reg.example:5000"]
    assert not auth.exists()
    whole = json.dumps({"auths": {"x": {"auth": "eA=="}}})
    path.write_text(whole)
    with secrets.auth_file("reg.example/a:1", "robot", "alice") as auth:
        assert auth.read_text() == whole


def test_what_a_killed_agent_has_left_of_a_pulls_credentials_goes_when_the_next_one_starts(
    secrets: Secrets, tmp_path: Path
) -> None:
    path = tmp_path / "secrets/users/alice/robot"
    path.write_text(f"robot:{CANARY}\n")
    path.chmod(0o600)
    killed = secrets.auth_file("reg.example/a:1", "robot", "alice")
    left = killed.__enter__()
    assert left.exists()
    secrets.keep_only({KEY})
    assert [*(tmp_path / "run").glob("auth*")] == []


@pytest.mark.parametrize("content", ["{}", "{", "no colon", "two:lines\nmore:x"])
def test_a_secret_that_is_no_credential_is_refused_without_repeating_it(
    secrets: Secrets, tmp_path: Path, content: str
) -> None:
    path = tmp_path / "secrets/users/alice/robot"
    path.write_text(content + CANARY)
    path.chmod(0o600)
    with (
        pytest.raises(LaunchRefused) as caught,
        secrets.auth_file("reg.example/a:1", "robot", "alice"),
    ):
        pass
    assert CANARY not in str(caught.value)


# ---- launches


class NoImages:
    """Every image is there."""

    def usable(self, image: str, user: str) -> Image:
        return Image("feed", "/workspace", 1)


@pytest.fixture
def containers(secrets: Secrets, tmp_path: Path) -> PodmanContainers:
    return PodmanContainers(
        images=NoImages(),  # type: ignore[arg-type]
        pulls=Pulls(fetch=lambda wish, say, ending: None),
        secrets=secrets,
        mount_roots=(str(tmp_path),),
    )


def asking(**fields: object) -> Launch:
    request = ContainerRequest(**({"image": "reg.example/a:1"} | fields))  # type: ignore[arg-type]
    return replace(a_launch(), container=request, user="alice", working_directory="")


def ready(
    containers: PodmanContainers, launch: Launch, devices: Sequence[Device] = ()
) -> ContainerPlan:
    rights = UserRights(os.getuid(), os.getgid())
    return containers.plan(launch, rights, devices, Path("/s/17.1.0"))


def test_a_container_sees_its_script_its_checkpoints_and_what_was_asked_for(
    containers: PodmanContainers, tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "old").mkdir()
    launch = replace(
        asking(mounts=(MountRequest(source=f"{tmp_path}/data", target="/d", read_only=True),)),
        checkpoint_directory="/ckpt/17/2",
        resume_from=str(tmp_path / "old"),
    )
    plan = ready(containers, launch)
    assert (plan.image, plan.image_cwd) == ("feed", "/workspace")
    assert ready(containers, replace(launch, working_directory="/here")).image_cwd == ""
    assert set(plan.mounts) == {
        Mount(f"{tmp_path}/data", "/d", read_only=True),
        Mount(str(tmp_path / "old"), str(tmp_path / "old"), read_only=True),
        Mount("/ckpt/17/2", "/ckpt/17/2", read_only=False),
    }
    assert plan.own_mounts == (Mount("/s/17.1.0", "/s/17.1.0", read_only=True),)
    assert set(plan.mount_roots) == {str(tmp_path), "/ckpt/17/2", str(tmp_path / "old")}


def test_a_mount_that_is_not_there_or_not_allowed_is_told_before_the_pull(
    containers: PodmanContainers, tmp_path: Path
) -> None:
    with pytest.raises(UserMistake, match="does not exist on this node") as caught:
        ready(containers, asking(mounts=(MountRequest(source=f"{tmp_path}/no", target="/d"),)))
    assert caught.value.exit_code == NOT_FOUND
    with pytest.raises(UserMistake, match="not below any directory"):
        ready(containers, asking(mounts=(MountRequest(source="/usr", target="/d"),)))


def test_a_node_without_containers_refuses_one(tmp_path: Path) -> None:
    launching = Launching(
        rules=AgentConfig(jobs=AgentJobsConfig(allow_root=True, run_as="self")).rules(),
        devices=FakeDevices(parse_virtual("1xH100-80GB"), "n1").devices(),
        job_files=lambda key: pytest.fail("not reached"),
        now_s=lambda: 0.0,
    )
    refused = launching.prepare(replace(asking(), runtime="podman"))
    assert "runs no containers" in refused.error
    assert refused.exit_code is None


def test_the_configuration_of_containers_is_checked() -> None:
    with pytest.raises(ConfigError, match=r"podman\.mount_roots"):
        check_config(AgentConfig(podman=PodmanConfig(mount_roots=("data",))))


def test_a_run_root_that_podman_would_refuse_is_refused_when_the_agent_starts() -> None:
    config = AgentConfig(jobs=AgentJobsConfig(run_as="self", allow_root=True))
    longest = "/run/" + "x" * 45
    check_config(replace(config, podman=PodmanConfig(run_root=longest)))
    with pytest.raises(ConfigError, match=r"podman\.run_root: .* longer than 50 bytes"):
        check_config(replace(config, podman=PodmanConfig(run_root=longest + "x")))


# ---- control groups


def test_an_engines_path_begins_at_the_mount_of_its_hierarchy() -> None:
    found = [path for path in Path("/sys/fs/cgroup").glob("*") if os.path.ismount(path)]
    mount = found[0] if found else Path("/sys/fs/cgroup")
    assert engine_path([CgroupDir("pids", str(mount / "dlq/n/17.1.0"))]) == "/dlq/n/17.1.0"
    assert engine_path([]) == ""


def test_on_v1_a_container_has_one_path_in_every_hierarchy(tmp_path: Path) -> None:
    mounts, own = [], []
    for number, kind in enumerate(("memory", "pids", "devices", "cpuset", "blkio")):
        (tmp_path / kind / "unit").mkdir(parents=True)
        mounts.append(f"cgroup {tmp_path}/{kind} cgroup rw,{kind} 0 0")
        own.append(f"{number}:{kind}:/unit")
    (tmp_path / "self").mkdir()
    (tmp_path / "self/mounts").write_text("\n".join(mounts))
    (tmp_path / "self/cgroup").write_text("\n".join(own))
    tree = detect_for_containers("n1", proc=tmp_path)
    assert tree.mode == "v1"
    assert {path.name for path in tmp_path.glob("*/unit/dlq/n1")} == {"n1"}
    assert len(list(tmp_path.glob("*/unit/dlq/n1"))) == 5
    own[0] = "0:memory:/elsewhere"
    (tmp_path / "self/cgroup").write_text("\n".join(own))
    detect_for_containers("n2", proc=tmp_path)
    assert len(list(tmp_path.glob("*/dlq/n2"))) == 5  # one path that is the same everywhere: /
