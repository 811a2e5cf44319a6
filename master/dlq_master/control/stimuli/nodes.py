"""Reports of agents, and the commands that their sessions send them."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from dlq_master.control.stimuli.caller import Answered, NodeRequest, SessionReport
from dlq_master.model.attempts.attempt import RankMove
from dlq_master.model.ids import AttemptKey, NodeId
from dlq_master.model.jobs.eligible import Array
from dlq_master.model.jobs.recording import Evidence
from dlq_master.model.nodes.node_steps import Registered
from dlq_master.policy.stragglers import WorkTimes


class AgentInstance(NamedTuple):
    """One agent process, its memory and its machine; see the proto."""

    process_id: str
    place: str
    memory_id: str
    machine_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """The content of Welcome. `launches` and `stops` are level-triggered: the whole truth for this
    node.
    """

    session_id: int
    epoch: int
    heartbeat_s: float
    ttl_s: float
    reconnect_jitter_s: float
    launches: tuple["Launch", ...]
    stops: tuple["Stop", ...]
    acknowledged: int  # highest report sequence on disk, of those in the hello
    hold_extension_s: float = 0.0
    hold_revision: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSession(Answered[Opened]):
    """A node said hello. An older session of the node is dead from here."""

    node_id: NodeId
    facts: Registered
    highest_epoch: int
    reports: tuple["ReportedRank", ...]
    pool_name: str = ""  # of a rented machine
    instance_id: str = ""  # what its provider calls it
    agent: AgentInstance | None = None  # None: an agent of before, which does not say
    unexplained: tuple[
        tuple[AttemptKey, int, int], ...
    ] = ()  # key, epoch, rank: runs without a record


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseSession(SessionReport):
    """The stream ended. Nothing is concluded from it but that commands cannot be sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedProgress:
    """The last report of a running rank about itself, so long ago; None: it has not said
    anything.
    """

    key: AttemptKey
    epoch: int
    node_rank: int
    step: int | None
    total: int | None
    loss: float | None
    age_s: float | None


class Beat(NamedTuple):
    """The last progress report of a job. It is never stored: a report is worth less than a
    write.
    """

    step: int | None
    total: int | None
    loss: float | None
    time_s: float


class ToldSymptom(NamedTuple):
    """Something wrong with a GPU, as its node says."""

    code: str
    age_s: float
    detail: str


class ToldLoad(NamedTuple):
    """The load of a GPU over a span, of which its agent has seen a part."""

    span_s: float
    seen_s: float
    mean_percent: float
    peak_percent: int
    power_watts: int | None = None
    clock_mhz: int | None = None


class ToldUse(NamedTuple):
    """The use of a host by a rank over a span; None where its node cannot tell."""

    key: AttemptKey
    epoch: int
    node_rank: int
    span_s: float
    cpu_s: float | None = None
    read_bytes: int | None = None
    written_bytes: int | None = None
    work: WorkTimes | None = None  # of the steps that it has made in the span
    traffic: bool = False  # its node has these from its traffic, and not from its beats
    sent_ago_s: float | None = None  # that it had sent nothing at a look; None: not recorded
    looked_ago_s: float = 0.0  # since that look
    quiet_s: float = 0.0  # the longest time between two of its sends
    memory_bytes: int | None = None  # in use at the end of the span


class ToldGpu(NamedTuple):
    """How a GPU is, as its node says; figures are None where its driver does not tell."""

    gpu: int  # its number
    symptoms: tuple[ToldSymptom, ...] = ()
    temperature_celsius: int | None = None
    utilization_percent: int | None = None
    used_memory_bytes: int | None = None
    load: ToldLoad | None = None  # None: nobody has looked since the last report


class ToldDisk(NamedTuple):
    """The report of a node about the disk of its agent's state."""

    full: bool
    free_bytes: int
    spare_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat(SessionReport):
    """Sign of life: the session answers it at once, without the disk."""

    progress: tuple[ReportedProgress, ...] = ()
    hold_revision: int = 0  # the word on holds that all its ranks have; 0: none in this session
    health: tuple[ToldGpu, ...] | None = None  # of all its GPUs; None: as told before
    disk: ToldDisk | None = None  # None: as told before
    rank_uses: tuple[ToldUse, ...] = ()  # of its ranks; empty: not told this time


