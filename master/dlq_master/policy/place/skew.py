"""Tiresias' profile-based placement (3.3.2): sensitive jobs on few nodes, the others on leftovers."""

from __future__ import annotations

from dlq_master.model.pool import Parts, Pool, lowest, make_part
from dlq_master.model.resources import Shape
from dlq_master.policy.place import consolidate, spread
from dlq_master.policy.place.placement import Placement


def attempt(pool: Pool, shape: Shape) -> Parts | None:
    """A sensitive job gets as few nodes as can be had now, be they more than its width needs.

    The paper's words: it "attempts to consolidate the job in as few machines as possible", and its
    Pseudocode 2 runs whoever finds GPUs enough: nobody waits to be consolidated.
    """
    if shape.together is False:
        return _fill(pool, shape)
    return consolidate.fewest_now(pool, shape)


def insist(pool: Pool, shape: Shape) -> Parts | None:
    """A sensitive job gets as few nodes as its width could ever need, or waits."""
    if shape.together:
        return consolidate.find(pool, shape)
    return attempt(pool, shape)


def _fill(pool: Pool, shape: Shape) -> Parts | None:
    """Where it leaves the least behind: the whole rest of one node, else the smallest leftovers."""
    if shape.avoid or shape.traits:
        pool = pool.allowed(shape)
    exact = pool.buckets[shape.gpus] if shape.gpus < len(pool.buckets) else 0
    if exact:
        node = (exact & -exact).bit_length() - 1
        return (make_part((node, lowest(pool.masks[node], shape.gpus))),)
    return spread.find(pool, shape._replace(avoid=(), traits=None))


SKEW = Placement("skew", attempt, packs=True)
SKEW_WAIT = Placement("skew", insist, packs=True)
