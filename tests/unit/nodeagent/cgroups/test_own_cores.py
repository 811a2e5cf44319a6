"""A rank is kept on its cores: what is written in each kind of tree, and where it cannot be."""

from pathlib import Path

import pytest

from dlq_nodeagent.cgroups.detect import detect
from dlq_nodeagent.cgroups.port import Limits
from dlq_nodeagent.cgroups.trees import NoTree, V1Tree
from unit.nodeagent.cgroups.test_cgroup_trees import KINDS, V1_FILES, V2_FILES, v1_host, v2_host

CORES = Limits(memory_bytes=1 << 30, pids_max=64, cpus=None, cores=(2, 5), weight=3)
V2 = {**V2_FILES, "cpuset.cpus": "", "cpu.weight": ""}
V1 = {**V1_FILES, "cpuset.cpus": "", "cpuset.mems": "", "cpu.shares": ""}


def make_v2(path: Path) -> None:
    fill(path, V2)


def make_v1(path: Path) -> None:
    fill(path, V1)


def fill(path: Path, files: dict[str, str]) -> None:
    path.mkdir(exist_ok=True)
    for name, text in files.items():
        if not (path / name).exists():
            (path / name).write_text(text)


def test_v2_writes_cores_and_weight_into_the_ranks_own_group(tmp_path: Path) -> None:
    tree = detect("n1", proc=v2_host(tmp_path), make_dir=make_v2)
    leaf = Path(tree.create("17.2.0", CORES)[0].path)
    assert tree.cores_open == ""
    assert (leaf / "cpuset.cpus").read_text() == "2,5"
    assert (leaf / "cpu.weight").read_text() == "300"


def test_v2_without_the_controller_says_so_and_limits_the_rest(tmp_path: Path) -> None:
    proc = v2_host(tmp_path)
    (tmp_path / "fs/agent.service/cgroup.controllers").write_text("cpu memory pids")
    tree = detect("n1", proc=proc, make_dir=make_v2)
    leaf = Path(tree.create("17.2.0", CORES)[0].path)
    assert tree.cores_open == "there is no cpuset controller"
    assert (leaf / "cpuset.cpus").read_text() == ""
    assert (leaf / "memory.max").read_text() == str(1 << 30)


def test_a_weight_stays_within_what_v2_knows(tmp_path: Path) -> None:
    tree = detect("n1", proc=v2_host(tmp_path), make_dir=make_v2)
    many = Limits(memory_bytes=None, pids_max=None, cpus=None, weight=1000)
    leaf = Path(tree.create("17.2.0", many)[0].path)
    assert (leaf / "cpu.weight").read_text() == "10000"


@pytest.fixture
def v1(tmp_path: Path) -> V1Tree:
    proc = v1_host(tmp_path, (*KINDS, "cpuset"), unified=False)
    fill(tmp_path / "fs/cpuset", {"cpuset.cpus": "0-7\n", "cpuset.mems": "0-1\n"})
    tree = detect("n1", proc=proc, make_dir=make_v1)
    assert isinstance(tree, V1Tree)
    return tree


def test_v1_writes_cores_below_groups_that_have_all_of_the_host(v1: V1Tree, tmp_path: Path) -> None:
    at = {each.kind: Path(each.path) for each in v1.create("17.2.0", CORES)}
    assert v1.cores_open == ""
    assert (at["cpuset"] / "cpuset.cpus").read_text() == "2,5"
    assert (at["cpuset"] / "cpuset.mems").read_text() == "0-1"
    for above in (tmp_path / "fs/cpuset/dlq", tmp_path / "fs/cpuset/dlq/n1"):
        assert (above / "cpuset.cpus").read_text() == "0-7"
    assert (at["cpu"] / "cpu.shares").read_text() == "3072"


def test_v1_gives_a_rank_without_cores_of_its_own_those_of_the_host(tmp_path: Path) -> None:
    v1_host(tmp_path, (*KINDS, "cpuset"), unified=False)
    fill(tmp_path / "fs/cpuset", {"cpuset.cpus": "0-7\n", "cpuset.mems": "0-1\n"})
    bases = {kind: tmp_path / "fs" / kind for kind in (*KINDS, "cpuset")}
    tree = V1Tree(bases, "n1", make_dir=make_v1, every_kind=True)
    none = Limits(memory_bytes=None, pids_max=None, cpus=None)
    at = {each.kind: Path(each.path) for each in tree.create("17.2.0", none)}
    assert (at["cpuset"] / "cpuset.cpus").read_text() == "0-7"  # empty, it would take no process
    assert (at["cpuset"] / "cpuset.mems").read_text() == "0-1"


def test_v1_makes_no_cpuset_for_a_rank_without_cores_of_its_own(v1: V1Tree) -> None:
    none = Limits(memory_bytes=None, pids_max=None, cpus=None)
    assert "cpuset" not in {each.kind for each in v1.create("17.2.0", none)}


def test_trees_without_cpusets_say_why(tmp_path: Path) -> None:
    plain = detect("n1", proc=v1_host(tmp_path, KINDS, unified=False), make_dir=make_v1)
    plain.create("17.2.0", CORES)
    assert plain.cores_open == "there is no cpuset controller"
    assert NoTree("no rights").cores_open == "no rights"
