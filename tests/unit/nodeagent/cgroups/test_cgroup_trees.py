"""The trees of control groups: what is written where, on hosts written into a directory."""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from dlq_nodeagent.cgroups import directories
from dlq_nodeagent.cgroups.detect import detect
from dlq_nodeagent.cgroups.port import CgroupDir, Limits
from dlq_nodeagent.cgroups.trees import NoTree, V1Tree, V2Tree

NO_LIMITS = Limits(memory_bytes=None, pids_max=None, cpus=None)
SOME = Limits(memory_bytes=1 << 30, pids_max=64, cpus=1.5)

KINDS = ("memory", "pids", "cpu", "cpuacct", "freezer")

V2_FILES = {
    "cgroup.procs": "",
    "cgroup.type": "domain",
    "cgroup.subtree_control": "",
    "cgroup.controllers": "cpuset cpu io memory hugetlb pids rdma misc",
    "cgroup.kill": "",
    "memory.max": "",
    "memory.swap.max": "",
    "memory.current": "4096",
    "memory.peak": "8192",
    "memory.stat": "anon 3000\ninactive_file 90\nactive_file 6\n",
    "memory.events": "low 0\nhigh 0\nmax 7\noom 2\noom_kill 1\noom_group_kill 0\n",
    "pids.max": "",
    "pids.current": "3",
    "cpu.max": "",
    "cpu.stat": "usage_usec 2500000\nuser_usec 1\nsystem_usec 2\n",
}
V1_FILES = {
    "cgroup.procs": "",
    "memory.limit_in_bytes": "",
    "memory.memsw.limit_in_bytes": "",
    "memory.usage_in_bytes": "4096",
    "memory.max_usage_in_bytes": "8192",
    "memory.stat": "inactive_file 1\ntotal_inactive_file 90\ntotal_active_file 6\n",
    "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n",
    "pids.max": "",
    "pids.current": "2",
    "cpu.cfs_period_us": "",
    "cpu.cfs_quota_us": "",
    "cpuacct.usage": "1500000000",
    "freezer.state": "THAWED",
}


def make_v2(path: Path) -> None:
    """A directory that fills itself, as the kernel's do."""
    _fill(path, V2_FILES)


def make_v1(path: Path) -> None:
    _fill(path, V1_FILES)


def _fill(path: Path, files: dict[str, str]) -> None:
    path.mkdir(exist_ok=True)
    for name, text in files.items():
        if not (path / name).exists():
            (path / name).write_text(text)


def write_proc(root: Path, *, mounts: str, own: str) -> Path:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/mounts").write_text(mounts)
    (root / "proc/self/cgroup").write_text(own)
    return root / "proc"


def v2_host(root: Path) -> Path:
    fs = root / "fs"
    make_v2(fs)
    make_v2(fs / "agent.service")
    (fs / "agent.service/cgroup.procs").write_text("41\n42\n")
    return write_proc(
        root, mounts=f"cgroup2 {fs} cgroup2 rw,nosuid 0 0\n", own="0::/agent.service\n"
    )


def v1_host(root: Path, kinds: tuple[str, ...], *, unified: bool) -> Path:
    lines, own = [], []
    for number, kind in enumerate(kinds, start=1):
        at = root / "fs" / kind
        at.parent.mkdir(exist_ok=True)
        make_v1(at)
        lines.append(f"cgroup {at} cgroup rw,relatime,{kind} 0 0")
        own.append(f"{number}:{kind}:/")
    if unified:
        _fill(root / "fs/unified", {"cgroup.procs": "", "cgroup.controllers": "hugetlb"})
        lines.append(f"cgroup2 {root}/fs/unified cgroup2 rw 0 0")
        own.append("0::/")
    return write_proc(root, mounts="\n".join(lines) + "\n", own="\n".join(own) + "\n")


def test_v2_writes_every_limit_into_the_attempts_own_group(tmp_path: Path) -> None:
    tree = detect("n1", proc=v2_host(tmp_path), make_dir=make_v2)
    (only,) = tree.create("17.2.0", SOME)
    leaf = Path(only.path)
    assert (tree.mode, only.kind) == ("v2", "unified")
    assert leaf == tmp_path / "fs/agent.service/dlq/n1/17.2.0"
    assert (leaf / "memory.max").read_text() == str(1 << 30)
    assert (leaf / "memory.swap.max").read_text() == "0"
    assert (leaf / "pids.max").read_text() == "64"
    assert (leaf / "cpu.max").read_text() == "150000 100000"


