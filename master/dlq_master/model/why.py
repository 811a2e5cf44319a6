"""Why a job does not run, as data: `dlq why`, logs, errors and tests show the same."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from dlq_master.model.ids import JobId


class ReasonCode(StrEnum):
    # why not
    HELD_USER = "held_user"  # Its user holds the job. `dlq release` ends the hold.
    HELD_ADMIN = "held_admin"  # An operator holds the job. Only an operator can release it.
    PAUSED = "paused"  # `dlq pause` stopped the job. `dlq resume` queues it again.
    # The cluster lost too many of its attempts. The master holds it until `dlq release`.
    POISON = "poison"
    DEPENDENCY = "dependency"  # The job waits for other jobs, or its dependency can never be met.
    BEGIN_TIME = "begin_time"  # The begin time of the job has not come.
    # The array already has as many tasks waiting or running as its limit allows.
    ARRAY_LIMIT = "array_limit"
    # A node was lost or could not start the job. The master retries it a little later.
    BACKOFF = "backoff"
    GROUP = "group"  # Another member of its group cannot start now. All start together.
    # The job is accepted. The admit stage looks at it in the next plan.
    NOT_ADMITTED = "not_admitted"
    # The user has reached `submit_gpus`, the limit of GPUs submitted for trials.
    SUBMIT_LIMIT = "submit_limit"
    NO_NODES = "no_nodes"  # No node has registered yet.
    NO_SUCH_SHAPE = "no_such_shape"  # No set of the registered nodes can ever hold the job.
    # The job has an image, and GPUs are free only on nodes without a container runtime.
    RUNTIME = "runtime"
    # GPUs are free only on nodes that the labels or node names of the job exclude.
    CONSTRAINT = "constraint"
    GPU_TYPE = "gpu_type"  # GPUs are free, but none of a type that the job names.
    # The job fits only if drained, cordoned or silent nodes take work again.
    NODES_CLOSED = "nodes_closed"
    OWN_ONLY = "own_only"  # The job has a deadline, and GPUs are free only on lent or rented nodes.
    MACHINE_COMING = "machine_coming"  # A machine is being rented for the job.
    # The job will probably be late, and no machine can be rented for it now.
    NOT_RENTED = "not_rented"
    # GPUs are free only on nodes that a reservation takes before the job would end.
    MAINTENANCE = "maintenance"
    # GPUs are free only on nodes where attempts of the job have failed.
    FAILED_NODES = "failed_nodes"
    RESOURCES = "resources"  # Too few GPUs are free.
    FRAGMENTATION = "fragmentation"  # Enough GPUs are free, but not together.
    # Enough GPUs are free, but spreading the job over them would slow it down.
    CONSOLIDATION = "consolidation"
    # The jobs on its GPUs are saving or releasing them.
    WAITING_FOR_RELEASE = "waiting_for_release"
    WAITING_FOR_BOUNDARY = "waiting_for_boundary"  # The job gets its GPUs at the next boundary.
    BEHIND_HIGHER_RANK = "behind_higher_rank"  # Jobs of higher priority get the free GPUs first.
    # Under fifo and yarn-cs no job passes the first job of its queue.
    HEAD_OF_LINE = "head_of_line"
    QUOTA = "quota"  # The queue or the team holds as many GPUs as its quota allows.
    # The team, or the user in it, holds as many GPUs or jobs as its limit allows.
    TEAM_LIMIT = "team_limit"
    PROFILER_FULL = "profiler_full"  # Trials hold as many GPUs as are reserved for trials.
    KEPT_FOR_TRIALS = "kept_for_trials"  # The free GPUs are reserved for jobs that need a trial.
    KEPT_FOR_QUEUE = "kept_for_queue"  # The free GPUs are the floor of another queue.
    # The job is off its GPUs without a save, and comes back when they are free.
    SUSPENDED = "suspended"
    PREEMPTED = "preempted"  # Another job took the GPUs of this job.
    # Jobs of lower priority hold GPUs, but `min_run` or `max_preemptions` protects them.
    PROTECTED = "protected"
    RESERVED_FOR = "reserved_for"  # The free GPUs are reserved for a promoted job.
    # GPUs are kept for a gang that a node has failed, until it has another node.
    KEPT_GPUS = "kept_gpus"
    STARTS_NEXT = "starts_next"  # Nothing is in the way: the next plan starts the job.
    FREEZE = "freeze"  # Many nodes vanished at once, or the master lags, so nothing starts.
    # The scheduling policy failed. Running jobs continue, and nothing starts.
    PLAN_FAILED = "plan_failed"
    MASTER_STARTING = "master_starting"  # The master has just started and waits for its nodes.
    ENDED = "ended"  # The job has ended.
    # why a change was planned
    FITS = "fits"  # GPUs are free for the job.
    # The term ended, and no job of higher priority needs the GPUs: the lease is renewed.
    TERM_OVER = "term_over"
    OUTRANKED = "outranked"  # A job of higher priority takes the GPUs.
    RESIZED = "resized"  # The policy gives an elastic job another number of GPUs.
    # The attained service of the job crossed the threshold of its level.
    THRESHOLD_CROSSED = "threshold_crossed"
    STARVED = "starved"  # The job waited too long and was promoted to the first level.
    ADMISSIBLE = "admissible"  # The registered nodes can hold the job.
    # The plan of slots keeps a deadline of the job: the deadline is promised.
    GUARANTEED = "guaranteed"
    UNGUARANTEED = "unguaranteed"  # No deadline of the job can be promised. The ground says why.
    REPLANNED = "replanned"  # The job has other slots now. Its promise stands.
    SLOT_OVER = "slot_over"  # The next slot of the SLO grid has been planned.
    # The job moves in the next slot, to free whole nodes or to leave a reserved one.
    MAKES_WAY = "makes_way"
    # No plan keeps the promise any more. The job runs as best effort.
    PROMISE_BROKEN = "promise_broken"
    # The job has used its reserved time and has not ended. It runs as best effort.
    OVERRUN = "overrun"
    NOT_PROFILED = "not_profiled"  # The run time of the job is unknown.
    RAN_ALIKE = "ran_alike"  # Earlier jobs of its family give the run time of the job.
    MEASURED = "measured"  # The trials of the job give its run time.
    # The number of jobs that need a trial changed, and with it the GPUs for trials.
    ARRIVALS = "arrivals"
    RENTED = "rented"  # The job runs on a rented machine because lateness would cost more.
    LENT = "lent"  # The owner of an inference server lends it. The server joins the whitelist.
    # The owner reclaims a lent server. Its jobs leave, and none starts there.
    ASKED_BACK = "asked_back"
    EMPTY = "empty"  # A reclaimed server is empty. It leaves the whitelist.
    LEARNED = "learned"  # New measurements changed which jobs the policy keeps together.


BLOCKERS_NAMED = 10


class Kind(NamedTuple):
    """A reason without its numbers. In one word: the code, and behind a space its subject."""

    code: ReasonCode
    subject: str = ""

    @property
    def word(self) -> str:
        return f"{self.code.value} {self.subject}" if self.subject else self.code.value


class Reason(NamedTuple):
    """One obstacle or one cause; numbers are GPUs unless `resource` says otherwise.

    `blocking_jobs` names at most BLOCKERS_NAMED; `detail` is what only the decider can tell.
    `model/words/sentence.py` makes a sentence of it. `subject`: the one limit or constraint, where
    several of a kind may hold at a time. It stays the same for as long as this one holds.
    """

    code: ReasonCode
    resource: str = ""
    need: float | None = None
    have: float | None = None
    blocking_jobs: tuple[JobId, ...] = ()
    detail: str = ""
    subject: str = ""

    @property
    def kind(self) -> Kind:
        """The identity of a reason for those that count how long it holds."""
        return Kind(self.code, self.subject)
