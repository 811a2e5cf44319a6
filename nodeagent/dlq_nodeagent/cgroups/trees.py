"""The three trees: v2, v1 (with the v2 leaf of a hybrid host), and none."""

import errno
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from dlq_nodeagent.cgroups import device_filter, directories
from dlq_nodeagent.cgroups.directories import write_each, write_existing
from dlq_nodeagent.cgroups.port import CgroupDir, Limits, Mode, OnlyMinors

PERIOD_US = 100_000
V1_KINDS = ("memory", "pids", "cpu", "cpuacct", "freezer", "devices", "cpuset")
_V2_CONTROLLERS = ("memory", "pids", "cpu")
_NO_CPUSET = "there is no cpuset controller"
_MOST_WEIGHT = 10_000  # that v2 knows; 100 is the kernel's default

# v1 keeps a list of refusals, so each minor is named; no driver for GPUs has more.
_V1_MINORS = range(256)

MakeDir = Callable[[Path], None]
Attach = Callable[[Path, Iterable[OnlyMinors]], None]


def make_dir(path: Path) -> None:
    """Make one group, if it does not exist; the kernel fills it."""
    with suppress(FileExistsError):
        path.mkdir(mode=0o755)


class V2Tree:
    """One directory per attempt below `base`/dlq/NODE, with memory, pids and cpu enabled.

    v2 forbids processes in a group whose children have controllers. So the processes in `base`
    itself (the agent, its shims) first move to the leaf `base`/agent. `base` must be delegated to
    us. The root group of a machine is exempt, and has kernel threads that cannot be moved. Its
    processes stay.
    """

    mode: Mode = "v2"

    def __init__(
        self,
        base: Path,
        node_id: str,
        *,
        make_dir: MakeDir = make_dir,
        attach: Attach = device_filter.attach,
        devices_open: str | None = None,
    ) -> None:
        """Prepare the base. OSError: this user may not. `devices_open` None: find out."""
        self._make_dir = make_dir
        self._attach = attach
        self.devices_open = device_filter.obstacle() if devices_open is None else devices_open
        self.why = f"cgroup v2 below {base}"
        controllers: tuple[str, ...] = _V2_CONTROLLERS
        self.cores_open = "" if _has_cpuset(base) else _NO_CPUSET
        if not self.cores_open:
            controllers = (*controllers, "cpuset")
        if (base / "cgroup.type").exists():  # the root of a machine has no such file
            make_dir(base / "agent")
            for pid in (base / "cgroup.procs").read_text().split():
                with suppress(ProcessLookupError):
                    write_existing(base / "agent" / "cgroup.procs", pid)
        self._parent = base / "dlq" / node_id
        for path in (base, base / "dlq", self._parent):
            make_dir(path)
            wanted = " ".join(f"+{name}" for name in controllers)
            write_existing(path / "cgroup.subtree_control", wanted)
        _refuse_unless_writable(self._parent)

    def create(self, name: str, limits: Limits) -> tuple[CgroupDir, ...]:
        leaf = self._parent / name
        dirs = (CgroupDir("unified", str(leaf)),)
        self._make_dir(leaf)
        try:
            self._limit(leaf, limits)
            if limits.devices and not self.devices_open:
                self._attach(leaf, limits.devices)
        except OSError:
            directories.remove(dirs)
            raise
        return dirs

    def groups(self) -> dict[str, tuple[CgroupDir, ...]]:
        return _groups({"unified": self._parent})

    def remove(self) -> None:
        """Remove the groups. The leaf with the agent stays as long as the agent lives."""
        _remove_parents((self._parent,))

    def _limit(self, leaf: Path, limits: Limits) -> None:
        write_existing(leaf / "memory.max", _or_max(limits.memory_bytes))
        if limits.memory_bytes is not None and (leaf / "memory.swap.max").exists():
            write_existing(leaf / "memory.swap.max", "0")  # a limit that swaps is no limit
        write_existing(leaf / "pids.max", _or_max(limits.pids_max))
        quota = _or_max(_quota_us(limits.cpus))
        write_existing(leaf / "cpu.max", f"{quota} {PERIOD_US}")
        if limits.weight is not None:
            weight = min(_MOST_WEIGHT, 100 * limits.weight)
            write_existing(leaf / "cpu.weight", str(weight))
        if limits.cores and not self.cores_open:
            write_existing(leaf / "cpuset.cpus", _listed(limits.cores))


