"""The transit stage: it says when running jobs may be preempted, and writes the plan."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import AttemptKey
from dlq_master.model.lease import LeaseKind, first_term_end_s
from dlq_master.model.order.lineup import Lineup
from dlq_master.model.plan import Change, Start
from dlq_master.model.values import maker
from dlq_master.model.view import View
from dlq_master.policy.place.allocation.by_count import Counts
from dlq_master.policy.place.allocation.outcome import Outcome
from dlq_master.policy.place.allocation.pinned import pinned
from dlq_master.policy.place.placement import Placement
from dlq_master.policy.transit import verbs
from dlq_master.policy.transit.contest import Contest
from dlq_master.policy.transit.guards import next_min_run_end_s, protected
from dlq_master.policy.transit.taking import LeaseRules, Taking, terms_due

_NEVER_S = float("inf")
# (cluster, queue, GPU type) -> free GPUs of the type that are kept for other queues.
FloorLeft = Callable[[Cluster, str, str], int]


class Boundary(NamedTuple):
    """`ending`: attempts whose terms must be decided now. `lead_s`: the time before the end of a
    term that a save needs. `next_s`: when the next terms must be decided (inf: never).
    """

    ending: list[AttemptKey]
    lead_s: float
    next_s: float


_boundary = maker(Boundary)


class KeepsRunning:
    """The null object: no job that runs is preempted."""

    preempts = False

    def __init__(self, leases: LeaseRules) -> None:
        self.leases = leases
        # Whether a plan may give out GPUs that it takes away itself.
        self.at_once = not leases.grid

    def boundary(self, view: View) -> Boundary:
        """The terms that end now."""
        if not self.leases.grid:
            return Boundary([], 0.0, _NEVER_S)
        lead_s = view.cluster.saves.lead_s
        ending, next_s = terms_due(view, lead_s)
        if view.cluster.keeping:
            from dlq_master.policy.transit.kept_gpus import next_end_s

            next_s = min(next_s, next_end_s(view))
        return _boundary((ending, lead_s, next_s))

    def judged_s(self, view: View) -> float | None:
        """When a preempted job stops; None: at the end of its term."""
        return None

    def settle(self, view: View, placement: Placement, floor: FloorLeft) -> Sequence[Start]:
        """Starts that come before any decision. Jobs that stopped for a resize are first. Then come
        gangs that kept GPUs when a node failed, and now have a spare node.
        """
        cluster = view.cluster
        if not (cluster.returning or cluster.keeping) or view.pause_starts is not None:
            return ()
        first = verbs.returns(view, grid=self.leases.grid) if cluster.returning else ()
        if first or not cluster.keeping:
            return first
        from dlq_master.policy.transit import kept_gpus

        return kept_gpus.starts(view, placement, floor, grid=self.leases.grid)

    def contest(
        self, view: View, lineup: Lineup, placement: Placement, keys: Collection[AttemptKey]
    ) -> Contest | Counts | None:
        """The allocator that may preempt `keys`, attempts whose terms end. None: this plan only
        gives out free GPUs.
        """
        return None

    def changes(
        self, view: View, outcome: Outcome, boundary: Boundary
    ) -> tuple[Sequence[Change], float]:
        """The changes that carry the outcome out: lapses, resizes, starts, renewals. Also the first
        end of a term that they begin (inf: none).
        """
        leases = self.leases
        made: list[Change] = []
        end_s = _NEVER_S
        if outcome.outranked:
            made += verbs.lapses(view, leases, outcome.outranked, outcome.moving, outcome.told)
        if outcome.resized:
            made += verbs.resizes(view, leases, outcome)
        if outcome.chosen and leases.by_band:
            made += verbs.by_band(view, outcome, boundary.lead_s)
            end_s = min([change.term_end_s for change in made if isinstance(change, Start)])
        elif outcome.chosen:
            if leases.grid:
                terms = view.cluster.terms
                end_s = first_term_end_s(view.now_s, LeaseKind.BE, terms, boundary.lead_s)
            made += verbs.starts(view.cluster, outcome, LeaseKind.BE, end_s)
        if boundary.ending:
            leaving, resized = outcome.outranked, outcome.resized
            going_on = [key for key in boundary.ending if key not in leaving and key not in resized]
            renewed = verbs.renewals(view, going_on, boundary.lead_s)
            made += renewed
            end_s = min([end_s, *{renewal.term_end_s for renewal in renewed}])
        return made, end_s

    def _contest(
        self,
        view: View,
        lineup: Lineup,
        placement: Placement,
        now_s: float | None,
        keys: Collection[AttemptKey],
        *,
        at_once: bool = False,
    ) -> Contest | Counts:
        """An allocator that may preempt any attempt whose term is decided by `now_s` (None: any
        attempt), apart from the guarded ones among `keys`.
        """
        allocator = Counts if placement.counts_only else Contest
        by_s = self.judged_s(view)
        safe = protected(view.cluster, self.leases.guards, keys, by_s)
        fixed = pinned(view.cluster, now_s, safe)
        return allocator(view.cluster, lineup, placement, fixed, at_once=at_once)


class AtBoundary(KeepsRunning):
    """A running job may be preempted at the end of its term."""

    preempts = True

    def contest(
        self, view: View, lineup: Lineup, placement: Placement, keys: Collection[AttemptKey]
    ) -> Contest | Counts | None:
        return self._contest(view, lineup, placement, view.now_s, keys) if keys else None


class AtOnce(KeepsRunning):
    """A running job may be preempted at any event. It saves first, and its GPUs are free when it
    has left. Terms are still renewed at boundaries.
    """

    preempts = True

    def boundary(self, view: View) -> Boundary:
        """The same; while a job waits, the next decision is at the latest when a guard ends."""
        found = super().boundary(view)
        if not view.cluster.waiting.count:
            return found
        old_s = next_min_run_end_s(view.cluster, self.leases.guards, view.now_s)
        return found._replace(next_s=min(found.next_s, old_s))

    def judged_s(self, view: View) -> float | None:
        return view.now_s

    def contest(
        self, view: View, lineup: Lineup, placement: Placement, keys: Collection[AttemptKey]
    ) -> Contest | Counts | None:
        return self._contest(view, lineup, placement, None, view.cluster.attempts)


class AtAnyTime(KeepsRunning):
    """A job that runs may be preempted at any event, at no cost: simulations only."""

    preempts = True

    def contest(
        self, view: View, lineup: Lineup, placement: Placement, keys: Collection[AttemptKey]
    ) -> Contest | Counts | None:
        running = view.cluster.attempts
        return self._contest(view, lineup, placement, None, running, at_once=True)


class EveryTermEnds(KeepsRunning):
    """All terms end now: for the question what would be decided then."""

    def __init__(self, transit: KeepsRunning) -> None:
        super().__init__(transit.leases)
        self.preempts = transit.preempts
        self.at_once = False
        self._transit = transit

    def judged_s(self, view: View) -> float | None:
        return self._transit.judged_s(view)

    def contest(
        self, view: View, lineup: Lineup, placement: Placement, keys: Collection[AttemptKey]
    ) -> Contest | Counts | None:
        return self._contest(view, lineup, placement, None, keys)


def transit(leases: LeaseRules) -> KeepsRunning:
    """The transit stage for these rules."""
    return _SLOTS[leases.taking](leases)


_SLOTS: Mapping[Taking, type[KeepsRunning]] = MappingProxyType(
    {
        Taking.NEVER: KeepsRunning,
        Taking.BOUNDARY: AtBoundary,
        Taking.AT_ONCE: AtOnce,
        Taking.FREE: AtAnyTime,
    }
)
