"""Messages between the agent and the master as plain values; durations are seconds.

`line/wire.py` converts them to messages of dlq.v1 and back, field by field with the same name.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from dlq_nodeagent.model.gpus import GpuHealth
from dlq_nodeagent.model.launch import RankKey
from dlq_nodeagent.model.steps import ToldStep


class Fence(NamedTuple):
    """(epoch, attempt) of a placement; a result counts only with the fence stored there."""

    epoch: int
    attempt: int

    def __str__(self) -> str:
        return f"{self.epoch}.{self.attempt}"


class Phase(StrEnum):
    """The phase of a rank on its node (RankPhase of the wire); it never goes back."""

    PREPARING = "preparing"
    STARTED = "started"
    STOPPING = "stopping"
    EXITED = "exited"
    START_FAILED = "start_failed"
    READY = "ready"
    ABSENT = "absent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """The agent itself in a Hello; see AgentInstance in the proto."""

    process_id: str = ""
    place: str = ""
    memory_id: str = ""
    machine_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MountRequest:
    """A path of this node at a place in a rank's container, as the user asked."""

    source: str
    target: str
    read_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerRequest:
    """The container of a rank, as the user asked; secrets by name only."""

    image: str
    mounts: tuple[MountRequest, ...] = ()
    shm_size_bytes: int | None = None
    network: str = ""
    image_secret: str = ""
    secrets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ProfileOrder:
    """Record a rank's traffic until some time after its start."""

    window_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """Run one rank. Idempotent by its key: a known rank is reported again, never started again."""

    key: RankKey
    fence: Fence
    command: tuple[str, ...]
    script: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    soft_limits: Mapping[str, int] = field(default_factory=dict)
    """Resource limits by the names of dlq_common.text.soft_limits; missing ones are the node's."""
    working_directory: str = ""
    runtime: str = "process"
    gpu_indexes: tuple[int, ...] = ()
    node_addresses: tuple[str, ...] = ()
    node_ids: tuple[str, ...] = ()
    master_port: int = 0
    user: str = ""
    uid: int = 0
    gid: int = 0
    groups: tuple[int, ...] = ()
    preempt_signal: str = ""
    signal_to: str = ""
    """"ranks": the processes that a launcher has started; else the main process."""
    save_signal: str = ""
    checkpoint_directory: str = ""
    checkpoint_base: str = ""
    """The base above the directories of jobs; empty from an older master."""
    checkpoint_named: bool = False
    """The user has chosen where; else the site."""
    checkpoint_marker: str = ""
    settle_s: float = 0.0
    resume_from: str = ""
    cpu_limit: float | None = None
    memory_limit_bytes: int | None = None
    hold_s: float = 3600.0
    grace_s: float = 300.0
    restart_count: int = 0
    time_left_s: float | None = None
    container: ContainerRequest | None = None
    job_name: str = ""
    queue: str = ""
    compat: str = ""
    tasks_per_node: int | None = None
    launch_mode: str = ""
    """"per-gpu": one process for each GPU; else one."""
    worker_count: int = 0
    ps_count: int = 0
    at_barrier: bool = False
    """Make it ready and say so; it starts when the same launch comes without this."""
    port_first: int = 0
    port_last: int = 0
    node_ports: tuple[tuple[int, ...], ...] = ()
    """Ports of all nodes in rank order; empty as long as this node may still choose its own."""
    node_gpu_counts: tuple[int, ...] = ()
    node_gpu_types: tuple[str, ...] = ()
    node_batch_shares: tuple[float, ...] = ()
    """Of each GPU of a job on several types, by node; empty: all take as much."""
    step_key: str = ""
    """The secret of the attempt's ranks, by which one starts steps on another; hexadecimal."""
    core_indexes: tuple[int, ...] = ()
    """The cores of a job without GPUs, as the master numbers them; empty: it has GPUs."""
    node_core_counts: tuple[int, ...] = ()
    """How many such cores its gang has on each node, in rank order."""
    profile: ProfileOrder | None = None
    trial: bool = False
    """True for a trial on fewer GPUs than its job asks for: none of its saves is used.
    """
    sizes: tuple[int, ...] = ()
    """The sizes of an elastic job, rising: numbers of GPUs that suit it. One is `asked_gpus`."""
    asked_gpus: int = 0
    live: bool = False
    """Other nodes join and leave it while it runs, by torchrun's elastic rendezvous; `node_ids` has
    all that it ever had, and those without GPUs have left."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the job that the table sends `to_agent`, by key: `THREADS.of(launch.fields)`."""
    joins: bool = False
    """The others run already."""
    stdin: str = ""
    """Of rank 0: "pipe" or "terminal" of the job's client; empty: /dev/null."""
    gpu_memory_bytes: int = 0
    """The memory it asks of each GPU if it halves its batch on a smaller one; else 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """End one rank: notice and signal after `delay_s`, TERM, and KILL `grace_s` later."""

    key: RankKey
    fence: Fence
    cause: str
    grace_s: float
    delay_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """Send a signal to the main process of a rank; "": that of its notice."""

    key: RankKey
    fence: Fence
    signal: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Save:
    """Ask a rank to save and go on; `number` rises with every request."""

    key: RankKey
    fence: Fence
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspend:
    """Take a rank off its GPUs without a save; `number` rises with every such order."""

    key: RankKey
    fence: Fence
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """Bring a suspended rank back to its GPUs; `number` rises likewise.

    `gpu_indexes`: its GPUs from now on; empty: the same as before.
    """

    key: RankKey
    fence: Fence
    number: int
    gpu_indexes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenLog:
    """Send the output of a rank through the relay with that name."""

    relay_id: str
    key: RankKey
    offset: int
    follow: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenExec:
    """Run a command inside a rank, for the relay with that name.

    With an address: take the command up for a caller at the relay process beside the master, with
    the ticket. `relay_caller`: the SHA-256 of the caller's certificate, hexadecimal. `relay_key`:
    the resume key of that command; "": the master does not give it. `relay_over`: the caller of the
    line with this ticket does not come back.
    """

    relay_id: str
    key: RankKey
    fence: Fence
    relay_address: str = ""
    relay_ticket: str = ""
    relay_caller: str = ""
    relay_key: str = ""
    relay_over: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSamples:
    """Take a profile of this agent, for the relay with that name."""

    relay_id: str
    sample_s: float
    user: str


@dataclass(frozen=True, slots=True)
class LookAtGpus:
    """Look at all GPUs of the node now; the answer repeats `number`."""

    number: int


Order = (
    Launch | Stop | Signal | Save | Suspend | Resume | OpenLog | OpenExec | OpenSamples | LookAtGpus
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """An order, answered by one CommandResult with the same sequence."""

    sequence: int
    epoch: int
    order: Order


TAKES_STEPS = "steps"
"""The feature of a master that takes a StepsReport."""
REPORTS_ANSWER = "reports-answer"
"""The feature of a master that takes a report of a rank for the answer to its launch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Welcome:
    """The master's answer to Hello."""

    epoch: int
    heartbeat_s: float
    ttl_s: float
    reconnect_jitter_s: float
    wanted: tuple[Launch, ...] = ()
    stops: tuple[Stop, ...] = ()
    hold_extension_s: float = 0.0
    hold_revision: int = 0
    features: tuple[str, ...] = ()
    """Abilities of this master that older ones lack."""
    system: str = ""
    """The PostgreSQL that holds its rows; "": a file of SQLite."""
    timeline: int = 0
    former_systems: tuple[str, ...] = ()
    """An operator says that this system has taken their place."""


