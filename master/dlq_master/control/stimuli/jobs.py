"""Requests of users about jobs, and the answers."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple

from dlq_common.errors import DlqError
from dlq_master.control.stimuli.caller import Answered, Caller, CallerRequest
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.jobs.eligible import MemberEnds, Relation
from dlq_master.model.jobs.job import HoldKind, Job, RunRules
from dlq_master.model.resources import Request
from dlq_master.model.why import Reason
from dlq_master.store.tables.tenants import Waited


@dataclass(frozen=True, slots=True)
class AskedArray:
    """One job for each index (rising, none twice), at most `concurrent` at a time; 0 = all."""

    indexes: tuple[int, ...]
    concurrent: int
    step: int = 1  # as it was asked for, when it was one range


@dataclass(frozen=True, slots=True)
class AskedTerm:
    """A job by its id; an array, or with `index` one of its tasks, by the array's; 0 for
    singleton.
    """

    relation: Relation
    job_id: JobId
    index: int | None = None
    delay_s: float = 0.0  # with AFTER


@dataclass(frozen=True, slots=True)
class AskedDependency:
    """All terms, or any of them."""

    terms: tuple[AskedTerm, ...]
    any: bool = False
    cancel_if_never: bool = False


class AskedLateness(NamedTuple):
    """When a job is due: so long after its acceptance, or at an instant; and what a second of being
    late costs.
    """

    weight: float
    after_s: float = 0.0
    at_s: float | None = None  # if it is set, it counts


class AskedDeadline(NamedTuple):
    """One deadline, and what a completion by then earns: so long after its acceptance, or at an
    instant.
    """

    reward: float
    after_s: float = 0.0
    at_s: float | None = None  # if it is set, it counts


@dataclass(frozen=True, slots=True)
class Submitted:
    """The job as stored, why it does not run yet, and how many are ahead of it, where that is known
    at once.
    """

    job: Job
    reasons: tuple[Reason, ...]
    jobs_ahead: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitJob(CallerRequest[Submitted]):
    """Accept a job."""

    digest: str  # of the request but for its begin; another one with the same id is refused
    name: str
    queue: str  # "" = the default queue
    request: Request
    spec: bytes  # serialized dlq.v1.JobSpec, opaque here
    rules: RunRules  # the graces in it are overruled by the cluster's
    grace_s: float | None = None  # until saves have been observed; None = the cluster's
    hold: bool = False
    time_limit_s: float | None = None
    ends_as_slurm: bool = False  # by CONT and TERM at once, and KILL after `[jobs] kill_wait`
    run_estimate_s: float | None = None
    array: AskedArray | None = None
    depends: AskedDependency | None = None
    begin_time_s: float | None = None
    nice: int = 0
    validate_only: bool = False
    family: str = ""  # jobs of its user that run the same program; "" = it has none
    program: str = ""  # what it runs, if the family has a name; "" = the family says it
    records: bool | None = None  # its traffic: always, never; None = as the cluster does
    deadlines: tuple[AskedDeadline, ...] = ()
    step_count: int | None = None  # training steps in all
    team: str = ""  # to which its GPUs are counted; "" = the caller's default
    lateness: AskedLateness | None = None  # machines may be rented for it
    sized: bool = False  # as many GPUs of its sizes as could ever be had will do
    interactive: bool = False  # its client ends it, or feeds it
    brief: bool = False  # its sender wants the job alone, without reasons
    hooked: str = ""  # what a hook has changed in it or said of it
    check: str = ""  # the master's own: a check of this kind


class CheckOrder(NamedTuple):
    """A check of these nodes, on so many of their devices in all, of this type."""

    caller: Caller  # in whose account it runs
    kind: str
    node_ids: tuple[NodeId, ...]
    gpu_type: str
    devices: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckNodes(CallerRequest[Job]):
    """Check one node, or two together, now: a job of the master that starts in this turn."""

    kind: str
    node_ids: tuple[NodeId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitMany(CallerRequest["tuple[JobId | DlqError, ...]"]):
    """Submissions in one turn. Each is accepted or refused by itself, under a key of its own.

    The answers are numbers of jobs and of arrays, in the order of the submissions.
    """

    asks: tuple[SubmitJob, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WithdrawSubmission(CallerRequest["JobId | None"]):
    """Make certain whether a submission with this request id was accepted; None: none is, or will
    be.
    """


class AskedMember(NamedTuple):
    """So many jobs alike of a group."""

    name: str
    jobs: int
    ends: MemberEnds
    ask: SubmitJob


@dataclass(frozen=True, slots=True)
class SubmittedGroup:
    """The jobs of a group as stored, member by member."""

    group_id: JobId
    jobs: tuple[Job, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitGroup(CallerRequest[SubmittedGroup]):
    """Accept jobs that start together and end together, all or none of them."""

    digest: str  # of all members
    members: tuple[AskedMember, ...]
    validate_only: bool = False


class FieldChange(NamedTuple):
    """One field before and after, for people."""

    field: str
    before: str
    after: str


class UpdateNote(NamedTuple):
    """A change or a warning of the operator's hook: the fields of dlq.v1.HookNote."""

    hook: str
    field: str
    before: str
    after: str
    text: str


