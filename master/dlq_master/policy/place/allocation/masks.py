"""GPUs of one type as masks by node: the kept GPUs of a job, and the further ones that it may
get.
"""

from __future__ import annotations

from bisect import bisect_right

from dlq_master.model.jobs.job import Job
from dlq_master.model.nodes.free_gpus import Part, Parts, Pool, lowest, up_to

Masks = dict[int, int]


def kept(job: Job, parts: Parts, gpus: int, *, in_order: bool = False) -> Masks:
    """The GPUs that a job keeps if it shrinks to so many: those of the nodes on which it has most,
    or the first. With an explicit number of nodes whole ones, the first.
    """
    if job.request.nodes is not None:
        each = job.request.gpus // job.request.nodes
        if all(mask.bit_count() == each for _, mask in parts):
            return dict(parts[: gpus // each])
    found: Masks = {}
    if len(parts) > 1 and not in_order:
        parts = tuple(sorted(parts, key=lambda part: (-part.mask.bit_count(), part.ordinal)))
    for node, mask in parts:
        taken = min(gpus, mask.bit_count())
        if taken:
            found[node] = lowest(mask, taken)
            gpus -= taken
    return found


def joined(job: Job, base: Masks, more: Masks, most: int) -> Masks:
    """The base and of `more` as many as make up the largest allowed size up to `most`."""
    have, spare = count(base), count(more)
    sizes = job.request.sizes
    at = bisect_right(sizes, min(most, have + spare)) - 1
    need = max(sizes[at], have) - have if at >= 0 else 0
    masks = dict(base)
    if not need:
        return masks
    whole = None
    if job.request.nodes is not None:
        whole = job.request.gpus // job.request.nodes
    for node, mask in sorted(more.items(), key=lambda item: (-item[1].bit_count(), item[0])):
        taken = min(need, mask.bit_count())
        if whole is not None and node not in base and taken < whole:
            continue
        if taken:
            masks[node] = masks.get(node, 0) | lowest(mask, taken)
            need -= taken
    return masks if not need else dict(base)


def parts_of(masks: Masks) -> Parts:
    """As parts, in the order of nodes."""
    return tuple([Part(*item) for item in sorted(masks.items())])


def count(masks: Masks) -> int:
    """How many GPUs these are."""
    return sum([mask.bit_count() for mask in masks.values()])


def merged(one: Masks, other: Masks) -> Masks:
    """The GPUs of both."""
    nodes = {**one, **other}
    return {node: one.get(node, 0) | other.get(node, 0) for node in nodes}


def without(masks: Masks, other: Masks) -> Masks:
    """The nodes that are not among the others."""
    rest = {node: mask & ~other.get(node, 0) for node, mask in masks.items()}
    return {node: mask for node, mask in rest.items() if mask}


def spared_part(part: Part, there: int, spared: Masks) -> Part:
    """As many GPUs of the same node, of those that are there."""
    node, mask = part
    gpus = mask.bit_count()
    first = there & ~spared.get(node, 0)
    taken = up_to(first, gpus)
    return Part(node, taken | lowest(there & ~first, gpus - taken.bit_count()))


def less(pool: Pool, taken: Masks) -> Pool:
    """The pool without these GPUs."""
    if not taken:
        return pool
    rest = pool.copy()
    rest.take(parts_of(taken))
    return rest
