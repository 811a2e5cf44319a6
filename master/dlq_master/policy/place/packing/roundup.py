"""Chronus' RoundUp (section 3.4.1): widths that leave nothing between them on a node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from itertools import pairwise

from dlq_master.model.nodes.free_gpus import Pool


def round_up(gpus: int, node_gpus: int = 8) -> int:
    """The next of 1, 2, 4, ... below a node's GPUs, or else whole nodes: {1, 2, 4, 8n} for 8.

    Raises ValueError unless both are positive.
    """
    if gpus < 1 or node_gpus < 1:
        raise ValueError(f"neither a width nor a node has less than 1 GPU: {gpus}, {node_gpus}")
    power = 1 << (gpus - 1).bit_length()
    return power if power < node_gpus else -(-gpus // node_gpus) * node_gpus


def tightest_block(offers: Iterable[int], gpus: int) -> int | None:
    """Of nodes with so many GPUs left the number whose smallest block that holds `gpus`, a power of
    two, is the smallest; None: there is none.

    The rest of a node is blocks as its number is powers of two: 6 = 4 + 2. Taking the smallest
    costs no size of blocks more than any other choice. So jobs of such widths fit in any order if
    they fit at all.
    """
    room = [left for left in offers if left >= gpus]
    return min(room, key=lambda left: (_block(left, gpus), left), default=None)


def halves(pool: Pool) -> int | None:
    """The GPUs of every node of the pool, if all have the same number and it is a power of two."""
    size = pool.fullest[0] if pool.fullest else 0
    alike = bool(size) and pool.fullest[-1] == size * len(pool.fullest)
    return size if alike and not size & (size - 1) else None


def block_of(pool: Pool) -> int:
    """The power of two that the nodes with most of the pool's GPUs hold whole: 8 of 8, 4 of 6."""
    return _block_of(pool.fullest)


@lru_cache(maxsize=64)
def _block_of(fullest: tuple[int, ...]) -> int:
    sizes = Counter(a - b for a, b in pairwise((0, *fullest)))
    size = -min(sizes, key=lambda gpus: (gpus * sizes[gpus], gpus), default=-1)
    return 1 << (size.bit_length() - 1)


def _block(left: int, gpus: int) -> int:
    blocks = left & -gpus  # no block below `gpus`
    return blocks & -blocks