@dataclass(frozen=True, slots=True)
class UpdatedJob:
    """The job after its update, and what was changed."""

    job: Job
    changes: tuple[FieldChange, ...]
    notes: tuple[UpdateNote, ...] = ()  # of the operator's hook


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEdit(CallerRequest[Any]):
    """The fields of all edits of one job; an update is answered with `UpdatedJob`."""

    job_id: JobId
    expected_version: int = 0  # 0 = do not care


class ManyEdited(NamedTuple):
    """The answers of many edits by their jobs, and the refusals. Jobs that were left alone have
    neither.
    """

    answers: Mapping[JobId, Job]
    refusals: Mapping[JobId, DlqError]


@dataclass(frozen=True, slots=True, kw_only=True)
class EditMany(CallerRequest[ManyEdited]):
    """Edits of different jobs in one turn, under one key. Each takes effect or is refused by
    itself.
    """

    edits: tuple[JobEdit, ...]  # they have no keys of their own
    living_only: bool = False  # leave jobs alone that have ended


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

    accept_loss: bool = True  # False: WorkWouldBeLost when it would lose what it has done
    in_memory: bool = False  # without a save: it stays on its nodes, off their GPUs


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeJob(JobEdit):
    """Queue a paused job again."""


class Same(Enum):
    """A field of an update that leaves it as it is; None takes it away."""

    SAME = "same"


SAME: Final = Same.SAME


@dataclass(frozen=True, slots=True, kw_only=True)
class Respec:
    """Another spec in the place of a job's, and the facts that the scheduler takes from it."""

    spec: bytes  # serialized dlq.v1.JobSpec, opaque here
    seen_version: int  # of the job from whose spec it was made
    changes: tuple[FieldChange, ...]
    constraint: tuple[str, ...]
    among: tuple[NodeId, ...]
    not_among: tuple[NodeId, ...]
    once: bool
    sized: Request | None = None  # its sizes are taken over; None: they stay


@dataclass(frozen=True, slots=True, kw_only=True)
class HookedUpdate:
    """The word of the operator's hook about an update."""

    digest: str  # of the wishes of the user alone: a repeat is known by it
    seen_version: int  # of the job that the hook has seen; it holds for no other
    notes: tuple[UpdateNote, ...]
    words: str  # the notes for people; "": there are none


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateJob(JobEdit):
    """Ask for something else."""

    name: str | Same = SAME
    queue: str | Same = SAME
    nice: int | Same = SAME
    time_limit_s: float | Same | None = SAME
    begin_time_s: float | Same | None = SAME
    depends: AskedDependency | Same | None = SAME
    concurrent: int | Same = SAME
    deadlines: tuple[AskedDeadline, ...] | Same = SAME
    on_miss: str | Same = SAME
    sizes: tuple[int, ...] | Same = SAME  # of an elastic job; none: the size of its request alone
    team: str | Same = SAME
    spec_change: str = ""  # the digest of what is asked for
    respec: Respec | None = None  # made anew at every try
    validate_only: bool = False
    hooked: HookedUpdate | None = None  # the part of the operator's hook in it


@dataclass(frozen=True, slots=True, kw_only=True)
class RequeueJob(JobEdit):
    """Let it save and leave its GPUs, and queue it again; with `hold` not before it is released."""

    hold: bool = False
    accept_loss: bool = True  # as in PauseJob


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalJob(JobEdit):
    """Send a signal to the main process of rank 0, or of all ranks."""

    signal: str
    all_ranks: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointJob(JobEdit):
    """Ask all ranks to save and go on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttendJob(Answered[Job]):
    """The client of an interactive job is there; with `bind` it is tied to it from now on."""

    caller: Caller
    job_id: JobId
    bind: bool = False


@dataclass(frozen=True, slots=True)
class Explained:
    """Every reason, and how many jobs are ahead of it in its order (None: it does not wait)."""

    job: Job
    reasons: tuple[Reason, ...]
    jobs_ahead: int | None
    waited: Waited | None = None  # how long it has waited for what


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainJob(Answered[Explained]):
    """Why does it not run? Reads only."""

    job_id: JobId


class HookResult(NamedTuple):
    """The result of a hook of an attempt: notes, a reason to hold its job, or a failure."""

    key: AttemptKey
    hook: str
    notes: tuple[str, ...] = ()
    hold: str = ""
    failed: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeHookResults(Answered[None]):
    """Results of all events up to this sequence of the journal that were not told before."""

    sequence: int
    results: tuple[HookResult, ...]
