"""A job opens its own GPUs and no others: stand-in nodes, and the real controllers of this host."""

import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from dlq_nodeagent.cgroups import device_filter
from dlq_nodeagent.cgroups.detect import detect
from dlq_nodeagent.cgroups.port import CgroupTree, Limits, OnlyMinors
from dlq_nodeagent.cgroups.trees import V1Tree, V2Tree
from dlq_nodeagent.config import AgentConfig
from dlq_nodeagent.daemon import _separates
from dlq_nodeagent.devices.fake import FakeDevices, parse_virtual
from dlq_nodeagent.devices.nodes import own_gpus, without_node
from dlq_nodeagent.devices.port import Device
from support.process_box import ProcessBox
from support.waiting import wait_until

MEM = 1  # harmless nodes of one major; /dev/null is one that every shell needs
NULL, ZERO, FULL = 3, 5, 7
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="making device nodes needs root")


def gpu(index: int) -> Device:
    return Device(index, f"GPU-{index}", "h100-80gb", "NVIDIA H100", 80 << 30, virtual=False)


def node(path: Path, minor: int, major: int = MEM) -> None:
    os.mknod(path, 0o666 | 0o020000, os.makedev(major, minor))


@pytest.fixture
def dev(tmp_path: Path) -> Path:
    """nvidia0, nvidia1 and the shared node, made of harmless majors and minors."""
    at = tmp_path / "dev"
    at.mkdir()
    for name, minor in (("nvidia0", ZERO), ("nvidia1", FULL), ("nvidiactl", NULL)):
        node(at / name, minor)
    node(at / "nvidia-uvm", 0, major=5)
    (at / "nvidia-caps").mkdir()
    return at


@as_root
def test_a_job_may_open_its_own_node_and_the_shared_one(dev: Path, tmp_path: Path) -> None:
    assert own_gpus([gpu(1)], dev=dev, driver_gpus=tmp_path) == (
        OnlyMinors(MEM, frozenset({FULL, NULL})),
    )


@as_root
def test_a_job_without_gpus_or_on_virtual_ones_may_open_none(dev: Path, tmp_path: Path) -> None:
    virtual = FakeDevices(parse_virtual("2xH100-80GB"), "n1").devices()
    nothing = (OnlyMinors(MEM, frozenset({NULL})),)
    assert own_gpus([], dev=dev, driver_gpus=tmp_path) == nothing
    assert own_gpus(virtual, dev=dev, driver_gpus=tmp_path) == nothing


@as_root
def test_the_drivers_minor_number_counts_and_not_the_index(dev: Path, tmp_path: Path) -> None:
    facts = tmp_path / "gpus/0000:01:00.0"
    facts.mkdir(parents=True)
    (facts / "information").write_text("GPU UUID: \t GPU-0\nDevice Minor: \t 1\n")
    rules = own_gpus([gpu(0)], dev=dev, driver_gpus=tmp_path / "gpus")
    assert rules == (OnlyMinors(MEM, frozenset({FULL, NULL})),)


@as_root
def test_the_minor_number_that_the_driver_tells_comes_first(dev: Path, tmp_path: Path) -> None:
    """Also where the kernel shows no /proc/driver."""
    rules = own_gpus([replace(gpu(0), minor=1)], dev=dev, driver_gpus=tmp_path / "none")
    assert rules == (OnlyMinors(MEM, frozenset({FULL, NULL})),)


def test_a_host_without_gpu_nodes_has_nothing_to_refuse(tmp_path: Path) -> None:
    (tmp_path / "nvidia0").write_text("a plain file is no node")
    assert own_gpus([gpu(0)], dev=tmp_path, driver_gpus=tmp_path) == ()
    assert own_gpus([], dev=tmp_path / "nowhere", driver_gpus=tmp_path) == ()


def v1_devices_tree() -> CgroupTree:
    found = detect(f"mine-{os.getpid()}")
    if not isinstance(found, V1Tree) or found.devices_open:
        pytest.skip(f"no devices controller of v1 here: {found.why}")
    return found


@pytest.fixture
def tree() -> Iterator[CgroupTree]:
    found = v1_devices_tree()
    yield found
    found.remove()


@pytest.fixture
def box(tmp_path: Path, tree: CgroupTree) -> Iterator[ProcessBox]:
    one = ProcessBox(tmp_path / "node", tree=tree)
    yield one
    one.clean()


