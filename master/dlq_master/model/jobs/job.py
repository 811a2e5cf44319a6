"""A job as its user sees it: the stored value."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from dlq_master.model.estimates.estimate import NOTHING_KNOWN, Basis
from dlq_master.model.estimates.scaling import SizePace
from dlq_master.model.estimates.traffic import TrafficProfile
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.jobs.accounts import account_of
from dlq_master.model.jobs.band import Band, Segments
from dlq_master.model.jobs.eligible import Array, Block, Dependency
from dlq_master.model.jobs.reward import BEST_EFFORT, Steps
from dlq_master.model.resources import Allocation, Request, Shape

SEVERAL = "several"  # instead of a GPU type: of more than one
# Rows and events call these fields by an older name (docs/internals/adr/0021-one-dictionary.md).
STORED_NAMES = {"band": "lane", "priority_base": "rank_base"}


class JobState(StrEnum):
    PENDING = "pending"  # durable, not yet admitted
    QUEUED = "queued"  # admitted; also while an attempt lives
    HELD = "held"  # will not (re)start until released
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"


class HoldKind(StrEnum):
    USER = "user"
    ADMIN = "admin"
    PAUSED = "paused"
    POISON = "poison"
    DEPENDENCY = "dependency"  # what it waits for can never come true any more


class EndReason(StrEnum):
    """Why an attempt, and with it perhaps the job, ended."""

    COMPLETED = "completed"
    USER_ERROR = "user_error"
    OOM_HOST = "oom_host"
    OOM_GPU = "oom_gpu"  # by its own last words: it ends by itself, and nothing kills it
    SIGNAL = "signal"
    TIME_LIMIT = "time_limit"
    CANCELLED = "cancelled"
    PREEMPTED = "preempted"
    PREEMPTED_LOST = "preempted_lost"
    REQUEUE_EXIT = "requeue_exit"  # the program asked to be run again (exit 99 or configured)
    NODE_LOST = "node_lost"
    START_FAILED = "start_failed"
    POISON = "poison"
    REJECTED = "rejected"
    JOIN_FAILED = "join_failed"  # of a node that had joined it just before
    PROFILED = "profiled"  # its trial is over: it was measured, at another size than its own


class RestartCause(StrEnum):
    """Why a job starts again: each cause may have a limit of its own.

    A time-out, a cancel and an exit code that asks for another run are no causes here.
    """

    ERROR = "error"  # its program failed, by its exit code or by a signal
    MEMORY = "memory"  # it had too little memory, of the host or of a GPU
    NODE = "node"  # a node was lost, or failed to join it
    GPU = "gpu"  # its program failed on a GPU that ails; without a limit that is an error
    PREEMPTION = "preemption"  # other jobs, or the owner of a lent server, took its GPUs
    START = "start"  # it could not be launched, or its image could not be pulled


CAUSE_OF: Mapping[EndReason, RestartCause] = {
    EndReason.USER_ERROR: RestartCause.ERROR,
    EndReason.SIGNAL: RestartCause.ERROR,
    EndReason.OOM_HOST: RestartCause.MEMORY,
    EndReason.OOM_GPU: RestartCause.MEMORY,
    EndReason.NODE_LOST: RestartCause.NODE,
    EndReason.JOIN_FAILED: RestartCause.NODE,
    EndReason.START_FAILED: RestartCause.START,
}


class RestartLimits(NamedTuple):
    """The most restarts after each cause; None: the cause has no limit of its own."""

    error: int | None = None
    memory: int | None = None
    node: int | None = None
    gpu: int | None = None
    preemption: int | None = None
    start: int | None = None

    def of(self, cause: RestartCause) -> int | None:
        most: int | None = getattr(self, cause)
        return most


class RestartCounts(NamedTuple):
    """How often a job has ended by each cause, and was not over."""

    error: int = 0
    memory: int = 0
    node: int = 0
    gpu: int = 0
    preemption: int = 0
    start: int = 0

    def of(self, cause: RestartCause) -> int:
        count: int = getattr(self, cause)
        return count

    def after(self, cause: RestartCause | None) -> RestartCounts:
        """The counts after one more end by this cause."""
        return self if cause is None else self._replace(**{cause.value: self.of(cause) + 1})

    def forgiven(self) -> RestartCounts:
        """The same without the failures of the cluster."""
        return self._replace(node=0, gpu=0, start=0)


class ExitZeroInGrace(StrEnum):
    """What exit code 0 during a pause means: saved and left, or really finished?"""

    REQUEUE = "requeued"
    COMPLETED = "completed"
    EVIDENCE = "evidence"  # nothing is declared (model/attempts/exit_zero.py)

    @classmethod
    def _missing_(cls, value: object) -> ExitZeroInGrace | None:
        """Rows of before say "requeue", which nobody had declared."""
        return cls.EVIDENCE if value == "requeue" else None


class RunRules(NamedTuple):
    """The rules about stopping and running again, from a job's spec and from the cluster."""

    requeue_exit_codes: frozenset[int] = frozenset({99})
    exit0_in_grace: ExitZeroInGrace = ExitZeroInGrace.EVIDENCE
    done_exit_codes: frozenset[int] = frozenset()  # its program has finished, whatever was asked
    max_requeues: int = 10  # by requeue exit codes, outside a grace
    max_restarts: int = 0  # after the program's own failures
    max_infra_failures: int = 3  # then the job is held as poison
    first_grace_s: float = 300.0  # until saves have been observed
    grace_floor_s: float = 60.0
    grace_cap_s: float = 600.0
    hold_s: float | None = None  # on_disconnect: None = the cluster's L
    retry_backoff_s: float = 0.0  # after the first infra failure; then twice as long each time
    forgive_after_s: float = 3600.0  # who has run so long, or saved, starts to count anew
    warn_s: float | None = None  # its signal comes so long before its time limit; None = not
    cancel_late: bool = False  # once its last deadline cannot be kept any more, it is cancelled
    saves: bool = True  # its spec says how it saves, or is notified
    limit_each: bool = False  # its time limit is that of each attempt, not of all together
    # As Slurm ends a job: CONT and TERM at once, KILL so long after. None: its grace to save.
    kill_wait_s: float | None = None
    attended: bool = False  # it lives while its client says it is there, and is never run again
    once: bool = False  # it is never run again
    limits: RestartLimits = RestartLimits()  # causes with one count in no limit above