class V1Tree:
    """One directory per attempt in each useful hierarchy; on a hybrid host also one in the v2 tree.

    The v2 leaf has no controllers there, but gives `cgroup.kill` and a CPU meter. The freezer and
    cpuacct are not needed beside it.
    """

    def __init__(
        self,
        bases: Mapping[str, Path],
        node_id: str,
        *,
        make_dir: MakeDir = make_dir,
        every_kind: bool = False,
    ) -> None:
        """`bases`: kind -> the group below which ours are made. OSError: this user may not.

        `every_kind`: in every hierarchy, because an engine makes its own groups below.
        """
        self._make_dir = make_dir
        self._every_kind = every_kind
        self._kill_seen = False
        self.mode: Mode = "hybrid" if "unified" in bases else "v1"
        self.devices_open = "" if "devices" in bases else "there is no devices controller"
        self.cores_open = "" if "cpuset" in bases else _NO_CPUSET
        self.why = f"cgroup {self.mode}: " + ", ".join(sorted(bases))
        self._parents = {kind: base / "dlq" / node_id for kind, base in bases.items()}
        for parent in self._parents.values():
            make_dir(parent.parent)
            make_dir(parent)
            _refuse_unless_writable(parent)
        if "cpuset" in bases:
            _as_above(self._parents["cpuset"].parent)
            _as_above(self._parents["cpuset"])

    def create(self, name: str, limits: Limits) -> tuple[CgroupDir, ...]:
        unused = self._unused(limits)
        at = {kind: base / name for kind, base in self._parents.items() if kind not in unused}
        dirs = tuple(CgroupDir(kind, str(path)) for kind, path in at.items())
        try:
            for path in at.values():
                self._make_dir(path)
            self._limit(at, limits)
        except OSError:
            directories.remove(dirs)
            raise
        return dirs

    def groups(self) -> dict[str, tuple[CgroupDir, ...]]:
        return _groups(self._parents)

    def remove(self) -> None:
        _remove_parents(self._parents.values())

    def _unused(self, limits: Limits) -> set[str]:
        """The hierarchies in which an attempt with these limits needs no group."""
        if self._every_kind:
            return set()
        unused = set() if limits.devices else {"devices"}
        if limits.cpus is None and limits.weight is None:
            unused.add("cpu")
        if not limits.cores:
            unused.add("cpuset")
        if self._kills_whole():
            unused |= {"freezer", "cpuacct"}
        return unused

    def _kills_whole(self) -> bool:
        """Whether the v2 tree beside has `cgroup.kill`. A kernel that has it keeps it."""
        beside = self._parents.get("unified")
        if not self._kill_seen and beside is not None:
            self._kill_seen = (beside / "cgroup.kill").exists()
        return self._kill_seen

    def _limit(self, at: Mapping[str, Path], limits: Limits) -> None:
        if limits.memory_bytes is not None:
            _limit_v1_memory(at["memory"], limits.memory_bytes)
        if limits.pids_max is not None:
            write_existing(at["pids"] / "pids.max", str(limits.pids_max))
        if limits.cpus is not None and "cpu" in at:
            write_existing(at["cpu"] / "cpu.cfs_period_us", str(PERIOD_US))
            write_existing(at["cpu"] / "cpu.cfs_quota_us", str(_quota_us(limits.cpus)))
        if limits.weight is not None and "cpu" in at:
            write_existing(at["cpu"] / "cpu.shares", str(1024 * limits.weight))
        if "cpuset" in at:
            _as_above(at["cpuset"])
            if limits.cores:
                write_existing(at["cpuset"] / "cpuset.cpus", _listed(limits.cores))
        if "devices" in at:
            _refuse_v1_devices(at["devices"], limits.devices)