@pytest.mark.parametrize(("minor", "kept"), [(9, False), (1, True)])
@as_root
def test_jobs_are_not_kept_from_gpus_whose_own_device_file_is_not_found(
    dev: Path, monkeypatch: pytest.MonkeyPatch, minor: int, kept: bool
) -> None:
    """A rule would keep the job from the GPU that it has: it names the wrong file."""
    monkeypatch.setattr("dlq_nodeagent.daemon.without_node", partial(without_node, dev=dev))
    devices = FakeDevices(parse_virtual("1xH100-80GB"), "n1")
    monkeypatch.setattr(FakeDevices, "devices", lambda _: (replace(gpu(0), minor=minor),))
    tree = V1Tree.__new__(V1Tree)
    tree.devices_open = ""
    assert _separates(AgentConfig(), devices, tree) is kept


OPENS = 'for n in nvidia0 nvidia1 nvidiactl nvidia-uvm; do (: < "$0/$n") 2>&- && echo $n; done; echo end'  # noqa: E501


@as_root
def test_a_running_job_opens_its_own_gpu_and_is_refused_the_others(
    box: ProcessBox, dev: Path, tmp_path: Path
) -> None:
    mine = own_gpus([gpu(0)], dev=dev, driver_gpus=tmp_path)
    handle = box.run("/bin/sh", "-c", OPENS, str(dev), only_devices=mine)
    log = box.wait_log(handle, b"end").split()
    assert b"nvidia0" in log
    assert b"nvidiactl" in log
    assert b"nvidia1" not in log
    assert box.wait_exit(handle).code == 0


@as_root
def test_two_jobs_on_one_host_see_one_gpu_each(box: ProcessBox, dev: Path, tmp_path: Path) -> None:
    seen = []
    for index in (0, 1):
        mine = own_gpus([gpu(index)], dev=dev, driver_gpus=tmp_path)
        log = box.wait_log(
            box.run("/bin/sh", "-c", OPENS, str(dev), only_devices=mine), b"end"
        ).split()
        seen.append({word for word in log if word in (b"nvidia0", b"nvidia1")})
    assert seen == [{b"nvidia0"}, {b"nvidia1"}]


@as_root
def test_a_node_made_by_the_job_itself_is_refused_too(
    box: ProcessBox, dev: Path, tmp_path: Path
) -> None:
    script = f"mknod {tmp_path}/mine c {MEM} {FULL}; (: < {tmp_path}/mine) && echo opened; echo end"
    mine = own_gpus([gpu(0)], dev=dev, driver_gpus=tmp_path)
    log = box.wait_log(box.sh(script, only_devices=mine), b"end").split()
    assert b"opened" not in log


@as_root
def test_the_refusal_outlives_the_agent(box: ProcessBox, dev: Path, tmp_path: Path) -> None:
    mine = own_gpus([gpu(0)], dev=dev, driver_gpus=tmp_path)
    go = tmp_path / "go"
    script = f'until [ -e {go} ]; do sleep 0.05; done; (: < "$0/nvidia1") && echo opened; echo end'
    handle = box.run("/bin/sh", "-c", script, str(dev), only_devices=mine)
    wait_until(lambda: box.runtime.started(handle), what="the job's start")
    box.restart_agent()
    go.touch()
    assert b"opened" not in box.wait_log(handle, b"end").split()