class Checkpoint(NamedTuple):
    """The newest committed checkpoint the master promoted."""

    path: str
    step: int | None
    time_s: float
    attempt: int
    save_s: float | None = None  # how long it took, once a rank has said so


class Alternative(NamedTuple):
    """The possible promise at the time when a job was judged and refused. Instants."""

    earliest_s: float | None = None  # the earliest deadline; None: none could
    fix: str = ""  # the cheapest change with which one would have been (promise.offer.FixKind)
    fix_s: float | None = None  # that deadline, or when the quota leaves room
    fix_gpus: int | None = None
    need: float | None = None  # what it asked for and there was not, by its ground (promise_words)
    have: float | None = None  # what there was of that
    detail: str = ""  # of the ground "type": the existing types; of an ended promise: why


class Lateness(NamedTuple):
    """The due instant, and the cost of each late second in the currency of prices."""

    due_s: float
    weight: float


class Foretold(NamedTuple):
    """The expected cost of a job at its first look, or at the first choice of a machine."""

    at_s: float
    own_late: float | None = None  # by being late on the cluster's own nodes; None: nobody can say
    pool: str = ""  # of that machine; "": none has been chosen
    running: float = 0.0  # its part of that machine
    late: float = 0.0  # being late there


class Pause(NamedTuple):
    """Seconds that a promise assumes for each stop: to save, and to go on once placed."""

    save_s: float
    resume_s: float


class Taken(NamedTuple):
    """For whom others took its GPUs, by which rule, and what work that cost it. An instant, and
    seconds.

    `lost_s`: of running on the GPUs that it had, to be done again; None: it has not left them yet.
    """

    by: JobId
    user: str
    rule: str
    time_s: float
    lost_s: float | None = None


class KeptGpus(NamedTuple):
    """GPUs of a gang that a node has failed: the free ones are kept for it until then.

    All that it had, in rank order. `policy/transit/kept_gpus.py` finds the part that is left.
    """

    allocation: Allocation
    until_s: float


class Resizing(NamedTuple):
    """On its way to other GPUs: from how many, since when it had to save, and why."""

    gpus: int
    since_s: float
    why: str = ""


