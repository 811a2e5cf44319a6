"""What `dlq doctor` says of a GPU host: every verdict that is not ok says what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from dlq_cli.commands.here.doctor import node_verdicts
from dlq_cli.doctor import host, nvidia
from dlq_cli.doctor.host import Host, HostWish
from dlq_cli.doctor.verdict import CheckVerdict, ClientHealth
from support.nvml_box import NvmlBox, compile_fake_nvml

V2 = "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n"
V1 = (
    "cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n"
    "cgroup /sys/fs/cgroup/pids cgroup rw,pids 0 0\n"
)


class Machine:
    """A tree of files, some programs, and what they say."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.programs: dict[str, str] = {}
        self.answers: dict[str, tuple[int, str]] = {}
        self.uid = 0

    def write(self, path: str, text: str = "") -> Path:
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        return place

    def has(self, *programs: str) -> None:
        self.programs |= {name: f"/usr/bin/{name}" for name in programs}

    @property
    def host(self) -> Host:
        return Host(root=self.root, uid=self.uid, which=self.programs.get, run=self._run)

    def _run(self, command: list[str]) -> tuple[int, str]:
        whole = " ".join(command)
        return self.answers.get(whole) or self.answers.get(command[0], (127, "not found"))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def healths(*verdicts: CheckVerdict) -> list[str]:
    for verdict in verdicts:
        assert verdict.health in (ClientHealth.OK, ClientHealth.SKIP) or verdict.todo, verdict
    return [verdict.health.value for verdict in verdicts]


@pytest.mark.parametrize(
    ("mounts", "controllers", "health", "found"),
    [
        (V2, "cpu memory pids io", "ok", "v2 at /sys/fs/cgroup"),
        (V1, "", "ok", "v1 at /sys/fs/cgroup/memory"),
        (V1 + V2, "", "ok", "v1 with a v2 tree beside it at /sys/fs/cgroup/memory"),
        (V2, "cpu", "fail", "no control group for memory, pids"),
        ("", "", "fail", "no control group for memory, pids"),
    ],
)
def test_cgroups_of_each_kind_are_recognised(
    mounts: str, controllers: str, health: str, found: str, machine: Machine
) -> None:
    machine.write("/proc/mounts", mounts)
    machine.write("/sys/fs/cgroup/cgroup.controllers", controllers)
    verdict = host.cgroups(machine.host)
    assert healths(verdict) == [health]
    assert found in verdict.found


def test_cgroups_that_another_user_cannot_write_are_told(machine: Machine) -> None:
    machine.write("/proc/mounts", V1)  # mounted where nobody, not even root, can write
    machine.uid = 1000
    verdict = host.cgroups(machine.host)
    assert healths(verdict) == ["warn"]
    assert "Delegate=yes" in verdict.todo


@pytest.mark.parametrize(
    ("programs", "said", "health", "found"),
    [
        ((), (127, ""), "warn", "not installed"),
        (("podman", "conmon", "catatonit", "crun"), (0, "podman version 4.3.1"), "ok", "4.3.1"),
        (("podman", "conmon", "catatonit", "runc"), (0, "podman version 5.4.2"), "ok", "5.4.2"),
        (("podman", "conmon", "crun"), (0, "podman version 4.3.1"), "fail", "without catatonit"),
        (("podman", "conmon", "catatonit"), (0, "version 4.3"), "fail", "without crun or runc"),
        (("podman", "conmon", "catatonit", "crun"), (0, "podman version 3.4.4"), "warn", "is old"),
        (("podman",), (1, "cannot open shared object"), "fail", "cannot open shared object"),
    ],
)
def test_podman_is_judged_with_what_it_needs(
    programs: tuple[str, ...], said: tuple[int, str], health: str, found: str, machine: Machine
) -> None:
    machine.has(*programs)
    machine.answers["/usr/bin/podman"] = said
    verdict = host.podman(machine.host)
    assert healths(verdict) == [health]
    assert found in verdict.found


def test_the_agents_own_check_of_its_configuration_is_told(machine: Machine) -> None:
    program = "/usr/bin/dlq-nodeagent"
    assert healths(host.agent(machine.host, HostWish())) == ["fail"]
    machine.has("dlq-nodeagent")
    machine.answers[program] = (1, "ModuleNotFoundError: No module named 'cattrs'")
    assert healths(host.agent(machine.host, HostWish())) == ["fail"], "without the extra"
    machine.answers[f"{program} --help"] = (0, "Usage")
    assert healths(host.agent(machine.host, HostWish())) == ["warn"], "no configuration"
    wish = HostWish(config=Path("/etc/dlq/nodeagent.toml"))
    machine.answers[program] = (1, "dlq-nodeagent: node.nam: unknown key\nmore")
    verdict = host.agent(machine.host, wish)
    assert (healths(verdict), verdict.found) == (["fail"], "node.nam: unknown key")
    machine.answers[program] = (0, "[node]")
    assert healths(host.agent(machine.host, wish)) == ["ok"]


def test_without_a_shim_there_is_no_runtime_not_even_podman() -> None:
    shim, podman = (
        CheckVerdict("shim", ClientHealth.FAIL, "", "x"),
        CheckVerdict("podman", ClientHealth.OK, "4.3"),
    )
    assert healths(host.runtimes(shim, podman)) == ["fail"]
    shim, podman = (
        CheckVerdict("shim", ClientHealth.OK, ""),
        CheckVerdict("podman", ClientHealth.WARN, "", "x"),
    )
    assert host.runtimes(shim, podman).found == "process"


