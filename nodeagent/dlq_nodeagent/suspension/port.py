"""A move of a rank off its GPUs or back: its order, its result, and the port that makes it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from dlq_common.daemon.config import Bytes, Seconds
from dlq_nodeagent.cgroups.port import OnlyMinors
from dlq_nodeagent.model.launch import RankKey
from dlq_nodeagent.model.port import Standstill


@dataclass(frozen=True, slots=True)
class SuspendConfig:
    """GPU memory of suspended jobs in this host's memory (docs/running/suspend.md)."""

    memory: Bytes = Bytes(0)  # the most that all of it may take; 0 = no job is suspended here
    spare: Bytes = Bytes(8 * 1024**3)  # of the host's memory, left to others in any case
    lock: Seconds = Seconds(10.0)  # how long a process may take to stop its work on the GPU
    free: Seconds = Seconds(5.0)  # from then until its GPUs are proven free, else it goes on


class MoveRefusal(StrEnum):
    """Why a rank was not suspended, as a fixed word. It runs on as before."""

    OFF = "off"  # This node suspends none.
    DRIVER = "driver"  # The driver is too old, or has no such calls.
    MEMORY = "memory"  # The host has no room for it.
    SHARED = "shared"  # Another process is on its GPUs, or they are shared by MPS.
    STILL = "still"  # Its processes cannot be made to stand still.
    LOCK = "lock"  # A process did not stop its work in time.
    MOVE = "move"  # The driver could not move the memory of a process.
    NOT_FREE = "not_free"  # Its GPUs could not be proven free.


class MoveRefused(Exception):
    """The rank runs on as before; `words` are for people."""

    def __init__(self, word: MoveRefusal, words: str) -> None:
        super().__init__(f"{word}: {words}")
        self.word, self.words = word, words


class MoveBroken(Exception):
    """The rank can neither run on nor be brought back: it must be ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveOrder:
    """An order to move a rank off its GPUs, or back. A repeat continues from where it stands.

    `held`: bytes of the other suspended ranks of this node. `pids`: processes on record. They leave
    their GPUs with `nbytes`, and each must come back. `uuids`: its GPUs; empty: unknown. `onto`:
    its new GPUs, in the order of `uuids`; empty: the same. `rules`: the device nodes of those.
    """

    key: RankKey
    uuids: tuple[str, ...]
    still: Standstill
    held: Mapping[RankKey, int] = field(default_factory=dict)
    onto: tuple[str, ...] = ()
    rules: tuple[OnlyMinors, ...] = ()
    pids: tuple[int, ...] = ()
    nbytes: int = 0


@dataclass(frozen=True, slots=True)
class Moved:
    """A finished move: bytes of GPU memory, and the duration."""

    nbytes: int
    took_s: float


class NotOnRecord(Exception):
    """Nothing has moved yet: these processes must be recorded first, with their GPU memory.

    A following agent could not tell otherwise which processes to bring back.
    """

    def __init__(self, pids: tuple[int, ...], nbytes: int) -> None:
        super().__init__(f"processes {', '.join(map(str, pids))}")
        self.pids, self.nbytes = pids, nbytes


class Suspender(Protocol):
    """Moves ranks. Calls block while the driver works, and come from threads."""

    @property
    def why_not(self) -> str:
        """Why no rank can be suspended here; empty: ranks can be."""
        ...

    @property
    def own_only(self) -> str:
        """Why a rank may come back to its own GPUs only; empty: also to others of the type."""
        ...

    def suspend(self, order: MoveOrder) -> Moved:
        """Take a rank off its GPUs, which are then proven free. Raises NotOnRecord, MoveRefused,
        MoveBroken.
        """
        ...

    def resume(self, order: MoveOrder) -> Moved:
        """Bring it back. Raises MoveRefused while another program uses its GPUs, MoveBroken."""
        ...
