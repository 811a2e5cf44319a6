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

    UNKNOWN = "unknown"  # but for what users themselves say
    PROFILED = (
        "profiled"  # with an error, as `Job.duration_estimate_s`, once it has run for a while
    )
    KNOWN = "known"  # exactly and from the start; in simulations only


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The policy that `registry.build` makes of a name and settings, and that `pipeline.plan`
    follows.

    Six slots, one for each stage: `admit`, `partition`, `order`, `size`, `place`, `transit`. The
    seventh, `rent`, decides beside the own nodes. They are made from the choices below; a policy
    without a choice has the null object of that stage.

    `grid`: leases end on the boundaries of the term grid; without it (simulations in which
    preemption is free) a lease never ends by itself. `settings` are kept as they were asked for.
    `packing`: the jobs that are kept together; None: the placement does not ask. `know`: the run
    times that it needs. `divides`: a partition of its own; None: slots come first if deadlines are
    promised. `borrowing`: team or member (model.accounts) -> the GPUs that it has by right
    (partition.borrowing); None: nobody borrows. `limits`, `job_limits`: likewise the most GPUs that
    it may hold, and jobs that it may run. `quota_unit`: how quotas and limits count GPUs. `shares`:
    teams with less than their due come first (order.share); None: nobody asks. `queue_floor`: GPUs
    that stay free for the jobs of a queue, or None. `profiling`: jobs of
    unknown run time are tried first, on a part of the cluster; None: they are not. `promises`:
    deadlines are promised, and SLO leases keep them; None: a deadline is only a number.
    `profile_s`: seconds that a job runs until its run time is known; None: no job is measured.
    `guards`: the jobs that the order may not preempt. `suspends`: the jobs that leave their GPUs
    without a save when they are preempted; None: none. `rule`: the order in words, for those whom
    it does. `reclaim`: the choice of lent servers that go back. `sizing`: how elastic jobs share
    what is left beyond their bases; None: every job gets what it asked. `renting`: the choice of
    machines that are rented; None: there are no pools.
    """

    name: str
    settings: Mapping[str, str]
    ordering: Ordering
    placement: Placement
    taking: Taking
    packing: PackingRule | None = None
    order: Order = KEPT_ORDER
    know: Know = Know.UNKNOWN
    blocking: bool = False
    grid: bool = True
    divides: Partition | None = None
    borrowing: Mapping[str, int] | None = None
    limits: Mapping[str, int] | None = None
    job_limits: Mapping[str, int] | None = None
    quota_unit: QuotaUnit = QuotaUnit.GPUS
    shares: ShareRules | None = None
    queue_floor: QueueFloor | None = None
    sizing: Sizing | None = None
    reclaim: Reclaiming = EXACT
    renting: RentMethod | None = None
    promises: Promises | None = None
    profiling: TrialRules | None = None
    profile_s: float | None = None
    guards: Guards = NONE
    suspends: SuspendRules | None = None
    rule: str = ""
    admit: Admits = field(init=False, repr=False, compare=False)
    partition: Partition = field(init=False, repr=False, compare=False)
    size: Size = field(init=False, repr=False, compare=False)
    place: PlaceStage = field(init=False, repr=False, compare=False)
    transit: KeepsRunning = field(init=False, repr=False, compare=False)
    rent: RentsNothing = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Fills the slots by the choices: a choice of None gives the null object of its stage."""
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
        """Whether it makes a difference to whom the GPUs of a job are counted."""
        return any(told is not None for told in (self.borrowing, self.limits, self.job_limits))

    @property
    def resizing(self) -> Taking:
        """When work that runs may be given another number of GPUs."""
        if self.sizing is None or self.sizing.at_start:
            return Taking.NEVER
        return Taking.BOUNDARY if self.grid else Taking.FREE

    @property
    def reclaiming(self) -> ReclaimRules:
        """The choice of lent servers that go back, and the changes of their jobs."""
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