@dataclass(frozen=True, slots=True)
class HeartbeatReply:
    """The answer to the heartbeat with this sequence: the agent had contact when it sent that.

    All ranks survive `hold_extension_s` more silence than they were launched with; `hold_revision`
    numbers this order.
    """

    sequence: int
    hold_extension_s: float = 0.0
    hold_revision: int = 0


@dataclass(frozen=True, slots=True)
class ReportAck:
    """Reports up to this sequence are on the master's disk."""

    sequence: int


@dataclass(frozen=True, slots=True)
class ProfileAck:
    """The evidence of this rank need not be sent again."""

    key: RankKey
    fence: Fence


@dataclass(frozen=True, slots=True)
class StepsAck:
    """The steps of this report need not be sent again."""

    key: RankKey
    fence: Fence
    number: int


FromMaster = Welcome | HeartbeatReply | Command | ReportAck | ProfileAck | StepsAck


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFact:
    """A checkpoint that was committed `age_s` ago; `evidence` is "marker" or "settled"."""

    path: str
    step: int | None
    age_s: float
    evidence: str
    after_notice: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SuspensionFact:
    """The answer to the order with this number: "moving", "suspended", "running", "stranded"."""

    number: int
    state: str
    memory_bytes: int = 0
    took_s: float = 0.0
    failure: str = ""
    remaps: bool = False
    """It stands still, and may come back to other GPUs of the type."""
    own_only: str = ""
    """Why it may not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankReport:
    """An event of one rank, `age_s` ago; the master decides what it means for the attempt."""

    sequence: int
    key: RankKey
    fence: Fence
    phase: Phase
    exit_code: int | None = None
    signal: int = 0
    oom_killed: bool = False
    error: str = ""
    ended_by: str = ""
    checkpoint: CheckpointFact | None = None
    done: bool = False
    run_s: float | None = None
    peak_memory_bytes: int = 0
    cpu_s: float = 0.0
    save_s: float | None = None
    age_s: float = 0.0
    detail: str = ""
    """The reason why a rank in preparation waits, for people."""
    gpu_indexes: tuple[int, ...] = ()
    ports: tuple[int, ...] = ()
    """The ports of a ready rank: free on this node, and its own from now on."""
    workers_done: bool = False
    last_lines: tuple[str, ...] = ()
    failed_task: str = ""
    noticed: str = ""
    """The last notice it was given before its end: "stop" or "hold_expired"."""
    unnoticed: bool = False
    catches: bool | None = None
    """True if it is known to have ended by itself, and no notice was given before."""
    gpus_held: str = ""
    """For an ended rank: the reason why its GPUs are not free yet."""
    no_room: bool = False
    """True if it could not be started because this node's disk is full."""
    start_cause: str = ""
    """Why it could not be started, in a fixed word (dlq_common/start_causes.py)."""
    image_digest: str = ""
    """The image that its name stood for here."""
    suspension: SuspensionFact | None = None
    """None: it has never been asked to leave its GPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankProgress:
    """The last report of a running rank about itself, `age_s` ago; None: there was none."""

    key: RankKey
    fence: Fence
    step: int | None
    total: int | None
    loss: float | None
    age_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWork:
    """The work times of some steps of a rank, without waits for others: sums of logarithms."""

    step_count: int
    log_sum: float
    log_square_sum: float
    from_traffic: bool = False

    def since(self, before: "StepWork") -> "StepWork | None":
        """The steps since then. None: there are none, or another process counts now."""
        count = self.step_count - before.step_count
        squares = self.log_square_sum - before.log_square_sum
        if count <= 0 or squares < 0.0:
            return None
        logs = self.log_sum - before.log_sum
        return StepWork(step_count=count, log_sum=logs, log_square_sum=squares)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankUse:
    """A rank's use of its host over a span that ends now; None: unknown on this node."""

    key: RankKey
    fence: Fence
    span_s: float
    cpu_s: float | None = None
    read_bytes: int | None = None
    written_bytes: int | None = None
    work: StepWork | None = None
    sent_ago_s: float | None = None
    """How long it had sent nothing to others at the last look; None: it is not recorded."""
    looked_ago_s: float | None = None
    """How long ago that look was."""
    quiet_s: float | None = None
    """The longest time between two of its sends."""
    memory_bytes: int | None = None
    """In use at the end of the span."""


