"""When waiting jobs would be done on the cluster's own nodes: a list schedule by numbers of GPUs.

The first in line takes the free GPUs first, all that it asks for at once. A job that may have more
takes the number with the earliest end, as if it could not grow later. Fragments, types and nodes
are not looked at, and nobody passes: it is an estimate for whether to rent, not a plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush, heapreplace
from math import inf
from typing import NamedTuple


class InLine(NamedTuple):
    """A job that waits, in the order of the line. `lasts_s`: on the GPUs that it asks for; `more`:
    the larger numbers of them that it may have instead, rising, and how long it lasts on those."""

    job: int
    gpus: int
    lasts_s: float
    more: tuple[tuple[int, float], ...] = ()


def own_ends(
    now_s: float,
    free: int,
    running: Sequence[tuple[float, int]],
    line: Sequence[InLine],
    widest: int = 0,
) -> dict[int, float]:
    """By job, when it is done; inf: it is wider than all own GPUs together.

    `free`: own GPUs that nobody holds; `running`: when so many more are expected to be free (inf:
    never); `widest`: the most of one node, beyond which nobody is given more than it asks for.
    O((running + line) log)."""
    heap = [(max(end_s, now_s), gpus) for end_s, gpus in running]
    heap.append((now_s, free))
    heap.sort()
    total = free + sum(gpus for _, gpus in running)
    ends: dict[int, float] = {}
    for job, wants, lasts_s, more in line:
        if wants > total:
            ends[job] = inf
            continue
        if more:
            sizes = [(wants, lasts_s), *(size for size in more if size[0] <= widest)]
            wants, lasts_s = _soonest(heap, sizes)
        begin_s, have = heap[0]
        while have < wants:
            heappop(heap)
            begin_s, gpus = heap[0]  # none is before another that was taken
            have += gpus
        if have > wants:
            heap[0] = (begin_s, have - wants)  # still the first of all
            heappush(heap, (begin_s + lasts_s, wants))
        else:
            heapreplace(heap, (begin_s + lasts_s, wants))
        ends[job] = begin_s + lasts_s
    return ends


def _soonest(
    heap: list[tuple[float, int]], sizes: Sequence[tuple[int, float]]
) -> tuple[int, float]:
    """Of numbers of GPUs, rising, that with which a job is done first; the fewest of those."""
    taken: list[tuple[float, int]] = []
    have, best, best_s = 0, sizes[0], inf
    for gpus, lasts_s in sizes:
        while have < gpus and heap:
            taken.append(heappop(heap))
            have += taken[-1][1]
        if have >= gpus and taken[-1][0] + lasts_s < best_s:
            best, best_s = (gpus, lasts_s), taken[-1][0] + lasts_s
    for one in taken:
        heappush(heap, one)
    return best
