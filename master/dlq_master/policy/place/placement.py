"""The place stage: the interface of every choice of GPUs, and the slot of a policy."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from dlq_master.model.nodes.free_gpus import Parts, Pool
from dlq_master.model.resources import Shape
from dlq_master.policy.place.packing.class_packing import PackedClasses, pack
from dlq_master.policy.place.packing.joint import Arrangement, Joint

Find = Callable[[Pool, Shape], Parts | None]
Arrange = Callable[[Joint], Arrangement]


class Placement(NamedTuple):
    """`find` names GPUs of the pool that make up the shape, or None. It never changes the pool.

    `counts_only`: any GPUs will do, even for a request with an explicit number of nodes. `splits`:
    any GPUs will do for a request without one. `balances`: a program chooses where `find` has found
    that the job fits (`place.ilp`). `room`: the GPUs of which a shape takes room, where that is
    more than it gets; None: just those. `repacks`: where `find` has nothing, all that start in the
    plan are packed anew to make room. `pack`: the function for that. `arranges`: places the small
    jobs that start in one plan as a whole (`whole.batch`). `groups`: own and lent servers, bases
    and what can be given away are kept apart (`allocation.grouped`). `packs`: it wants to be told
    which jobs to keep together (`Shape.together`). `tightest`: a job that fits on one node gets the
    lowest GPUs of the tightest such node, the first of equals.
    """

    name: str
    find: Find
    counts_only: bool = False
    splits: bool = False
    packs: bool = False
    balances: bool = False
    room: Callable[[Pool, Shape], int] | None = None
    repacks: bool = False
    pack: Callable[[Joint], PackedClasses] = pack
    arranges: Arrange | None = None
    groups: bool = False
    tightest: bool = False

    def any_gpus(self, shape: Shape) -> bool:
        """Whether this shape fits exactly when enough GPUs are left, wherever they are."""
        if shape.avoid or shape.traits:
            return False
        splits = self.splits or shape.together is False
        return self.counts_only or (splits and shape.nodes is None)

    @property
    def solves(self) -> bool:
        """Whether integer programs may be solved for it: scipy is needed then."""
        return self.balances or self.repacks or self.arranges is not None


class PlaceStage(NamedTuple):
    """How GPUs are found. `blocking`: no job passes the first one that does not start."""

    placement: Placement
    blocking: bool = False
