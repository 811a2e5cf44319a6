"""Control groups that a container engine can fill: the same path in every hierarchy of the host."""

import os
from collections.abc import Iterable
from pathlib import Path

from dlq_nodeagent.cgroups.detect import detect, mounts_of, own_paths
from dlq_nodeagent.cgroups.port import CgroupDir, CgroupTree
from dlq_nodeagent.cgroups.trees import NoTree, V1Tree

# Every v1 hierarchy that an OCI runtime or an engine may make a group in.
_V1_KINDS = frozenset(
    {
        *("blkio", "cpu", "cpuacct", "cpuset", "devices", "freezer", "hugetlb", "memory", "misc"),
        *("net_cls", "net_prio", "perf_event", "pids", "rdma", "name=systemd"),
    }
)


def detect_for_containers(
    node_id: str, *, base: str = "", proc: Path = Path("/proc")
) -> CgroupTree:
    """The tree below which an engine makes a container's groups (`--cgroup-parent`).

    On v2 it is the agent's own. On v1 an engine uses one path in all hierarchies, also in those
    without limits of the agent (devices, blkio). The path is the agent's group where it is the same
    everywhere, else the root's. No limits are set here: the engine sets them on the container.
    """
    plain = detect(node_id, base=base, proc=proc)
    if plain.mode in ("v2", "none"):
        return plain
    paths = set(own_paths((proc / "self/cgroup").read_text()).values())
    shared = base or (paths.pop() if len(paths) == 1 else "/")
    mounts = mounts_of((proc / "self/mounts").read_text(), _V1_KINDS)
    bases = {kind: mount / shared.lstrip("/") for kind, mount in mounts.items()}
    try:
        return V1Tree({kind: at for kind, at in bases.items() if at.is_dir()}, node_id)
    except OSError as error:
        return NoTree(f"cgroups cannot be written: {error}")


def engine_path(dirs: Iterable[CgroupDir]) -> str:
    """The path of a group below its hierarchy's mount, as an engine names it; empty without one."""
    for each in dirs:
        mount = Path(each.path)
        while not os.path.ismount(mount):
            mount = mount.parent
        return "/" + str(Path(each.path).relative_to(mount))
    return ""