class ReportedPhase(StrEnum):
    """Where a rank stands, as its agent says. Never goes back."""

    PREPARING = "preparing"
    STARTED = "started"
    STOPPING = "stopping"
    EXITED = "exited"
    START_FAILED = "start_failed"
    ABSENT = "absent"  # the agent does not know it and nothing of it runs
    READY = "ready"  # it could start, and waits at the barrier


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedCheckpoint:
    """The newest checkpoint that a rank's agent has seen committed."""

    path: str
    step: int | None
    age_s: float
    after_notice: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedRank:
    """One report of a node about a rank. `epoch` and `key` are the fence of its launch."""

    sequence: int
    key: AttemptKey
    epoch: int
    node_rank: int
    phase: ReportedPhase
    exit_code: int | None = None
    signal: int = 0
    oom_killed: bool = False
    error: str = ""
    ended_by: str = ""  # "exited" | "killed" | "hold_expired"
    checkpoint: ReportedCheckpoint | None = None
    done: bool = False
    save_s: float | None = None
    age_s: float = 0.0
    gpu_indexes: tuple[int, ...] = ()  # of its launch; empty: the agent does not know
    detail: str = ""  # what one that is being prepared waits for
    ports: tuple[int, ...] = ()  # of a ready one: free on its node
    workers_done: bool = False
    last_lines: tuple[str, ...] = ()
    failed_task: str = ""
    noticed: str = (
        ""  # "stop" | "hold_expired": told to leave before its end; "": its end is its own
    )
    catches: bool | None = None  # its main process, the signal of its notice; None: not known
    unnoticed: bool = (
        False  # its shim's record says that its end is its own; False: or nobody can tell
    )
    gpus_held: str = ""  # it has ended, and this is why its GPUs are not proven free
    no_room: bool = False  # of one that could not start: a disk of its node is full
    image_digest: str = ""
    move: RankMove | None = None  # of its GPU memory, as the last order wanted; None: none did
    start_cause: str = (
        ""  # why one could not be started, in a fixed word (dlq_common/start_causes.py)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RankReports(SessionReport, Answered[int]):
    """Reports of a node. The answer is the highest sequence, which may be acked then."""

    reports: tuple[ReportedRank, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeEvidence(Answered[None]):
    """The report of a node about the traffic of a rank. Answered when it is on disk, or of no
    use.
    """

    epoch: int  # with the key's number: the fence of the launch
    age_s: float  # how long ago recording ended
    evidence: Evidence  # but for its time


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandDone(SessionReport):
    """A node took a command, or refused it."""

    sequence: int
    refusal: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Maintenance:
    """How long the absence may last from now on, and whether all ranks have been told."""

    left_s: float
    in_force: bool
    rank_count: int
    hold_s: float | None  # shortest silence that a rank there survives; None: no rank is there


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnounceMaintenance(NodeRequest[Maintenance]):
    """An agent will be away for `maintenance_s`; 0: it is back for good."""

    maintenance_s: float


# --- commands, as the sessions send them ------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RankCommand:
    """A command about one rank. `epoch` and `key` are the fence of its launch; `sequence` is 0
    inside Welcome.
    """

    sequence: int
    key: AttemptKey
    epoch: int
    node_id: NodeId
    node_rank: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch(RankCommand):
    """Run one rank."""

    gpu_indexes: tuple[int, ...]
    node_ids: tuple[NodeId, ...]
    node_addresses: tuple[str, ...]
    master_port: int
    spec: bytes
    user: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    # "" = from the beginning; the checkpoint directory follows from the spec (rpc/commands)
    resume_from: str
    hold_s: float
    grace_s: float
    restart_count: int
    time_left_s: float | None
    name: str = ""
    queue: str = ""  # the one it is in; "" = as its spec says
    array: Array | None = None
    array_index: int = 0
    at_barrier: bool = False  # make it ready, and start it only when it is said again without this
    port_first: int = 0  # its node chooses ports from here to there
    port_last: int = 0
    node_ports: tuple[tuple[int, ...], ...] = ()  # of all ranks, once all are ready
    node_gpu_counts: tuple[int, ...] = ()
    node_gpu_types: tuple[str, ...] = ()
    node_batch_shares: tuple[float, ...] = ()  # of each GPU of a mixed job; empty: all take as much
    core_indexes: tuple[int, ...] = ()  # of a job without GPUs, in the place of gpu_indexes
    node_core_counts: tuple[int, ...] = ()  # of such a gang on each node; empty: it has GPUs
    record_s: float | None = None  # its traffic, for so long from its start on; None: not
    trial: bool = False  # on fewer GPUs than the job asks for: it does nothing of its work
    sizes: tuple[int, ...] = ()  # of an elastic job: numbers of GPUs that will do, as of now
    fixed: bool = False  # nobody joins or leaves it while it runs
    joins: bool = False  # others run
    # Of a group: `address:port` of each rank of each member, by its name.
    peers: tuple[tuple[str, tuple[str, ...]], ...] = ()
    check: str = ""  # the kind of check that it is; "": a user's own job


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop(RankCommand):
    """End one rank."""

    cause: str
    grace_s: float
    delay_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal(RankCommand):
    """Send a signal to one rank's main process; "" = that of its notice."""

    signal: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Save(RankCommand):
    """Ask one rank to save and go on; `number` rises with every request."""

    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspend(RankCommand):
    """Take one rank off its GPUs without a save; `number` rises with every order of its attempt."""

    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume(RankCommand):
    """Bring one suspended rank back, to these GPUs; `number` likewise."""

    number: int
    gpu_indexes: tuple[int, ...] = ()
