"""The language of a policy: a delta of verbs, each with its reason, and when to ask again."""

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
    """Give a waiting job exactly these GPUs, now, until the end of a first term.

    `rented`: the GPUs are of a machine that was rented for this job, and of no other node.
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
    """The lease is not renewed: save, and be gone at `at_s`.

    `grace_s` 0 means that preemption is free (simulations only). The attempt ends in this turn and
    its GPUs may be given away by the same plan.
    """

    key: AttemptKey
    at_s: float
    grace_s: float
    for_job: JobId
    reason: Reason


class Resize(NamedTuple):
    """The job goes on with these GPUs, at least its base of those that it has among them.

    The attempt saves and leaves, as if its lease lapsed at `at_s`; its job then starts again there,
    and nobody else gets these GPUs meanwhile. `grace_s` 0 means that this is free (simulations
    only): both happen in this turn, and one may go on with the GPUs of another. The new lease ends
    at `term_end_s`.
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
    """The running job saves and leaves, with the learned grace. It then goes on on so many GPUs of
    a rented machine, which are kept for it.
    """

    key: AttemptKey
    machine: str
    gpus: int
    grace_s: float
    reason: Reason


class Provision(NamedTuple):
    """Rent a machine of the pool for these jobs, `gpus` of it for each.

    It is expected to cost `costs`. Being late would cost its jobs `saves` more than that.
    """

    pool: str
    jobs: tuple[int, ...]
    gpus: tuple[int, ...]
    costs: float
    saves: float
    reason: Reason


class Release(NamedTuple):
    """Give a rented machine back: no job is there, and none is to come."""

    machine: str
    reason: Reason


class Demote(NamedTuple):
    """Move the job to a lower level."""

    job_id: JobId
    level: int
    reason: Reason


class Promote(NamedTuple):
    """Move the job to the head of level 0 with its width reserved."""

    job_id: JobId
    reason: Reason


class Reserve(NamedTuple):
    """The job stands in another band, or other slots are planned for it."""

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
    """In this hour so many GPUs are for trials."""

    hour: int
    gpus: int
    reason: Reason


class NextSlot(NamedTuple):
    """The running jobs of this slot of the SLO grid are decided from here on."""

    slot: int
    reason: Reason


class Repack(NamedTuple):
    """Other waiting jobs are kept together from here on; None: shapes say nothing of it."""

    packing: Packing | None
    reason: Reason


class Weigh(NamedTuple):
    """How accounts stand against their shares in this term (model.usage.shares)."""

    term: int
    standing: tuple[tuple[str, int], ...]
    reason: Reason


class Loan(NamedTuple):
    """A server that is lent to us joins the whitelist: jobs may run there from now on."""

    node_id: NodeId
    reason: Reason


class Reclaim(NamedTuple):
    """A lent server was asked back: no new job starts there from now on, and its jobs leave."""

    node_id: NodeId
    reason: Reason


class Return(NamedTuple):
    """A server that was asked back is empty, and leaves the whitelist."""

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
    """Changes, applied in order, and the next instant worth planning at without an event.

    `wake_at_s`: a threshold crossing, a promotion, a boundary decision; None: only events matter.
    `again`: these changes alter what the others are decided by; apply them and plan once more, at
    this instant.
    """

    changes: tuple[Change, ...] = ()
    wake_at_s: float | None = None
    again: bool = False