class UnexplainedRank(NamedTuple):
    """A rank that runs on the node without a record."""

    key: RankKey
    fence: Fence


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """Opens a session, with every rank of this node whose end is not acknowledged."""

    highest_epoch: int
    ranks: tuple[RankReport, ...]
    instance: Instance = field(default_factory=Instance)
    unexplained: tuple[UnexplainedRank, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskSpace:
    """The disk with the agent's state: whether it is too full for anything new, and why."""

    full: bool
    free_bytes: int
    spare_bytes: int
    """Less than this is too little."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """A sign of life; the sequence rises within a session."""

    sequence: int
    progress: tuple[RankProgress, ...]
    hold_revision: int = 0
    """The word on holds that every living rank has."""
    health: tuple[GpuHealth, ...] | None = None
    """The health of all GPUs; None: the last report of this session still holds."""
    disk: DiskSpace | None = None
    """None: the last report of this session still holds."""
    rank_uses: tuple[RankUse, ...] = ()
    """The use of each running rank since the last such word; told now and then."""


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The command was accepted (an empty refusal), or refused with a fixed word."""

    sequence: int
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a value was found, how certain it is, and why it is unknown; empty: it is known."""

    method: str
    confidence: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileFound:
    """The traffic of a rank; fields as in dlq/v1/profile.proto.

    Bytes and times are those of one iteration; unknown ones are None.
    """

    ended_s: float
    """When recording ended, UTC."""
    window_s: float
    gpu_type: str
    gpu_count: int
    node_count: int
    traffic: Verdict
    sizes: Verdict
    pattern: str = "other"
    process_count: int = 0
    rank_count: int | None = None
    iteration_count: int = 0
    period_s: float | None = None
    jitter: float | None = None
    bytes_per_iteration: float | None = None
    model_bytes: float | None = None
    largest_low_bytes: float | None = None
    largest_high_bytes: float | None = None
    skew_low: float | None = None
    skew_high: float | None = None
    server_skew: float | None = None
    active_fraction: float | None = None
    self_check_error: float | None = None
    record_count: int = 0
    lost_count: int = 0
    unseen: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()
    processes: str = ""
    """JSON, empty or of at most MOST_PROCESSES_BYTES."""


MOST_PROCESSES_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileEvidence:
    """The traffic of one rank, for the master; recording ended `age_s` ago."""

    key: RankKey
    fence: Fence
    age_s: float
    found: ProfileFound


@dataclass(frozen=True, slots=True)
class GpuReading:
    """A device's report of its load."""

    index: int
    used_memory_bytes: int
    process_count: int


@dataclass(frozen=True, slots=True)
class GpuLook:
    """The load of the GPUs that could be read, for the LookAtGpus with this number."""

    number: int
    gpus: tuple[GpuReading, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepsReport:
    """All known steps of one rank's attempt; `number` rises with every change."""

    key: RankKey
    fence: Fence
    number: int
    steps: tuple[ToldStep, ...]
    dropped_count: int
    dropped_failed_count: int
    script_peak_memory_bytes: int | None = None
    script_cpu_s: float | None = None
    """Of the batch script, once it has ended."""


FromAgent = Hello | Heartbeat | RankReport | CommandResult | ProfileEvidence | GpuLook | StepsReport
