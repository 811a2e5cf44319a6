"""GPUs of several types at once, for jobs that take such (Aryl, section 5.3: heterogeneous jobs
come last).
"""

from __future__ import annotations

from collections.abc import Sequence

from dlq_master.model.nodes.free_gpus import Pool


def all_types(pools: Sequence[Pool]) -> Pool:
    """These pools, each of one type, as one; of a node with several types only the first."""
    masks = pools[0].masks
    for pool in pools[1:]:
        masks = [first or other for first, other in zip(masks, pool.masks, strict=True)]
    joined = Pool([mask.bit_count() for mask in masks], pools[0].node_ids, pools[0].traits)
    for ordinal, mask in enumerate(masks):
        joined.set(ordinal, mask)
    return joined
