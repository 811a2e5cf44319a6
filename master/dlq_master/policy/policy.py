"""A policy: one choice for each stage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from dlq_master.model.attempts.suspending import SuspendRules
from dlq_master.model.order.order import Ordering
from dlq_master.policy.admit.stage import Admits
from dlq_master.policy.order.share import ShareRules
from dlq_master.policy.order.stage import KEPT_ORDER, Order
from dlq_master.policy.partition.quota_units import QuotaUnit
from dlq_master.policy.partition.quotas import QueueFloor
from dlq_master.policy.partition.reserved.slot_begin import SlotRules
from dlq_master.policy.partition.stage import (
    Partition,
    SlotsFirst,
    TeamAllowances,
    Whole,
)
from dlq_master.policy.place.placement import Placement, PlaceStage
from dlq_master.policy.promise.capacity.rules import Promises
from dlq_master.policy.reclaim.choices import EXACT, Reclaiming, ReclaimRules
from dlq_master.policy.rent.stage import RentMethod, RentsMachines, RentsNothing
from dlq_master.policy.sensitivity.packing import PackingRule
from dlq_master.policy.size.sizing import Sizing
from dlq_master.policy.size.stage import AsAsked, ElasticSizes, Size
from dlq_master.policy.transit.guards import NONE, Guards
from dlq_master.policy.transit.stage import KeepsRunning, transit
from dlq_master.policy.transit.taking import LeaseRules, Taking
from dlq_master.policy.trial.rules import TrialRules


class Know(StrEnum):
    """The knowledge of a policy about a job's run time before the job has ended."""

    UNKNOWN = "unknown"  # only what its user says
    PROFILED = "profiled"  # an estimate (`Job.duration_estimate_s`), once it has run for a while
    KNOWN = "known"  # exact, from the start; in simulations only


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The policy that `registry.build` makes of a name and settings, and that `pipeline.plan`
    follows.

    The choices come first, then one slot for each stage. `__post_init__` makes the slots from the
    choices; a choice of None gives the null object of its stage.
    """

    name: str
    settings: Mapping[str, str]  # as the user gave them
    ordering: Ordering  # the indexes of the cluster that the order needs
    placement: Placement
    taking: Taking  # when running jobs may be preempted
    packing: PackingRule | None = None  # jobs that are kept together; None: the placement decides
    order: Order = KEPT_ORDER
    know: Know = Know.UNKNOWN  # the run times that it needs
    blocking: bool = False
    grid: bool = True  # leases end on the term grid; False, in simulations: they have no end
    divides: Partition | None = None  # None: slots come first if deadlines are promised
    # Team or member (model.accounts) -> GPUs by right (partition.borrowing); None: nobody borrows.
    borrowing: Mapping[str, int] | None = None
    limits: Mapping[str, int] | None = None  # ... -> the most GPUs that it may hold
    job_limits: Mapping[str, int] | None = None  # ... -> the most jobs that it may run
    quota_unit: QuotaUnit = QuotaUnit.GPUS  # in which quotas and limits count
    shares: ShareRules | None = None  # teams below their share come first (order.share)
    queue_floor: QueueFloor | None = None  # GPUs that stay free for the jobs of one queue
    sizing: Sizing | None = (
        None  # how elastic jobs share GPUs beyond their bases; None: they do not
    )
    reclaim: Reclaiming = EXACT  # which lent servers go back
    renting: RentMethod | None = None  # which machines are rented; None: there are no pools
    promises: Promises | None = None  # deadlines are promised; None: a deadline is only a number
    profiling: TrialRules | None = None  # jobs of unknown run time are tried first
    profile_s: float | None = None  # a job runs this long until its run time is known; None: never
    guards: Guards = NONE  # running jobs that the order may not preempt
    suspends: SuspendRules | None = None  # preempted jobs that leave their GPUs without a save
    rule: str = ""  # the order in words, told to owners of preempted jobs
    admit: Admits = field(init=False, repr=False, compare=False)
    partition: Partition = field(init=False, repr=False, compare=False)
    size: Size = field(init=False, repr=False, compare=False)
    place: PlaceStage = field(init=False, repr=False, compare=False)
    transit: KeepsRunning = field(init=False, repr=False, compare=False)
    rent: RentsNothing = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for slot, stage in (
            ("admit", self._admit()),
            ("partition", self._partition()),
            ("size", self._size()),
            ("place", PlaceStage(self.placement, self.blocking)),
            ("transit", transit(self._leases())),
            ("rent", self._rent()),
        ):
            object.__setattr__(self, slot, stage)

    @property
    def by_team(self) -> bool:
        """Whether teams have quotas or limits."""
        return any(told is not None for told in (self.borrowing, self.limits, self.job_limits))

    @property
    def resizing(self) -> Taking:
        """When a running job may be resized."""
        if self.sizing is None or self.sizing.at_start:
            return Taking.NEVER
        return Taking.BOUNDARY if self.grid else Taking.FREE

    @property
    def reclaiming(self) -> ReclaimRules:
        """How lent servers are chosen to go back, and how their jobs change."""
        return ReclaimRules(self.reclaim, self.placement.groups, self.resizing is not Taking.NEVER)

    def _admit(self) -> Admits:
        measures = self.profile_s is not None
        return Admits(self.placement, self.packing, self.profiling, self.promises, measures)

    def _partition(self) -> Partition:
        if self.promises is not None:
            teams = (
                TeamAllowances(self.borrowing, self.limits, self.job_limits, self.quota_unit)
                if self.by_team
                else None
            )
            anew = self.placement if self.promises.anew else None
            rules = SlotRules(
                self.promises, self.profiling, self.guards, anew=anew, floor=self.queue_floor
            )
            return SlotsFirst(rules, self.shares, teams)
        return self.divides or Whole()

    def _size(self) -> Size:
        if self.sizing is None or self.sizing.at_start:
            return AsAsked()
        return ElasticSizes(self.sizing, self.guards, self.promises)

    def _rent(self) -> RentsNothing:
        if self.renting is None:
            return RentsNothing()
        return RentsMachines(self.renting, grows=self.sizing is not None, grid=self.grid)

    def _leases(self) -> LeaseRules:
        by_band = self.promises is not None
        return LeaseRules(self.grid, self.taking, self.resizing, by_band, self.guards, self.rule)