class NoTree:
    """No groups: limits are not enforced, and an attempt is its shim's process tree."""

    mode: Mode = "none"

    def __init__(self, why: str) -> None:
        self.why = why
        self.devices_open = why
        self.cores_open = why

    def create(self, name: str, limits: Limits) -> tuple[CgroupDir, ...]:
        """Make nothing. The limits are not enforced, and every display of limits must say so."""
        return ()

    def groups(self) -> dict[str, tuple[CgroupDir, ...]]:
        return {}

    def remove(self) -> None:
        """Nothing to remove."""


def open_only(dirs: Iterable[CgroupDir], rules: Sequence[OnlyMinors]) -> None:
    """Replace the device rules of an attempt's groups; groups without rules stay so.

    May be repeated. Raises OSError.
    """
    at = {each.kind: Path(each.path) for each in dirs}
    if "devices" in at:
        allowed = [f"c {rule.major}:{minor} rwm" for rule in rules for minor in sorted(rule.minors)]
        if allowed:
            write_each(at["devices"] / "devices.allow", allowed)
        _refuse_v1_devices(at["devices"], rules)
    elif "unified" in at:
        device_filter.exchange(at["unified"], rules)


def _groups(parents: Mapping[str, Path]) -> dict[str, tuple[CgroupDir, ...]]:
    found: dict[str, tuple[CgroupDir, ...]] = {}
    for kind, parent in parents.items():
        with suppress(OSError):
            for path in sorted(path for path in parent.iterdir() if path.is_dir()):
                found[path.name] = (*found.get(path.name, ()), CgroupDir(kind, str(path)))
    return found


def _refuse_unless_writable(parent: Path) -> None:
    """OSError: the parent exists, but another user's agent has made it."""
    if not os.access(parent, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(parent))


def _remove_parents(parents: Iterable[Path]) -> None:
    """Remove NODE, then `dlq` above it, which stays while another node's agent uses it."""
    for parent in parents:
        for path in (parent, parent.parent):
            with suppress(OSError):
                path.rmdir()


def _limit_v1_memory(directory: Path, memory_bytes: int) -> None:
    """Limit memory, then memory+swap, which the kernel never wants below the first."""
    write_existing(directory / "memory.limit_in_bytes", str(memory_bytes))
    with_swap = directory / "memory.memsw.limit_in_bytes"
    if with_swap.exists() and os.access(with_swap, os.W_OK):
        write_existing(with_swap, str(memory_bytes))


def _refuse_v1_devices(directory: Path, rules: Iterable[OnlyMinors]) -> None:
    """Refuse every minor except those of a rule, one by one: v1 has no exceptions."""
    refusals = [
        f"c {rule.major}:{minor} rwm"
        for rule in rules
        for minor in _V1_MINORS
        if minor not in rule.minors
    ]
    if refusals:
        write_each(directory / "devices.deny", refusals)


def _has_cpuset(base: Path) -> bool:
    try:
        return "cpuset" in (base / "cgroup.controllers").read_text().split()
    except OSError:
        return False


def _as_above(group: Path) -> None:
    """Give a new v1 cpuset the cores and memory nodes of its parent; it takes no
    process without.
    """
    for name in ("cpuset.mems", "cpuset.cpus"):
        if (group / name).exists() and not (group / name).read_text().strip():
            write_existing(group / name, (group.parent / name).read_text().strip())


def _listed(cores: Iterable[int]) -> str:
    return ",".join(map(str, cores))


def _quota_us(cpus: float | None) -> int | None:
    return None if cpus is None else max(1000, round(cpus * PERIOD_US))


def _or_max(number: int | None) -> str:
    return "max" if number is None else str(number)
