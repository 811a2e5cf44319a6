"""When waiting jobs would be done on the cluster's own nodes: a list schedule by numbers of GPUs.

Who stands first takes the GPUs that are free first, all that it asks for at once. Fragments, types and nodes are not
looked at, and nobody passes: it is an estimate for whether to rent, not a plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from math import inf
from typing import NamedTuple


class InLine(NamedTuple):
    """A job that waits, in the order of the line. `lasts_s`: on the GPUs that it asks for."""

    job: int
    gpus: int
    lasts_s: float


def own_ends(
    now_s: float, free: int, running: Sequence[tuple[float, int]], line: Sequence[InLine]
) -> dict[int, float]:
    """By job, when it is done; inf: it is wider than all own GPUs together.

    `free`: own GPUs that nobody holds; `running`: when so many more are expected to be free (inf: never).
    O((running + line) log)."""
    heap = [(max(end_s, now_s), gpus) for end_s, gpus in running]
    heap.append((now_s, free))
    heap.sort()
    total = free + sum(gpus for _, gpus in running)
    ends: dict[int, float] = {}
    for job, wants, lasts_s in line:
        if wants > total:
            ends[job] = inf
            continue
        begin_s, have = now_s, 0
        while have < wants:
            begin_s, gpus = heappop(heap)  # none is before another that was taken
            have += gpus
        if have > wants:
            heappush(heap, (begin_s, have - wants))
        ends[job] = end_s = begin_s + lasts_s
        heappush(heap, (end_s, wants))
    return ends
