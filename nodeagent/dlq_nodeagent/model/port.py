"""The port through which the supervisor runs attempts: the contract of every runtime."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol

from dlq_nodeagent.cgroups.port import OnlyMinors, RankUsage
from dlq_nodeagent.model.launch import LaunchPlan, RankKey


class RuntimeFault(Exception):
    """A refusal or failure of a runtime; subclasses tell the caller's options."""


class AttemptExists(RuntimeFault):
    """`start` with a known key; nothing was started a second time."""


class UnknownAttempt(RuntimeFault):
    """The handle was never started here, or was forgotten."""


class StaleEpoch(RuntimeFault):
    """The command's epoch is lower than the highest one that this attempt has seen."""


class NotDelivered(RuntimeFault):
    """The shim is ending, or its channel is full: try again."""


@dataclass(frozen=True, slots=True)
class Handle:
    """A started attempt. It is a value: it may be kept, compared and rebuilt by `recover`."""

    key: RankKey
    epoch: int
    """The epoch under which it was placed: with `key.attempt` the fence of its results."""


class JobFiles(NamedTuple):
    """Paths for a job, known before it starts, because its environment has them."""

    preempt_file: str
    """Appears when the job is to save and leave (DLQ_PREEMPT_FILE); the job may only read it."""
    job_dir: str
    """The job user's own, for plain files and torchrun's logs; deleted with the attempt."""
    beat_file: str
    """The file for the job's beats (DLQ_BEAT_FILE), below `job_dir`."""
    done_file: str
    """Made by a job that is really finished (DLQ_DONE_FILE), below `job_dir`."""
    save_file: str = ""
    """Names the last request to save and go on (DLQ_SAVE_FILE); the job may only read it."""


class StepsFile(NamedTuple):
    """The job's list of its steps, not to be trusted; another content has another mark."""

    mark: str
    content: bytes


class NotStill(Exception):
    """The processes of a rank do not stand still, or do not run again; the text says why."""


class Standstill(Protocol):
    """The processes of one rank, while it lives. Any thread may use it."""

    def pids(self) -> frozenset[int]:
        """All of them, with the pids of the agent's host."""
        ...

    def freeze(self) -> None:
        """Stop all of them; a kill still ends them. Raises NotStill."""
        ...

    def thaw(self) -> None:
        """Let them run again; no effect on running ones. Raises NotStill."""
        ...

    def room(self) -> int | None:
        """Bytes of memory until their limit; None: no limit."""
        ...

    def open_only(self, rules: Sequence[OnlyMinors]) -> None:
        """Let them open these device nodes instead of the former ones. May be repeated. Raises
        NotStill.
        """
        ...


class ExitWhy(StrEnum):
    """The decision that ended the attempt."""

    EXITED = "exited"  # the main process ended by itself (also inside a grace, see `noticed`)
    KILLED = "killed"  # `kill`
    STOPPED = "stopped"  # the grace of `stop` ran out
    HOLD_EXPIRED = "hold_expired"  # the master was silent for longer than the hold
    START_ERROR = "start_error"  # the main process never ran; see `start_error`
    SHIM_LOST = "shim_lost"  # the shim died without a record; its remains have been killed


@dataclass(frozen=True, slots=True, kw_only=True)
class StartError:
    """Why the main process never ran: the failed step and the system's words."""

    stage: str
    errno: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The shim's first record: the job's main process has been exec'ed."""

    shim_pid: int
    shim_start_ticks: int
    main_pid: int
    main_start_ticks: int
    boot_id: str
    started_boottime_ns: int
    started_wall_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitRecord:
    """How one rank ended.

    Exactly one of `code`, `signal`, `start_error` is set, except that all are None after an unseen
    end (`shim_lost`).
    """

    key: RankKey
    epoch: int
    why: ExitWhy
    code: int | None
    signal: int | None
    start_error: StartError | None = None
    noticed: str | None = None
    """Reason of the last notice given before the end ("stop", "hold_expired"), if any. One that was
    withdrawn counts for an end within the time it gave."""
    noticed_boottime_ns: int | None = None
    """When that was, on the axis of `ended_boottime_ns`."""
    oom_kills: int = 0
    peak_memory_bytes: int | None = None
    cpu_s: float = 0.0
    started_boottime_ns: int | None = None
    ended_boottime_ns: int = 0
    started_wall_ns: int | None = None
    ended_wall_ns: int = 0
    boot_id: str = ""
    log_bytes: int = 0
    dropped_log_bytes: int = 0
    refused_commands: int = 0
    remaining_pids: int = 0
    """Processes that survived SIGKILL for 30 s (state D, GPU hang): the node must be drained."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogChunk:
    """A piece of an attempt's log (stdout and stderr in one stream, as written).

    Offsets are logical: byte n is the n-th byte since the start. `offset` is the begin of `data`;
    it is larger than requested if older bytes have fallen out of the ring. `end` is one past the
    last byte written so far.
    """

    offset: int
    data: bytes
    end: int

    @property
    def next_offset(self) -> int:
        return self.offset + len(self.data)


@dataclass(frozen=True, slots=True, kw_only=True)
class StopNotice:
    """The content of DLQ_PREEMPT_FILE: one JSON object with these keys and `v`: 1."""

    kind: str
    """preempt | time_limit | reclaim | maintenance | user_pause | hold_expired."""
    reason: str
    """One line for people."""
    deadline_s: float
    """The instant of the kill of all remaining processes, in UTC seconds since the epoch."""
    notice_s: float
    """Instant of the notice, on the same axis; only a checkpoint newer than this counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inside:
    """The command and descriptors that start a command inside a rank (shim/exec.c)."""

    argv: tuple[str, ...]
    shim_pidfd: int
    """A pidfd of the rank's shim, borrowed: the runtime closes it when the attempt is forgotten."""
    uid: int


