"""As few nodes as this width could ever need, each as full as possible (best fit)."""

from __future__ import annotations

from functools import wraps
from itertools import islice

from dlq_master.model.nodes.free_gpus import Part, Parts, Pool, lowest, make_part
from dlq_master.model.resources import Shape
from dlq_master.policy.place.placement import Find, Placement


def unless_exact(find: Find) -> Find:
    """A `find` that honours an explicit number of nodes. All other shapes are left to the given
    one, and only with a pool of GPUs enough, all of which the shape may have. Shapes over several
    nodes get no suspected straggler, if they fit without.
    """

    @wraps(find)
    def found(pool: Pool, shape: Shape) -> Parts | None:
        gpus, nodes, avoid, traits = shape.gpus, shape.nodes, shape.avoid, shape.traits
        if avoid or traits:
            pool = pool.seen_by(shape)
        if pool.traits.doubted and is_gang(pool, shape):
            sound = pool.undoubted()
            if nodes is not None:
                parts = _same_on_each(sound, gpus // nodes, nodes)
            else:
                parts = find(sound, shape) if sound.total >= gpus else None
            if parts is not None:
                return parts
        if nodes is not None:
            return _same_on_each(pool, gpus // nodes, nodes)
        return find(pool, shape) if pool.total >= gpus else None

    return found


def is_gang(pool: Pool, shape: Shape) -> bool:
    """Whether it takes several nodes of the pool: its slowest one slows it down then."""
    if shape.nodes is not None:
        return shape.nodes > 1
    return bool(pool.widths) and shape.gpus > pool.widths[0][0]


def _same_on_each(pool: Pool, gpus_per_node: int, nodes: int) -> Parts | None:
    """The tightest nodes that fit, lowest first."""
    chosen = list(islice(pool.nodes_with(gpus_per_node), nodes))
    if len(chosen) < nodes:
        return None
    masks = pool.masks
    return tuple(Part(node, lowest(masks[node], gpus_per_node)) for node in sorted(chosen))


def keeping_together(placement: Placement) -> Placement:
    """Any placement, but jobs that must not be spread get as few nodes as their width could ever
    need, or wait. Promises are made at full speed, and plans count on nodes that are filled whole
    (`reserved.defragmentation`).
    """

    def find_together(pool: Pool, shape: Shape) -> Parts | None:
        return find(pool, shape) if shape.together else placement.find(pool, shape)

    return placement._replace(find=find_together)


@unless_exact
def find(pool: Pool, shape: Shape) -> Parts | None:
    """None also when the GPUs are there, but on more nodes than the width needs: it waits."""
    return few_nodes(pool, shape.gpus)


@unless_exact
def fewest_now(pool: Pool, shape: Shape) -> Parts | None:
    """As few nodes as can be had at this instant: None only when the GPUs are not there."""
    return _on_one(pool, shape.gpus) or _over_several(pool, shape.gpus, len(pool.masks))


def few_nodes(pool: Pool, gpus: int) -> Parts | None:
    """`find` among GPUs that may all be had, and are enough."""
    if gpus <= pool.widths[0][0]:  # the largest node could hold it
        return _on_one(pool, gpus)
    return _over_several(pool, gpus, pool.fewest_nodes(gpus))


def _on_one(pool: Pool, gpus: int) -> Parts | None:
    """The tightest node that holds them."""
    for bucket in pool.buckets[gpus:]:
        if bucket:
            node = (bucket & -bucket).bit_length() - 1
            return (make_part((node, lowest(pool.masks[node], gpus))),)
    return None


def _over_several(pool: Pool, gpus: int, fewest: int) -> Parts | None:
    """The emptiest nodes whole, the rest on the tightest node that holds it."""
    parts: list[Part] = []
    used = 0
    for nodes_left in range(fewest, 0, -1):
        if gpus < len(pool.buckets):
            node = _tightest(pool, gpus, used)
            if node >= 0:
                parts.append(make_part((node, lowest(pool.masks[node], gpus))))
                return tuple(sorted(parts))
        size, node = _emptiest(pool, used)
        if size * nodes_left < gpus:  # and no other node has more
            return None
        parts.append(make_part((node, pool.masks[node])))
        used |= 1 << node
        gpus -= size
    return None


def _tightest(pool: Pool, gpus: int, used: int) -> int:
    for bucket in pool.buckets[gpus:]:
        left = bucket & ~used
        if left:
            return (left & -left).bit_length() - 1
    return -1


def _emptiest(pool: Pool, used: int) -> tuple[int, int]:
    """How many GPUs it has left, and the node."""
    for size in range(len(pool.buckets) - 1, 0, -1):
        left = pool.buckets[size] & ~used
        if left:
            return size, (left & -left).bit_length() - 1
    return 0, -1


CONSOLIDATE = Placement("consolidate", find, tightest=True)
