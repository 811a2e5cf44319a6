"""Finds out which control groups this host has, and which this user may write."""

import errno
import os
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from zlib import crc32

from dlq_nodeagent.cgroups.port import CgroupDir, CgroupTree
from dlq_nodeagent.cgroups.trees import V1_KINDS, MakeDir, NoTree, V1Tree, V2Tree, make_dir

_NODE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z", re.ASCII)
_LONGEST_NAME = 48
_NEEDED = frozenset({"memory", "pids"})  # without these a v1 host limits no job


def node_group(node_id: str, state_dir: Path) -> str:
    """The name of a node's groups, the same for every agent over one state directory.

    Agents that share a host share no group, even if nodes of two clusters have the same name.
    """
    return f"{node_id[:_LONGEST_NAME]}-{crc32(str(state_dir.resolve()).encode()):08x}"


def detect(
    node_id: str, *, base: str = "", proc: Path = Path("/proc"), make_dir: MakeDir = make_dir
) -> CgroupTree:
    """The tree for this node's attempts, below the agent's own groups or the group `base`.

    The agent's own limits then hold too. `base` must exist and be writable (else
    FileNotFoundError). A service whose jobs outlive it needs such a base. v2 takes no process back
    into a group whose children have controllers, so systemd could not start the agent again. Falls
    back to `none`, with the reason in `why`, if groups are missing or not writable. A service that
    needs limits then refuses to start. Nothing is mounted or unmounted.
    """
    if not _NODE_ID.match(node_id):
        raise ValueError(f"not a node id: {node_id!r}")
    mounts = mounts_of((proc / "self/mounts").read_text())
    own = own_paths((proc / "self/cgroup").read_text())
    if base:
        own = _moved(own, mounts, base)
    unified = _base(mounts.get("unified"), own.get("unified"))
    try:
        if unified is not None and _has_controllers(unified):
            return V2Tree(unified, node_id, make_dir=make_dir)
        bases = {kind: _base(mounts.get(kind), own.get(kind)) for kind in V1_KINDS}
        found = {kind: base for kind, base in bases.items() if base is not None}
        for kind in ("devices", "cpuset"):  # the other groups do without these
            if kind in found and not os.access(found[kind], os.W_OK):
                del found[kind]
        if not found.keys() >= _NEEDED:
            return NoTree(f"no cgroup for {', '.join(sorted(_NEEDED - found.keys()))}")
        if unified is not None:
            found["unified"] = unified
        return V1Tree(found, node_id, make_dir=make_dir)
    except OSError as error:
        return NoTree(f"cgroups cannot be written: {error}")


def mounts_of(text: str, kinds: Collection[str] = V1_KINDS) -> Mapping[str, Path]:
    """The mount point of each hierarchy: kind -> path; the v2 tree is `unified`."""
    found: dict[str, Path] = {}
    for line in text.splitlines():
        _, at, filesystem, options = line.split(" ")[:4]
        if filesystem == "cgroup2":
            found.setdefault("unified", _unescape(at))
        elif filesystem == "cgroup":
            for kind in set(options.split(",")) & set(kinds):
                found.setdefault(kind, _unescape(at))
    return found


def own_paths(text: str) -> Mapping[str, str]:
    """The agent's own group in each hierarchy, from lines like `4:memory:/a/b` and `0::/a/b`."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        _, kinds, path = line.split(":", 2)
        for kind in kinds.split(",") if kinds else ("unified",):
            found[kind] = path
    return found


def _moved(own: Mapping[str, str], mounts: Mapping[str, Path], base: str) -> Mapping[str, str]:
    """Our paths, with `base` in each hierarchy that has it; systemd does not manage all of v1's."""
    there = {kind for kind, mount in mounts.items() if (mount / base.lstrip("/")).is_dir()}
    if not there:
        why = f"there is no control group {base}"
        raise FileNotFoundError(errno.ENOENT, why)
    return {**own, **dict.fromkeys(there, base)}


def _base(mount: Path | None, own: str | None) -> Path | None:
    """Our own group, or the mount itself if a container shows a path of the host."""
    if mount is None:
        return None
    inside = mount / (own or "/").lstrip("/")
    return inside if inside.is_dir() else mount


def _has_controllers(unified: Path) -> bool:
    try:
        return set((unified / "cgroup.controllers").read_text().split()) >= _NEEDED | {"cpu"}
    except OSError:
        return False


def _unescape(path: str) -> Path:
    return Path(re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), path))


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
    without limits of the agent (devices, blkio). That is the agent's group if its path is the same
    everywhere, else the root. The engine sets the limits on the container.
    """
    plain = detect(node_id, base=base, proc=proc)
    if plain.mode in ("v2", "none"):
        return plain
    paths = set(own_paths((proc / "self/cgroup").read_text()).values())
    shared = base or (paths.pop() if len(paths) == 1 else "/")
    mounts = mounts_of((proc / "self/mounts").read_text(), _V1_KINDS)
    bases = {kind: mount / shared.lstrip("/") for kind, mount in mounts.items()}
    try:
        there = {kind: at for kind, at in bases.items() if at.is_dir()}
        return V1Tree(there, node_id, every_kind=True)
    except OSError as error:
        return NoTree(f"cgroups cannot be written: {error}")


def engine_path(dirs: Iterable[CgroupDir]) -> str:
    """The path of a group below its mount, as an engine names it; empty: no group."""
    for each in dirs:
        mount = Path(each.path)
        while not os.path.ismount(mount):
            mount = mount.parent
        return "/" + str(Path(each.path).relative_to(mount))
    return ""
