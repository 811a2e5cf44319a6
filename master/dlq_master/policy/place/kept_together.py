"""Any placement, but jobs that must not be spread get as few nodes as their width could ever need,
or wait.
"""

from __future__ import annotations

from dlq_master.model.nodes.free_gpus import Parts, Pool
from dlq_master.model.resources import Shape
from dlq_master.policy.place import consolidate
from dlq_master.policy.place.placement import Placement


def keeping_together(placement: Placement) -> Placement:
    """The same for everybody else. Promises are made at full speed, and plans count on nodes that
    are filled whole (`reserved.defragmentation`).
    """

    def find(pool: Pool, shape: Shape) -> Parts | None:
        if shape.together:
            return consolidate.find(pool, shape)
        return placement.find(pool, shape)

    return placement._replace(find=find)
