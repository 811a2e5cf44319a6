"""The port for control groups: the groups of attempts, and their names."""

from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

Mode = Literal["v2", "v1", "hybrid", "none"]


class CgroupDir(NamedTuple):
    """One directory of an attempt's processes; on v1 and hybrid a group has several."""

    kind: str
    """memory | pids | cpu | cpuacct | freezer | devices | cpuset (v1), or unified (v2)."""
    path: str


class RankUsage(NamedTuple):
    """The use of an attempt; None: unknown on this node (no group)."""

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
    """Hard limits of one attempt on this node; None: no limit."""

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
    """Makes groups of attempts below one base that belongs to this agent."""

    @property
    def mode(self) -> Mode:
        """The kind of the tree. Every display of limits must show `none`."""
        ...

    @property
    def why(self) -> str:
        """One line for people: the base, or the reason why there is none."""
        ...

    @property
    def devices_open(self) -> str:
        """Why an attempt cannot be kept off device nodes here; empty: it can, and is."""
        ...

    @property
    def cores_open(self) -> str:
        """Why an attempt cannot be bound to its cores here; empty: it can, and is."""
        ...

    def create(self, name: str, limits: Limits) -> tuple[CgroupDir, ...]:
        """Make the groups `name` with these limits and return them; empty in mode `none`.

        A leftover group is used again. OSError: the kernel refuses a limit, and nothing is left
        behind.
        """
        ...

    def groups(self) -> dict[str, tuple[CgroupDir, ...]]:
        """The existing groups of attempts by name, including those of an earlier agent."""
        ...

    def remove(self) -> None:
        """Remove the tree's own groups. Groups with attempts stay."""
        ...
