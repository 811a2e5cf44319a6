"""Tiresias' profile-based placement (3.3.2): sensitive jobs on few nodes, the others on fragments.

A job is sensitive or not by its `Shape.together`, which `policy.sensitivity` decides. The open
points of the paper, and the choices here:

- "Tiresias attempts to consolidate the job in as few machines as possible": literally (`pack=try`).
  Pseudocode 2 runs every job that finds enough GPUs, and no job waits to be consolidated. But then
  a sensitive job that comes to a full cluster runs slowly for as long as it runs. By default it
  waits (`pack=wait`), as under `consolidate`.
- "For the rest, Tiresias allocates GPUs in machines to decrease fragmentation": a job that fits
  together now does so where it fits tightest. It breaks into the smallest leftovers only where it
  would wait otherwise. To take leftovers always leaves new ones on many nodes when it ends.
- A job that was not profiled yet is sensitive: that costs it a wait, the other error its speed.
With `pack=known` only a job that is known to suffer waits. An unknown job gets as few nodes as
possible now.
"""

from __future__ import annotations

from enum import StrEnum

from dlq_master.model.nodes.free_gpus import Parts, Pool
from dlq_master.model.resources import Shape
from dlq_master.policy.place import consolidate, spread
from dlq_master.policy.place.consolidate import unless_exact
from dlq_master.policy.place.placement import Placement


@unless_exact
def insist(pool: Pool, shape: Shape) -> Parts | None:
    """A sensitive job gets as few nodes as its width could ever need, or waits."""
    found = consolidate.few_nodes(pool, shape.gpus)
    return spread.leftovers(pool, shape.gpus) if found is None and not shape.together else found


def attempt(pool: Pool, shape: Shape) -> Parts | None:
    """A sensitive job gets as few nodes as can be had now."""
    return consolidate.fewest_now(pool, shape) if shape.together else insist(pool, shape)


def insist_where_known(pool: Pool, shape: Shape) -> Parts | None:
    """A job that is known to suffer waits; an unknown one gets as few nodes as possible now."""
    return (
        insist(pool, shape) if shape.together is not None else consolidate.fewest_now(pool, shape)
    )


class Pack(StrEnum):
    """The choice for a job that must not be spread where there is no room for it on few nodes."""

    WAIT = "wait"
    TRY = "try"
    KNOWN = "known"


_FINDS = {Pack.WAIT: insist, Pack.TRY: attempt, Pack.KNOWN: insist_where_known}
SKEW = Placement("skew", insist, packs=True, tightest=True)
SKEW_GROUPS = Placement("skew-groups", insist, packs=True, groups=True, tightest=True)


def packing(placement: Placement, pack: Pack) -> Placement:
    """The same with this choice, if it is one that asks whom to keep together."""
    return placement._replace(find=_FINDS[pack]) if placement.packs else placement
