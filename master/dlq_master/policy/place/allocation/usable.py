"""The GPUs of a leaving job that may be given to others."""

from __future__ import annotations

from collections.abc import Mapping

from dlq_master.model.nodes.capacity import Capacity
from dlq_master.model.nodes.free_gpus import Parts, make_part


def usable(capacity: Capacity, split: Mapping[str, Parts]) -> list[tuple[str, Parts]]:
    """GPUs by type without those of closed nodes and those that are withheld."""
    found = []
    for gpu_type, parts in split.items():
        opened = capacity.open[gpu_type].masks
        for ordinal, mask in parts:
            if mask & ~opened[ordinal]:
                rest = [make_part((node, held & opened[node])) for node, held in parts]
                parts = tuple([part for part in rest if part.mask])
                break
        if parts:
            found.append((gpu_type, parts))
    return found