def test_v2_without_limits_says_max_everywhere(tmp_path: Path) -> None:
    tree = detect("n1", proc=v2_host(tmp_path), make_dir=make_v2)
    leaf = Path(tree.create("17.2.0", NO_LIMITS)[0].path)
    assert (leaf / "memory.max").read_text() == "max"
    assert (leaf / "memory.swap.max").read_text() == ""  # left as the kernel made it
    assert (leaf / "cpu.max").read_text() == "max 100000"


def test_v2_moves_the_agent_to_a_leaf_and_then_enables_controllers(tmp_path: Path) -> None:
    detect("n1", proc=v2_host(tmp_path), make_dir=make_v2)
    base = tmp_path / "fs/agent.service"
    assert (base / "agent/cgroup.procs").read_text() == "42"  # the last pid written there
    for path in (base, base / "dlq", base / "dlq/n1"):
        assert (path / "cgroup.subtree_control").read_text() == "+memory +pids +cpu +cpuset"


def test_v2_leaves_the_processes_of_a_machines_root_where_they_are(tmp_path: Path) -> None:
    """A thread of the kernel there refuses to move: EINVAL. The root may have processes."""
    root = tmp_path / "fs"
    make_v2(root)
    (root / "cgroup.type").unlink()
    (root / "cgroup.procs").write_text("1\n2\n")

    def make(path: Path) -> None:
        make_v2(path)
        if path == root / "agent":
            (path / "cgroup.procs").unlink()
            (path / "cgroup.procs").mkdir()  # it refuses every pid

    proc = write_proc(tmp_path, mounts=f"cgroup2 {root} cgroup2 rw 0 0\n", own="0::/\n")
    assert detect("n1", proc=proc, make_dir=make).mode == "v2"
    assert (root / "cgroup.subtree_control").read_text() == "+memory +pids +cpu +cpuset"
    assert not (root / "agent").exists()


def test_v2_goes_below_the_base_that_outlives_the_agent_and_leaves_the_agents_own_group_alone(
    tmp_path: Path,
) -> None:
    proc = v2_host(tmp_path)
    make_v2(tmp_path / "fs/jobs.service")
    tree = detect("n1", base="/jobs.service", proc=proc, make_dir=make_v2)
    leaf = tree.create("17.2.0", SOME)[0].path
    assert leaf == str(tmp_path / "fs/jobs.service/dlq/n1/17.2.0")
    # A group whose children have controllers takes no process: systemd could not start us again.
    own = tmp_path / "fs/agent.service"
    assert (own / "cgroup.subtree_control").read_text() == ""
    assert sorted(path.name for path in own.iterdir()) == sorted(V2_FILES)


@pytest.mark.parametrize("host", [v2_host, lambda root: v1_host(root, KINDS, unified=True)])
def test_a_base_that_is_not_there_is_an_error_and_not_a_host_without_groups(
    tmp_path: Path, host: Callable[[Path], Path]
) -> None:
    with pytest.raises(FileNotFoundError, match=r"no control group /jobs\.service"):
        detect("n1", base="/jobs.service", proc=host(tmp_path), make_dir=make_v2)


def test_v2_reads_every_figure(tmp_path: Path) -> None:
    make_v2(tmp_path / "leaf")
    used = directories.usage([CgroupDir("unified", str(tmp_path / "leaf"))])
    assert used == (4000, 8192, 2.5, 3, 1)


def test_v1_writes_each_limit_into_its_hierarchy(tmp_path: Path) -> None:
    tree = detect("n1", proc=v1_host(tmp_path, KINDS, unified=False), make_dir=make_v1)
    at = {each.kind: Path(each.path) for each in tree.create("17.2.0", SOME)}
    assert tree.mode == "v1"
    assert set(at) == set(KINDS)
    assert at["memory"] == tmp_path / "fs/memory/dlq/n1/17.2.0"
    assert (at["memory"] / "memory.limit_in_bytes").read_text() == str(1 << 30)
    assert (at["memory"] / "memory.memsw.limit_in_bytes").read_text() == str(1 << 30)
    assert (at["pids"] / "pids.max").read_text() == "64"
    assert (at["cpu"] / "cpu.cfs_quota_us").read_text() == "150000"


def test_v1_goes_below_the_base_where_it_is_and_below_our_own_group_elsewhere(
    tmp_path: Path,
) -> None:
    proc = v1_host(tmp_path, KINDS, unified=False)
    for kind in ("memory", "pids"):  # systemd makes no groups in the freezer
        make_v1(tmp_path / "fs" / kind / "jobs.service")
    tree = detect("n1", base="/jobs.service", proc=proc, make_dir=make_v1)
    at = {each.kind: each.path for each in tree.create("17.2.0", SOME)}
    assert at["memory"] == str(tmp_path / "fs/memory/jobs.service/dlq/n1/17.2.0")
    assert at["pids"] == str(tmp_path / "fs/pids/jobs.service/dlq/n1/17.2.0")
    assert at["freezer"] == str(tmp_path / "fs/freezer/dlq/n1/17.2.0")


