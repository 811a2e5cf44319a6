"""Everything that can enter the loop's inbox, and what each of them is answered with."""

from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Final, NamedTuple, TypeAlias

from dlq_master.control.caller import Caller as Caller
from dlq_master.control.chosen import Chosen
from dlq_master.control.loan_stimuli import LendServers as LendServers
from dlq_master.control.loan_stimuli import LookAtGpus as LookAtGpus
from dlq_master.control.loan_stimuli import ReclaimServers as ReclaimServers
from dlq_master.control.loan_stimuli import SwitchLoans as SwitchLoans
from dlq_master.control.loan_stimuli import TakeLook as TakeLook
from dlq_master.control.pool_stimuli import AnnounceLeave as AnnounceLeave
from dlq_master.control.pool_stimuli import ProviderTold as ProviderTold
from dlq_master.control.pool_stimuli import StopMachines as StopMachines
from dlq_master.model.eligible import Array, Relation
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.job import HoldKind, Job, RunRules
from dlq_master.model.node import Node, NodeFlag, Registered
from dlq_master.model.recording import Evidence
from dlq_master.model.resources import Request
from dlq_master.model.why import Reason
from dlq_master.planner.plans import Answer
from dlq_master.store.batch import JoinToken as JoinToken
from dlq_master.store.batch import User as User
from dlq_master.store.tenants import Reservation as Reservation
from dlq_master.store.tenants import Team as Team
from dlq_master.store.tenants import Waited as Waited

# --- users: jobs -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AskedArray:
    """One job for each index (rising, none twice), at most `concurrent` at a time; 0 = all."""

    indexes: tuple[int, ...]
    concurrent: int
    step: int = 1  # as it was asked for, when it was one range


@dataclass(frozen=True, slots=True)
class AskedTerm:
    """A job by its id; an array, or with `index` one of its tasks, by the array's; 0 for singleton."""

    relation: Relation
    job_id: JobId
    index: int | None = None


@dataclass(frozen=True, slots=True)
class AskedDependency:
    """All terms, or any of them."""

    terms: tuple[AskedTerm, ...]
    any: bool = False
    cancel_if_never: bool = False


class AskedLateness(NamedTuple):
    """When a job is due: so long after its acceptance, or at an instant; and what a second of being late costs."""

    weight: float
    after_s: float = 0.0
    at_s: float | None = None  # if it is set, it counts


class AskedDeadline(NamedTuple):
    """One deadline, and what a completion by then earns: so long after its acceptance, or at an instant."""

    reward: float
    after_s: float = 0.0
    at_s: float | None = None  # if it is set, it counts


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitJob:
    """Accept a job. Answered with `Submitted` after it is on disk."""

    caller: Caller
    request_id: str
    digest: str  # of the request but for its begin; another one with the same id is refused
    name: str
    queue: str  # "" = the default queue
    request: Request
    spec: bytes  # serialized dlq.v1.JobSpec, opaque here
    rules: RunRules  # the graces in it are overruled by the cluster's
    grace_s: float | None = None  # until saves have been observed; None = the cluster's
    hold: bool = False
    time_limit_s: float | None = None
    run_estimate_s: float | None = None
    array: AskedArray | None = None
    depends: AskedDependency | None = None
    begin_time_s: float | None = None
    nice: int = 0
    validate_only: bool = False
    family: str = ""  # jobs of its user that run the same program; "" = it has none
    records: bool | None = None  # its traffic: always, never; None = as the cluster does
    deadlines: tuple[AskedDeadline, ...] = ()
    step_count: int | None = None  # training steps in all
    team: str = ""  # to which its GPUs are counted; "" = the caller's default
    lateness: AskedLateness | None = None  # machines may be rented for it
    sized: bool = False  # as many GPUs of its sizes as could ever be had will do


