"""The port for control groups: the place of an attempt's groups, and their names."""

from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

Mode = Literal["v2", "v1", "hybrid", "none"]


class CgroupDir(NamedTuple):
    """One directory an attempt's processes live in; several make up its group on v1 and hybrid."""

    kind: str
    """memory | pids | cpu | cpuacct | freezer | devices | cpuset (v1), or unified (v2)."""
    path: str


class RankUsage(NamedTuple):
    """The use of an attempt; None where this node cannot tell (no cgroup)."""

    memory_bytes: int | None
    """Now, without the file cache."""
    peak_memory_bytes: int | None
    cpu_s: float | None
    pids: int | None
    oom_kills: int | None


class OnlyMinors(NamedTuple):
    """A rule for one major number of character devices: only these minors may be opened."""

    major: int
    minors: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Hard limits of one attempt on this node; None is no limit."""

    memory_bytes: int | None
    pids_max: int | None
    cpus: float | None
    devices: tuple[OnlyMinors, ...] = ()
    """Device nodes that no user of it may open; only where `devices_open` is empty.
    """
    cores: tuple[int, ...] = ()
    """The only cores that it runs on, by the kernel's numbers, where `cores_open` is empty. None
    named: on all.
    """
    weight: int | None = None
    """Its part of busy cores, beside that of others on the same ones; None: as the kernel does."""


class CgroupTree(Protocol):
    """Makes the groups of attempts below one base that belongs to this node agent."""

    @property
    def mode(self) -> Mode:
        """The kind of the tree; `none` must be shown wherever limits are shown."""
        ...

    @property
    def why(self) -> str:
        """One line for people: the place of the base, or the reason why there is none."""
        ...

    @property
    def devices_open(self) -> str:
        """Why device nodes cannot be kept from an attempt here; empty: they can be and are."""
        ...

    @property
    def cores_open(self) -> str:
        """Why an attempt cannot be kept on its cores here; empty: it can be and is."""
        ...

    def create(self, name: str, limits: Limits) -> tuple[CgroupDir, ...]:
        """Make the groups `name` with these limits and return them; empty in mode `none`.

        A group that is left over from before is used again. Raises OSError when the kernel refuses
        a limit; nothing is left behind then.
        """
        ...

    def groups(self) -> dict[str, tuple[CgroupDir, ...]]:
        """The existing groups of attempts, by name, with groups that another agent made."""
        ...

    def remove(self) -> None:
        """Remove the groups that this tree made for itself. Groups with attempts stay."""
        ...
