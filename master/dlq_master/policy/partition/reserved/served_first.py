"""The jobs served before the order: the slots of the present plan, then trials."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.model.order.lineup import Lineup
from dlq_master.model.view import View
from dlq_master.policy.partition.reserved.slot_holders import (
    SlotContest,
    SlotHolder,
    SlotSpace,
    leave,
    leave_behind,
    make_room,
    pinned_too,
)
from dlq_master.policy.partition.reserved.trials import serve_all
from dlq_master.policy.place.allocation.pinned import pinned
from dlq_master.policy.place.placement import Placement
from dlq_master.policy.trial.rules import TrialRules


class ServedFirst(NamedTuple):
    """`going`: jobs that stop for another, to go on elsewhere in the same slot. `fixed`: jobs that
    stay in place, since the slot is their own. `waiting`: jobs that are to be placed. `profiling`:
    None: nobody is tried. `protected`: jobs that then stay in place, whatever the order.
    `yielding`: jobs that leave for a better job of their own team, which does not stand in line
    yet. `overdue`: jobs whose slot is over, and their reservation too. Slot holders wait for their
    GPUs, and no other job does.
    """

    going: Mapping[AttemptKey, JobId]
    fixed: Sequence[JobId]
    waiting: Sequence[SlotHolder]
    profiling: TrialRules | None
    protected: Collection[JobId] = ()
    yielding: Mapping[AttemptKey, JobId] = MappingProxyType({})
    overdue: Collection[JobId] = ()

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
        leave_behind(allocator, () if self.waiting else self.overdue)
        serve_all(allocator, self.waiting, self.profiling)
        if isinstance(allocator, SlotContest) and self.protected:
            allocator.guard(self.protected)
