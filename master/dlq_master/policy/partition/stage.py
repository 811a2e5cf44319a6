"""The partition stage: the slot of a policy that gives some jobs their GPUs before all others."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import AttemptKey
from dlq_master.model.order.lineup import Lineup
from dlq_master.model.plan import Change
from dlq_master.model.view import View
from dlq_master.policy.order.share import ShareRules, weigh
from dlq_master.policy.order.stage import Order
from dlq_master.policy.partition.borrowing import BorrowingWords, relabelled
from dlq_master.policy.partition.quota_units import QuotaUnit
from dlq_master.policy.partition.quotas import REST, Quotas, Room
from dlq_master.policy.partition.reserved.slot_begin import (
    ServedFirst,
    SlotRules,
    evacuated,
    moved_anew,
    seating_of,
)
from dlq_master.policy.place.allocation.space import Space
from dlq_master.policy.place.placement import PlaceStage
from dlq_master.policy.promise.capacity.grids import home_type


class Partition(Protocol):
    """The questions of the pipeline and of the reasons to a partition. `quotas`: of its queues."""

    @property
    def quotas(self) -> Quotas | None: ...

    def settle(self, view: View, order: Order, margin: float) -> Sequence[Change]:
        """Levels of accounts and bands of jobs that have to change before any decision."""

    def asks(self, cluster: Cluster, keys: Collection[AttemptKey]) -> bool:
        """Whether there is something to decide though no job waits; `keys`: their terms end."""

    def first(self, view: View, keys: Collection[AttemptKey], lineup: Lineup) -> ServedFirst | None:
        """The jobs that are served before the order; None: there are none."""

    def free(self, cluster: Cluster, lineup: Lineup, place: PlaceStage) -> Space:
        """The allocator of free GPUs for all other jobs."""

    def floor_left(self, cluster: Cluster, queue: str, gpu_type: str) -> int:
        """The free GPUs of this type that jobs of other queues than this one need."""

    def divided(self, quotas: Quotas) -> Partition:
        """The same with these quotas of queues."""

    def part_of(self, queue: str) -> str:
        """In which part of the cluster the jobs of this queue wait."""

    def room(self, cluster: Cluster) -> Room | None:
        """The limit and the use of each part; None: there are no parts."""


class Whole:
    """The null object: every GPU serves every job, in the order."""

    quotas: Quotas | None = None

    def settle(self, view: View, order: Order, margin: float) -> Sequence[Change]:
        return ()

    def asks(self, cluster: Cluster, keys: Collection[AttemptKey]) -> bool:
        return False

    def first(self, view: View, keys: Collection[AttemptKey], lineup: Lineup) -> ServedFirst | None:
        return None

    def free(self, cluster: Cluster, lineup: Lineup, place: PlaceStage) -> Space:
        return Space(cluster, lineup, place.placement, blocking=place.blocking)

    def floor_left(self, cluster: Cluster, queue: str, gpu_type: str) -> int:
        return 0

    def divided(self, quotas: Quotas) -> Partition:
        raise TypeError("this partition has no quotas of queues")

    def part_of(self, queue: str) -> str:
        return REST

    def room(self, cluster: Cluster) -> Room | None:
        return None


class TeamAllowances(NamedTuple):
    """Limits of teams and members: GPUs by right, GPUs at most, jobs at most."""

    borrowing: Mapping[str, int] | None
    limits: Mapping[str, int] | None
    job_limits: Mapping[str, int] | None
    unit: QuotaUnit = QuotaUnit.GPUS


class SlotsFirst(Whole):
    """Jobs that hold the present slot come first, then trials, and then all others.

    `shares`, `teams`: None where the policy has no word on them.
    """

    def __init__(
        self, rules: SlotRules, shares: ShareRules | None, teams: TeamAllowances | None
    ) -> None:
        if teams is not None:
            words = BorrowingWords(teams.limits, teams.job_limits)
            rules = rules._replace(words=words, unit=teams.unit)
        self.rules = rules
        self._shares = shares
        self._teams = teams
        self._nobody = ServedFirst({}, (), (), rules.profiling, floor=rules.floor)

    def settle(self, view: View, order: Order, margin: float) -> Sequence[Change]:
        if self._shares is not None and (weighed := weigh(view, self._shares)) is not None:
            return (weighed,)
        if self._teams is None:
            return ()
        return relabelled(view, order.lineup(view, margin).running, *self._teams)

    def asks(self, cluster: Cluster, keys: Collection[AttemptKey]) -> bool:
        return bool(evacuated(cluster, keys) or moved_anew(cluster, self.rules, keys))

    def first(self, view: View, keys: Collection[AttemptKey], lineup: Lineup) -> ServedFirst | None:
        cluster = view.cluster
        if not (keys or cluster.seated or cluster.keeping):
            return self._nobody
        return seating_of(view, self.rules, keys, lineup.running)

    def floor_left(self, cluster: Cluster, queue: str, gpu_type: str) -> int:
        floor = self.rules.floor
        if floor is None or floor.queue == queue or gpu_type != home_type(cluster):
            return 0
        from dlq_master.policy.partition.reserved.queue_floor import floor_left

        return floor_left(cluster, floor)
