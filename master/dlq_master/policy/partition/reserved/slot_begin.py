"""Before the walk: the holders of the present slot, the jobs that make way for them, and the jobs
without another waiting for them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.model.order.lineup import Lineup
from dlq_master.model.order.running import RunningByKey, RunningIndex
from dlq_master.model.view import View
from dlq_master.policy.partition.borrowing import BorrowingWords
from dlq_master.policy.partition.quota_units import QuotaUnit
from dlq_master.policy.partition.quotas import QueueFloor
from dlq_master.policy.partition.reserved.defragmentation import movers
from dlq_master.policy.partition.reserved.placed_anew import placed_anew
from dlq_master.policy.partition.reserved.slot_holders import (
    SlotContest,
    SlotHolder,
    SlotSpace,
    ends_now,
    holding,
    leave,
    leave_behind,
    make_room,
    pinned_too,
    reserved_now,
    seats,
)
from dlq_master.policy.partition.reserved.trials import first_trial, kept_nodes, serve_all
from dlq_master.policy.partition.yielding import yielding
from dlq_master.policy.place.allocation.pinned import pinned
from dlq_master.policy.place.placement import Placement
from dlq_master.policy.promise.capacity.grids import home_type, type_of
from dlq_master.policy.promise.capacity.rules import Promises
from dlq_master.policy.promise.verdicts.reading import can_pause, margin, overruns
from dlq_master.policy.transit.guards import Guards, protected
from dlq_master.policy.trial.rules import TrialRules

if TYPE_CHECKING:
    from dlq_master.policy.transit.kept_gpus import Claim


class ServedFirst(NamedTuple):
    """`going`: jobs that stop for another, to go on elsewhere in the same slot. `fixed`: jobs that
    stay in place, since the slot is their own. `waiting`: jobs that are to be placed. `profiling`:
    None: nobody is tried. `protected`: jobs that then stay in place, whatever the order.
    `yielding`: jobs that leave for a better job of their own team, which does not stand in line
    yet. `overdue`: jobs whose slot is over, and their reservation too. `anew`: best-effort jobs
    that stop to be placed elsewhere, and what that gains. `floor`: GPUs that stay free for a queue,
    or None. `kept`: gangs that a node has failed, and their other GPUs. Slot holders wait for their
    GPUs, and no other job does.
    """

    going: Mapping[AttemptKey, JobId]
    fixed: Sequence[JobId]
    waiting: Sequence[SlotHolder]
    profiling: TrialRules | None
    protected: Collection[JobId] = ()
    yielding: Mapping[AttemptKey, JobId] = MappingProxyType({})
    overdue: Collection[JobId] = ()
    anew: Mapping[AttemptKey, str] = MappingProxyType({})
    floor: QueueFloor | None = None
    kept: Sequence[Claim] = ()

    def allocator(
        self, view: View, lineup: Lineup, placement: Placement, keys: Collection[AttemptKey]
    ) -> SlotSpace | SlotContest:
        """The allocator for all other jobs; `keys`: the attempts whose terms end."""
        cluster = view.cluster
        allocator: SlotSpace | SlotContest
        if keys:
            fixed = pinned_too(cluster.running.places, pinned(cluster, view.now_s), self.fixed)
            allocator = SlotContest(cluster, lineup, placement, fixed, at_once=False)
        else:
            allocator = SlotSpace(cluster, lineup, placement)
        self.serve(allocator)
        return allocator

    def serve(self, allocator: SlotSpace | SlotContest) -> None:
        """All of them, before the walk."""
        if isinstance(allocator, SlotContest):
            leave(allocator, self.going)
            make_room(allocator, self.yielding)
            leave(allocator, {key: key.job_id for key in self.anew})
            allocator.outcome.told.update({key.job_id: told for key, told in self.anew.items()})
        if allocator.cluster.seated:
            leave_behind(allocator, () if self.waiting else self.overdue)
        if self.floor is None:
            if self.waiting or self.profiling is not None:
                serve_all(allocator, self.waiting, self.profiling)
        else:
            from dlq_master.policy.partition.reserved.queue_floor import serve_beside_floor

            serve_beside_floor(allocator, self.waiting, self.profiling, self.floor)
        if isinstance(allocator, SlotContest) and self.protected:
            allocator.guard(self.protected)
        if self.kept:
            from dlq_master.policy.transit.kept_gpus import withhold

            withhold(allocator, self.kept)


class SlotRules(NamedTuple):
    """`profiling`: None: no GPUs are for trials. `words`: on teams; None: there are none.
    `anew`: the placement by which running best-effort work is placed anew; None: it stays.
    """

    promises: Promises
    profiling: TrialRules | None
    guards: Guards
    words: BorrowingWords | None = None
    anew: Placement | None = None
    unit: QuotaUnit = QuotaUnit.GPUS  # of those words
    floor: QueueFloor | None = None  # GPUs that stay free for a queue


def seating_of(
    view: View,
    rules: SlotRules,
    ending: Collection[AttemptKey],
    running: RunningIndex | RunningByKey,
) -> ServedFirst:
    """The jobs to be served first, and the jobs that leave for that, of those whose terms end
    (`ending`). `running`: how those who run stand.
    """
    cluster = view.cluster
    late = _overdue(view, rules.promises)
    if not ending:
        held, waiting = holding(cluster), seats(cluster)
        first = ServedFirst({}, held, waiting, rules.profiling, overdue=late, floor=rules.floor)
        return first._replace(kept=_kept(view)) if cluster.keeping else first
    going = evacuated(cluster, ending)
    going |= {
        key: job_id for key, job_id in _movers(view, rules, ending).items() if key not in going
    }
    moving = {key.job_id for key in going}
    stay = [job_id for job_id in holding(cluster) if job_id not in moving]
    safe = protected(cluster, rules.guards, ending)
    left = {}
    if rules.words is not None:
        left = yielding(cluster, running, rules.words, ending, {*safe, *going}, rules.unit)
    fixed = [*stay, *moving, *[key.job_id for key in left]]
    waiting = seats(cluster, moving)
    anew = {}
    if not waiting:  # else holders of the slot choose first
        others = [key for key in ending if key not in going and key not in left]
        anew = moved_anew(cluster, rules, others)
        fixed += [key.job_id for key in anew]
    first = ServedFirst(
        going, fixed, waiting, rules.profiling, safe.values(), left, late, anew, rules.floor
    )
    return first._replace(kept=_kept(view)) if cluster.keeping else first


def _kept(view: View) -> Sequence[Claim]:
    """GPUs that no job gets by the order."""
    from dlq_master.policy.transit.kept_gpus import claims

    return claims(view)


def moved_anew(
    cluster: Cluster, rules: SlotRules, ending: Collection[AttemptKey]
) -> dict[AttemptKey, str]:
    """Best-effort attempts that stop to be placed elsewhere, if the rules allow that."""
    return {} if rules.anew is None else placed_anew(cluster, rules.anew, ending)


def _overdue(view: View, rules: Promises) -> list[JobId]:
    """Jobs that were to have ended when their slot did, and have used up their reservation."""
    cluster = view.cluster
    jobs = [cluster.jobs[job_id] for job_id in holding(cluster)]
    ending = [job for job in jobs if ends_now(cluster, job)]
    if not ending:
        return []
    extra = margin(cluster, rules)
    return [job.job_id for job in ending if overruns(view, job, extra)]


def _movers(
    view: View, rules: SlotRules, ending: Collection[AttemptKey]
) -> dict[AttemptKey, JobId]:
    """The jobs that hold the present slot elsewhere from here on, so that all find room."""
    cluster = view.cluster
    kept = 0 if rules.profiling is None else kept_nodes(cluster, rules.profiling)
    home, trial = home_type(cluster), first_trial(cluster)
    by_type: dict[str, list[SlotHolder]] = {home: []} if kept and trial is not None else {}
    for seat in seats(cluster):
        by_type.setdefault(type_of(cluster, cluster.jobs[seat.job_id]), []).append(seat)

    def may_move(job_id: JobId) -> bool:
        return can_pause(view, cluster.jobs[job_id], rules.promises)

    found: dict[AttemptKey, JobId] = {}
    for gpu_type, waiting in by_type.items():
        nodes = kept if gpu_type == home else 0
        found.update(movers(cluster, gpu_type, waiting, frozenset(ending), may_move, nodes, trial))
    return found


def evacuated(cluster: Cluster, ending: Collection[AttemptKey]) -> dict[AttemptKey, JobId]:
    """Of the jobs whose slot it is and whose terms end, those on reserved nodes: each goes for its
    own sake.

    The plan counts no reserved node in a slot that meets the reservation, so there is room
    elsewhere. A job that went only when the reservation begins would lose a pause that its plan
    lacks. The GPUs elsewhere would be others' until their terms end.
    """
    seated = holding(cluster) if ending else []
    away = reserved_now(cluster) if seated else frozenset()
    found: dict[AttemptKey, JobId] = {}
    for job_id in seated if away else ():
        attempt = cluster.live_attempt(cluster.jobs[job_id])
        if attempt is None or attempt.key not in ending:
            continue
        if not away.isdisjoint(attempt.lease.allocation.node_ids):
            found[attempt.key] = job_id
    return found
