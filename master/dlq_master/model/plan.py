"""The output of a policy: changes, each with its reason, and when to plan again."""

from __future__ import annotations

from typing import NamedTuple

from dlq_master.model.estimates.estimate import NOTHING_KNOWN, Basis
from dlq_master.model.estimates.traffic import Packing
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.jobs.band import Band, Segments
from dlq_master.model.jobs.job import Alternative, Pause
from dlq_master.model.lease import LeaseKind
from dlq_master.model.resources import Allocation
from dlq_master.model.transitions import StopCause
from dlq_master.model.why import Reason


class Admit(NamedTuple):
    """Let a PENDING job into its queue."""

    job_id: JobId
    reason: Reason


class Reject(NamedTuple):
    """Refuse a PENDING job for good."""

    job_id: JobId
    reason: Reason


class Start(NamedTuple):
    """Give a waiting job exactly these GPUs until the end of a first term.

    `rented`: the GPUs are all on a machine that was rented for this job.
    """

    job_id: JobId
    allocation: Allocation
    kind: LeaseKind
    term_end_s: float
    reason: Reason
    rented: bool = False


class Renew(NamedTuple):
    """The attempt keeps its GPUs for one more term."""

    key: AttemptKey
    term_end_s: float
    reason: Reason
    kind: LeaseKind | None = None  # of the new term; None: as before


class Lapse(NamedTuple):
    """Preempt an attempt: it saves, and has left at `at_s`.

    `grace_s` 0 means that preemption is free (simulations only): the attempt ends in this turn, and
    the same plan may give its GPUs to others.
    """

    key: AttemptKey
    at_s: float
    grace_s: float
    for_job: JobId
    reason: Reason


class Resize(NamedTuple):
    """Run the job on these GPUs; at least its base of them are among its present ones.

    The attempt saves and leaves as for a Lapse at `at_s`, and its job starts again on the new GPUs,
    which are kept meanwhile. `grace_s` 0 means that this is free (simulations only): both happen in
    this turn, and GPUs may change between resized jobs. The new lease ends at `term_end_s`.
    """

    key: AttemptKey
    allocation: Allocation
    kind: LeaseKind
    at_s: float
    grace_s: float
    term_end_s: float
    reason: Reason


class Revoke(NamedTuple):
    """Take the GPUs away before the term ends (drain, reclaim), with the learned grace."""

    key: AttemptKey
    cause: StopCause
    grace_s: float
    reason: Reason


class Migrate(NamedTuple):
    """Stop a running job with its learned grace, and start it on `gpus` GPUs of a rented machine,
    which are kept for it.
    """

    key: AttemptKey
    machine: str
    gpus: int
    grace_s: float
    reason: Reason


class Provision(NamedTuple):
    """Rent a machine of the pool for these jobs, with `gpus` GPUs for each.

    `costs`: its expected cost. `saves`: the cost of lateness that it avoids, beyond `costs`.
    """

    pool: str
    jobs: tuple[int, ...]
    gpus: tuple[int, ...]
    costs: float
    saves: float
    reason: Reason


class Release(NamedTuple):
    """Give a rented machine back, on which no job is or will be."""

    machine: str
    reason: Reason


class Demote(NamedTuple):
    """Move the job to a lower level."""

    job_id: JobId
    level: int
    reason: Reason


class Promote(NamedTuple):
    """Move a job to the head of level 0, and reserve GPUs for it."""

    job_id: JobId
    reason: Reason


class Reserve(NamedTuple):
    """Change the band of a job, its planned slots, or the verdict on its deadlines."""

    job_id: JobId
    band: Band
    slots: Segments
    promised: int | None
    verdict: str
    reason: Reason
    margin: float | None = None  # of a new promise; None: as before
    alternative: Alternative | None = None  # of a refusal
    pause: Pause | None = None  # of a new promise; None: as before
    gpu_type: str = ""  # of a new promise to a job that may get several; "": as before


class Profile(NamedTuple):
    """Run the job to learn how long it runs: first on `trials[0]` GPUs, then on `trials[1]`."""

    job_id: JobId
    trials: tuple[int, ...]
    reason: Reason


class Estimate(NamedTuple):
    """The expected run time of the job on its own request; the reason says its source."""

    job_id: JobId
    estimate_s: float
    reason: Reason
    basis: Basis = NOTHING_KNOWN


class Scale(NamedTuple):
    """Set the number of GPUs for trials in this hour."""

    hour: int
    gpus: int
    reason: Reason


class NextSlot(NamedTuple):
    """Begin this slot of the SLO grid: the decision about its jobs follows."""

    slot: int
    reason: Reason


class Repack(NamedTuple):
    """Set which waiting jobs must be on few nodes; None: no rule about it."""

    packing: Packing | None
    reason: Reason


class Weigh(NamedTuple):
    """Set how accounts stand against their shares in this term (model.usage.shares)."""

    term: int
    standing: tuple[tuple[str, int], ...]
    reason: Reason


class Loan(NamedTuple):
    """Open a lent server to jobs: it joins the whitelist."""

    node_id: NodeId
    reason: Reason


class Reclaim(NamedTuple):
    """Close a lent server that was asked back: no job starts there, and its jobs leave."""

    node_id: NodeId
    reason: Reason


class Return(NamedTuple):
    """Take an empty server that was asked back off the whitelist."""

    node_id: NodeId
    reason: Reason


Change = (
    Admit
    | Reject
    | Start
    | Renew
    | Lapse
    | Resize
    | Revoke
    | Migrate
    | Provision
    | Release
    | Demote
    | Promote
    | Reserve
    | Profile
    | Estimate
    | Scale
    | NextSlot
    | Loan
    | Reclaim
    | Return
    | Repack
    | Weigh
)


class Plan(NamedTuple):
    """Changes, applied in order, and when to plan again if nothing happens before.

    `wake_at_s`: a threshold, a promotion, or a decision before a boundary; None: only after events.
    `again`: the changes alter the input of further decisions: apply them and plan again at once.
    """

    changes: tuple[Change, ...] = ()
    wake_at_s: float | None = None
    again: bool = False