class Runtime(Protocol):
    """Starts attempts, watches them and ends them. Synchronous; no call waits for a job.

    An attempt outlives the agent. A new Runtime over the same state directory knows all attempts of
    an earlier one (`recover`), ended ones included. A command with an epoch below the highest one
    seen for that attempt is refused with `StaleEpoch`. All calls but `start` may be repeated.
    """

    @property
    def name(self) -> str:
        """`process`, `podman` or `fake`; shown wherever the attempt is shown."""
        ...

    def job_files(self, key: RankKey) -> JobFiles:
        """Paths for the job's environment; pure, may be called before `start`."""
        ...

    def start(self, plan: LaunchPlan) -> Handle:
        """Launch one rank.

        A job that cannot run (no such file, bad cwd, uid refused by the shim) still gives a handle,
        whose exit record has `start_error`. AttemptExists: the key is known. LaunchRefused: this
        node can never run the plan.
        """
        ...

    def recover(self) -> list[Handle]:
        """All attempts that this node knows, alive or ended and not yet forgotten, in key order.

        Call once after an agent restart. It kills remains of a dead shim.
        """
        ...

    def started(self, handle: Handle) -> Started | None:
        """The start record; None: the main process has not been exec'ed (yet)."""
        ...

    def poll(self, handle: Handle) -> ExitRecord | None:
        """The exit record once nothing of the rank is left; None while it lives."""
        ...

    def exited(self, handles: Iterable[Handle]) -> list[ExitRecord]:
        """`poll` for many, in the given order, without those still alive; cheap at 10 Hz."""
        ...

    def ends(self) -> int | None:
        """A descriptor that becomes readable when a rank has started or its guard has ended.

        It stays so until `exited` is called. A hint only: not every start or end shows. Owned by
        the runtime. None: there are no such hints.
        """
        ...

    def signal(self, handle: Handle, number: int, *, epoch: int) -> None:
        """Send a signal to the main process only. No effect on an ended attempt."""
        ...

    def catches(self, handle: Handle, number: int) -> bool | None:
        """Whether the main process catches or ignores this signal now.

        None: unknown, such as in a container, whose main process is not the job's program.
        """
        ...

    def stop(
        self, handle: Handle, *, epoch: int, signal: int, grace_s: float, term_s: float
    ) -> None:
        """Signal the main process now; SIGCONT and SIGTERM `term_s` before the end of the grace;
        then kill all.

        It goes on without the agent. A later `stop` replaces an earlier one, without another signal
        if the number is 0. Write the notice first.
        """
        ...

    def kill(self, handle: Handle, *, epoch: int) -> None:
        """Kill every process of the attempt now."""
        ...

    def extend_hold(self, handle: Handle, *, epoch: int, hold_s: float) -> None:
        """Replace the silence that this attempt survives (maintenance)."""
        ...

    def notice(self, handle: Handle, notice: StopNotice | None) -> None:
        """Write the notice file atomically, or withdraw it with None."""
        ...

    def ask_save(self, handle: Handle, number: int) -> None:
        """Write the save file atomically, `{"v": 1, "number": ...}`: save, and go on.

        It replaces an earlier request. May raise NotDelivered.
        """
        ...

    def beat(self, handle: Handle) -> bytes | None:
        """The job's last beat (at most 64 KiB, not to be trusted), or None."""
        ...

    def steps(self, handle: Handle, mark: str) -> StepsFile | None:
        """The job's list of its steps (jobtree/steps.py), at most 2 MiB of it.

        None: there is none, or it still has this mark. May be called after the end.
        """
        ...

    def done(self, handle: Handle) -> bool:
        """Whether the job made its done file."""
        ...

    def workers_done(self, handle: Handle) -> bool:
        """Whether only tasks that serve others are left (dlq-tasks says so)."""
        ...

    def worker_failures(self, handle: Handle) -> int:
        """How often torchrun has restarted its workers because they failed, by its logs.

        For a rank that joined others (live_torchrun.py).
        """
        ...

    def failed_task(self, handle: Handle) -> str:
        """The task that failed first, by the job's own report; empty: none."""
        ...

    def usage(self, handle: Handle) -> RankUsage:
        """The present use of the attempt; after its end, zeros or None."""
        ...

    def disk(self, handle: Handle) -> tuple[int, int] | None:
        """Bytes read from disks and written, which may fall when processes end; None: unknown on
        this node.
        """
        ...

    def read_log(self, handle: Handle, offset: int, limit: int) -> LogChunk:
        """At most `limit` bytes from logical `offset`, also after the end."""
        ...

    def inside(
        self, handle: Handle, command: Sequence[str], *, terminal: bool, variable: str = ""
    ) -> Inside:
        """The command line that starts a command beside the main process. Starts nothing.

        The command has the rank's rights, limits, directory and environment. `variable`
        (NAME=VALUE) is added. It may be at a terminal. RuntimeFault: the main process does not run,
        or there are no processes.
        """
        ...

    def standstill(self, handle: Handle) -> Standstill:
        """The means to make its processes stand still. RuntimeFault: there are none."""
        ...

    def boxed_init(self, handle: Handle) -> str:
        """The place of dlq-init in the rank's container; empty: no container.

        RuntimeFault: the rank does not run.
        """
        ...

    def forget(self, handle: Handle) -> None:
        """Delete the node's files of an ended attempt. RuntimeFault: it still lives."""
        ...
