"""Slow work outside the agent's core: a job's own files, and drivers that may hang.

The core sends an errand and goes on; the answer comes back as a call of the core.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from dlq_nodeagent.model.launch import LaunchPlan, RankKey
from dlq_nodeagent.model.messages import Launch, OpenExec, OpenLog, OpenSamples
from dlq_nodeagent.model.port import Handle, Standstill


class Purpose(StrEnum):
    """The purpose of a look at a rank's checkpoints."""

    WATCH = "watch"  # checkpoints while it runs
    BASELINE = "baseline"  # just before a notice: the checkpoints committed by then
    FINAL = "final"  # after its end: the last checkpoint
    RELEASE = "release"  # and then: whether its GPUs are free


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareOrder:
    """Prepare all that a rank needs before its start, with ports that no other rank has."""

    launch: Launch
    ports: tuple[int, ...] = ()
    """The ports of its earlier start."""
    taken: frozenset[int] = frozenset()
    """Ports of the other ranks on this node, which may not listen yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    """The result: a plan to start and the floor for markers, or the refusal."""

    plan: LaunchPlan | None = None
    floor_mtime_ns: int = 0
    ports: tuple[int, ...] = ()
    again: bool = False
    """The thing it waited for is there now: order it again, and it is soon ready."""
    error: str = ""
    no_room: bool = False
    """True if the launch cannot be prepared because a disk of this node is full."""
    cause: str = ""
    """Why it cannot be, in a fixed word (dlq_common/start_causes.py)."""
    exit_code: int | None = None
    """Set when it cannot be by the user's own mistake (model/mistakes.py)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LookOrder:
    """Look at a rank's checkpoints; with RELEASE at its GPUs instead.

    `settled`: no process writes any more, so that a marker need not be watched for a while.
    `given_out`: GPUs that the rank has left before its end, and that other ranks of this node have
    now.
    """

    launch: Launch
    purpose: Purpose
    floor_mtime_ns: int
    settled: bool = False
    given_out: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenCheckpoint:
    """A committed checkpoint in a job's tree; `mtime_ns` is its file system's time."""

    path: str
    step: int | None
    mtime_ns: int
    age_s: float
    evidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The result of a look.

    `released` is None without a look at its GPUs, and False also if that look failed. `held_by`
    says why, or names a GPU that is not free. A failed look at checkpoints has found none.
    """

    checkpoint: SeenCheckpoint | None = None
    released: bool | None = None
    held_by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOrder:
    """Switch a rank's recording off and read its records of `window_s`. `main_pid`: it runs."""

    launch: Launch
    window_s: float
    main_pid: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """Take a rank off its GPUs (`out`), or bring it back.

    `held`: bytes of GPU memory of this node's other suspended ranks in host memory. `pids`: its
    recorded processes that leave, or have left, with `nbytes` of GPU memory. `came_from`: the GPUs
    that it left, if it comes back to others; empty: the same ones.
    """

    launch: Launch
    out: bool
    still: Standstill
    held: Mapping[RankKey, int]
    pids: tuple[int, ...] = ()
    nbytes: int = 0
    came_from: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveResult:
    """The end of a move.

    `found`: it has not begun, because these processes must be recorded first, with their `nbytes`.
    `own_only`: why the rank may come back to its own GPUs only; empty: also to others. `refusal`:
    it stays where it was, in words. `broken`: it can neither run nor be brought back, in words.
    """

    nbytes: int = 0
    took_s: float = 0.0
    found: tuple[int, ...] = ()
    own_only: str = ""
    refusal: str = ""
    broken: str = ""


class Errands(Protocol):
    """The port to which the core sends its errands. Calls return at once.

    The core has at most one errand of a kind per rank under way.
    """

    def prepare(self, order: PrepareOrder) -> None:
        """Answered by `core.prepared`; a long preparation calls `core.preparing` meanwhile."""
        ...

    def abandon(self, key: RankKey) -> None:
        """The rank is not to start: its preparation is ended, and answered."""
        ...

    def look(self, order: LookOrder) -> None:
        """Answered by `core.looked(key, purpose, Look)`."""
        ...

    def move(self, order: Move) -> None:
        """Always answered by `core.moved(key, MoveResult)`."""
        ...

    def look_at_gpus(self, number: int) -> None:
        """Answered by `core.gpus_seen`, once for all looks under way."""
        ...

    def send_log(self, order: OpenLog, handle: Handle | None, never_ran: str, /) -> None:
        """Send output to the master by its own stream.

        Without a handle there is no output: `never_ran` says why. If that is empty, say that the
        rank is unknown.
        """
        ...

    def send_samples(self, order: OpenSamples, /) -> None:
        """Sample the stacks of this process, and send its profile by its own stream."""
        ...

    def run_inside(self, order: OpenExec, handle: Handle | None, /) -> None:
        """Run a command inside a rank; the master sends it by its own stream.

        Without a handle: answer that the rank does not run.
        """
        ...

    def tidy(self, key: RankKey) -> None:
        """The rank is forgotten: delete its preparation's files in the agent's own directories."""
        ...

    def read_profile(self, order: ReadOrder) -> None:
        """Always answered by `core.profile_read(key, ProfileFound)`, also after a failure."""
        ...

    def look_at_traffic(self, launch: Launch, since_s: float) -> None:
        """Always answered by `core.traffic_seen(key, TrafficLook | None)`.

        `since_s`: the boottime of the last look.
        """
        ...

    def drop_profile(self, key: RankKey) -> None:
        """Remove a rank's records; without an answer."""
        ...

    def drop_profiles_but(self, keys: Iterable[RankKey]) -> None:
        """Remove the records of all other ranks; without an answer."""
        ...