def test_a_hybrid_host_gets_a_v2_leaf_beside_the_v1_groups(tmp_path: Path) -> None:
    proc = v1_host(tmp_path, ("memory", "pids"), unified=True)
    tree = detect("n1", proc=proc, make_dir=make_v1)
    kinds = {each.kind for each in tree.create("17.2.0", NO_LIMITS)}
    assert (tree.mode, kinds) == ("hybrid", {"memory", "pids", "unified"})


def test_a_hybrid_host_makes_no_group_that_nothing_needs(tmp_path: Path) -> None:
    proc = v1_host(tmp_path, (*KINDS, "devices"), unified=True)
    tree = detect("n1", proc=proc, make_dir=make_v2_and_v1)
    few = {each.kind for each in tree.create("17.2.0", NO_LIMITS)}
    assert few == {"memory", "pids", "unified"}
    assert {each.kind for each in tree.create("18.1.0", SOME)} == {*few, "cpu"}


def make_v2_and_v1(path: Path) -> None:
    _fill(path, V2_FILES | V1_FILES)


def test_v1_reads_every_figure(tmp_path: Path) -> None:
    make_v1(tmp_path / "leaf")
    dirs = [CgroupDir(kind, str(tmp_path / "leaf")) for kind in ("memory", "pids", "cpuacct")]
    assert directories.usage(dirs) == (4000, 8192, 1.5, 2, 5)


def test_figures_of_a_group_that_is_gone_are_unknown(tmp_path: Path) -> None:
    gone = [CgroupDir("memory", str(tmp_path / "no")), CgroupDir("unified", str(tmp_path / "no"))]
    assert directories.usage(gone) == (None, None, None, None, None)
    assert directories.pids(gone) == set()
    assert directories.kill(gone) == 0
    assert directories.remove(gone)


def test_a_host_without_a_pids_hierarchy_has_no_tree_and_says_why(tmp_path: Path) -> None:
    tree = detect("n1", proc=v1_host(tmp_path, ("memory",), unified=False), make_dir=make_v1)
    assert (tree.mode, tree.create("17.2.0", SOME)) == ("none", ())
    assert tree.why == "no cgroup for pids"


def test_groups_that_may_not_be_written_mean_no_tree_and_say_why(tmp_path: Path) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    tree = detect("n1", proc=v2_host(tmp_path), make_dir=refuse)
    assert isinstance(tree, NoTree)
    assert "Permission denied" in tree.why


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "-x", "a b", "a\n", "x" * 65])
def test_a_node_id_that_is_no_plain_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="not a node id"):
        detect(name, proc=v2_host(tmp_path), make_dir=make_v2)


def test_a_refused_limit_leaves_no_group_behind(tmp_path: Path) -> None:
    bases = {"memory": tmp_path / "memory", "pids": tmp_path / "pids"}
    for base in bases.values():
        base.mkdir()
    tree = V1Tree(bases, "n1")  # plain directories: no control file to write
    with pytest.raises(FileNotFoundError):
        tree.create("17.2.0", SOME)
    assert list((tmp_path / "memory/dlq/n1").iterdir()) == []


def test_the_mount_is_the_base_where_a_container_shows_a_path_of_its_host(tmp_path: Path) -> None:
    proc = v2_host(tmp_path)
    (proc / "self/cgroup").write_text("0::/docker/0123\n")
    tree = detect("n1", proc=proc, make_dir=make_v2)
    assert tree.create("1.1.0", NO_LIMITS)[0].path.startswith(str(tmp_path / "fs/dlq/n1"))


def test_parents_are_removed_unless_they_still_hold_an_attempt(tmp_path: Path) -> None:
    bases = {"memory": tmp_path / "memory", "pids": tmp_path / "pids"}
    for base in bases.values():
        base.mkdir()
    tree = V1Tree(bases, "n1")
    dirs = tree.create("17.2.0", NO_LIMITS)
    tree.remove()
    assert (tmp_path / "memory/dlq/n1/17.2.0").is_dir()
    assert directories.remove(dirs)
    tree.remove()
    assert list((tmp_path / "memory").iterdir()) == []


def test_a_v2_group_that_is_busy_is_not_removed(tmp_path: Path) -> None:
    tree = V2Tree(_base(tmp_path), "n1", make_dir=make_v2)
    assert not directories.remove(tree.create("1.1.0", NO_LIMITS))  # its files count as content


def _base(tmp_path: Path) -> Path:
    make_v2(tmp_path / "base")
    return tmp_path / "base"