def test_the_shim_of_this_tree_is_found() -> None:
    assert healths(host.shim()) == ["ok"]


@pytest.mark.parametrize(
    ("config", "wish"),
    [
        ("", {"state_dir": Path("/var/lib/dlq-agent"), "devices": "nvml", "submitter": True}),
        ("[node]\nstate_dir = '/x'\ndevices = 'none'\n", {"state_dir": Path("/x")}),
        ("[jobs]\nrun_as = 'self'\n", {"submitter": False}),
        ("not toml", {"devices": "nvml"}),
        ("node = 3\njobs = 4\n", {"devices": "nvml"}),
    ],
)
def test_the_agents_configuration_says_what_is_looked_for(
    config: str, wish: Mapping[str, object], machine: Machine
) -> None:
    machine.write("/etc/dlq/nodeagent.toml", config)
    found = host.wish_of(machine.host, None, None)
    assert {key: getattr(found, key) for key in wish} == wish
    assert found.config == Path("/etc/dlq/nodeagent.toml")


def test_a_users_map_must_be_there_and_roots_alone(machine: Machine) -> None:
    wish = HostWish(submitter=True)
    assert healths(host.users_map(machine.host, wish)) == ["fail"]
    path = machine.write("/etc/dlq/users.map", "1000:1000:\n")
    path.chmod(0o666)
    assert healths(host.users_map(machine.host, wish)) == ["fail"]
    path.chmod(0o644)
    mine = path.stat().st_uid == 0
    assert healths(host.users_map(machine.host, wish)) == ["ok" if mine else "fail"]
    assert healths(host.users_map(machine.host, HostWish(submitter=False))) == ["skip"]


def test_disk_and_files_are_measured_where_the_state_is_or_will_be(machine: Machine) -> None:
    assert "GiB free" in host.disk(machine.host, HostWish()).found
    assert host.files().check == "files"


def test_an_agents_needs_are_looked_at_only_when_asked_for(machine: Machine) -> None:
    def checks(node: bool | None) -> list[str]:
        return [each.check for each in node_verdicts(machine.host, node, None, None)]

    assert checks(None) == []
    machine.write("/etc/dlq/nodeagent.toml")
    assert next(iter(node_verdicts(machine.host, None, None, None))).health is ClientHealth.SKIP
    assert checks(None) == ["node"]
    assert checks(False) == []
    assert "agent" in checks(True)


# -- the driver ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(compile_fake_nvml(tmp_path_factory.mktemp("nvml")) / "libnvidia-ml.so.1")


def test_nvml_tells_driver_and_gpus(
    library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = NvmlBox(Path(library).parent, tmp_path / "machine")
    box.add_gpu("GPU-a")
    box.add_gpu("GPU-b")
    monkeypatch.setenv("FAKE_NVML", str(tmp_path / "machine"))
    verdict = nvidia.nvml(HostWish(), library)
    assert (healths(verdict), verdict.found) == (["ok"], "driver 580.65.06, 2 GPUs")


@pytest.mark.parametrize(("code", "word"), [(9, "not loaded"), (18, "versions"), (77, "error 77")])
def test_a_driver_that_refuses_says_why(
    code: int, word: str, library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = NvmlBox(Path(library).parent, tmp_path / "machine")
    box.say(f"init|{code}")
    monkeypatch.setenv("FAKE_NVML", str(tmp_path / "machine"))
    verdict = nvidia.nvml(HostWish(), library)
    assert healths(verdict) == ["fail"]
    assert word in verdict.found


def test_a_host_without_a_driver_is_told_to_install_it(tmp_path: Path) -> None:
    verdict = nvidia.nvml(HostWish(), str(tmp_path / "libnvidia-ml.so.1"))
    assert healths(verdict) == ["fail"]
    assert "install the driver" in verdict.todo
    assert healths(nvidia.nvml(HostWish(devices="fake:8xH100-80GB"), "nowhere")) == ["skip"]


def test_cdi_is_found_where_podman_looks(machine: Machine) -> None:
    assert healths(nvidia.cdi(machine.host, HostWish())) == ["warn"]
    machine.write("/etc/cdi/nvidia.yaml")
    assert nvidia.cdi(machine.host, HostWish()).found == "/etc/cdi/nvidia.yaml"
    assert healths(nvidia.cdi(machine.host, HostWish(devices="none"))) == ["skip"]


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_directories_that_others_may_not_enter_are_no_surprise(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    (closed / "etc/dlq").mkdir(parents=True)
    (closed / "etc/dlq/nodeagent.toml").touch()
    closed.chmod(0o700)
    program = (
        "import os, sys, dlq_client.line.identity; from pathlib import Path;"
        "from dlq_cli.doctor.host import Host, looks_like_a_node, wish_of;"
        "from dlq_cli.doctor.client import credentials;"
        "os.setgid(65534); os.setuid(65534); root = Path(sys.argv[1]);"
        "print(looks_like_a_node(Host(root=root)), wish_of(Host(root=root), None, None).config,"
        "credentials(root / 'nobody', root / 'login.sock', 0.0)[0].health)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(closed)], capture_output=True, text=True, check=False
    )
    assert done.stdout == "False None fail\n", done.stderr