class Job(NamedTuple):
    """A job; live attempts and their GPUs are told by `Attempt`, never copied here."""

    job_id: JobId
    user: str
    name: str
    request: Request
    submit_time_s: float
    queue: str = "default"
    priority_base: int = 0  # order of the job's queue; lower goes first
    state: JobState = JobState.PENDING
    hold: HoldKind | None = None
    hold_reason: str = ""
    held_by: str = ""  # the user who set the hold; "" = the master itself
    version: int = 1  # rises with every step: compare-and-set for edits
    queued_since_s: float | None = None  # waiting since; None while it is not waiting
    level: int = 0  # 0 .. K-1, 0 is served first
    sequence: int = 0  # position in its level, handed out by the cluster
    attained_gpu_s: float = 0.0  # by ended attempts since the last promotion
    executed_s: float = 0.0  # likewise
    waited_s: float = 0.0  # waiting after the first run since the last promotion
    promoted: bool = False  # holds the head of level 0 with its width reserved
    attempts: int = 0
    live_attempt: int | None = None
    first_start_time_s: float | None = None  # first RUNNING ever
    start_time_s: float | None = None  # first RUNNING of the last attempt that ran
    end_time_s: float | None = None
    end_reason: EndReason | None = None  # of the last ended attempt, or of the job
    exit_code: int | None = None
    signal: int | None = None  # that ended the first failing rank of the last ended attempt
    preemptions: int = 0
    requeues: int = 0
    infra_failures: int = 0  # by causes without a limit of their own
    restarts: int = 0  # likewise
    time_limit_s: float | None = None  # of execution; `rules.limit_each` says over which attempts
    duration_estimate_s: float | None = None
    checkpoint: Checkpoint | None = None
    saves: tuple[float, ...] = ()  # durations of the last 20 observed saves
    lost_gpu_s: float = 0.0  # work that had to be done again
    total_gpu_s: float = 0.0  # service over all ended attempts; never reset
    total_executed_s: float = 0.0  # likewise; the runs that the time limit counts
    rules: RunRules = RunRules()
    blocked: Block | None = None  # it may not wait yet; never while an attempt lives
    begin_time_s: float | None = None  # not before
    depends: Dependency | None = None  # not before these
    array: Array | None = None  # shared by the tasks of an array
    array_index: int = 0
    failed_nodes: tuple[NodeId, ...] = ()  # where the cluster failed its last attempts, newest last
    retry_time_s: float | None = None  # blocked until then after such a failure
    regrant: Allocation | None = None  # it waits only to go on here, on other GPUs than before
    speeds: tuple[float, ...] = ()  # at its request's sizes, if known; 1 on what it asked for
    worked_s: float = 0.0  # total_executed_s in seconds of what it asked for, without what was lost
    nice: int = 0  # above 0 behind, below before all others of its queue; part of rank_base
    profile: TrafficProfile | None = None  # how it communicates, once that is known
    steps: Steps = BEST_EFFORT  # what its completion is worth; deadlines from its submission
    keeps_work: bool = True  # a stop costs it nothing that it has saved
    band: Band = Band.SPOT
    verdict: str = ""  # on which ground its deadlines were guaranteed or not; "" = not judged yet
    promised: int | None = None  # the step that is guaranteed
    moves: int = 0  # how often it has gone elsewhere to make room for others whose slot began
    slots: Segments = ()  # planned for it, numbered from the zero of the SLO grid
    margin: float | None = None  # part of its estimate that its promise reserves beyond it
    pause: Pause | None = None  # for each stop, since it was promised
    gpu_type_promised: str = ""  # on which its promise stands, if it may get several
    gpu_type_ran: str = ""  # of the GPUs on which it has run, or SEVERAL; "" = it has not
    family: str = ""  # jobs of one family run alike; "" = it has none
    trials: tuple[int, ...] = ()  # GPUs of the trials that are still to be made, the next first
    trial_time_s: float | None = None  # when it was sent to be profiled
    # Its traffic: at every start until it is known, or never; None: as the cluster does.
    records: bool | None = None
    measured_s: tuple[float, ...] = ()  # all of its work at the pace of each trial of another size
    alternative: Alternative | None = None  # to the deadlines that nobody could promise it
    step_count: int | None = None  # training steps in all, if its user said so
    team: str = ""  # to which its GPUs are counted; "" = its user is a team of one
    basis: Basis = NOTHING_KNOWN  # of its estimate
    resumes: tuple[float, ...] = ()  # of the last 20: from given GPUs until it went on there
    queued_s: float = 0.0  # waited for GPUs in all, but for the time since `queued_since_s`
    displaced: int = 0  # how often it left for others by the order
    taken: Taken | None = None  # the last time, or the one that it is leaving for
    resizing: Resizing | None = None  # until it runs again, if it runs on with other GPUs
    resizes: int = 0  # how often it did
    lateness: Lateness | None = None  # machines may be rented for it
    foretold: Foretold | None = None  # of what it costs
    # The person with the name `user` (model/jobs/person.py); "" = stored before they were told
    # apart
    person: str = ""
    own_spec: bool = False  # its user has changed its spec since the submission
    paces: tuple[SizePace, ...] = ()  # by size, rising: on the sizes on which it has told its steps
    # Equal for jobs with the same command, arguments and environment, in a family that their user
    # has named; "" in one that is named after its program.
    program: str = ""
    kept: KeptGpus | None = None  # while it waits, after a node has failed its gang
    check: str = ""  # the kind of check of its nodes that it is; "" = it is a user's own job
    restart_counts: RestartCounts = RestartCounts()

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    @property
    def account(self) -> str:
        """To whom its GPUs are counted (model/jobs/accounts.py)."""
        return account_of(self.team, self.user)

    @property
    def timed(self) -> bool:
        """Whether its run time is known, and is no guess from other kinds of jobs."""
        return self.duration_estimate_s is not None and not self.basis.guess

    @property
    def waiting(self) -> bool:
        """Queued and free to start."""
        return self.live_attempt is None and self.state is _QUEUED and self.blocked is None

    @property
    def reduced(self) -> bool:
        """Its next trial uses fewer GPUs than its request: it does no work."""
        return bool(self.trials) and self.trials[0] != self.request.gpus

    @property
    def gpus_now(self) -> int:
        """On how many GPUs it starts, or runs unless it is elastic."""
        return self.trials[0] if self.trials else self.request.gpus

    @property
    def limit_at_start_s(self) -> float | None:
        """Seconds of running that its time limit leaves to an attempt that starts now; None: it has
        none.
        """
        if self.time_limit_s is None or self.rules.limit_each:
            return self.time_limit_s
        return max(0.0, self.time_limit_s - self.total_executed_s)

    @property
    def shape_now(self) -> Shape:
        """The same, as a shape. The first of two trials of a wide job is made on one node, the
        other on two.
        """
        request = self.request
        if not self.reduced:
            return request.shape
        shape = request.shape_on(self.trials[0])
        return shape if shape.nodes else shape._replace(nodes=1 if len(self.trials) > 1 else 2)

    def goes_on(self, number: int) -> bool:
        """Whether attempt `number` goes on with earlier work; trials did none."""
        return number > 1 + len(self.measured_s)

    def planned(self, slot: int) -> bool:
        """Whether this slot of the SLO grid is planned for it."""
        for begin, end in self.slots:  # noqa: SIM110 - asked of every seat in every plan: half the price
            if begin <= slot < end:
                return True
        return False

    def speed_on(self, gpus: int) -> float:
        """Its speed on so many GPUs, 1 on its own request; linear unless it is known."""
        if gpus == self.request.gpus:
            return 1.0
        sizes = self.request.sizes
        if self.speeds and gpus in sizes:
            return self.speeds[sizes.index(gpus)]
        return gpus / self.request.gpus

    def sure_speed_on(self, gpus: int) -> float:
        """The same, of a job with deadlines no more than is sure: its promise must not rest on a
        hope. A learned speed counts where both sizes were measured. It is limited to linear, less
        the spread of paces at one size.
        """
        learned, asked = self.speed_on(gpus), self.request.gpus
        if not self.steps or gpus <= asked:
            return learned
        if not self.paces:  # its speeds were told, if any
            return learned if self.speeds else 1.0
        if not self.speeds or not {asked, gpus} <= {pace.gpus for pace in self.paces}:
            return 1.0
        return min(learned, max(1.0, _SURE * min(learned, gpus / asked)))

    @property
    def spec_id(self) -> JobId:
        """Under whose id its spec is kept: the tasks of an array share that of the first one.
        Members of a group have their own. A changed one is kept under the negative id.
        """
        if self.own_spec:
            return JobId(-self.job_id)
        array = self.array
        return self.job_id if array is None or array.members else JobId(array.array_id + 1)

    @property
    def group(self) -> Array | None:
        """The group that it is a member of; None: it starts and ends for itself."""
        array = self.array
        return array if array is not None and array.members else None

    @property
    def live_key(self) -> AttemptKey | None:
        return None if self.live_attempt is None else AttemptKey(self.job_id, self.live_attempt)


_SURE = 0.9  # of a learned speed: halves of one measurement may be a tenth apart
_QUEUED = JobState.QUEUED  # looking a member up costs more than comparing it
ENDED = frozenset({JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED, JobState.TIMED_OUT})


def shown_state(job: Job, attempt_state: str | None) -> str:
    """The one word for users: the shown state of the live attempt, else the job's state."""
    return job.state.value if job.live_attempt is None or not attempt_state else attempt_state
