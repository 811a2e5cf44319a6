"""The pace of a job on many nodes, from trials on one and on two (Chronus, section 3.2.2)."""

from __future__ import annotations

from math import log2


def on_nodes(one_s: float, two_s: float, nodes: int) -> float:
    """t_n = t_1 + log2(n) (t_2 - t_1): seconds on `nodes` nodes of what takes so long on one and on
    two.

    Computing takes the same time on every node, exchanging what was computed a step for each
    doubling. ValueError if there are no nodes, or a time is not positive.
    """
    if nodes < 1 or one_s <= 0.0 or two_s <= 0.0:
        raise ValueError(f"no pace: {one_s:g} s on one node, {two_s:g} s on two, {nodes} nodes")
    return max(one_s, one_s + log2(nodes) * (two_s - one_s))
