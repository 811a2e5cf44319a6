"""Why a job does not run, as data: `dlq why`, logs, errors and tests show the same."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from dlq_master.model.ids import JobId


class ReasonCode(StrEnum):
    # why not
    HELD_USER = "held_user"  # its user holds it (`dlq release` lets it go)
    HELD_ADMIN = "held_admin"  # an operator holds it, and only operators release it
    PAUSED = "paused"  # its user paused it (`dlq resume`)
    POISON = "poison"  # it failed so often that it is held; `dlq release` tries it again
    DEPENDENCY = "dependency"  # other jobs come first, or can never have gone as it wants
    BEGIN_TIME = "begin_time"  # its user does not want it earlier
    ARRAY_LIMIT = "array_limit"  # as many tasks of its array as may are in the queue
    BACKOFF = "backoff"  # the cluster failed its last attempt: it is tried again a little later
    NOT_ADMITTED = "not_admitted"  # the admit stage looks at it in the next plan
    SUBMIT_LIMIT = "submit_limit"  # its user has sent as much to be profiled as is allowed for now
    NO_NODES = "no_nodes"  # nothing has registered yet
    NO_SUCH_SHAPE = "no_such_shape"  # no registered node set could ever hold it
    RUNTIME = "runtime"  # GPUs are free, but not on nodes that run containers, and it has an image
    CONSTRAINT = "constraint"  # GPUs are free, but not on nodes that it may use
    GPU_TYPE = "gpu_type"  # GPUs are free, but not of the type it names
    NODES_CLOSED = "nodes_closed"  # it would fit if drained, cordoned or silent nodes were open
    OWN_ONLY = "own_only"  # GPUs are free only on lent or rented nodes, and it has a deadline
    MACHINE_COMING = "machine_coming"  # one is being rented for it
    NOT_RENTED = "not_rented"  # it is expected to be late, and nothing can be rented just now
    MAINTENANCE = "maintenance"  # GPUs are free only where it would run into a reservation
    FAILED_NODES = "failed_nodes"  # GPUs are free only where its attempts have failed
    RESOURCES = "resources"  # too few GPUs are free
    FRAGMENTATION = "fragmentation"  # enough GPUs are free, but not in this shape
    CONSOLIDATION = "consolidation"  # the same, and only because spreading would slow it down
    WAITING_FOR_RELEASE = "waiting_for_release"  # its GPUs are being saved or released
    WAITING_FOR_BOUNDARY = "waiting_for_boundary"  # it will take GPUs at the next boundary
    BEHIND_HIGHER_RANK = "behind_higher_rank"  # jobs that rank before it get the GPUs first
    HEAD_OF_LINE = "head_of_line"  # fifo: nobody passes the first job
    QUOTA = (
        "quota"  # its queue holds as many GPUs as it may, or its team as many as it has by right
    )
    TEAM_LIMIT = "team_limit"  # its team holds as many GPUs as it may
    PROFILER_FULL = "profiler_full"  # trials hold as many GPUs as are for them
    KEPT_FOR_TRIALS = "kept_for_trials"  # what is free is for jobs that have to be profiled
    PREEMPTED = "preempted"  # it ran until another took its GPUs
    PROTECTED = "protected"  # jobs that rank behind it hold GPUs, and are not to be preempted now
    RESERVED_FOR = "reserved_for"  # GPUs are kept for a promoted job
    STARTS_NEXT = "starts_next"  # nothing is in its way: the next plan starts it
    FREEZE = "freeze"  # so many nodes vanished that requeues wait
    PLAN_FAILED = "plan_failed"  # the policy has a bug
    MASTER_STARTING = "master_starting"  # after a restart nodes have one TTL to return
    ENDED = "ended"  # it has ended
    # why a change was planned
    FITS = "fits"  # GPUs are free for it
    TERM_OVER = "term_over"  # its term ends, and no job that ranks before it needs the GPUs
    OUTRANKED = "outranked"  # a job that ranks before it takes its GPUs
    RESIZED = "resized"  # the policy gives an elastic job another number of GPUs
    THRESHOLD_CROSSED = (
        "threshold_crossed"  # its attained service crossed the threshold of its level
    )
    STARVED = "starved"  # it waited so long that it rises to the first level
    ADMISSIBLE = "admissible"  # the registered nodes could hold it
    GUARANTEED = "guaranteed"  # a deadline is promised
    UNGUARANTEED = "unguaranteed"  # none can be
    REPLANNED = "replanned"  # its slots are others, its promise stands
    SLOT_OVER = "slot_over"  # the next slot has been planned
    MAKES_WAY = "makes_way"  # it goes on elsewhere, for others whose slot begins
    PROMISE_BROKEN = "promise_broken"  # there is no plan any more that keeps it
    OVERRUN = "overrun"  # it has used up what was reserved for it, and has not ended
    NOT_PROFILED = "not_profiled"  # nobody knows how long it runs
    RAN_ALIKE = "ran_alike"  # earlier jobs of its family tell how long it runs
    MEASURED = "measured"  # its trials tell it
    ARRIVALS = "arrivals"  # so much came that has to be profiled
    RENTED = "rented"  # being late would cost it more than a rented machine
    LENT = "lent"  # a server of others may be used
    ASKED_BACK = "asked_back"  # a server that was lent is wanted by its owner
    EMPTY = "empty"  # nobody is left on a server that was asked back
    LEARNED = "learned"  # what is known of the jobs has changed


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