@dataclass(frozen=True, slots=True)
class Submitted:
    """The job as stored, and why it does not run yet."""

    job: Job
    reasons: tuple[Reason, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEdit:
    """What all edits of one job carry. Answered with the `Job` after the change."""

    caller: Caller
    request_id: str
    job_id: JobId
    expected_version: int = 0  # 0 = do not care


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelJob(JobEdit):
    """End it: at once when it waits, with its grace when it runs, without when `kill`."""

    kill: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldJob(JobEdit):
    """Keep it from starting."""

    kind: HoldKind = HoldKind.USER
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseJob(JobEdit):
    """Take a user's, an operator's or a poison hold back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseJob(JobEdit):
    """Checkpoint it, free its GPUs, keep it on hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeJob(JobEdit):
    """Queue a paused job again."""


class Same(Enum):
    """A field of an update that leaves it as it is; None takes it away."""

    SAME = "same"


SAME: Final = Same.SAME


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateJob(JobEdit):
    """Ask for something else. Answered with `UpdatedJob`."""

    name: str | Same = SAME
    queue: str | Same = SAME
    nice: int | Same = SAME
    time_limit_s: float | Same | None = SAME
    begin_time_s: float | Same | None = SAME
    depends: AskedDependency | Same | None = SAME
    concurrent: int | Same = SAME
    deadlines: tuple[AskedDeadline, ...] | Same = SAME
    on_miss: str | Same = SAME
    sizes: tuple[int, ...] | Same = SAME  # of an elastic job; none: what it asks for alone
    team: str | Same = SAME


class FieldChange(NamedTuple):
    """One field before and after, for people."""

    field: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class UpdatedJob:
    """The job after its update, and what was changed."""

    job: Job
    changes: tuple[FieldChange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequeueJob(JobEdit):
    """Let it save and leave its GPUs, and queue it again; with `hold` not before it is released."""

    hold: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalJob(JobEdit):
    """Send a signal to the main process of rank 0, or of all ranks."""

    signal: str
    all_ranks: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointJob(JobEdit):
    """Ask all ranks to save and go on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainJob:
    """Why does it not run? Reads only. Answered with `Explained`."""

    job_id: JobId


@dataclass(frozen=True, slots=True)
class Explained:
    """Every reason, and how many jobs are ahead of it in its order (None: it does not wait)."""

    job: Job
    reasons: tuple[Reason, ...]
    jobs_ahead: int | None
    waited: Waited | None = None  # how long it has waited for what


# --- nodes: sessions -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSession:
    """A node said hello. Answered with `Opened`; an older session of the node is dead from here."""

    node_id: NodeId
    facts: Registered
    highest_epoch: int
    reports: tuple["ReportedRank", ...]
    pool_name: str = ""  # of a rented machine
    instance_id: str = ""  # what its provider calls it


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """What Welcome says. `launches` and `stops` are level-triggered: the whole truth for this node."""

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
class CloseSession:
    """The stream ended. Nothing is concluded from it but that commands cannot be sent."""

    node_id: NodeId
    session_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedProgress:
    """What a running rank last said of itself, so long ago; None: it has not said anything."""

    key: AttemptKey
    epoch: int
    node_rank: int
    step: int | None
    total: int | None
    loss: float | None
    age_s: float | None
    memory_bytes: int


class ToldSymptom(NamedTuple):
    """Something wrong with a GPU, as its node says."""

    code: str
    age_s: float
    detail: str


class ToldGpu(NamedTuple):
    """How a GPU is, as its node says; figures are None where its driver does not tell."""

    gpu: int  # its number
    symptoms: tuple[ToldSymptom, ...] = ()
    temperature_celsius: int | None = None
    utilization_percent: int | None = None
    used_memory_bytes: int | None = None


class ToldDisk(NamedTuple):
    """What a node says of the disk of its agent's state."""

    full: bool
    free_bytes: int
    spare_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """Sign of life. Not awaited: the session answers it at once, without the disk."""

    node_id: NodeId
    session_id: int
    progress: tuple[ReportedProgress, ...] = ()
    hold_revision: int = 0  # the word on holds that all its ranks have; 0: none in this session
    health: tuple[ToldGpu, ...] | None = None  # of all its GPUs; None: as told before
    disk: ToldDisk | None = None  # None: as told before


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
    gpus_held: str = ""  # it has ended, and this is why its GPUs are not proven free
    no_room: bool = False  # of one that could not start: a disk of its node is full
    image_digest: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankReports:
    """Reports of a node. Answered with the highest sequence, after the commit: then it may be acked."""

    node_id: NodeId
    session_id: int
    reports: tuple[ReportedRank, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeEvidence:
    """What a node told of the traffic of a rank. Answered when it is on disk, or of no use."""

    epoch: int  # with the key's number: the fence of the launch
    age_s: float  # how long ago recording ended
    evidence: Evidence  # but for its time


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandDone:
    """A node took a command, or refused it. Not awaited."""

    node_id: NodeId
    session_id: int
    sequence: int
    refusal: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnounceMaintenance:
    """An agent will be away for `maintenance_s`; 0: it is back for good. Answered with `Maintenance`."""

    caller: Caller
    request_id: str
    node_id: NodeId
    maintenance_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Maintenance:
    """How long the absence may last from now on, and whether all ranks have been told."""

    left_s: float
    in_force: bool
    rank_count: int
    hold_s: float | None  # shortest silence that a rank there survives; None: no rank is there


# --- commands, as the sessions send them ------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """Run one rank. `sequence` is 0 inside Welcome."""

    sequence: int
    key: AttemptKey
    epoch: int
    node_id: NodeId
    node_rank: int
    gpu_indexes: tuple[int, ...]
    node_ids: tuple[NodeId, ...]
    node_addresses: tuple[str, ...]
    master_port: int
    spec: bytes
    user: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    resume_from: str  # "" = from the beginning; the checkpoint directory follows from the spec (rpc/commands)
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
    record_s: float | None = None  # its traffic, for so long from its start on; None: not
    trial: bool = False  # on fewer GPUs than the job asks for: it does nothing of its work
    sizes: tuple[int, ...] = ()  # of an elastic job: numbers of GPUs that will do, as of now


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """End one rank. `sequence` is 0 inside Welcome; `epoch` is that of the attempt's fence."""

    sequence: int
    key: AttemptKey
    epoch: int
    node_id: NodeId
    node_rank: int
    cause: str
    grace_s: float
    delay_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """Send a signal to one rank's main process; "" = that of its notice."""

    sequence: int
    key: AttemptKey
    epoch: int
    node_id: NodeId
    node_rank: int
    signal: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Save:
    """Ask one rank to save and go on; `number` rises with every request."""

    sequence: int
    key: AttemptKey
    epoch: int
    node_id: NodeId
    node_rank: int
    number: int


Command: TypeAlias = Launch | Stop | Signal | Save | LookAtGpus


# --- operators and admins -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateToken:
    """Make a join token; the caller made the secret and hands in its hash. Answered with `JoinToken`."""

    caller: Caller
    request_id: str
    token_id: str
    secret_hash: str
    node_id: str
    lifetime_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RevokeToken:
    """Make a token useless. Answered with None."""

    caller: Caller
    request_id: str
    token_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UseToken:
    """A node wants in. Answered with the node's id; refused with Unauthenticated."""

    token_id: str
    secret_hash: str
    key_fingerprint: str
    wished_node_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceNode:
    """The machine is off, says an operator. Answered with `Fenced`."""

    caller: Caller
    request_id: str
    node_id: NodeId
    reason: str


@dataclass(frozen=True, slots=True)
class Fenced:
    """The node after the fence, and the jobs whose attempts were lost by it."""

    node: Node
    job_ids: tuple[JobId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SetNodeFlags:
    """Set and clear flags of a node. Answered with the `Node`."""

    caller: Caller
    request_id: str
    node_id: NodeId
    set_flags: frozenset[NodeFlag]
    clear_flags: frozenset[NodeFlag]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetNodeLabels:
    """Set and clear labels of a node. Answered with the `Node`."""

    caller: Caller
    request_id: str
    node_id: NodeId
    set_labels: frozenset[str]  # `K=V`
    clear_labels: frozenset[str]  # names


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptGpus:
    """Use the GPUs that a node shows beyond those it was accepted with. Answered with the `Node`."""

    caller: Caller
    request_id: str
    node_id: NodeId


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearGpuConditions:
    """Take GPUs for healthy; no indexes: all of them. Answered with the `Node`."""

    caller: Caller
    request_id: str
    node_id: NodeId
    indexes: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetNode:
    """Drop a node that is DOWN and empty; its certificate is refused from now on. Answered with None."""

    caller: Caller
    request_id: str
    node_id: NodeId


@dataclass(frozen=True, slots=True, kw_only=True)
class SetUser:
    """Add or change a user. `request_id` "" = the login broker's own. Answered with the `User`."""

    caller: Caller
    request_id: str
    name: str
    role: str
    uid: int
    gid: int
    groups: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteUser:
    """Remove a user; their jobs stay. Answered with None."""

    caller: Caller
    request_id: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetPolicy:
    """Let another policy decide from now on. Answered with `PolicySet`."""

    caller: Caller
    request_id: str
    policy: str = ""
    settings: tuple[tuple[str, str], ...] = ()
    from_file: bool = False  # what master.toml says; policy and settings are not asked then
    force: bool = False  # even if promises are dropped


@dataclass(frozen=True, slots=True)
class PolicySet:
    """What holds now, and whose promises were dropped for it."""

    chosen: Chosen
    dropped: tuple[JobId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTeam:
    """Add or change a team, the whole of it. Answered with `TeamSet`."""

    caller: Caller
    request_id: str
    team: Team  # its version: the one that is to be changed; 0 = do not care
    force: bool = False  # even if more is promised than its quota


@dataclass(frozen=True, slots=True)
class TeamSet:
    """The team as stored, and what that means for what runs."""

    team: Team
    notices: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTeam:
    """Remove a team. Answered with the number of its jobs that have not ended."""

    caller: Caller
    request_id: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateReservation:
    """Keep nodes free for a while. Answered with the `Reservation`."""

    caller: Caller
    request_id: str
    node_ids: tuple[NodeId, ...]
    begin_s: float | None  # None: now
    end_s: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelReservation:
    """Cancel a reservation, or end it early. Answered with None."""

    caller: Caller
    request_id: str
    reservation_id: str


# --- time ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tick:
    """The metronome: `schedule`, `leases`, `compact`, `backup`. Not awaited."""

    name: str


@dataclass(frozen=True, slots=True)
class PlanMade:
    """The planner has answered, or has failed to. Not awaited."""

    answer: Answer


JobEditing: TypeAlias = (
    CancelJob
    | HoldJob
    | ReleaseJob
    | PauseJob
    | ResumeJob
    | UpdateJob
    | RequeueJob
    | SignalJob
    | CheckpointJob
)
JobStimulus: TypeAlias = SubmitJob | JobEditing | ExplainJob
NodeStimulus: TypeAlias = (
    OpenSession
    | CloseSession
    | Heartbeat
    | RankReports
    | TakeEvidence
    | TakeLook
    | AnnounceLeave
    | CommandDone
    | AnnounceMaintenance
)
AdminStimulus: TypeAlias = (
    CreateToken
    | RevokeToken
    | UseToken
    | FenceNode
    | SetNodeFlags
    | SetNodeLabels
    | AcceptGpus
    | ClearGpuConditions
    | ForgetNode
    | SetUser
    | DeleteUser
    | SetPolicy
    | SetTeam
    | DeleteTeam
    | LendServers
    | StopMachines
    | ReclaimServers
    | SwitchLoans
    | CreateReservation
    | CancelReservation
)
Stimulus: TypeAlias = JobStimulus | NodeStimulus | AdminStimulus | Tick | PlanMade | ProviderTold
