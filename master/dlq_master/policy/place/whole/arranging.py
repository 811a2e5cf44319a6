"""`place=local-search` and `place=pattern`: small jobs that start together are placed as a whole.

`local-search` is Chronus' placement of best-effort jobs (section 3.4.2). A job of two nodes' GPUs
or more is rounded up and gets whole nodes, or waits. A smaller one starts wherever GPUs are left.
The GPUs of all of these are chosen when the starting jobs are known. Work that runs stays where it
is.

`pattern` finds the best such placement, without the paper's two costly rules. Nothing is rounded
up, and a job that would suffer from being spread waits for room, as under `skew`. Whether there is
room is decided exactly, by packing those that start anew.
"""

from __future__ import annotations

from dlq_master.model.nodes.free_gpus import Parts, Pool
from dlq_master.model.resources import Shape
from dlq_master.policy.place import consolidate, halving, skew
from dlq_master.policy.place.packing.joint import SPACE, Arrangement, Joint
from dlq_master.policy.place.placement import Placement


def find(pool: Pool, shape: Shape) -> Parts | None:
    """None for a small job only if the GPUs are not there."""
    if _large(pool, shape):
        return halving.find(pool, shape)
    return consolidate.fewest_now(pool, shape)


def room(pool: Pool, shape: Shape) -> int:
    """The GPUs that it takes room of."""
    return halving.room(pool, shape) if _large(pool, shape) else shape.gpus


def local_search_within(space: int) -> Placement:
    """Algorithm 1 with this |S|."""

    def arrange(joint: Joint) -> Arrangement:
        from dlq_master.policy.place.whole.local_search import local_search

        return local_search(joint, space)

    return Placement("local-search", find, room=room, arranges=arrange)


def _best(joint: Joint) -> Arrangement:
    from dlq_master.policy.place.whole.best import best

    return best(joint)


def _large(pool: Pool, shape: Shape) -> bool:
    return shape.gpus >= 2 * (len(pool.buckets) - 1)


LOCAL_SEARCH = local_search_within(SPACE)
PATTERN = Placement("pattern", skew.insist, packs=True, repacks=True, arranges=_best)