@as_root
def test_a_suspended_rank_may_open_the_gpu_to_which_it_comes_back_and_not_the_one_before(
    box: ProcessBox, dev: Path, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    script = f"until [ -e {go} ]; do sleep 0.05; done; {OPENS}"
    mine = own_gpus([gpu(0)], dev=dev, driver_gpus=tmp_path)
    handle = box.run("/bin/sh", "-c", script, str(dev), only_devices=mine)
    wait_until(lambda: box.runtime.started(handle), what="the job's start")
    box.restart_agent()
    still = box.runtime.standstill(handle)
    for _ in range(2):
        still.open_only(own_gpus([gpu(1)], dev=dev, driver_gpus=tmp_path))
    go.touch()
    log = box.wait_log(handle, b"end").split()
    assert b"nvidia1" in log
    assert b"nvidiactl" in log
    assert b"nvidia0" not in log


# ---- v2: the eBPF program, attached to a real v2 group (that of a hybrid host will do)


@pytest.fixture
def v2_group() -> Iterator[Path]:
    why = device_filter.obstacle()
    if why:
        pytest.skip(why)
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    at = next((Path(line.split()[1]) for line in mounts if line.split()[2] == "cgroup2"), None)
    if at is None or not os.access(at, os.W_OK):
        pytest.skip("no v2 tree to write to")
    group = at / f"dlq-mine-{os.getpid()}"
    group.mkdir()
    yield group
    group.rmdir()


def opened_in(group: Path, dev: Path) -> set[str]:
    script = f'echo 0 > {group}/cgroup.procs && exec /bin/sh -c "$1" "$0"'
    words = ["/bin/sh", "-c", script, str(dev), OPENS]
    return set(subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout.split())


def test_the_program_refuses_all_minors_of_the_major_but_those_listed(
    v2_group: Path, dev: Path
) -> None:
    device_filter.attach(v2_group, [OnlyMinors(MEM, frozenset({ZERO, NULL}))])
    found = opened_in(v2_group, dev)
    assert "nvidia1" not in found
    assert {"nvidia0", "nvidiactl", "end"} <= found


def test_a_program_may_have_rules_for_several_majors(v2_group: Path, dev: Path) -> None:
    device_filter.attach(
        v2_group, [OnlyMinors(MEM, frozenset({NULL})), OnlyMinors(195, frozenset({1}))]
    )
    assert opened_in(v2_group, dev) & {"nvidia0", "nvidia1", "nvidiactl"} == {"nvidiactl"}


def test_two_programs_on_one_group_must_both_agree(v2_group: Path, dev: Path) -> None:
    device_filter.attach(v2_group, [OnlyMinors(MEM, frozenset({ZERO, NULL}))])
    device_filter.attach(v2_group, [OnlyMinors(MEM, frozenset({FULL, NULL}))])
    assert opened_in(v2_group, dev) & {"nvidia0", "nvidia1", "nvidiactl"} == {"nvidiactl"}


def test_what_is_not_listed_is_left_alone(v2_group: Path, dev: Path) -> None:
    device_filter.attach(v2_group, [OnlyMinors(195, frozenset())])
    assert {"nvidia0", "nvidia1", "nvidiactl"} <= opened_in(v2_group, dev)


def test_other_rules_take_the_place_of_those_before(v2_group: Path, dev: Path) -> None:
    device_filter.attach(v2_group, [OnlyMinors(MEM, frozenset({ZERO, NULL}))])
    for _ in range(2):
        device_filter.exchange(v2_group, [OnlyMinors(MEM, frozenset({FULL, NULL}))])
    found = opened_in(v2_group, dev) & {"nvidia0", "nvidia1", "nvidiactl"}
    assert found == {"nvidia1", "nvidiactl"}


def test_an_agent_that_died_between_both_rules_is_followed_by_one_that_leaves_the_new(
    v2_group: Path, dev: Path
) -> None:
    device_filter.attach(v2_group, [OnlyMinors(MEM, frozenset({ZERO, NULL}))])
    device_filter.attach(v2_group, [OnlyMinors(MEM, frozenset({FULL, NULL}))])
    device_filter.exchange(v2_group, [OnlyMinors(MEM, frozenset({FULL, NULL}))])
    found = opened_in(v2_group, dev) & {"nvidia0", "nvidia1", "nvidiactl"}
    assert found == {"nvidia1", "nvidiactl"}


def test_a_group_without_rules_gets_none(v2_group: Path, dev: Path) -> None:
    device_filter.exchange(v2_group, [OnlyMinors(MEM, frozenset({NULL}))])
    assert {"nvidia0", "nvidia1", "nvidiactl"} <= opened_in(v2_group, dev)


LIMITS = Limits(
    memory_bytes=None, pids_max=None, cpus=None, devices=(OnlyMinors(195, frozenset({0, 255})),)
)


def v2_tree(base: Path, attach: Callable[..., None], devices_open: str) -> V2Tree:
    def make(path: Path) -> None:
        path.mkdir(exist_ok=True)
        for name in ("cgroup.procs", "cgroup.subtree_control", "memory.max", "pids.max", "cpu.max"):
            (path / name).touch()

    make(base)
    return V2Tree(base, "n1", make_dir=make, attach=attach, devices_open=devices_open)


def test_a_v2_tree_limits_each_attempt_that_has_rules(tmp_path: Path) -> None:
    limited: list[tuple[Path, object]] = []
    tree = v2_tree(tmp_path / "base", lambda group, rules: limited.append((group, rules)), "")
    (made,) = tree.create("17.1.0", LIMITS)
    assert limited == [(Path(made.path), LIMITS.devices)]


def test_a_v2_tree_that_cannot_refuse_says_why_and_starts_jobs_all_the_same(tmp_path: Path) -> None:
    def refuse(group: Path, rules: object) -> None:
        raise AssertionError("nobody may try")

    tree = v2_tree(tmp_path / "base", refuse, "eBPF programs cannot be loaded: x")
    assert tree.create("17.1.0", LIMITS)
    assert tree.devices_open


def test_a_refusal_that_the_kernel_refuses_fails_the_start(tmp_path: Path) -> None:
    def refuse(group: Path, rules: object) -> None:
        raise OSError(22, "Invalid argument")

    tree = v2_tree(tmp_path / "base", refuse, "")
    with pytest.raises(OSError, match="Invalid"):
        tree.create("17.1.0", LIMITS)
